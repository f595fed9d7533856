package org.tamis;

import static java.util.Objects.requireNonNull;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Function;

/**
 * An open database, and its default keyspace. A database is open once in a process: threads share the object.
 *
 * <pre>{@code
 * try (Database db = Database.open(Path.of("my-data"))) {
 *     db.put(key, value);
 *     try (Cursor items = db.items(Range.all().prefix(prefix))) {
 *         while (items.hasNext()) {
 *             Entry entry = items.next();
 *         }
 *     }
 * }
 * }</pre>
 */
public final class Database extends Keyspace {
    /** How often {@link #transact} tries. */
    private static final int MOST_ATTEMPTS = 100;

    private final Path path;
    private final boolean readOnly;

    private Database(Path directory, Options options, boolean readOnly) {
        super(options.open(Text.path(directory), readOnly));
        path = directory.toAbsolutePath();
        this.readOnly = readOnly;
    }

    /**
     * Opens the database in a directory, or creates it, with default options.
     *
     * @param directory the directory
     * @return the database
     */
    public static Database open(Path directory) {
        return open(directory, new Options());
    }

    /**
     * Opens the database in a directory, or creates it: see the options {@code create_if_missing} and {@code error_if_exists}.
     *
     * @param directory the directory
     * @param options options of the database and of its default keyspace
     * @return the database
     * @throws LockedException if it is open already, in this process or another one
     * @throws InvalidOptionException for options that do not exist, accept another value, or contradict the stored database
     * @throws NotFoundException if it is not there and may not be created
     * @throws ExistsException if it is there and may not be
     * @throws CorruptionException for damage, with its file and offset
     */
    public static Database open(Path directory, Options options) {
        return new Database(directory, options, false);
    }

    /**
     * Opens a database for reading, as of now; its writer may have it open. It has no locks, and writes throw
     * {@link ReadOnlyException}.
     *
     * @param directory the directory
     * @param options options of the database
     * @return the database
     */
    public static Database openReadOnly(Path directory, Options options) {
        return new Database(directory, options, true);
    }

    /**
     * Ends background work, syncs the log and releases the directory, so that it can be opened again. All objects of the database throw
     * {@link ClosedException} from now on. Calls that run meanwhile in other threads end as they would have, or with that exception. A
     * second call does nothing.
     *
     * @throws TamisException the last failure of the log or the manifest; the database is closed all the same
     */
    @Override
    public void close() {
        synchronized (source()) {
            if (isClosed()) {
                return;
            }
            try {
                act(Native::close);
            } finally {
                super.close();
            }
        }
    }

    /**
     * Reports whether it was closed.
     *
     * @return true if it was
     */
    public boolean isClosed() {
        return source().isClosed();
    }

    /**
     * Reports whether it was opened for reading.
     *
     * @return true if writes throw {@link ReadOnlyException}
     */
    public boolean isReadOnly() {
        return readOnly;
    }

    /**
     * Returns the database's directory.
     *
     * @return its absolute path
     */
    public Path path() {
        return path;
    }

    /** Returns this. */
    @Override
    public Database database() {
        return this;
    }

    /**
     * Returns an existing keyspace. The default one is called {@code "default"}.
     *
     * @param name its name
     * @return the keyspace
     * @throws NotFoundException if there is none of that name
     */
    public Keyspace keyspace(String name) {
        return keyspace(name, Native.EXISTING, new Options());
    }

    /**
     * Creates a keyspace.
     *
     * @param name its name, of 1 to 255 bytes in UTF-8 without control characters
     * @param options its options
     * @return the keyspace
     * @throws ExistsException if there is one of that name
     */
    public Keyspace createKeyspace(String name, Options options) {
        return keyspace(name, Native.NEW, options);
    }

    /**
     * Returns a keyspace, and creates it if it is not there. An existing one keeps its own options.
     *
     * @param name its name
     * @param options the options of a new one
     * @return the keyspace
     */
    public Keyspace keyspaceOrCreate(String name, Options options) {
        return keyspace(name, Native.EXISTING_OR_NEW, options);
    }

    private Keyspace keyspace(String name, int which, Options options) {
        byte[] bytes = Text.bytes(name);
        byte[] packed = options.packed();
        return new Keyspace(with((database, none) -> Native.keyspace(database, bytes, which, packed)), this);
    }

    /**
     * Drops a keyspace with all its keys. Handles of it throw {@link ClosedException} from then on.
     *
     * @param name its name
     * @throws NotFoundException if there is none of that name
     * @throws InvalidArgumentException for the default keyspace
     */
    public void dropKeyspace(String name) {
        byte[] bytes = Text.bytes(name);
        act(database -> Native.dropKeyspace(database, bytes));
    }

    /**
     * Gives a keyspace another name. Handles of it stay valid.
     *
     * @param name its name
     * @param newName the new one
     */
    public void renameKeyspace(String name, String newName) {
        byte[] from = Text.bytes(name);
        byte[] to = Text.bytes(newName);
        act(database -> Native.renameKeyspace(database, from, to));
    }

    /**
     * Returns the names of all keyspaces, in the order of their creation.
     *
     * @return the names
     */
    public List<String> keyspaces() {
        List<String> names = new ArrayList<>();
        for (byte[] name : Text.unpacked(with((database, none) -> Native.keyspaces(database)))) {
            names.add(Text.of(name));
        }
        return names;
    }

    /**
     * Writes a batch: all of it becomes visible and durable together, or nothing. The batch is empty afterwards, whatever the outcome.
     * Writes to a keyspace that was dropped since they were added are left out.
     *
     * @param batch the batch
     */
    public void write(WriteBatch batch) {
        write(batch, null);
    }

    /**
     * Writes a batch with another durability than the database's.
     *
     * @param batch the batch, which is empty afterwards
     * @param durability the durability; null: the database's
     */
    public void write(WriteBatch batch, Durability durability) {
        batch.writeTo(this, durability);
    }

    /**
     * Takes a snapshot: the state of all keyspaces at this moment. Costs a few hundred nanoseconds.
     *
     * @return the snapshot, which has to be closed
     */
    public Snapshot snapshot() {
        return new Snapshot(with((database, none) -> Native.snapshot(database)), this);
    }

    /**
     * Begins a serializable transaction: nothing is locked, and its commit throws {@link ConflictException} if somebody else has meanwhile
     * written what it has read.
     *
     * @return the transaction, which has to be closed
     */
    public Transaction transaction() {
        return transaction(Isolation.SERIALIZABLE, null);
    }

    /**
     * Begins an optimistic transaction.
     *
     * @param isolation what its commit is validated against
     * @param durability the durability of its writes; null: the database's
     * @return the transaction, which has to be closed
     */
    public Transaction transaction(Isolation isolation, Durability durability) {
        boolean serializable = requireNonNull(isolation, "isolation") == Isolation.SERIALIZABLE;
        byte[] text = Durability.bytes(durability);
        return new Transaction(
                with((database, none) -> Native.transaction(database, serializable, text)), this);
    }

    /**
     * Calls a function with a serializable transaction, commits it, and returns what the function returned. After a conflict all of it is
     * repeated with a new transaction, after a pause that grows: the function should have no effects but through the transaction. What the
     * function throws rolls the transaction back, and is not repeated.
     *
     * @param <T> what the function returns
     * @param function reads and writes
     * @return what the function returned
     * @throws ConflictException after 100 conflicts
     */
    public <T> T transact(Function<? super Transaction, ? extends T> function) {
        for (int attempt = 1; ; attempt++) {
            try (Transaction transaction = transaction()) {
                T result = function.apply(transaction);
                try {
                    transaction.commit();
                    return result;
                } catch (ConflictException conflict) {
                    if (attempt == MOST_ATTEMPTS) {
                        throw conflict;
                    }
                }
            }
            long longest = 1000L << Math.min(attempt, 13);
            LockSupport.parkNanos(ThreadLocalRandom.current().nextLong(longest));
        }
    }

    /**
     * Begins a transaction that locks what it reads and writes, and waits for each lock for a second at most.
     *
     * @return the transaction, which has to be closed
     */
    public LockTransaction lockTransaction() {
        return lockTransaction(Duration.ofSeconds(1), null);
    }

    /**
     * Begins a transaction that locks what it reads and writes.
     *
     * @param timeout how long it waits for each lock at most
     * @param durability the durability of its writes; null: the database's
     * @return the transaction, which has to be closed
     */
    public LockTransaction lockTransaction(Duration timeout, Durability durability) {
        long millis = timeout.toMillis();
        byte[] text = Durability.bytes(durability);
        return new LockTransaction(
                with((database, none) -> Native.lockTransaction(database, millis, text)), this);
    }

    /**
     * Returns the names of the transactions that were prepared and not ended, in order; also those of before a crash.
     *
     * @return the names
     */
    public List<byte[]> preparedTransactions() {
        return Text.unpacked(with((database, none) -> Native.preparedTransactions(database)));
    }

    /**
     * Commits a prepared transaction.
     *
     * @param name the name under which it was prepared
     * @throws TamisException of the code {@link ErrorCode#NOT_PREPARED} if there is none of that name
     */
    public void commitPrepared(byte[] name) {
        requireNonNull(name, "name");
        act(database -> Native.endPrepared(database, name, true));
    }

    /**
     * Aborts a prepared transaction: its writes are forgotten.
     *
     * @param name the name under which it was prepared
     * @throws TamisException of the code {@link ErrorCode#NOT_PREPARED} if there is none of that name
     */
    public void abortPrepared(byte[] name) {
        requireNonNull(name, "name");
        act(database -> Native.endPrepared(database, name, false));
    }

    /** Writes the memtables of all keyspaces to tables, and returns when they are there. */
    @Override
    public void flush() {
        act(Native::flushAll);
    }

    /** Merges all tables of all keyspaces into their last levels, and returns when that is done. */
    @Override
    public void compact() {
        act(Native::compactAll);
    }

    /** Cancels the running compactions; those that are needed start again later. */
    public void cancelCompactions() {
        act(Native::cancelCompactions);
    }

    /** Makes all acknowledged writes survive a power failure. */
    public void sync() {
        act(Native::sync);
    }

    /** Waits until no flush or compaction is due. */
    public void waitForCompaction() {
        act(Native::waitForCompaction);
    }

    /**
     * Makes a copy of the database, as of now. Tables are hard links where the file system can.
     *
     * @param directory the new directory
     * @throws ExistsException if it exists
     */
    public void checkpoint(Path directory) {
        byte[] path = Text.path(directory);
        act(database -> Native.checkpoint(database, path));
    }

    /**
     * Changes the memory of elastic filters until the database is closed.
     *
     * @param bytes the memory, in bytes
     * @throws InvalidOptionException if they share {@code read_memory_bytes} with the block cache
     */
    public void setFilterBudget(long bytes) {
        act(database -> Native.setFilterBudget(database, bytes));
    }

    /**
     * Changes the memory that block cache and elastic filters share (option {@code read_memory_bytes}) until the database is closed.
     *
     * @param bytes the memory, in bytes
     * @throws InvalidOptionException if it was opened without that option, or for less than an eighth of it
     */
    public void setReadMemory(long bytes) {
        act(database -> Native.setReadMemory(database, bytes));
    }

    /**
     * Returns the statistics of the database and all its keyspaces. The names are those of the Rust struct {@code Stats}, sizes are in bytes,
     * and counters count from the opening.
     *
     * @return a JSON object
     */
    public String stats() {
        return report(Native.STATS);
    }

    /**
     * Returns the segments of the elastic filters of all keyspaces, with their hotness.
     *
     * @return a JSON list
     */
    public String segments() {
        return report(Native.SEGMENTS);
    }

    /**
     * Returns the options that the database was opened with, those of its default keyspace included.
     *
     * @return lines {@code name = value}
     */
    public String databaseOptions() {
        return report(Native.DATABASE_OPTIONS);
    }

    /**
     * Reads every file of the database, and returns what is wrong.
     *
     * @return a JSON object with the list {@code "problems"}
     */
    public String verify() {
        return report(Native.VERIFY);
    }

    /**
     * Checks a database that need not be open, nor can be: {@code "unopenable"} says why. Nothing is changed.
     *
     * @param directory the directory
     * @param options options of the database
     * @return a JSON object with the list {@code "problems"}
     */
    public static String verify(Path directory, Options options) {
        return Text.of(Native.verify(Text.path(directory), options.packed()));
    }

    /**
     * Repairs a damaged database that is not open, as far as its files allow. No file is removed: those that are no longer part of it are
     * renamed.
     *
     * @param directory the directory
     * @param options options of the database
     * @param dryRun change nothing, and say what would be done
     * @return what was lost and kept, a JSON object
     */
    public static String salvage(Path directory, Options options, boolean dryRun) {
        return Text.of(Native.salvage(Text.path(directory), options.packed(), dryRun));
    }

    /**
     * Returns the version of the native library.
     *
     * @return the version: {@code "0.1.0"}
     */
    public static String version() {
        return Text.of(Native.version());
    }
}
