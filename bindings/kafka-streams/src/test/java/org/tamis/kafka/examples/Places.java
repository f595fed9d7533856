package org.tamis.kafka.examples;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.zip.GZIPInputStream;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.tamis.kafka.TamisDslStoreSuppliers;
import org.tamis.kafka.TamisStores;

/**
 * Runs a topology over 171,075 places (GeoNames, CC BY 4.0, geonames.org): it counts them by country, and keeps nine of ten in a
 * store, of which it asks for all. It needs no broker: the driver of Kafka's own tests feeds it, one record per country.
 */
public final class Places {
    private static final Path SAMPLE = Path.of("../../crates/tamis-bench/data/geonames-cities.tsv.gz");
    private static final int HELD_OUT_OF = 10;

    private Places() {}

    /** Runs it. */
    public static void main(String[] arguments) throws IOException {
        List<String> lines = lines();
        Map<String, List<String>> byCountry = new TreeMap<>();
        for (String line : lines) {
            byCountry.computeIfAbsent(line.substring(0, 2), country -> new ArrayList<>()).add(line);
        }
        Path state = Files.createTempDirectory("tamis-places");
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "places");
        config.put(StreamsConfig.STATE_DIR_CONFIG, state.toString());
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class.getName());
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class.getName());
        // The one line that keeps the stores of a topology with tamis.
        config.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, TamisDslStoreSuppliers.class.getName());

        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> places = builder.<String, String>stream("countries")
                .flatMapValues(country -> Arrays.asList(country.split("\n")));
        places.groupByKey().count(Materialized.as("counts"));
        builder.addStateStore(
                Stores.keyValueStoreBuilder(TamisStores.keyValueStore("places"), Serdes.String(), Serdes.String()));
        places.process(Keep::new, "places");

        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(config), config, Instant.EPOCH)) {
            TestInputTopic<String, String> input =
                    driver.createInputTopic("countries", new StringSerializer(), new StringSerializer());
            long begun = System.nanoTime();
            byCountry.forEach((country, all) -> input.pipeInput(country, String.join("\n", all)));
            System.out.printf("%,d places in %.2f s through the topology%n", lines.size(), (System.nanoTime() - begun) / 1e9);

            KeyValueStore<String, Long> counts = driver.getKeyValueStore("counts");
            List<KeyValue<String, Long>> sorted = new ArrayList<>();
            try (KeyValueIterator<String, Long> all = counts.all()) {
                all.forEachRemaining(sorted::add);
            }
            sorted.sort(Comparator.comparing((KeyValue<String, Long> count) -> count.value).reversed());
            System.out.println("most places: " + sorted.subList(0, 3));

            KeyValueStore<String, String> kept = driver.getKeyValueStore("places");
            ask(kept, lines, true);
            ask(kept, lines, false);
            try (KeyValueIterator<String, String> iceland = kept.prefixScan("IS/", new StringSerializer())) {
                System.out.println("the first of Iceland: " + iceland.next().key);
            }
            System.out.printf("about %,d entries%n", kept.approximateNumEntries());
        } finally {
            Utils.delete(state.toFile());
        }
    }

    /** Asks for the places that are kept, or those that are not. */
    private static void ask(KeyValueStore<String, String> places, List<String> lines, boolean kept) {
        int asked = 0;
        long begun = System.nanoTime();
        for (String line : lines) {
            if (isKept(line) == kept) {
                asked++;
                if ((places.get(key(line)) != null) != kept) {
                    throw new IllegalStateException(line);
                }
            }
        }
        long each = (System.nanoTime() - begun) / asked;
        System.out.printf("%,d places that are %s: %,d ns each%n", asked, kept ? "kept" : "absent", each);
    }

    private static String key(String line) {
        return line.substring(0, line.indexOf('\t'));
    }

    private static boolean isKept(String line) {
        return key(line).hashCode() % HELD_OUT_OF != 0;
    }

    private static List<String> lines() throws IOException {
        List<String> lines = new ArrayList<>();
        try (BufferedReader reader = new BufferedReader(new InputStreamReader(
                new GZIPInputStream(Files.newInputStream(SAMPLE)), StandardCharsets.UTF_8))) {
            reader.lines().forEach(lines::add);
        }
        return lines;
    }

    /** Keeps places in the store, most of them. */
    private static final class Keep implements Processor<String, String, Void, Void> {
        private KeyValueStore<String, String> places;

        @Override
        public void init(ProcessorContext<Void, Void> context) {
            places = context.getStateStore("places");
        }

        @Override
        public void process(Record<String, String> record) {
            String line = record.value();
            if (isKept(line)) {
                places.put(key(line), line.substring(line.indexOf('\t') + 1));
            }
        }
    }
}
