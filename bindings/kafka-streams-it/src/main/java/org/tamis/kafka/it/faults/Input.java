package org.tamis.kafka.it.faults;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * The records that a run sends: a sequence of batches, each determined by the seed and its number, but for the moment at which
 * event time begins.
 *
 * <p>A batch covers one second of event time. Within a batch times are in any order, across batches they grow.
 */
final class Input {
    /** Event time per batch. */
    static final long BATCH_MS = 1_000;

    private static final int WORDS = 400;
    private static final int KEYS = 100;
    private static final int WORDS_PER_LINE = 8;

    private final long seed;
    private final int perBatch;
    private final long beginMs;

    /**
     * @param seed determines all records
     * @param perBatch records of each of the three topics in a batch
     * @param beginMs the event time of the first batch. Brokers delete by the time of records, those of window stores'
     *     changelogs included: it should lie within the last day
     */
    Input(long seed, int perBatch, long beginMs) {
        this.seed = seed;
        this.perBatch = perBatch;
        this.beginMs = beginMs;
    }

    /** One record. */
    static final class Event {
        final String topic;
        final String key;
        final String value;
        final long timeMs;

        Event(String topic, String key, String value, long timeMs) {
            this.topic = topic;
            this.key = key;
            this.value = value;
            this.timeMs = timeMs;
        }
    }

    /** Returns the records of batch {@code number}, in the order in which they are sent. */
    List<Event> batch(int number) {
        Random random = new Random(seed * 1_000_003 + number);
        List<Event> events = new ArrayList<>();
        for (int i = 0; i < perBatch; i++) {
            String id = number + "." + i;
            events.add(new Event(Topics.LINES, id, line(random), time(number, random)));
            events.add(new Event(Topics.LEFT, key(random), "l" + id, time(number, random)));
            events.add(new Event(Topics.RIGHT, key(random), "r" + id, time(number, random)));
        }
        return events;
    }

    /** All keys of the join's sides. */
    static List<String> keys() {
        return IntStream.range(0, KEYS).mapToObj(i -> "k" + i).collect(Collectors.toList());
    }

    /** The event time at which batch {@code number} begins. */
    long beginOf(int number) {
        return beginMs + number * BATCH_MS;
    }

    private long time(int number, Random random) {
        return beginOf(number) + random.nextInt((int) BATCH_MS);
    }

    private static String key(Random random) {
        return "k" + random.nextInt(KEYS);
    }

    /** Some words are frequent, most are rare. */
    private static String line(Random random) {
        StringBuilder line = new StringBuilder();
        for (int i = 0; i < WORDS_PER_LINE; i++) {
            double skewed = random.nextDouble() * random.nextDouble() * random.nextDouble();
            line.append(i == 0 ? "" : " ").append('w').append((int) (WORDS * skewed));
        }
        return line.toString();
    }
}
