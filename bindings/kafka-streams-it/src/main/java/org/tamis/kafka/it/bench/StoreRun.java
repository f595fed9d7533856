package org.tamis.kafka.it.bench;

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.DslStoreFormat;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.state.DslKeyValueParams;
import org.apache.kafka.streams.state.DslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueStore;
import org.tamis.kafka.it.process.Directories;
import org.tamis.kafka.it.process.ParentWatch;

/**
 * One store alone: restored through its callback in the batches that a consumer would return, read, and updated. Only the
 * store's calls are timed.
 *
 * <p>Arguments: the state directory, the class of the store suppliers, properties as for {@link TopologyRun}, the {@link Plan}.
 */
public final class StoreRun {
    /** {@code max.poll.records} of Kafka Streams. */
    private static final int BATCH = 1_000;

    private StoreRun() {}

    public static void main(String[] arguments) throws Exception {
        Path state = Path.of(arguments[0]);
        ParentWatch.start(command -> {}, () -> {
            Directories.delete(state);
            Runtime.getRuntime().halt(0);
        });
        Files.createDirectories(state);
        Map<String, Object> configs = new HashMap<>();
        configs.put(StreamsConfig.APPLICATION_ID_CONFIG, "bench");
        configs.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "nowhere:1");
        if (!arguments[2].equals("-")) {
            for (String assignment : arguments[2].split(",")) {
                String[] parts = assignment.split("=", 2);
                configs.put(parts[0], parts[1]);
            }
        }
        Plan plan = Plan.of(arguments, 3);
        DslStoreSuppliers suppliers =
                (DslStoreSuppliers) Class.forName(arguments[1]).getDeclaredConstructor().newInstance();
        suppliers.configure(configs);
        KeyValueStore<Bytes, byte[]> store = suppliers.keyValueStore(new DslKeyValueParams("store", DslStoreFormat.TIMESTAMPED)).get();
        BareContext context = new BareContext(configs, state.toFile());
        store.init((StateStoreContext) context, store);
        restore(plan, context, store);
        read(plan, store);
        update(plan, store);
        Report.tellSizes("store", state);
        store.close();
        System.exit(0);
    }

    private static void restore(Plan plan, BareContext context, KeyValueStore<Bytes, byte[]> store) {
        long spentNs = 0;
        long spentCpuNs = 0;
        for (long from = 0; from < plan.records; from += BATCH) {
            List<ConsumerRecord<byte[], byte[]>> batch = new ArrayList<>(BATCH);
            for (long i = from; i < Math.min(from + BATCH, plan.records); i++) {
                batch.add(new ConsumerRecord<>("changelog", 0, i, Entries.key(i), timestamped(i, plan.valueBytes)));
            }
            long begin = System.nanoTime();
            long beginCpu = Report.cpuNs();
            context.restore().restoreBatch(batch);
            spentCpuNs += Report.cpuNs() - beginCpu;
            spentNs += System.nanoTime() - begin;
        }
        long begin = System.nanoTime();
        long beginCpu = Report.cpuNs();
        store.commit(Map.of());
        spentCpuNs += Report.cpuNs() - beginCpu;
        spentNs += System.nanoTime() - begin;
        Report.tell("store restore s", spentNs / 1e9);
        Report.tell("store restore k/s", plan.records * 1e6 / spentNs);
        Report.tell("store restore CPU s", spentCpuNs / 1e9);
    }

    private static byte[] timestamped(long number, int bytes) {
        return ByteBuffer.allocate(Long.BYTES + bytes).putLong(number).put(Entries.value(number, bytes)).array();
    }

    private static void read(Plan plan, KeyValueStore<Bytes, byte[]> store) {
        // Absent ones first: present ones warm caches.
        gets("store get absent", plan, store, plan.records, 0);
        gets("store get present", plan, store, 0, plan.operations);
    }

    /** Gets keys whose numbers begin at {@code first}. */
    private static void gets(String name, Plan plan, KeyValueStore<Bytes, byte[]> store, long first, long expected) {
        long found = 0;
        long begin = System.nanoTime();
        long beginCpu = Report.cpuNs();
        for (long i = 0; i < plan.operations; i++) {
            byte[] value = store.get(Bytes.wrap(Entries.key(first + Entries.drawn(i, plan.records))));
            found += value == null ? 0 : 1;
        }
        tell(name, plan, begin, beginCpu);
        if (found != expected) {
            throw new IllegalStateException(found + " found, not " + expected);
        }
    }

    private static void tell(String name, Plan plan, long begin, long beginCpu) {
        Report.tell(name + " ns", (System.nanoTime() - begin) / (double) plan.operations);
        Report.tell(name + " CPU ns", (Report.cpuNs() - beginCpu) / (double) plan.operations);
    }

    /** Reads a key and writes it, as an aggregation does. */
    private static void update(Plan plan, KeyValueStore<Bytes, byte[]> store) {
        byte[][] values = new byte[256][];
        for (int i = 0; i < values.length; i++) {
            values[i] = timestamped(i, plan.valueBytes);
        }
        long begin = System.nanoTime();
        long beginCpu = Report.cpuNs();
        for (long i = 0; i < plan.operations; i++) {
            Bytes key = Bytes.wrap(Entries.key(Entries.drawn(i, plan.records)));
            if (store.get(key) == null) {
                throw new IllegalStateException("a key is missing");
            }
            store.put(key, values[(int) (i % values.length)]);
        }
        tell("store update", plan, begin, beginCpu);
    }
}
