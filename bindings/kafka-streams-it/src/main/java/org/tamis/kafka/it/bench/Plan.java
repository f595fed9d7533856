package org.tamis.kafka.it.bench;

import java.util.List;

/** How much is measured. Children get it as arguments. */
final class Plan {
    /** Records of the table that is restored. */
    long records = 5_000_000;
    /** Lookups in it, and updates. */
    long operations = 2_000_000;
    /** Keys that are updated. */
    long updatedKeys = 1_000_000;
    /** Of a hundred lookups, those of keys that the table lacks. */
    int absentPercent = 90;
    int valueBytes = 100;

    /** The key of lookup {@code i}. */
    byte[] probe(long i) {
        long number = Entries.drawn(i, records);
        return Entries.key(isAbsent(i) ? records + number : number);
    }

    private boolean isAbsent(long i) {
        return Entries.drawn(i + operations, 100) < absentPercent;
    }

    /** The number of lookups that find something. */
    long found() {
        long found = 0;
        for (long i = 0; i < operations; i++) {
            found += isAbsent(i) ? 0 : 1;
        }
        return found;
    }

    List<String> arguments() {
        return List.of(String.valueOf(records), String.valueOf(operations), String.valueOf(updatedKeys),
                String.valueOf(absentPercent), String.valueOf(valueBytes));
    }

    /** What {@link #arguments} gives, from an index on. */
    static Plan of(String[] arguments, int from) {
        Plan plan = new Plan();
        plan.records = Long.parseLong(arguments[from]);
        plan.operations = Long.parseLong(arguments[from + 1]);
        plan.updatedKeys = Long.parseLong(arguments[from + 2]);
        plan.absentPercent = Integer.parseInt(arguments[from + 3]);
        plan.valueBytes = Integer.parseInt(arguments[from + 4]);
        return plan;
    }
}
