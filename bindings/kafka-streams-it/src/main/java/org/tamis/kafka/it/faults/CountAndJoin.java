package org.tamis.kafka.it.faults;

import java.time.Duration;
import java.util.Arrays;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;

/**
 * The topology of a run: a word count over a repartition topic (key-value store), a windowed left join of two streams (window
 * stores, and the key-value store of records without partner), pairs counted in windows, and sessions.
 *
 * <p>No store is named by class: all come from {@code dsl.store.suppliers.class}. Counts of words and sessions are not
 * cached, so that each update is an output record; windows are.
 */
final class CountAndJoin {
    static final Duration JOIN_DIFFERENCE = Duration.ofSeconds(5);
    static final Duration WINDOW = Duration.ofSeconds(30);
    static final Duration SESSION_GAP = Duration.ofSeconds(3);
    /** More than what the sides of a join may be apart when they are read; less than a run, so that windows expire. */
    static final Duration GRACE = Duration.ofMinutes(4);
    /** Keys of records that only move the time. */
    static final String CLOCK = "clock";

    static final String COUNTS_STORE = "counts-store";
    static final String WINDOWS_STORE = "windows-store";
    static final String SESSIONS_STORE = "sessions-store";

    private static final Serde<String> TEXT = Serdes.String();

    private CountAndJoin() {}

    static void build(StreamsBuilder builder) {
        Consumed<String, String> consumed = Consumed.with(TEXT, TEXT);
        words(builder.stream(Topics.LINES, consumed));
        KStream<String, String> left = builder.stream(Topics.LEFT, consumed);
        join(left, builder.stream(Topics.RIGHT, consumed));
        sessions(left);
    }

    private static void words(KStream<String, String> lines) {
        lines.flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((number, word) -> word, Grouped.with("words", TEXT, TEXT))
                .count(Named.as("count"), Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as(COUNTS_STORE).withCachingDisabled())
                .toStream()
                .mapValues(count -> Long.toString(count))
                .to(Topics.COUNTS, Produced.with(TEXT, TEXT));
    }

    private static void join(KStream<String, String> left, KStream<String, String> right) {
        KStream<String, String> pairs = left.leftJoin(
                right,
                (l, r) -> l + "+" + (r == null ? "" : r),
                JoinWindows.ofTimeDifferenceAndGrace(JOIN_DIFFERENCE, GRACE),
                StreamJoined.with(TEXT, TEXT, TEXT).withName("join").withStoreName("join"));
        pairs.to(Topics.PAIRS, Produced.with(TEXT, TEXT));
        // A record without partner is known so late that its window may have closed.
        pairs.filterNot((key, pair) -> pair.endsWith("+"))
                .groupByKey(Grouped.with(TEXT, TEXT))
                .windowedBy(TimeWindows.ofSizeAndGrace(WINDOW, GRACE))
                .count(Named.as("window"), Materialized.as(WINDOWS_STORE))
                .toStream((window, count) -> window.key() + "@" + window.window().start())
                .mapValues(count -> Long.toString(count))
                .to(Topics.WINDOWS, Produced.with(TEXT, TEXT));
    }

    private static void sessions(KStream<String, String> left) {
        left.filterNot((key, value) -> key.startsWith(CLOCK))
                .groupByKey(Grouped.with(TEXT, TEXT))
                .windowedBy(SessionWindows.ofInactivityGapAndGrace(SESSION_GAP, GRACE))
                .count(Named.as("session"), Materialized.<String, Long, SessionStore<Bytes, byte[]>>as(SESSIONS_STORE).withCachingDisabled())
                .toStream((window, count) -> session(window))
                .mapValues(count -> count == null ? null : Long.toString(count))
                .to(Topics.SESSIONS, Produced.with(TEXT, TEXT));
    }

    static String session(Windowed<String> window) {
        return window.key() + "@" + window.window().start() + "-" + window.window().end();
    }
}
