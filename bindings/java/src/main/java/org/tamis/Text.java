package org.tamis;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.ByteArrayOutputStream;
import java.io.File;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** Text as it crosses the border: in UTF-8, and several texts as one array, each after its length of four bytes, little-endian. */
final class Text {
    private Text() {}

    /** Half of a pair of surrogates is no text: two names that differ in it would become one. */
    static byte[] bytes(String text) {
        try {
            ByteBuffer encoded = UTF_8.newEncoder().encode(CharBuffer.wrap(text));
            return Arrays.copyOf(encoded.array(), encoded.limit());
        } catch (CharacterCodingException halved) {
            throw TamisException.of(ErrorCode.INVALID_ARGUMENT, "a text has half of a pair of surrogates");
        }
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
