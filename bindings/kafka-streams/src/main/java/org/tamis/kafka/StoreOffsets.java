package org.tamis.kafka;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.state.internals.PositionSerde;
import org.tamis.Database;
import org.tamis.Keyspace;
import org.tamis.Options;
import org.tamis.WriteBatch;

/**
 * How far a store is: the offsets of its changelog that were committed with it, and the position of its input. They are in a keyspace of
 * their own and in the batch of the writes that they cover, so what is on disk after a crash is the state at some commit, whether the
 * log was synced or not.
 *
 * <p>A store whose writes go through before their commit is ahead of its offsets. A mark says so, from the first such write until the store
 * is closed after a commit. Under exactly-once, a store that is opened with the mark may hold what was aborted. (Kafka's own store has
 * such a mark, too.)
 *
 * <p><b>Threads.</b> One thread writes and commits. Any may close, when that one has stopped writing.
 */
final class StoreOffsets {
    /** Their keyspace. */
    static final String KEYSPACE = "offsets";
    private static final byte[] POSITION = key("position");
    private static final byte[] AHEAD = key("ahead");
    private static final byte[] NOTHING = {};
    private static final byte[] OFFSETS = key("offset/");
    private static final byte[] FORMAT = key("format");
    private static final boolean MANAGED = has("managesOffsets");
    private static final boolean TRANSACTIONAL = has("approximateNumUncommittedBytes");

    private final Keyspace keyspace;
    /** Whether there may be offsets. */
    private boolean some = true;
    /** Whether there is the mark. */
    private boolean ahead;
    /** Whether something went through since the last commit. */
    private volatile boolean uncommitted;

    StoreOffsets(Database database) {
        keyspace = database.keyspaceOrCreate(KEYSPACE, new Options());
        ahead = keyspace.containsKey(AHEAD);
        uncommitted = ahead;
        if (!MANAGED) {
            // Nobody would keep them true.
            forget();
        }
    }

    /** Whether this release of Kafka Streams leaves offsets to stores that want them: since 4.3 (KIP-1035). */
    static boolean areManaged() {
        return MANAGED;
    }

    /** Whether this release commits stores in the middle of processing under exactly-once, if it is told to: since 4.4 (KIP-892). */
    static boolean areTransactional() {
        return TRANSACTIONAL;
    }

    private static boolean has(String method) {
        try {
            StateStore.class.getMethod(method);
            return true;
        } catch (NoSuchMethodException before) {
            return false;
        }
    }

    private static byte[] key(String name) {
        return name.getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] key(TopicPartition partition) {
        return key("offset/" + partition.topic() + "/" + partition.partition());
    }

    /** The offset that was committed for a partition, or null. */
    Long of(TopicPartition partition) {
        byte[] stored = keyspace.get(key(partition));
        return stored == null ? null : ByteBuffer.wrap(stored).getLong();
    }

    Position position() {
        byte[] stored = keyspace.get(POSITION);
        return stored == null ? Position.emptyPosition() : PositionSerde.deserialize(ByteBuffer.wrap(stored));
    }

    /** Adds a commit to the batch of the writes that it covers. Without offsets, those that there were are gone. */
    void commit(WriteBatch batch, Map<TopicPartition, Long> offsets, Position position) {
        if (offsets.isEmpty() && some) {
            batch.deletePrefix(keyspace, OFFSETS);
        }
        offsets.forEach((partition, offset) ->
                batch.put(keyspace, key(partition), ByteBuffer.allocate(Long.BYTES).putLong(offset).array()));
        batch.put(keyspace, POSITION, PositionSerde.serialize(position).array());
    }

    /** Takes note that a commit was written, with offsets or without. */
    void committed(boolean withOffsets) {
        some = withOffsets;
        uncommitted = false;
    }

    /** Forgets all offsets. */
    void forget() {
        if (some) {
            keyspace.deletePrefix(OFFSETS);
            some = false;
        }
    }

    /** Notes the format of the store's values, and returns the one that was noted before, or null. */
    String format(String now) {
        byte[] before = keyspace.get(FORMAT);
        if (before == null) {
            keyspace.put(FORMAT, key(now));
        }
        return before == null ? null : new String(before, StandardCharsets.UTF_8);
    }

    /** Whether the store may hold writes that no commit covers. */
    boolean isAhead() {
        return ahead;
    }

    /** Marks the store before a write that goes through. */
    void markAhead() {
        uncommitted = true;
        if (!ahead) {
            keyspace.put(AHEAD, NOTHING);
            ahead = true;
        }
    }

    /** Removes the mark, if a commit covers everything. */
    void closing() {
        if (ahead && !uncommitted) {
            keyspace.delete(AHEAD);
        }
    }
}
