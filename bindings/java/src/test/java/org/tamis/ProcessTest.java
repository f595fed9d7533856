package org.tamis;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
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
        String name = "native/" + Library.platform() + "/" + System.mapLibraryName("tamis_jni");
        Path library = Path.of(Library.class.getResource(name).toURI());
        // Nothing can be copied there.
        String noTemporary = "-Djava.io.tmpdir=" + directory.resolve("nowhere");
        assertEquals("", said(0, noTemporary, "-Dtamis.library=" + library));
        said(1, noTemporary);
        String nowhere = directory.resolve("nowhere.so").toString();
        assertTrue(said(1, "-Dtamis.library=" + nowhere).contains("UnsatisfiedLinkError"));
        assertTrue(said(1, "-Dos.arch=pdp11").contains("this jar of tamis has no library for "));
    }

    /** Runs a program that should end with a status, and returns its output. */
    private String said(int status, String... options) throws Exception {
        File output = directory.resolve("output").toFile();
        int given = run(output, Abandoned.class, options);
        String said = Files.readString(output.toPath(), UTF_8);
        assertEquals(status, given, said);
        return said;
    }

    @Test
    void aProcessMayEndWhileThreadsAreInside() throws Exception {
        for (int round = 0; round < 5; round++) {
            assertEquals("", said(0, "-Xcheck:jni"));
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
