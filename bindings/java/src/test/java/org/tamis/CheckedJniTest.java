package org.tamis;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The native library under the Java machine's own checks of its calls: a warning is a failure. */
final class CheckedJniTest {
    @TempDir
    private Path directory;

    @Test
    void theMachineHasNothingToSay() throws Exception {
        Path temporary = Files.createDirectory(directory.resolve("tmp"));
        File output = directory.resolve("output").toFile();
        int status = run(output, "-Xcheck:jni", "-Djava.io.tmpdir=" + temporary);
        String said = Files.readString(output.toPath(), UTF_8);
        assertEquals(0, status, said);
        List<String> lines = said.lines().filter(line -> !line.startsWith("done: ")).collect(Collectors.toList());
        assertEquals(List.of(), lines, said);
        assertTrue(said.startsWith("done: "), said);
        try (Stream<Path> files = Files.list(temporary)) {
            assertEquals(List.of(), files.collect(Collectors.toList()), "the library's temporary file is left");
        }
    }

    @Test
    void aPropertySaysWhereTheLibraryIs() throws Exception {
        File output = directory.resolve("output").toFile();
        Path library = directory.resolve("nowhere.so");
        assertNotEquals(0, run(output, "-Dtamis.library=" + library));
        String said = Files.readString(output.toPath(), UTF_8);
        assertTrue(said.contains("UnsatisfiedLinkError") && said.contains(library.toString()), said);
    }

    /** Runs {@link CheckedWork} in a new process, and returns its exit status. */
    private int run(File output, String... options) throws Exception {
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(List.of(options));
        command.add("-cp");
        command.add(System.getProperty("surefire.test.class.path", System.getProperty("java.class.path")));
        command.add(CheckedWork.class.getName());
        command.add(directory.toString());
        return new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(output).start().waitFor();
    }
}
