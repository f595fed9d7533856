package org.tamis.kafka.it.faults;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** What the topology must have put out for an input: computed from all records at once, by no window or store. */
final class Expected {
    final Map<String, Long> counts = new HashMap<>();
    /** {@code key=left+right}. */
    final Set<String> pairs = new HashSet<>();
    final Map<String, Long> windows = new HashMap<>();
    final Map<String, Long> sessions = new HashMap<>();
    /** Pairs with both sides. */
    int matched;

    Expected(List<Input.Event> events) {
        Map<String, List<Input.Event>> left = new HashMap<>();
        Map<String, List<Input.Event>> right = new HashMap<>();
        for (Input.Event event : events) {
            switch (event.topic) {
                case Topics.LINES:
                    for (String word : event.value.split(" ")) {
                        counts.merge(word, 1L, Long::sum);
                    }
                    break;
                case Topics.LEFT:
                    left.computeIfAbsent(event.key, key -> new ArrayList<>()).add(event);
                    break;
                default:
                    right.computeIfAbsent(event.key, key -> new ArrayList<>()).add(event);
            }
        }
        left.forEach((key, ofKey) -> {
            for (Input.Event one : ofKey) {
                pair(one, right.getOrDefault(key, List.of()));
            }
            sessions(key, ofKey);
        });
    }

    private void pair(Input.Event left, List<Input.Event> candidates) {
        boolean alone = true;
        for (Input.Event right : candidates) {
            if (Math.abs(left.timeMs - right.timeMs) <= CountAndJoin.JOIN_DIFFERENCE.toMillis()) {
                alone = false;
                matched++;
                pairs.add(left.key + "=" + left.value + "+" + right.value);
                long time = Math.max(left.timeMs, right.timeMs);
                long start = time - time % CountAndJoin.WINDOW.toMillis();
                windows.merge(left.key + "@" + start, 1L, Long::sum);
            }
        }
        if (alone) {
            pairs.add(left.key + "=" + left.value + "+");
        }
    }

    private void sessions(String key, List<Input.Event> events) {
        events.sort(Comparator.comparingLong(event -> event.timeMs));
        long start = events.get(0).timeMs;
        long end = start;
        long count = 0;
        for (Input.Event event : events) {
            if (event.timeMs - end > CountAndJoin.SESSION_GAP.toMillis()) {
                sessions.put(key + "@" + start + "-" + end, count);
                start = event.timeMs;
                count = 0;
            }
            end = event.timeMs;
            count++;
        }
        sessions.put(key + "@" + start + "-" + end, count);
    }
}
