package org.tamis;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Executes commands of the script, each by the public method that a program would call. */
final class ConformanceMachine implements AutoCloseable {
    /** The answer of what has none. */
    static final Object DONE = "done";

    private final Path directory;
    /** Databases, keyspaces, snapshots, cursors, batches, transactions and savepoints. */
    private final Map<String, Object> handles = new LinkedHashMap<>();

    ConformanceMachine(Path directory) {
        this.directory = directory;
    }

    /** Executes a line and says what was wrong about the answer; null: nothing. */
    static String wrong(ConformanceMachine machine, ConformanceScript.Line line) {
        List<Object> wanted = line.answer;
        Object given;
        try {
            given = machine.execute(line.command, new Arguments(line.arguments));
        } catch (TamisException error) {
            boolean right = wanted.equals(List.of("error", error.code().text()));
            return right ? null : line.where + "\n    answered " + error.code() + ": " + error.getMessage();
        }
        boolean right = wanted.isEmpty() || wanted.equals(List.of("any")) || isMet(wanted, given);
        return right ? null : line.where + "\n    answered " + shown(given);
    }

    private static boolean isMet(List<Object> wanted, Object given) {
        Object first = wanted.get(0);
        if (first.equals("list")) {
            List<Object> items = wanted.subList(1, wanted.size());
            if (!(given instanceof List) || ((List<?>) given).size() != items.size()) {
                return false;
            }
            int at = 0;
            for (Object item : (List<?>) given) {
                if (!isMet(List.of(items.get(at++)), item)) {
                    return false;
                }
            }
            return true;
        }
        if (wanted.size() != 1) {
            return false;
        }
        if (first instanceof byte[]) {
            return given instanceof byte[] && Arrays.equals((byte[]) first, (byte[]) given);
        }
        if (first.equals("none")) {
            return given == null;
        }
        return (given instanceof Long || given instanceof Boolean) && first.equals(given.toString());
    }

    private static String shown(Object given) {
        String text = given instanceof byte[] ? Arrays.toString((byte[]) given) : String.valueOf(given);
        return text.substring(0, Math.min(200, text.length()));
    }

    /** The arguments of a command. */
    private static final class Arguments {
        private final List<Object> tokens;

        Arguments(List<Object> tokens) {
            this.tokens = tokens;
        }

        int count() {
            return tokens.size();
        }

        String word(int at) {
            return (String) tokens.get(at);
        }

        byte[] bytes(int at) {
            return (byte[]) tokens.get(at);
        }

        String text(int at) {
            return new String(bytes(at), UTF_8);
        }

        /** Bytes, or null for {@code none} and {@code -}. */
        byte[] optional(int at) {
            return tokens.get(at) instanceof byte[] ? bytes(at) : null;
        }

        byte[][] from(int at) {
            return tokens.subList(at, tokens.size()).toArray(byte[][]::new);
        }

        Range range(int at) {
            Range range = Range.all();
            range = optional(at) == null ? range : range.from(bytes(at));
            return optional(at + 1) == null ? range : range.to(bytes(at + 1));
        }

        Options options(int at) {
            Options options = new Options();
            for (int i = at; i < tokens.size(); i += 2) {
                options.set(word(i), word(i + 1));
            }
            return options;
        }
    }

    private Database db(String name) {
        return (Database) handles.get(name);
    }

    private Keyspace keyspace(String name) {
        return (Keyspace) handles.get(name);
    }

    private Transaction transaction(String name) {
        return (Transaction) handles.get(name);
    }

    private Cursor cursor(String name) {
        return (Cursor) handles.get(name);
    }

    /** The handle of a name, or what it is concerning another keyspace. */
    private Reader reader(String name) {
        String[] parts = name.split("@");
        Object handle = handles.get(parts[0]);
        if (parts.length == 1) {
            return (Reader) handle;
        }
        Keyspace keyspace = keyspace(parts[1]);
        return handle instanceof Snapshot ? ((Snapshot) handle).keyspace(keyspace) : ((Transaction) handle).keyspace(keyspace);
    }

    private Path path(Arguments a, int at) {
        return directory.resolve(a.text(at));
    }

    private Object keep(String name, Object handle) {
        release(name);
        handles.put(name, handle);
        return DONE;
    }

    private void release(String name) {
        Object handle = handles.remove(name);
        if (handle instanceof AutoCloseable) {
            try {
                ((AutoCloseable) handle).close();
            } catch (TamisException error) {
                throw error;
            } catch (Exception error) {
                throw new AssertionError(error);
            }
        }
    }

    @Override
    public void close() {
        for (String name : List.copyOf(handles.keySet())) {
            release(name);
        }
    }

    private Object execute(String command, Arguments a) {
        switch (command) {
            case "open":
                release(a.word(0));
                return keep(a.word(0), Database.open(path(a, 1), a.options(2)));
            case "open-read-only":
                release(a.word(0));
                return keep(a.word(0), Database.openReadOnly(path(a, 1), a.options(2)));
            case "close":
                db(a.word(0)).close();
                return DONE;
            case "release":
                release(a.word(0));
                return DONE;
            case "put":
            case "delete":
            case "merge":
            case "delete-range":
            case "delete-prefix":
                return write(command, a);
            case "clear":
                keyspace(a.word(0)).clear();
                return DONE;
            case "get":
                return reader(a.word(0)).get(a.bytes(1));
            case "contains":
                return reader(a.word(0)).containsKey(a.bytes(1));
            case "multi-get":
                return Arrays.asList(reader(a.word(0)).multiGet(a.from(1)));
            case "scan":
                return list(a, a.range(1));
            case "scan-back":
                return list(a, a.range(1).reverse());
            case "scan-prefix":
                return list(a, Range.all().prefix(a.bytes(1)));
            case "scan-prefix-back":
                return list(a, Range.all().prefix(a.bytes(1)).reverse());
            case "is-empty":
                return reader(a.word(0)).isEmpty();
            case "iter":
                return keep(a.word(0), reader(a.word(1)).items(a.range(2)));
            case "iter-prefix":
                return keep(a.word(0), reader(a.word(1)).items(Range.all().prefix(a.bytes(2))));
            case "next":
                return item(cursor(a.word(0)).hasNext() ? cursor(a.word(0)).next() : null);
            case "prev":
                return item(cursor(a.word(0)).nextBack());
            case "seek":
                cursor(a.word(0)).seek(a.bytes(1));
                return DONE;
            case "batch":
                return keep(a.word(0), new WriteBatch());
            case "write":
                Durability durability = a.count() > 2 ? Durability.of(a.word(2)) : null;
                db(a.word(0)).write((WriteBatch) handles.get(a.word(1)), durability);
                return DONE;
            case "snapshot":
                return keep(a.word(0), db(a.word(1)).snapshot());
            case "transaction":
                Isolation isolation = a.count() > 2 ? Isolation.of(a.word(2)) : Isolation.SERIALIZABLE;
                return keep(a.word(0), db(a.word(1)).transaction(isolation, null));
            case "lock-transaction":
                Duration timeout = Duration.ofMillis(Long.parseLong(a.word(2)));
                return keep(a.word(0), db(a.word(1)).lockTransaction(timeout, null));
            case "get-for-update":
                return ((LockTransaction) handles.get(a.word(0))).getForUpdate(a.bytes(1));
            case "commit":
                transaction(a.word(0)).commit();
                return DONE;
            case "rollback":
                transaction(a.word(0)).rollback();
                return DONE;
            case "savepoint":
                return keep(a.word(0), transaction(a.word(1)).savepoint());
            case "rollback-to":
                transaction(a.word(0)).rollbackTo((Savepoint) handles.get(a.word(1)));
                return DONE;
            case "prepare":
                ((LockTransaction) handles.get(a.word(0))).prepare(a.bytes(1));
                return DONE;
            case "prepared":
                return db(a.word(0)).preparedTransactions();
            case "commit-prepared":
                db(a.word(0)).commitPrepared(a.bytes(1));
                return DONE;
            case "abort-prepared":
                db(a.word(0)).abortPrepared(a.bytes(1));
                return DONE;
            case "compare-and-swap":
                return keyspace(a.word(0)).compareAndSwap(a.bytes(1), a.optional(2), a.optional(3));
            case "insert-if-absent":
                return keyspace(a.word(0)).insertIfAbsent(a.bytes(1), a.bytes(2));
            case "take":
                return keyspace(a.word(0)).take(a.bytes(1));
            case "increment":
                return keyspace(a.word(0)).increment(a.bytes(1), Long.parseLong(a.word(2)));
            default:
                return maintain(command, a);
        }
    }

    private Object maintain(String command, Arguments a) {
        switch (command) {
            case "keyspace":
                return keep(a.word(0), db(a.word(1)).keyspace(a.text(2)));
            case "create-keyspace":
                return keep(a.word(0), db(a.word(1)).createKeyspace(a.text(2), a.options(3)));
            case "get-or-create-keyspace":
                return keep(a.word(0), db(a.word(1)).keyspaceOrCreate(a.text(2), a.options(3)));
            case "drop-keyspace":
                db(a.word(0)).dropKeyspace(a.text(1));
                return DONE;
            case "rename-keyspace":
                db(a.word(0)).renameKeyspace(a.text(1), a.text(2));
                return DONE;
            case "keyspaces":
                List<Object> names = new ArrayList<>();
                db(a.word(0)).keyspaces().forEach(name -> names.add(name.getBytes(UTF_8)));
                return names;
            case "set-options":
                keyspace(a.word(0)).setOptions(a.options(1));
                return DONE;
            case "flush":
                keyspace(a.word(0)).flush();
                return DONE;
            case "compact":
                keyspace(a.word(0)).compact();
                return DONE;
            case "compact-range":
                keyspace(a.word(0)).compact(a.range(1));
                return DONE;
            case "sync":
                db(a.word(0)).sync();
                return DONE;
            case "checkpoint":
                db(a.word(0)).checkpoint(path(a, 1));
                return DONE;
            case "verify":
                return db(a.word(0)).verify().contains("\"problems\":[]") ? 0L : 1L;
            case "approximate-len":
                return keyspace(a.word(0)).approximateCount(a.range(1));
            case "approximate-size":
                return keyspace(a.word(0)).approximateSize(a.range(1));
            case "build-table":
                try (TableBuilder table = new TableBuilder(path(a, 0))) {
                    for (int i = 1; i < a.count(); i += 2) {
                        table.put(a.bytes(i), a.bytes(i + 1));
                    }
                    table.finish();
                }
                return DONE;
            case "ingest":
                List<Path> files = new ArrayList<>();
                for (int i = 1; i < a.count(); i++) {
                    files.add(path(a, i));
                }
                return keyspace(a.word(0)).ingest(files);
            case "stats":
                return field(db(a.word(0)).stats(), a.text(1));
            case "explain":
                return field(keyspace(a.word(0)).explainGet(a.bytes(1)), a.text(2));
            default:
                throw new AssertionError("no such command: " + command);
        }
    }

    private Object write(String command, Arguments a) {
        String[] parts = a.word(0).split("@");
        if (handles.get(parts[0]) instanceof WriteBatch) {
            WriteBatch batch = (WriteBatch) handles.get(parts[0]);
            return parts.length > 1 ? add(batch, keyspace(parts[1]), command, a) : add(batch, command, a);
        }
        Reader place = reader(a.word(0));
        if (place instanceof Keyspace) {
            Keyspace keyspace = (Keyspace) place;
            switch (command) {
                case "put":
                    keyspace.put(a.bytes(1), a.bytes(2));
                    return DONE;
                case "delete":
                    keyspace.delete(a.bytes(1));
                    return DONE;
                case "merge":
                    keyspace.merge(a.bytes(1), a.bytes(2));
                    return DONE;
                case "delete-prefix":
                    keyspace.deletePrefix(a.bytes(1));
                    return DONE;
                default:
                    keyspace.deleteRange(a.optional(1), a.optional(2));
                    return DONE;
            }
        }
        TransactionView view = (TransactionView) place;
        switch (command) {
            case "put":
                view.put(a.bytes(1), a.bytes(2));
                return DONE;
            case "delete":
                view.delete(a.bytes(1));
                return DONE;
            case "merge":
                view.merge(a.bytes(1), a.bytes(2));
                return DONE;
            default:
                view.deleteRange(a.optional(1), a.optional(2));
                return DONE;
        }
    }

    private static Object add(WriteBatch batch, String command, Arguments a) {
        switch (command) {
            case "put":
                batch.put(a.bytes(1), a.bytes(2));
                return DONE;
            case "delete":
                batch.delete(a.bytes(1));
                return DONE;
            case "merge":
                batch.merge(a.bytes(1), a.bytes(2));
                return DONE;
            case "delete-prefix":
                batch.deletePrefix(a.bytes(1));
                return DONE;
            default:
                batch.deleteRange(a.optional(1), a.optional(2));
                return DONE;
        }
    }

    private static Object add(WriteBatch batch, Keyspace keyspace, String command, Arguments a) {
        switch (command) {
            case "put":
                batch.put(keyspace, a.bytes(1), a.bytes(2));
                return DONE;
            case "delete":
                batch.delete(keyspace, a.bytes(1));
                return DONE;
            case "merge":
                batch.merge(keyspace, a.bytes(1), a.bytes(2));
                return DONE;
            case "delete-prefix":
                batch.deletePrefix(keyspace, a.bytes(1));
                return DONE;
            default:
                batch.deleteRange(keyspace, a.optional(1), a.optional(2));
                return DONE;
        }
    }

    private Object list(Arguments a, Range range) {
        List<byte[]> items = new ArrayList<>();
        try (Cursor cursor = reader(a.word(0)).items(range)) {
            cursor.forEachRemaining(entry -> {
                items.add(entry.key());
                items.add(entry.value());
            });
        }
        return items;
    }

    private static Object item(Entry entry) {
        return entry == null ? null : List.of(entry.key(), entry.value());
    }

    private static Object field(String json, String name) {
        if (!json.contains("\"" + name + "\":")) {
            throw new AssertionError("there is no " + name + " in " + json);
        }
        return DONE;
    }

    /** Runs the lines of a test and returns what was wrong. */
    static List<String> run(Path directory, List<ConformanceScript.Line> lines) {
        List<String> wrong = new ArrayList<>();
        try (ConformanceMachine machine = new ConformanceMachine(directory)) {
            for (ConformanceScript.Line line : lines) {
                String answer = wrong(machine, line);
                if (answer != null) {
                    wrong.add(answer);
                }
            }
        }
        return wrong;
    }
}
