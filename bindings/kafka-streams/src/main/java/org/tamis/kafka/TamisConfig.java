package org.tamis.kafka;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.config.ConfigException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.tamis.Options;

/**
 * What the configuration of a Kafka Streams application says about its tamis stores.
 *
 * <table>
 * <caption>Keys</caption>
 * <tr><th>key<th>meaning
 * <tr><td>{@value #READ_MEMORY}<td>bytes of block cache and elastic filters, of all stores of the process together
 * <tr><td>{@value #WRITE_MEMORY}<td>bytes of memtables, of all stores of the process together
 * <tr><td>{@code tamis.OPTION}<td>an option of the engine, for every store: {@code tamis.block_bytes=8 KiB}
 * <tr><td>{@code tamis.store.NAME.OPTION}<td>the same for the store of that name, which goes before
 * </table>
 *
 * <p>An option that the engine does not know, or a value that it does not accept, fails the opening of the store. So does
 * {@code tamis.store.NAME.OPTION} with such an option, whichever store it names; one that names no store of the process is warned of, as
 * several applications may share a configuration.
 */
public final class TamisConfig {
    /** What all keys begin with. */
    public static final String PREFIX = "tamis.";
    /** Bytes of block cache and elastic filters, of all stores of the process together: {@value #DEFAULT_READ_MEMORY} if not set. */
    public static final String READ_MEMORY = "tamis.read.memory.bytes";
    /** The default of {@link #READ_MEMORY}. */
    public static final long DEFAULT_READ_MEMORY = 256L << 20;
    /** Bytes of memtables, of all stores of the process together: {@value #DEFAULT_WRITE_MEMORY} if not set. */
    public static final String WRITE_MEMORY = "tamis.write.memory.bytes";
    /** The default of {@link #WRITE_MEMORY}. */
    public static final long DEFAULT_WRITE_MEMORY = 256L << 20;

    private static final String STORE_PREFIX = PREFIX + "store.";
    private static final Logger LOG = LoggerFactory.getLogger(TamisConfig.class);
    /** The stores that the process has suppliers of: topologies are complete before their first store is opened. */
    private static final Set<String> STORES = ConcurrentHashMap.newKeySet();
    /** What was warned of. */
    private static final Set<String> WARNED = ConcurrentHashMap.newKeySet();

    private final Map<String, String> options;
    private final long readMemory;
    private final long writeMemory;

    private TamisConfig(Map<String, String> options, long readMemory, long writeMemory) {
        this.options = options;
        this.readMemory = readMemory;
        this.writeMemory = writeMemory;
    }

    /** Notes that there is a store of this name. */
    static void supplies(String store) {
        STORES.add(store);
    }

    /** Returns the keys that name no store of this process, which may be misspelt. */
    static Set<String> strangers(Map<String, ?> configs) {
        Set<String> strangers = new TreeSet<>();
        for (String key : configs.keySet()) {
            if (key.startsWith(STORE_PREFIX) && STORES.stream().noneMatch(store -> key.startsWith(STORE_PREFIX + store + '.'))) {
                strangers.add(key);
            }
        }
        return strangers;
    }

    private static void check(Map<String, ?> configs) {
        for (String key : configs.keySet()) {
            if (key.startsWith(STORE_PREFIX)) {
                String option = key.substring(key.lastIndexOf('.') + 1);
                String known = Options.describe();
                if (!known.contains("\"name\":\"" + option + '"') && !known.contains("\"name\":\"keyspace." + option + '"')) {
                    throw new ConfigException(key, configs.get(key), "it ends with no option that tamis has; it is tamis.store.NAME.OPTION");
                }
            }
        }
        for (String key : strangers(configs)) {
            if (WARNED.add(key)) {
                LOG.warn("{} is not used: no store of tamis in this process has such a name", key);
            }
        }
    }

    /**
     * Reads the configuration for one store.
     *
     * @param configs the configuration of the application
     * @param store the name of the store
     * @param defaults options of the engine that hold unless the configuration has others
     * @return what it says
     * @throws ConfigException for an amount of memory that is no number, or not positive, and for an option of a store that there is not
     */
    static TamisConfig of(Map<String, ?> configs, String store, Map<String, String> defaults) {
        supplies(store);
        check(configs);
        Map<String, String> options = new LinkedHashMap<>(defaults);
        Map<String, String> own = new LinkedHashMap<>();
        String ownPrefix = STORE_PREFIX + store + '.';
        configs.forEach((key, value) -> {
            if (!key.startsWith(PREFIX) || key.equals(READ_MEMORY) || key.equals(WRITE_MEMORY) || value == null) {
                return;
            }
            if (key.startsWith(ownPrefix)) {
                own.put(key.substring(ownPrefix.length()), value.toString());
            } else if (!key.startsWith(STORE_PREFIX)) {
                options.put(key.substring(PREFIX.length()), value.toString());
            }
        });
        options.putAll(own);
        return new TamisConfig(
                options,
                bytes(configs, READ_MEMORY, DEFAULT_READ_MEMORY),
                bytes(configs, WRITE_MEMORY, DEFAULT_WRITE_MEMORY));
    }

    Map<String, String> options() {
        return options;
    }

    long readMemory() {
        return readMemory;
    }

    long writeMemory() {
        return writeMemory;
    }

    private static long bytes(Map<String, ?> configs, String key, long otherwise) {
        Object value = configs.get(key);
        if (value == null) {
            return otherwise;
        }
        try {
            long bytes = Long.parseLong(value.toString().trim());
            if (bytes > 0) {
                return bytes;
            }
        } catch (NumberFormatException error) {
            // Said below.
        }
        throw new ConfigException(key, value, "expected a positive number of bytes");
    }
}
