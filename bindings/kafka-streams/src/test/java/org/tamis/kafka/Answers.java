package org.tamis.kafka;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.state.KeyValueIterator;

/** What stores answer, in a form that can be compared. */
final class Answers {
    private Answers() {}

    /** The entries of an iterator in its order, which it closes. */
    static <K> List<KeyValue<K, Bytes>> of(KeyValueIterator<K, byte[]> entries) {
        List<KeyValue<K, Bytes>> all = new ArrayList<>();
        try (entries) {
            while (entries.hasNext()) {
                K peeked = entries.peekNextKey();
                KeyValue<K, byte[]> entry = entries.next();
                if (!peeked.equals(entry.key)) {
                    throw new AssertionError("peeked " + peeked + ", got " + entry.key);
                }
                all.add(KeyValue.pair(entry.key, Bytes.wrap(entry.value)));
            }
        }
        return all;
    }

    static Bytes of(byte[] value) {
        return Bytes.wrap(value);
    }

    static byte[] value(long number) {
        byte[] value = new byte[(int) (number % 7)];
        Arrays.fill(value, (byte) number);
        return value;
    }
}
