package org.tamis;

import static java.util.Objects.requireNonNull;

/**
 * A transaction: it reads one state with its own writes on top, and its writes, in all keyspaces, become visible together at its
 * commit, or not at all. Its methods read and write the default keyspace. Closing it without a commit rolls it back. For one thread
 * at a time.
 *
 * <p>Once it has ended, all methods throw {@link ClosedException} of the code {@link ErrorCode#ENDED}.
 */
public class Transaction extends TransactionView implements AutoCloseable {
    private final Ref ref;
    private final Database database;

    Transaction(long handle, Database database) {
        String ended = "the transaction was committed, rolled back or prepared already";
        ref = Ref.of(this, handle, database.source(), ended);
        this.database = database;
    }

    @Override
    final Ref source() {
        return ref;
    }

    @Override
    final Ref place() {
        return null;
    }

    @Override
    final Database database() {
        return database;
    }

    /**
     * Returns a keyspace as this transaction sees and changes it.
     *
     * @param keyspace a keyspace of the same database
     * @return the view, until the transaction has ended
     */
    public TransactionView keyspace(Keyspace keyspace) {
        return new View(this, requireNonNull(keyspace, "keyspace"));
    }

    /**
     * Commits. The transaction has ended then, also after an exception; {@link ErrorCode#isRetryable()} says whether to try all of it
     * again.
     *
     * @return the sequence number of its writes
     * @throws ConflictException if somebody else has written what the transaction depends on; nothing was committed
     */
    public long commit() {
        return end(Native::commit);
    }

    /** Forgets all writes, and ends. */
    public void rollback() {
        end(transaction -> {
            Native.rollback(transaction);
            return 0;
        });
    }

    /** A call that ends the transaction. */
    @FunctionalInterface
    interface End {
        long on(long transaction);
    }

    final long end(End end) {
        try {
            long answer = with((transaction, none) -> end.on(transaction));
            ref.close();
            return answer;
        } catch (TamisException error) {
            // Otherwise another thread is using it, or an argument is wrong: it has not ended.
            if (error.code() != ErrorCode.INVALID_ARGUMENT) {
                ref.close();
            }
            throw error;
        }
    }

    /**
     * Returns a point to come back to.
     *
     * @return the savepoint
     */
    public Savepoint savepoint() {
        return new Savepoint(with((transaction, none) -> Native.savepoint(transaction)));
    }

    /**
     * Undoes all writes since a savepoint, and forgets later savepoints. Reads and locks stay.
     *
     * @param savepoint the savepoint
     * @throws InvalidArgumentException if a rollback to an earlier savepoint undid this one, or it belongs to another transaction
     */
    public void rollbackTo(Savepoint savepoint) {
        long number = savepoint.number;
        with((transaction, none) -> {
            Native.rollbackTo(transaction, number);
            return null;
        });
    }

    /** Rolls the transaction back, unless it has ended. A second call does nothing. */
    @Override
    public void close() {
        ref.close();
    }

    private static final class View extends TransactionView {
        private final Transaction transaction;
        private final Keyspace keyspace;

        View(Transaction transaction, Keyspace keyspace) {
            this.transaction = transaction;
            this.keyspace = keyspace;
        }

        @Override
        Ref source() {
            return transaction.source();
        }

        @Override
        Ref place() {
            return keyspace.source();
        }

        @Override
        Database database() {
            return transaction.database();
        }
    }
}
