package org.tamis.kafka;

import org.apache.kafka.streams.DslStoreFormat;
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

    // Deprecated since 4.3, where formats replace it: older releases have nothing else.
    @SuppressWarnings("deprecation")
    @Override
    public KeyValueBytesStoreSupplier keyValueStore(DslKeyValueParams params) {
        if (WithHeaders.EXIST && params.dslStoreFormat() == DslStoreFormat.HEADERS) {
            return new WithHeaders.KeyValue(params.name());
        }
        return params.isTimestamped()
                ? TamisStores.timestampedKeyValueStore(params.name())
                : TamisStores.keyValueStore(params.name());
    }

    @SuppressWarnings("deprecation")
    @Override
    public WindowBytesStoreSupplier windowStore(DslWindowParams params) {
        if (WithHeaders.EXIST && params.dslStoreFormat() == DslStoreFormat.HEADERS) {
            return new WithHeaders.Window(
                    params.name(),
                    params.retentionPeriod(),
                    params.windowSize(),
                    params.retainDuplicates(),
                    emitsClosed(params.emitStrategy()));
        }
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
        boolean indexed = emitsClosed(params.emitStrategy());
        if (WithHeaders.EXIST && params.storeFormat() == DslStoreFormat.HEADERS) {
            return new WithHeaders.Session(params.name(), params.retentionPeriod(), indexed);
        }
        return new TamisStores.Session(params.name(), params.retentionPeriod(), indexed);
    }

    /** Whether the store is asked all the time for what has just been closed. */
    private static boolean emitsClosed(EmitStrategy strategy) {
        return strategy.type() == EmitStrategy.StrategyType.ON_WINDOW_CLOSE;
    }
}
