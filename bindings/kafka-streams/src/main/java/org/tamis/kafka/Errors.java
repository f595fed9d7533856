package org.tamis.kafka;

import java.util.function.Supplier;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.errors.StreamsException;
import org.tamis.ClosedException;
import org.tamis.TamisException;

/** Errors of the engine as those that Kafka Streams knows what to do with. */
final class Errors {
    private Errors() {}

    /** Does something with a store's database. What the engine throws becomes what Kafka Streams expects. */
    static <T> T translated(String store, String doing, Supplier<T> action) {
        try {
            return action.get();
        } catch (TamisException error) {
            throw translated(store, doing, error);
        }
    }

    /** The same without a result. */
    static void translated(String store, String doing, Runnable action) {
        try {
            action.run();
        } catch (TamisException error) {
            throw translated(store, doing, error);
        }
    }

    static StreamsException translated(String store, String doing, TamisException error) {
        if (error instanceof ClosedException) {
            return closed(store);
        }
        return new ProcessorStateException(
                "Store " + store + ", " + doing + ": " + error.getMessage() + " (" + error.code() + ")", error);
    }

    static InvalidStateStoreException closed(String store) {
        return new InvalidStateStoreException("Store " + store + " is closed");
    }
}
