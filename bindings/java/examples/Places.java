import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;
import java.util.zip.GZIPInputStream;
import org.tamis.Cursor;
import org.tamis.Database;
import org.tamis.Entry;
import org.tamis.Keyspace;
import org.tamis.Options;
import org.tamis.Range;
import org.tamis.WriteBatch;

/**
 * Loads 171,075 places of the world (GeoNames, CC BY 4.0, geonames.org), then asks for some of them.
 *
 * <p>Keys are {@code COUNTRY/REGION/NAME@LATITUDE,LONGITUDE}, values the districts.
 */
final class Places {
    private static final Path SAMPLE = Path.of("..", "..", "crates", "tamis-bench", "data", "geonames-cities.tsv.gz");

    public static void main(String[] arguments) throws IOException {
        if (arguments.length > 0) {
            run(Path.of(arguments[0]));
            return;
        }
        Path directory = Files.createTempDirectory("places");
        try {
            run(directory);
        } finally {
            try (Stream<Path> files = Files.walk(directory)) {
                files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
            }
        }
    }

    private static void run(Path directory) throws IOException {
        try (Database db = Database.open(directory, new Options().filter("ribbon"))) {
            long begun = System.nanoTime();
            int places = load(db);
            double seconds = (System.nanoTime() - begun) / 1e9;
            System.out.printf("loaded %,d places in %.2f s into %s%n", places, seconds, directory);
            db.flush();

            System.out.println("\nIceland, from the last one on:");
            try (Cursor iceland = db.keys(Range.all().prefix("IS/".getBytes(UTF_8)).reverse())) {
                for (int i = 0; i < 3; i++) {
                    System.out.println("  " + new String(iceland.next().key(), UTF_8));
                }
            }

            Keyspace counts = db.keyspaceOrCreate("countries", new Options());
            try (Cursor keys = db.keys(Range.all())) {
                keys.forEachRemaining(place -> counts.increment(country(place), 1));
            }
            System.out.println("\nmost places: " + largest(counts));

            byte[] last = db.last().key();
            System.out.printf("%na read of %s: %s%n", new String(last, UTF_8), db.explainGet(last));
        }
    }

    private static int load(Database db) throws IOException {
        int places = 0;
        try (BufferedReader lines = new BufferedReader(
                        new InputStreamReader(new GZIPInputStream(Files.newInputStream(SAMPLE)), UTF_8));
                WriteBatch batch = new WriteBatch()) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] parts = line.split("\t", 2);
                batch.put(parts[0].getBytes(UTF_8), parts[1].getBytes(UTF_8));
                places++;
                if (batch.size() == 1000) {
                    db.write(batch);
                }
            }
            db.write(batch);
        }
        return places;
    }

    private static byte[] country(Entry place) {
        return new byte[] {place.key()[0], place.key()[1]};
    }

    private static String largest(Keyspace counts) {
        List<Entry> entries = new ArrayList<>();
        try (Cursor items = counts.items(Range.all())) {
            items.forEachRemaining(entries::add);
        }
        entries.sort(Comparator.comparingLong(Places::number).reversed());
        StringBuilder text = new StringBuilder();
        for (Entry entry : entries.subList(0, 3)) {
            text.append(text.length() == 0 ? "" : ", ");
            text.append(String.format("%s %,d", new String(entry.key(), UTF_8), number(entry)));
        }
        return text.toString();
    }

    /** Numbers have eight bytes, little-endian. */
    private static long number(Entry entry) {
        return ByteBuffer.wrap(entry.value()).order(ByteOrder.LITTLE_ENDIAN).getLong();
    }
}
