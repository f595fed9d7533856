package org.tamis.kafka;

import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.TimestampedBytesStore;
import org.tamis.Range;

/** A persistent key-value store. Keys hold up to 64 KiB. */
class TamisKeyValueStore extends TamisStore implements KeyValueStore<Bytes, byte[]> {
    TamisKeyValueStore(String name) {
        super(name, Map.of());
    }

    /** A store whose values begin with their timestamp. Kafka Streams writes and reads it; the store does not. */
    static final class Timestamped extends TamisKeyValueStore implements TimestampedBytesStore {
        Timestamped(String name) {
            super(name);
        }

        @Override
        String format() {
            return "timestamped values";
        }
    }

    @Override
    void opened(StoreDatabase database) {}

    @Override
    void closing() {}

    private Table entries() {
        Table entries = storeDatabase().entries();
        return readsCommitted() ? entries.committed() : entries;
    }

    @Override
    boolean restore(ConsumerRecord<byte[], byte[]> record, Writes writes) {
        writes.put(entries(), record.key(), record.value());
        return true;
    }

    /** Part of the interface since Kafka Streams 4.4. */
    public ReadOnlyKeyValueStore<Bytes, byte[]> readOnly(IsolationLevel level) {
        return isolated(level);
    }

    @Override
    public void put(Bytes key, byte[] value) {
        Objects.requireNonNull(key, "key cannot be null");
        Table entries = entries();
        write(() -> entries.put(key.get(), value));
    }

    @Override
    public synchronized byte[] putIfAbsent(Bytes key, byte[] value) {
        byte[] before = get(key);
        if (before == null) {
            put(key, value);
        }
        return before;
    }

    @Override
    public void putAll(List<KeyValue<Bytes, byte[]>> entries) {
        Table all = entries();
        try (Writes writes = storeDatabase().writes()) {
            for (KeyValue<Bytes, byte[]> entry : entries) {
                writes.put(all, Objects.requireNonNull(entry.key, "key cannot be null").get(), entry.value);
            }
            write(writes::apply);
        }
    }

    @Override
    public synchronized byte[] delete(Bytes key) {
        byte[] before = get(key);
        put(key, null);
        return before;
    }

    @Override
    public byte[] get(Bytes key) {
        Objects.requireNonNull(key, "key cannot be null");
        Table entries = entries();
        return Errors.translated(name, "reading", () -> entries.get(key.get()));
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> range(Bytes from, Bytes to) {
        return EmptyRange.is(from, to) ? EmptyRange.warned(from, to) : iterator(between(from, to));
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> reverseRange(Bytes from, Bytes to) {
        return EmptyRange.is(from, to) ? EmptyRange.warned(from, to) : iterator(between(from, to).reverse());
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> all() {
        return iterator(Range.all());
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> reverseAll() {
        return iterator(Range.all().reverse());
    }

    @Override
    public <PS extends Serializer<P>, P> KeyValueIterator<Bytes, byte[]> prefixScan(P prefix, PS prefixSerializer) {
        Objects.requireNonNull(prefix, "prefix cannot be null");
        Objects.requireNonNull(prefixSerializer, "prefixSerializer cannot be null");
        return iterator(Range.all().prefix(prefixSerializer.serialize(null, prefix)));
    }

    private static Range between(Bytes from, Bytes to) {
        Range range = from == null ? Range.all() : Range.all().from(from.get());
        return to == null ? range : range.through(to.get());
    }

    private KeyValueIterator<Bytes, byte[]> iterator(Range range) {
        Table entries = entries();
        return Errors.translated(name, "iterating", () -> new EntryIterator(name, entries.items(range)));
    }

    /** An estimate from the metadata of tables and memtables: keys that were overwritten or deleted count until they are merged. */
    @Override
    public long approximateNumEntries() {
        Table entries = entries();
        return Errors.translated(name, "counting", () -> entries.approximateCount());
    }
}
