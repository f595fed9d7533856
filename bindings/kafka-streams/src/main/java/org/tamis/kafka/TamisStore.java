package org.tamis.kafka;

import java.util.Collection;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.errors.TaskCorruptedException;
import org.apache.kafka.streams.processor.ProcessorContext;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.InternalProcessorContext;
import org.apache.kafka.streams.processor.internals.ChangelogRecordDeserializationHelper;
import org.apache.kafka.streams.processor.internals.RecordBatchingStateRestoreCallback;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.state.internals.StoreQueryUtils;
import org.tamis.Database;

/**
 * What all stores have in common: one database each, its life cycle, the position up to which its input is in it, and restoring.
 *
 * <p><b>Commits.</b> Since 4.3, Kafka Streams leaves the offsets of changelogs to the store, and {@link #commit} writes them with the data
 * that they cover. If stores are transactional (4.4), writes are {@link Staging staged} until then, so that a crash leaves the state at a
 * commit, and restoring begins there. Otherwise, a write is in the engine's log when it returns, and the store may be ahead of its offsets:
 * then records are restored, or processed, once more, as with any store; under exactly-once the store is deleted first.
 *
 * <p>Before 4.3, Kafka Streams calls {@link #flush}, which makes everything written so far survive a power cut, before it writes offsets into
 * its checkpoint file. Under exactly-once, a store without that file is deleted and restored as a whole, which is Kafka Streams' doing, with
 * the help of {@link TaskCheckpoint}.
 *
 * <p><b>Threads.</b> One thread writes, any number read, and any may close. The position changes, with the write that it belongs to, under its
 * own monitor, which queries take, too.
 */
abstract class TamisStore implements StateStore, Cloneable {
    /** The configuration of this name is newer than some releases. */
    private static final String TRANSACTIONAL = "enable.transactional.statestores";

    final String name;
    /** The options of the engine that stores of its kind have. */
    private final Map<String, String> ofKind;
    /** Empty while the store is closed. */
    private final AtomicReference<StoreDatabase> database = new AtomicReference<>();
    /** Whether this is a view of the store that reads what is committed. It shares what is final. */
    private boolean readsCommitted;
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
            position = Errors.translated(name, "opening", storeDatabase().offsets()::position);
            if (StoreOffsets.areManaged() && storeDatabase().offsets().isAhead() && TaskCheckpoint.mayBeAborted(context)) {
                throw new TaskCorruptedException(Set.of(context.taskId()));
            }
            consistencyEnabled = StreamsConfig.InternalConfig.getBoolean(
                    context.appConfigs(), StreamsConfig.InternalConfig.IQ_CONSISTENCY_OFFSET_VECTOR_ENABLED, false);
            metrics = StoreMetrics.register(this, context);
            context.register(
                    root,
                    (RecordBatchingStateRestoreCallback) this::restoreBatch,
                    taskCheckpoint::written);
        } catch (RuntimeException | Error error) {
            // Kafka Streams does not close what was not registered, and what stays open cannot be opened again.
            close();
            throw error;
        }
    }

    /** Opens the database, unless it is open. */
    private synchronized void open() {
        if (isOpen()) {
            throw new ProcessorStateException("Store " + name + " is open already");
        }
        StoreDatabase opened = openDatabase(staging(context));
        if (opened.staging() != null && opened.offsets().isAhead() && TaskCheckpoint.mayBeAborted(context)) {
            // Kafka Streams does not delete such a store, but restores it if it has no offset.
            opened.close();
            StoreDatabase.delete(name, context.stateDir());
            opened = openDatabase(staging(context));
        }
        StoreDatabase usable = opened;
        try {
            String before = Errors.translated(name, "opening", () -> usable.offsets().format(format()));
            if (before != null && !before.equals(format())) {
                throw new ProcessorStateException("Store " + name + ": its directory holds " + before + ", not " + format()
                        + ". Delete it, and the store is restored.");
            }
            Errors.translated(name, "opening", () -> opened(usable));
        } catch (RuntimeException | Error error) {
            opened.close();
            throw error;
        }
        database.set(opened);
    }

    private StoreDatabase openDatabase(Staging staging) {
        return StoreDatabase.open(name, context.stateDir(), context.appConfigs(), ofKind, staging, isHistory());
    }

    /**
     * Where writes wait for their commit, or null if they go through. Only where Kafka Streams commits while a task runs: under exactly-once
     * it does not, unless it was told that stores are transactional. A global store holds what others have committed.
     */
    private static Staging staging(StateStoreContext context) {
        boolean isAsked = StoreOffsets.areTransactional()
                && StreamsConfig.InternalConfig.getBoolean(context.appConfigs(), TRANSACTIONAL, false);
        return isAsked && TaskCheckpoint.isTask(context) ? new Staging() : null;
    }

    /** Whether what a record changes depends on the records before it. */
    boolean isHistory() {
        return false;
    }

    /** How the values of the store begin: another one misreads them. */
    String format() {
        return "plain values";
    }

    /** Prepares to use a database that was opened. */
    abstract void opened(StoreDatabase database);

    /** Forgets what {@link #opened} has found. */
    abstract void closing();

    /** Adds a record of the changelog to others; the value may be null. Reports whether the store takes it. */
    abstract boolean restore(ConsumerRecord<byte[], byte[]> record, Writes writes);

    /** Prepares to restore records. */
    void restoring(Collection<ConsumerRecord<byte[], byte[]>> records) {}

    void restoreBatch(Collection<ConsumerRecord<byte[], byte[]>> records) {
        // Kafka Streams restores stores that are open; its tests also those that were closed.
        if (!isOpen()) {
            open();
        }
        synchronized (position) {
            try (Writes writes = storeDatabase().restoredWrites()) {
                Errors.translated(name, "restoring", () -> {
                    restoring(records);
                    for (ConsumerRecord<byte[], byte[]> record : records) {
                        if (restore(record, writes)) {
                            ChangelogRecordDeserializationHelper.applyChecksAndUpdatePosition(
                                    record, consistencyEnabled, position);
                        }
                    }
                    writes.apply();
                    storeDatabase().restored();
                });
            }
        }
    }

    /** Called before anything changes that is not a restored record; {@link #write} does. */
    final void beforeWrite() {
        taskCheckpoint.remove();
        StoreDatabase open = storeDatabase();
        if (open.staging() == null) {
            Errors.translated(name, "writing", open.offsets()::markAhead);
        }
    }

    /** Does a write, and moves the position up to the record that it comes from. */
    final void write(Runnable write) {
        if (readsCommitted) {
            throw new UnsupportedOperationException("this view of " + name + " is for reading");
        }
        beforeWrite();
        synchronized (position) {
            Errors.translated(name, "writing", write);
            StoreQueryUtils.updatePosition(position, context);
        }
    }

    /**
     * Part of the interface since Kafka Streams 4.3.
     *
     * @deprecated as it is there: all stores will
     */
    @Deprecated
    public boolean managesOffsets() {
        return true;
    }

    /** Part of the interface since Kafka Streams 4.3. */
    public Long committedOffset(TopicPartition partition) {
        StoreOffsets offsets = storeDatabase().offsets();
        return Errors.translated(name, "reading an offset", () -> offsets.of(partition));
    }

    /**
     * Writes what was put since the last commit, with offsets that it leads to, in one batch. Part of the interface since Kafka Streams 4.3.
     *
     * <p>The log is not synced. After a power cut the store is as it was at some commit, and Kafka Streams restores what came later.
     *
     * @param offsets those of the changelog; none: the store has no changelog, or it has to be restored
     */
    public void commit(Map<TopicPartition, Long> offsets) {
        StoreDatabase open = database.get();
        if (open == null) {
            return;
        }
        if (offsets.isEmpty() && hasChangelog()) {
            Errors.translated(name, "giving up", open::giveUp);
            return;
        }
        synchronized (position) {
            Errors.translated(name, "committing", () -> open.commit(offsets, position));
        }
    }

    private boolean hasChangelog() {
        return context instanceof InternalProcessorContext
                && ((InternalProcessorContext<?, ?>) context).changelogFor(name) != null;
    }

    /** Part of the interface since Kafka Streams 4.4. */
    public long approximateNumUncommittedBytes() {
        StoreDatabase open = database.get();
        return open == null || open.staging() == null ? 0 : open.staging().bytes();
    }

    /** The store as it is seen at an isolation level. */
    @SuppressWarnings("unchecked")
    final <S> S isolated(IsolationLevel level) {
        if (level != IsolationLevel.READ_COMMITTED || storeDatabase().staging() == null) {
            return (S) this;
        }
        try {
            TamisStore view = (TamisStore) clone();
            view.readsCommitted = true;
            view.position = Errors.translated(name, "reading", storeDatabase().offsets()::position);
            return (S) view;
        } catch (CloneNotSupportedException error) {
            throw new AssertionError(error);
        }
    }

    /** The isolation level that a query asks for: before 4.4 there is one. */
    static IsolationLevel levelOf(QueryConfig config) {
        return StoreOffsets.areTransactional() ? config.getIsolationLevel() : IsolationLevel.READ_UNCOMMITTED;
    }

    final boolean readsCommitted() {
        return readsCommitted;
    }

    final StateStoreContext context() {
        return context;
    }

    final StoreDatabase storeDatabase() {
        StoreDatabase open = database.get();
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
        return database.get() != null;
    }

    /**
     * Makes the log survive a power cut. Before Kafka Streams 4.3, it is also the commit.
     *
     * @deprecated as it is there since 4.3
     */
    @Deprecated
    @Override
    public void flush() {
        StoreDatabase open = database.get();
        if (open != null) {
            if (!StoreOffsets.areManaged()) {
                synchronized (position) {
                    Errors.translated(name, "flushing", () -> open.commit(Map.of(), position));
                }
            }
            Errors.translated(name, "flushing", () -> open.get().sync());
        }
    }

    @Override
    public synchronized void close() {
        StoreDatabase open = database.getAndSet(null);
        if (open == null) {
            return;
        }
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
        Position seen = ((TamisStore) isolated(levelOf(config))).position;
        return StoreQueryUtils.handleBasicQueries(query, bound, config, this, seen, context);
    }
}
