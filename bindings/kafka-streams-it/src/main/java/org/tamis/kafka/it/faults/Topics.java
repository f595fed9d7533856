package org.tamis.kafka.it.faults;

import java.util.List;

/** The topics of a run, each with {@link #PARTITIONS} partitions. */
final class Topics {
    static final int PARTITIONS = 4;

    /** Lines of words, keyed by number. */
    static final String LINES = "lines";
    /** The sides of the join, keyed alike. */
    static final String LEFT = "left";
    static final String RIGHT = "right";

    /** Word to its number so far: one record for each word of each line. */
    static final String COUNTS = "counts";
    /** Key to {@code left+right}, or {@code left+} for a left record without partner: each pair once. */
    static final String PAIRS = "pairs";
    /** {@code key@start} to the number of pairs in that window so far. */
    static final String WINDOWS = "windows";
    /** {@code key@start-end} to the number of left records in that session; null when it became part of a longer one. */
    static final String SESSIONS = "sessions";

    static final List<String> INPUTS = List.of(LINES, LEFT, RIGHT);
    static final List<String> OUTPUTS = List.of(COUNTS, PAIRS, WINDOWS, SESSIONS);

    private Topics() {}
}
