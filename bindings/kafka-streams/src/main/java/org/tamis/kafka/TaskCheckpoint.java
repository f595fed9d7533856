package org.tamis.kafka;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.processor.StateStoreContext;

/**
 * The file in which Kafka Streams notes how far the changelogs of a task are in its stores, as far as a store must take care of it.
 *
 * <p>Under exactly-once, stores of a task that died may hold writes whose transaction was aborted. Kafka Streams then restores
 * them from nothing, and it takes the absence of this file for the sign. But it writes the file when a restoration is complete,
 * and leaves it there while the task processes (KAFKA-20685; before 4.3). Its own stores seldom notice: they keep no log, and what is not
 * flushed is lost with the process. These have a log, and everything in them survives. So the first write that is
 * not a restored record removes the file. Since 4.3 there is none: {@link StoreOffsets} has what it told.
 *
 * <p>Invariant, under exactly-once: while a store has a write that may not be committed, and its task has not been closed in order, the file
 * does not exist, power cuts included.
 *
 * <p><b>Threads.</b> {@link #written} is called by the thread that restores, {@link #remove} by the one that processes, never at once.
 */
final class TaskCheckpoint {
    /** As Kafka Streams calls it, from 0.10 to 4.2. */
    static final String FILE_NAME = ".checkpoint";

    /** Null if the file may stay. */
    private final Path file;

    private final String store;
    private volatile boolean mayExist = true;

    private TaskCheckpoint(Path file, String store) {
        this.file = file;
        this.store = store;
    }

    static TaskCheckpoint of(StateStoreContext context, String store) {
        Path file = !StoreOffsets.areManaged() && mayBeAborted(context)
                ? context.stateDir().toPath().resolve(FILE_NAME)
                : null;
        return new TaskCheckpoint(file, store);
    }

    /** Whether what a store's task writes may be aborted: under exactly-once, but in a global store. That has what others have committed. */
    static boolean mayBeAborted(StateStoreContext context) {
        Object guarantee = context.appConfigs().get(StreamsConfig.PROCESSING_GUARANTEE_CONFIG);
        // With and without a version at its end.
        return isTask(context) && guarantee != null && guarantee.toString().startsWith("exactly_once");
    }

    /** Whether a store is a task's, and not global. */
    static boolean isTask(StateStoreContext context) {
        // The "task" of a global store has no number.
        return context.taskId() != null && context.taskId().subtopology() >= 0;
    }

    /** Notes that the file is about to be written. */
    void written() {
        mayExist = true;
    }

    /** Removes the file before a write, if it may exist. Afterwards costs one comparison, until the file is written again. */
    void remove() {
        if (mayExist) {
            if (file != null) {
                try {
                    if (Files.deleteIfExists(file)) {
                        Utils.flushDir(file.toAbsolutePath().getParent());
                    }
                } catch (IOException error) {
                    throw new ProcessorStateException("Store " + store + ": cannot remove " + file, error);
                }
            }
            mayExist = false;
        }
    }
}
