package org.tamis.kafka;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;

/** What a crash leaves of stores that are open. */
final class Crashes {
    private static final AtomicInteger NUMBER = new AtomicInteger();

    private Crashes() {}

    /** Copies what is on disk now. The stores that are open go on in the old directory. */
    static Path of(Path directory) throws IOException {
        Path copy = Files.createDirectory(Path.of(directory + "-" + NUMBER.incrementAndGet()));
        try (Stream<Path> files = Files.walk(directory)) {
            for (Path file : (Iterable<Path>) files::iterator) {
                Path to = copy.resolve(directory.relativize(file));
                if (Files.isDirectory(file)) {
                    Files.createDirectories(to);
                } else {
                    Files.copy(file, to);
                }
            }
        }
        return copy;
    }
}
