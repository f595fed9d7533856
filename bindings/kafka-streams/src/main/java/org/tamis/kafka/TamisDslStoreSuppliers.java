package org.tamis.kafka;

import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.state.DslKeyValueParams;
import org.apache.kafka.streams.state.DslSessionParams;
import org.apache.kafka.streams.state.DslStoreSuppliers;
import org.apache.kafka.streams.state.DslWindowParams;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;

/**
 * Has all stores of a topology kept by tamis that do not name another supplier:
 *
 * <pre>{@code
 * dsl.store.suppliers.class=org.tamis.kafka.TamisDslStoreSuppliers
 * }</pre>
 *
 * <p>{@link TamisConfig} has the keys that configure them.
 */
public class TamisDslStoreSuppliers implements DslStoreSuppliers {
    /** Called by Kafka Streams. */
    public TamisDslStoreSuppliers() {}

    @Override
    public KeyValueBytesStoreSupplier keyValueStore(DslKeyValueParams params) {
        return params.isTimestamped()
                ? TamisStores.timestampedKeyValueStore(params.name())
                : TamisStores.keyValueStore(params.name());
    }

    @Override
    public WindowBytesStoreSupplier windowStore(DslWindowParams params) {
        return new TamisStores.Window(
                params.name(),
                params.retentionPeriod(),
                params.windowSize(),
                params.retainDuplicates(),
                params.isTimestamped(),
                emitsClosed(params.emitStrategy()));
    }

    @Override
    public SessionBytesStoreSupplier sessionStore(DslSessionParams params) {
        return new TamisStores.Session(params.name(), params.retentionPeriod(), emitsClosed(params.emitStrategy()));
    }

    /** Whether the store is asked all the time for what has just been closed. */
    private static boolean emitsClosed(EmitStrategy strategy) {
        return strategy.type() == EmitStrategy.StrategyType.ON_WINDOW_CLOSE;
    }
}
