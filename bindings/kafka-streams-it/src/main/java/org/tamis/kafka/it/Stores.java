package org.tamis.kafka.it;

/** Names of store suppliers, for command lines. */
public final class Stores {
    private Stores() {}

    /**
     * Returns the class of {@code rocksdb} (Kafka's own), {@code tamis}, or a class given by name.
     *
     * @throws IllegalArgumentException if it is not in the class path
     */
    public static String suppliers(String name) {
        String suppliers = name;
        if (name.equals("rocksdb")) {
            suppliers = "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$RocksDBDslStoreSuppliers";
        } else if (name.equals("tamis")) {
            suppliers = "org.tamis.kafka.TamisDslStoreSuppliers";
        }
        try {
            Class.forName(suppliers, false, Stores.class.getClassLoader());
        } catch (ClassNotFoundException missing) {
            throw new IllegalArgumentException(suppliers + " is not in the class path"
                    + (name.equals("tamis") ? ": build with the Maven profile tamis" : ""), missing);
        }
        return suppliers;
    }
}
