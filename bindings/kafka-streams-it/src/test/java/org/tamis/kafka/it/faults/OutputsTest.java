package org.tamis.kafka.it.faults;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.test.TestRecord;
import org.junit.jupiter.api.Test;

/** The topology without a broker or faults puts out what is expected of it; and what is lost or done twice is found. */
class OutputsTest {
    private static final int BATCHES = 600;

    private final List<Input.Event> events = events(7);
    private final Expected expected = new Expected(events);

    private static List<Input.Event> events(long seed) {
        Input input = new Input(seed, 5, System.currentTimeMillis() - 86_400_000);
        List<Input.Event> events = new ArrayList<>();
        for (int batch = 0; batch < BATCHES; batch++) {
            events.addAll(input.batch(batch));
        }
        return events;
    }

    /** The outputs of the topology, as records. */
    private List<TestRecord<String, String>> outputsOf(TopologyTestDriver driver, String topic) {
        return driver.createOutputTopic(topic, new StringDeserializer(), new StringDeserializer()).readRecordsToList();
    }

    private List<Output> run() {
        StreamsBuilder builder = new StreamsBuilder();
        CountAndJoin.build(builder);
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "test");
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "nowhere:1");
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        // With others, the driver would write and sync a checkpoint after each record.
        properties.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG,
                BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        List<Output> outputs = new ArrayList<>();
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(properties), properties)) {
            long latest = 0;
            for (Input.Event event : events) {
                topic(driver, event.topic).pipeInput(new TestRecord<>(event.key, event.value, null, event.timeMs));
                latest = Math.max(latest, event.timeMs);
            }
            for (int hour = 1; hour <= 2; hour++) {
                // The join looks for records without partner at most once a second.
                driver.advanceWallClockTime(Duration.ofSeconds(2));
                topic(driver, Topics.LEFT)
                        .pipeInput(new TestRecord<>(CountAndJoin.CLOCK, "", null, latest + hour * 3_600_000L));
            }
            for (String topic : Topics.OUTPUTS) {
                outputsOf(driver, topic).forEach(record -> outputs.add(new Output(topic, record.key(), record.value())));
            }
        }
        return outputs;
    }

    private static TestInputTopic<String, String> topic(TopologyTestDriver driver, String name) {
        return driver.createInputTopic(name, new StringSerializer(), new StringSerializer());
    }

    private static final class Output {
        final String topic;
        final String key;
        final String value;

        Output(String topic, String key, String value) {
            this.topic = topic;
            this.key = key;
            this.value = value;
        }
    }

    private static Outputs taken(List<Output> records) {
        Outputs outputs = new Outputs();
        records.forEach(record -> outputs.take(record.topic, record.key, record.value));
        return outputs;
    }

    @Test
    void topologyPutsOutWhatIsExpected() {
        Outputs outputs = taken(run());
        assertEquals(List.of(), outputs.differences(expected));
        assertTrue(outputs.isComplete(expected, true));
        assertTrue(expected.pairs.size() > expected.matched && expected.matched > BATCHES, "pairs of both kinds");
        assertTrue(expected.sessions.values().stream().anyMatch(count -> count > 3), "sessions were merged");
    }

    @Test
    void oneRecordMoreOrLessIsFound() {
        List<Output> good = run();
        for (String topic : Topics.OUTPUTS) {
            int last = lastOf(good, topic);
            List<Output> lost = new ArrayList<>(good);
            Output record = lost.remove(last);
            assertFalse(taken(lost).differences(expected).isEmpty(), "a lost record of " + topic);
            // Windows and sessions are read by their last value: the same again is no fault.
            if (topic.equals(Topics.COUNTS) || topic.equals(Topics.PAIRS)) {
                List<Output> twice = new ArrayList<>(good);
                twice.add(record);
                assertFalse(taken(twice).differences(expected).isEmpty(), "a record of " + topic + " twice");
            }
        }
        // A count that went back and came to the same in the end.
        List<Output> again = new ArrayList<>(good);
        int first = firstOf(good, Topics.COUNTS);
        again.add(first + 1, good.get(first));
        assertFalse(taken(again).differences(expected).isEmpty(), "an update done twice, hidden by later ones");
        // Another input is another result.
        assertFalse(taken(good).differences(new Expected(events(8))).isEmpty());
    }

    private static int firstOf(List<Output> records, String topic) {
        int at = 0;
        while (!records.get(at).topic.equals(topic)) {
            at++;
        }
        return at;
    }

    /** The last record of a topic that says something: not of the clock, no tombstone. */
    private static int lastOf(List<Output> records, String topic) {
        int at = records.size() - 1;
        while (!records.get(at).topic.equals(topic)
                || records.get(at).value == null
                || records.get(at).key.startsWith(CountAndJoin.CLOCK)) {
            at--;
        }
        return at;
    }
}
