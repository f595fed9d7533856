package org.tamis.kafka;

import java.io.File;
import java.util.Collection;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.processor.ProcessorContext;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.ChangelogRecordDeserializationHelper;
import org.apache.kafka.streams.processor.internals.RecordBatchingStateRestoreCallback;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.state.internals.OffsetCheckpoint;
import org.apache.kafka.streams.state.internals.StoreQueryUtils;
import org.tamis.Database;
import org.tamis.Keyspace;
import org.tamis.WriteBatch;

/**
 * What all stores have in common: one database each, its life cycle, the position up to which its input is in it, and restoring.
 *
 * <p><b>Commits.</b> A write is in the engine's log when it returns; {@link #flush} makes everything written so far survive a power cut. Kafka
 * Streams calls it before it writes the offsets that the store covers into its checkpoint file, so the store is never behind
 * the file. It may be ahead: then records are restored, or processed, once more, as with any store; under exactly-once a store
 * without a checkpoint file is deleted first and restored as a whole, which is Kafka Streams' doing, with the help of {@link TaskCheckpoint}.
 *
 * <p><b>Threads.</b> One thread writes, any number read, and any may close. The position changes, with the write that it belongs to, under its
 * own monitor, which queries take, too.
 */
abstract class TamisStore implements StateStore {
    final String name;
    /** The options of the engine that stores of its kind have. */
    private final Map<String, String> ofKind;
    private volatile StoreDatabase database;
    private StoreMetrics metrics;
    private volatile StateStoreContext context;
    private volatile TaskCheckpoint taskCheckpoint;
    volatile Position position = Position.emptyPosition();
    private boolean consistencyEnabled;

    TamisStore(String name, Map<String, String> ofKind) {
        this.name = name;
        this.ofKind = ofKind;
    }

    /**
     * Part of the interface before Kafka Streams 4.0, which calls the other one as well.
     *
     * @deprecated as it is there
     */
    @Deprecated
    public void init(ProcessorContext context, StateStore root) {
        if (!(context instanceof StateStoreContext)) {
            throw new UnsupportedOperationException("the context is no StateStoreContext: " + context.getClass().getName());
        }
        init((StateStoreContext) context, root);
    }

    @Override
    public void init(StateStoreContext context, StateStore root) {
        this.context = context;
        taskCheckpoint = TaskCheckpoint.of(context, name);
        open();
        try {
            File file = new File(context.stateDir(), name + ".position");
            OffsetCheckpoint checkpoint = new OffsetCheckpoint(file);
            position = StoreQueryUtils.readPositionFromCheckpoint(checkpoint);
            consistencyEnabled = StreamsConfig.InternalConfig.getBoolean(
                    context.appConfigs(), StreamsConfig.InternalConfig.IQ_CONSISTENCY_OFFSET_VECTOR_ENABLED, false);
            metrics = StoreMetrics.register(this, context);
            context.register(
                    root,
                    (RecordBatchingStateRestoreCallback) this::restoreBatch,
                    () -> {
                        taskCheckpoint.written();
                        StoreQueryUtils.checkpointPosition(checkpoint, position);
                    });
        } catch (RuntimeException | Error error) {
            // Kafka Streams does not close what was not registered, and what stays open cannot be opened again.
            close();
            throw error;
        }
    }

    /** Opens the database, unless it is open. */
    private synchronized void open() {
        if (database != null) {
            throw new ProcessorStateException("Store " + name + " is open already");
        }
        StoreDatabase opened = StoreDatabase.open(name, context.stateDir(), context.appConfigs(), ofKind);
        try {
            Errors.translated(name, "opening", () -> opened(opened));
        } catch (RuntimeException | Error error) {
            opened.close();
            throw error;
        }
        database = opened;
    }

    /** Prepares to use a database that was opened. */
    abstract void opened(StoreDatabase database);

    /** Forgets what {@link #opened} has found. */
    abstract void closing();

    /** Adds a record of the changelog to a batch; the value may be null. Reports whether the store takes it. */
    abstract boolean restore(ConsumerRecord<byte[], byte[]> record, WriteBatch batch);

    /** Prepares to restore records. */
    void restoring(Collection<ConsumerRecord<byte[], byte[]>> records) {}

    void restoreBatch(Collection<ConsumerRecord<byte[], byte[]>> records) {
        // Kafka Streams restores stores that are open; its tests also those that were closed.
        if (!isOpen()) {
            open();
        }
        synchronized (position) {
            try (WriteBatch batch = new WriteBatch()) {
                Errors.translated(name, "restoring", () -> {
                    restoring(records);
                    for (ConsumerRecord<byte[], byte[]> record : records) {
                        if (restore(record, batch)) {
                            ChangelogRecordDeserializationHelper.applyChecksAndUpdatePosition(
                                    record, consistencyEnabled, position);
                        }
                    }
                    database().write(batch);
                });
            }
        }
    }

    /** Called before anything changes that is not a restored record; {@link #write} does. */
    final void beforeWrite() {
        taskCheckpoint.remove();
    }

    /** Does a write, and moves the position up to the record that it comes from. */
    final void write(Runnable write) {
        beforeWrite();
        synchronized (position) {
            Errors.translated(name, "writing", write);
            StoreQueryUtils.updatePosition(position, context);
        }
    }

    static void put(WriteBatch batch, Keyspace keyspace, byte[] key, byte[] value) {
        if (value == null) {
            batch.delete(keyspace, key);
        } else {
            batch.put(keyspace, key, value);
        }
    }

    static void put(Keyspace keyspace, byte[] key, byte[] value) {
        if (value == null) {
            keyspace.delete(key);
        } else {
            keyspace.put(key, value);
        }
    }

    final StateStoreContext context() {
        return context;
    }

    final StoreDatabase storeDatabase() {
        StoreDatabase open = database;
        if (open == null) {
            throw Errors.closed(name);
        }
        return open;
    }

    final Database database() {
        return storeDatabase().get();
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public boolean persistent() {
        return true;
    }

    @Override
    public boolean isOpen() {
        return database != null;
    }

    @Override
    public void flush() {
        StoreDatabase open = database;
        if (open != null) {
            Errors.translated(name, "flushing", () -> open.get().sync());
        }
    }

    @Override
    public synchronized void close() {
        StoreDatabase open = database;
        if (open == null) {
            return;
        }
        database = null;
        if (metrics != null) {
            metrics.remove();
            metrics = null;
        }
        closing();
        Errors.translated(name, "closing", open::close);
    }

    @Override
    public Position getPosition() {
        return position;
    }

    @Override
    public <R> QueryResult<R> query(Query<R> query, PositionBound bound, QueryConfig config) {
        return StoreQueryUtils.handleBasicQueries(query, bound, config, this, position, context);
    }
}
