package org.tamis;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.ByteArrayOutputStream;
import java.io.File;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Text as it crosses the border: in UTF-8, and several texts as one array, each after its length of four bytes, little-endian. */
final class Text {
    private Text() {}

    static byte[] bytes(String text) {
        return text.getBytes(UTF_8);
    }

    static String of(byte[] bytes) {
        return new String(bytes, UTF_8);
    }

    /** Returns a path independent of the current directory. Only the default file system has files that the engine can open. */
    static byte[] path(Path path) {
        File file = path.toFile();
        return bytes(file.getAbsolutePath());
    }

    static byte[] packed(List<byte[]> texts) {
        ByteArrayOutputStream packed = new ByteArrayOutputStream();
        for (byte[] bytes : texts) {
            for (int shift = 0; shift < 32; shift += 8) {
                packed.write(bytes.length >>> shift);
            }
            packed.write(bytes, 0, bytes.length);
        }
        return packed.toByteArray();
    }

    static List<byte[]> unpacked(byte[] packed) {
        List<byte[]> items = new ArrayList<>();
        for (int at = 0; at < packed.length; ) {
            byte[] item = Bytes.copy(packed, at + Integer.BYTES, Bytes.getInt(packed, at));
            items.add(item);
            at += Integer.BYTES + item.length;
        }
        return items;
    }
}
