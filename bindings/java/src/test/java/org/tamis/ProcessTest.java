package org.tamis;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.tamis.Testing.b;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The native library in machines of its own, with checks of its calls: a warning is a failure. */
final class ProcessTest {
    @TempDir
    private Path directory;

    @Test
    void theMachineHasNothingToSay() throws Exception {
        Path temporary = Files.createDirectory(directory.resolve("tmp"));
        File output = directory.resolve("output").toFile();
        int status = run(output, CheckedWork.class, "-Xcheck:jni", "-Djava.io.tmpdir=" + temporary);
        String said = Files.readString(output.toPath(), UTF_8);
        assertEquals(0, status, said);
        List<String> lines = said.lines().collect(Collectors.toList());
        assertEquals(1, lines.size(), said);
        int passed = Integer.parseInt(lines.get(0).substring("passed: ".length()));
        assertTrue(passed > 80, said);
        try (Stream<Path> files = Files.list(temporary)) {
            assertEquals(List.of(), files.collect(Collectors.toList()), "the library's temporary file is left");
        }
    }

    @Test
    void aPropertySaysWhereTheLibraryIs() throws Exception {
        File output = directory.resolve("output").toFile();
        Path library = directory.resolve("nowhere.so");
        assertNotEquals(0, run(output, CheckedWork.class, "-Dtamis.library=" + library));
        String said = Files.readString(output.toPath(), UTF_8);
        assertTrue(said.contains("UnsatisfiedLinkError") && said.contains(library.toString()), said);
    }

    @Test
    void aProcessMayEndWhileThreadsAreInside() throws Exception {
        File output = directory.resolve("output").toFile();
        for (int round = 0; round < 5; round++) {
            assertEquals(0, run(output, Abandoned.class, "-Xcheck:jni"), Files.readString(output.toPath(), UTF_8));
            assertEquals("", Files.readString(output.toPath(), UTF_8));
            try (Database db = Database.open(directory.resolve("data"))) {
                assertArrayEquals(b("v"), db.get(b("first")));
                assertTrue(db.verify().contains("\"problems\":[]"));
            }
        }
    }

    /** Leaves its database open, and threads at work in it. */
    static final class Abandoned {
        private Abandoned() {}

        public static void main(String[] arguments) throws Exception {
            Database db = Database.open(Path.of(arguments[0], "data"));
            db.put(b("first"), b("v"));
            CountDownLatch running = new CountDownLatch(3);
            List<Runnable> work = List.of(
                    () -> db.put(b("k"), new byte[1000]),
                    () -> Testing.keys(db, Range.all()),
                    db::flush);
            for (Runnable call : work) {
                Thread thread = new Thread(() -> {
                    call.run();
                    running.countDown();
                    while (true) {
                        call.run();
                    }
                });
                thread.setDaemon(true);
                thread.start();
            }
            running.await();
        }
    }

    /** Runs a program in a new process, and returns its exit status. */
    private int run(File output, Class<?> program, String... options) throws Exception {
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(List.of(options));
        command.add("-cp");
        command.add(System.getProperty("surefire.test.class.path", System.getProperty("java.class.path")));
        command.add(program.getName());
        command.add(directory.toString());
        return new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(output).start().waitFor();
    }
}
