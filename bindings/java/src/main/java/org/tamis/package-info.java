/**
 * An embeddable key-value storage engine: an ordered map on disk, from bytes to bytes, with atomic batches, snapshots, transactions and range
 * deletes.
 *
 * <p>{@link org.tamis.Database#open(java.nio.file.Path)} is where to begin. What has to be closed is {@link AutoCloseable}; what is used
 * after it was closed, by whatever thread, throws {@link org.tamis.ClosedException}. All exceptions of the engine are
 * {@link org.tamis.TamisException}s.
 */
package org.tamis;
