package org.tamis.kafka.it.process;

import java.io.File;
import java.io.IOException;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributes;

/** Trees of files that other processes may change meanwhile. */
public final class Directories {
    private Directories() {}

    /** Removes a directory with all it holds; what cannot be removed stays. */
    public static void delete(Path directory) {
        File file = directory.toFile();
        File[] entries = Files.isSymbolicLink(directory) ? null : file.listFiles();
        if (entries != null) {
            for (File entry : entries) {
                delete(entry.toPath());
            }
        }
        file.delete();
    }

    /** Returns the bytes of all files below a directory; a file that disappears meanwhile counts nothing. */
    public static long bytes(Path directory) throws IOException {
        long[] sum = new long[1];
        Files.walkFileTree(directory, new SimpleFileVisitor<>() {
            @Override
            public FileVisitResult visitFile(Path file, BasicFileAttributes attributes) {
                sum[0] += attributes.size();
                return FileVisitResult.CONTINUE;
            }

            @Override
            public FileVisitResult visitFileFailed(Path file, IOException error) throws IOException {
                if (error instanceof NoSuchFileException) {
                    return FileVisitResult.CONTINUE;
                }
                throw error;
            }
        });
        return sum[0];
    }
}
