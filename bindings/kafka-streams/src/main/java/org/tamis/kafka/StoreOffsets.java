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
 * <p>A store whose writes go through before their commit is ahead of its offsets. A mark says so: under exactly-once, such a store may
 * hold what was aborted, and has to be restored as a whole.
 */
final class StoreOffsets {
    /** Their keyspace. */
    static final String KEYSPACE = "offsets";
    private static final byte[] POSITION = key("position");
    private static final byte[] AHEAD = key("ahead");
    private static final byte[] NOTHING = {};
    private static final boolean MANAGED = isManaged();

    private final Keyspace keyspace;
    private boolean ahead;

    StoreOffsets(Database database) {
        keyspace = database.keyspaceOrCreate(KEYSPACE, new Options());
        ahead = keyspace.containsKey(AHEAD);
    }

    /** Whether this release of Kafka Streams leaves offsets to stores that want them: since 4.3 (KIP-1035). */
    static boolean areManaged() {
        return MANAGED;
    }

    private static boolean isManaged() {
        try {
            StateStore.class.getMethod("managesOffsets");
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

    /** Adds a commit to the batch of the writes that it covers. */
    void commit(WriteBatch batch, Map<TopicPartition, Long> offsets, Position position) {
        offsets.forEach((partition, offset) ->
                batch.put(keyspace, key(partition), ByteBuffer.allocate(Long.BYTES).putLong(offset).array()));
        batch.put(keyspace, POSITION, PositionSerde.serialize(position).array());
        if (ahead) {
            batch.delete(keyspace, AHEAD);
        }
    }

    /** Takes note that a commit was written. */
    void committed() {
        ahead = false;
    }

    boolean isAhead() {
        return ahead;
    }

    /** Marks the store before its first write that goes through after a commit. */
    void markAhead() {
        if (!ahead) {
            keyspace.put(AHEAD, NOTHING);
            ahead = true;
        }
    }
}
