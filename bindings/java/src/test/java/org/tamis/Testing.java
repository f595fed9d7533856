package org.tamis;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.function.Executable;

/** What several tests need. */
final class Testing {
    private Testing() {}

    static byte[] b(String text) {
        return text.getBytes(UTF_8);
    }

    static String s(byte[] bytes) {
        return bytes == null ? null : new String(bytes, UTF_8);
    }

    /** Returns the keys of a range, and closes the cursor. */
    static List<String> keys(Reader reader, Range range) {
        List<String> keys = new ArrayList<>();
        try (Cursor cursor = reader.keys(range)) {
            cursor.forEachRemaining(entry -> keys.add(s(entry.key())));
        }
        return keys;
    }

    static void assertCode(ErrorCode code, Executable call) {
        TamisException error = assertThrows(TamisException.class, call);
        assertEquals(code, error.code(), error.getMessage());
    }

    /** Collects garbage until a condition holds. */
    static void collectUntil(BooleanSupplier condition) throws InterruptedException {
        for (int i = 0; i < 2000 && !condition.getAsBoolean(); i++) {
            System.gc();
            Thread.sleep(10);
        }
        assertTrue(condition.getAsBoolean(), "the garbage collector does not close what was lost");
    }
}
