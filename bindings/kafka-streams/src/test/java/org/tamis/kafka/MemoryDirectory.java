package org.tamis.kafka;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.extension.AnnotatedElementContext;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.io.TempDirFactory;

/** Temporary directories in memory, where the system has such: the driver of topologies commits, and so syncs files, after every record. */
public final class MemoryDirectory implements TempDirFactory {
    private static final Path MEMORY = Path.of("/dev/shm");

    @Override
    public Path createTempDirectory(AnnotatedElementContext element, ExtensionContext extension) throws IOException {
        return Files.isWritable(MEMORY) ? Files.createTempDirectory(MEMORY, "tamis") : Files.createTempDirectory("tamis");
    }
}
