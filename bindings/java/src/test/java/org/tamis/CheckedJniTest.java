package org.tamis;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The native library under the Java machine's own checks of its calls: a warning is a failure. */
final class CheckedJniTest {
    @TempDir
    private Path directory;

    @Test
    void theMachineHasNothingToSay() throws Exception {
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        String classes = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
        File output = directory.resolve("output").toFile();
        Process process = new ProcessBuilder(
                        java, "-Xcheck:jni", "-cp", classes, CheckedWork.class.getName(), directory.toString())
                .redirectErrorStream(true)
                .redirectOutput(output)
                .start();
        int status = process.waitFor();
        String said = Files.readString(output.toPath(), UTF_8);
        assertEquals(0, status, said);
        List<String> lines = said.lines().filter(line -> !line.startsWith("done: ")).collect(Collectors.toList());
        assertEquals(List.of(), lines, said);
        assertTrue(said.startsWith("done: "), said);
    }
}
