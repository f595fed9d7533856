package org.tamis.kafka.it.faults;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.stream.Collectors;

/**
 * What the output topics say. The records of each key are given in their order.
 *
 * <p>Counts of words must be 1, 2, 3, …: one that is lost or done twice is noticed even if later ones hide it. A pair must come
 * once. Windows are cached and sessions grow, so what counts is their last value.
 */
final class Outputs {
    /** Faults told in full; more are only counted. */
    private static final int TOLD = 20;

    final Map<String, Long> counts = new HashMap<>();
    final Set<String> pairs = new HashSet<>();
    final Map<String, Long> windows = new HashMap<>();
    final Map<String, Long> sessions = new HashMap<>();
    private final List<String> faults = new ArrayList<>();
    private long faultCount;

    /** Takes one record. */
    void take(String topic, String key, String value) {
        switch (topic) {
            case Topics.COUNTS: {
                long count = Long.parseLong(value);
                Long before = counts.put(key, count);
                if (count != (before == null ? 0 : before) + 1) {
                    fault("word " + key + ": " + count + " after " + before);
                }
                break;
            }
            case Topics.PAIRS:
                if (!key.startsWith(CountAndJoin.CLOCK) && !pairs.add(key + "=" + value)) {
                    fault("pair " + key + "=" + value + " twice");
                }
                break;
            case Topics.WINDOWS:
                windows.put(key, Long.valueOf(value));
                break;
            default:
                if (value == null) {
                    sessions.remove(key);
                } else {
                    sessions.put(key, Long.valueOf(value));
                }
        }
    }

    private void fault(String text) {
        faultCount++;
        if (faults.size() < TOLD) {
            faults.add(text);
        }
    }

    /** Whether all that is expected has come, or more. */
    boolean isComplete(Expected expected, boolean withoutPartner) {
        int pairsNeeded = withoutPartner ? expected.pairs.size() : expected.matched;
        return counts.equals(expected.counts)
                && pairs.size() >= pairsNeeded
                && windows.equals(expected.windows)
                && sessions.equals(expected.sessions);
    }

    /** Returns what differs from the expected, in words; empty if nothing does. */
    List<String> differences(Expected expected) {
        List<String> all = new ArrayList<>(faults);
        if (faultCount > faults.size()) {
            all.add("… and " + (faultCount - faults.size()) + " more");
        }
        all.addAll(differences("word", expected.counts, counts));
        all.addAll(differences("pair", ones(expected.pairs), ones(pairs)));
        all.addAll(differences("window", expected.windows, windows));
        all.addAll(differences("session", expected.sessions, sessions));
        return all;
    }

    private static Map<String, Long> ones(Set<String> set) {
        return set.stream().collect(Collectors.toMap(item -> item, item -> 1L));
    }

    static List<String> differences(String what, Map<String, Long> expected, Map<String, Long> actual) {
        Set<String> keys = new HashSet<>(expected.keySet());
        keys.addAll(actual.keySet());
        List<String> wrong = keys.stream()
                .filter(key -> !Objects.equals(expected.get(key), actual.get(key)))
                .sorted()
                .collect(Collectors.toList());
        List<String> told = wrong.stream()
                .limit(TOLD)
                .map(key -> what + " " + key + ": " + actual.get(key) + ", not " + expected.get(key))
                .collect(Collectors.toList());
        if (wrong.size() > TOLD) {
            told.add("… and " + (wrong.size() - TOLD) + " more of " + what);
        }
        return told;
    }
}
