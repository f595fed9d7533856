package org.tamis.kafka;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowStore;

/** Window stores that show their segments as directories, which tests of Kafka's look at. */
public final class WindowStores {
    private WindowStores() {}

    /** Returns a supplier of such a store. */
    public static WindowBytesStoreSupplier withDirectories(
            String name, long retention, long windowSize, boolean retainDuplicates) {
        WindowBytesStoreSupplier plain = TamisStores.windowStore(
                name, Duration.ofMillis(retention), Duration.ofMillis(windowSize), retainDuplicates);
        return new WindowBytesStoreSupplier() {
            @Override
            public String name() {
                return plain.name();
            }

            @Override
            public WindowStore<Bytes, byte[]> get() {
                return new Shown(name, retention, segmentIntervalMs(), windowSize, retainDuplicates);
            }

            @Override
            public String metricsScope() {
                return plain.metricsScope();
            }

            @Override
            public long segmentIntervalMs() {
                return plain.segmentIntervalMs();
            }

            @Override
            public long windowSize() {
                return windowSize;
            }

            @Override
            public boolean retainDuplicates() {
                return retainDuplicates;
            }

            @Override
            public long retentionPeriod() {
                return retention;
            }
        };
    }

    /** Returns the starts of the segments that such a store shows. */
    public static List<Long> segmentStarts(File stateDirectory, String name) {
        return Stream.of(Objects.requireNonNull(new File(stateDirectory, name).list()))
                .map(segment -> Long.parseLong(segment.substring(name.length() + 1)))
                .sorted()
                .collect(Collectors.toList());
    }

    private static final class Shown extends TamisWindowStore {
        private File directory;

        Shown(String name, long retention, long segmentInterval, long windowSize, boolean retainDuplicates) {
            super(name, retention, segmentInterval, windowSize, retainDuplicates, false);
        }

        @Override
        public void init(StateStoreContext context, StateStore root) {
            directory = new File(context.stateDir(), name());
            if (!directory.exists()) {
                // A test has deleted what it takes for the store.
                deleteDatabase(new File(context.stateDir(), StoreDatabase.DIRECTORY + File.separator + name()));
            }
            super.init(context, root);
            show();
        }

        @Override
        public void put(Bytes key, byte[] value, long windowStart) {
            super.put(key, value, windowStart);
            show();
        }

        @Override
        void restoreBatch(Collection<ConsumerRecord<byte[], byte[]>> records) {
            super.restoreBatch(records);
            show();
        }

        private static void deleteDatabase(File directory) {
            try {
                Utils.delete(directory);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        private void show() {
            directory.mkdirs();
            Set<String> live = segmentStarts().stream().map(start -> name() + '.' + start).collect(Collectors.toSet());
            for (String shown : Objects.requireNonNull(directory.list())) {
                if (!live.contains(shown)) {
                    new File(directory, shown).delete();
                }
            }
            live.forEach(segment -> new File(directory, segment).mkdir());
        }
    }
}
