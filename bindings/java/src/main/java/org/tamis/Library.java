package org.tamis;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Locale;

/**
 * Finds the native library: at the path that the system property {@code tamis.library} has, or packed into the jar under a directory for
 * this platform, from where it is copied to a temporary file.
 */
final class Library {
    private Library() {}

    static void load() {
        String given = System.getProperty("tamis.library");
        if (given != null) {
            System.load(Path.of(given).toAbsolutePath().toString());
            return;
        }
        String name = "native/" + platform() + "/" + System.mapLibraryName("tamis_jni");
        try (InputStream packed = Library.class.getResourceAsStream(name)) {
            if (packed == null) {
                throw new UnsatisfiedLinkError("this jar of tamis has no library for " + platform());
            }
            Path file = Files.createTempFile("tamis_jni", null);
            try {
                Files.copy(packed, file, StandardCopyOption.REPLACE_EXISTING);
                System.load(file.toString());
            } finally {
                delete(file);
            }
        } catch (IOException error) {
            throw new UncheckedLoadError("the library cannot be copied to a temporary file", error);
        }
    }

    /** Returns the platform as the build names it. */
    static String platform() {
        String os = System.getProperty("os.name").toLowerCase(Locale.ROOT);
        String family = os.startsWith("windows") ? "windows" : os.startsWith("mac") ? "mac" : os;
        return family + "-" + System.getProperty("os.arch");
    }

    /** A mapped file can be deleted; where that is not so, it is when the process ends. */
    private static void delete(Path file) {
        try {
            Files.delete(file);
        } catch (IOException inUse) {
            file.toFile().deleteOnExit();
        }
    }

    /** An {@link UnsatisfiedLinkError} with its cause. */
    private static final class UncheckedLoadError extends UnsatisfiedLinkError {
        private static final long serialVersionUID = 1L;

        UncheckedLoadError(String message, IOException cause) {
            super(message + ": " + cause.getMessage());
            initCause(cause);
        }
    }
}
