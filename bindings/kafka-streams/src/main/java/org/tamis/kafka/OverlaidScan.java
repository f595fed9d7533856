package org.tamis.kafka;

import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import org.apache.kafka.streams.KeyValue;

/** A scan with other entries on top: they replace those of the same key, and remove them if they have no value. */
final class OverlaidScan implements Scan {
    private final Iterator<KeyValue<byte[], byte[]>> above;
    private final Scan below;
    private final Comparator<? super byte[]> order;
    /** What comes next from above, and from below. Null: nothing, or not fetched. */
    private KeyValue<byte[], byte[]> high;
    private KeyValue<byte[], byte[]> low;

    /** @param order the order of both */
    OverlaidScan(List<KeyValue<byte[], byte[]>> above, Scan below, Comparator<? super byte[]> order) {
        this.above = above.iterator();
        this.below = below;
        this.order = order;
    }

    @Override
    public boolean hasNext() {
        while (true) {
            if (high == null && above.hasNext()) {
                high = above.next();
            }
            // Asked in any case: it throws once the store is closed.
            if (below.hasNext() && low == null) {
                low = below.next();
            }
            if (high == null) {
                return low != null;
            }
            int comparison = low == null ? -1 : order.compare(high.key, low.key);
            if (comparison == 0) {
                low = null;
            }
            if (comparison > 0 || high.value != null) {
                return true;
            }
            high = null;
        }
    }

    @Override
    public KeyValue<byte[], byte[]> next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        KeyValue<byte[], byte[]> next;
        if (high != null && (low == null || order.compare(high.key, low.key) < 0)) {
            next = high;
            high = null;
        } else {
            next = low;
            low = null;
        }
        return next;
    }

    @Override
    public void close() {
        below.close();
    }
}
