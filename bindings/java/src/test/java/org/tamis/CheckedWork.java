package org.tamis;

import static org.tamis.Testing.b;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** The program that {@link CheckedJniTest} runs: the whole script, direct buffers, and many objects and exceptions in one call. */
final class CheckedWork {
    private CheckedWork() {}

    public static void main(String[] arguments) throws IOException {
        Path directory = Path.of(arguments[0]);
        List<String> wrong = new ArrayList<>();
        int tests = 0;
        for (ConformanceScript.Test test : ConformanceScript.tests()) {
            Path own = Files.createDirectory(directory.resolve("test-" + tests++));
            wrong.addAll(ConformanceMachine.run(own, test.lines));
        }
        try (Database db = Database.open(directory.resolve("data"))) {
            ByteBuffer buffer = ByteBuffer.allocateDirect(64);
            byte[][] keys = new byte[5000][];
            for (int i = 0; i < keys.length; i++) {
                keys[i] = b("key " + i);
                buffer.clear().put(keys[i]).flip();
                db.put(buffer, buffer);
            }
            for (byte[] value : db.multiGet(keys)) {
                if (value == null) {
                    wrong.add("a value is missing");
                }
            }
            try (Cursor cursor = db.items(Range.all())) {
                while (cursor.hasNext()) {
                    buffer.clear();
                    db.get(ByteBuffer.allocateDirect(10).put(0, cursor.next().key()[0]), buffer);
                }
            }
        }
        if (!wrong.isEmpty() || Handles.open() != 0) {
            throw new AssertionError(wrong + ", " + Handles.open() + " handles are left");
        }
        System.out.println("done: " + tests + " tests");
    }
}
