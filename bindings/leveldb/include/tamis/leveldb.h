// LevelDB's C interface, as tamis implements it: the functions of leveldb/c.h of LevelDB 1.23, for machines without that
// header. Include one of the two. Generated from the library's source.
//
// Conventions. Objects are behind pointers to types that are not defined here. Strings of bytes are a pointer and a length, and
// what a function returns as one is allocated with malloc, to be freed by leveldb_free. A function that can fail takes
// `char **errptr`, where *errptr is NULL or was allocated with malloc: it is left alone on success, and after a failure freed and
// replaced by a message. Flags are uint8_t: 0 is no.

#ifndef STORAGE_LEVELDB_INCLUDE_C_H_
#define STORAGE_LEVELDB_INCLUDE_C_H_

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

enum { leveldb_no_compression = 0, leveldb_snappy_compression = 1 };

// Types that are declared by LevelDB and used by no function.
typedef struct leveldb_filelock_t leveldb_filelock_t;
typedef struct leveldb_randomfile_t leveldb_randomfile_t;
typedef struct leveldb_seqfile_t leveldb_seqfile_t;
typedef struct leveldb_writablefile_t leveldb_writablefile_t;

// Memory for the block caches of the databases that are opened with it.
typedef struct leveldb_cache_t leveldb_cache_t;

// An order of keys that the program defines. Only its name is ever asked for.
typedef struct leveldb_comparator_t leveldb_comparator_t;

// A position in the keys of one state of a database.
//
// Its first error stays until it is destroyed. An error leaves it without a position; it can be positioned again.
typedef struct leveldb_iterator_t leveldb_iterator_t;

// An open database. All functions that take one, `leveldb_close` excepted, may be called from several threads at once.
typedef struct leveldb_t leveldb_t;

// The environment of a database.
typedef struct leveldb_env_t leveldb_env_t;

// What a filter policy comes to: bits per key.
typedef struct leveldb_filterpolicy_t leveldb_filterpolicy_t;

// A logger, of which there is none.
typedef struct leveldb_logger_t leveldb_logger_t;

// Options of a database. Made by `leveldb_options_create`, and changed by `leveldb_options_set_*` before they are used.
typedef struct leveldb_options_t leveldb_options_t;

// Options of a read.
typedef struct leveldb_readoptions_t leveldb_readoptions_t;

// The state of a database at one moment.
typedef struct leveldb_snapshot_t leveldb_snapshot_t;

// Writes to be applied together, in their order. Changed by one thread at a time.
//
// The contents are shared with a running iteration, so the functions that it calls may change the batch or even destroy it.
typedef struct leveldb_writebatch_t leveldb_writebatch_t;

// Options of a write.
typedef struct leveldb_writeoptions_t leveldb_writeoptions_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the major version of the LevelDB whose interface this is.
int leveldb_major_version(void);

// Returns the minor version of the LevelDB whose interface this is.
int leveldb_minor_version(void);

// Creates an empty batch.
leveldb_writebatch_t *leveldb_writebatch_create(void);

// Destroys a batch.
void leveldb_writebatch_destroy(leveldb_writebatch_t *batch);

// Removes everything from a batch.
void leveldb_writebatch_clear(leveldb_writebatch_t *batch);

// Adds a put. A key or a value that is too long makes writing the batch fail.
void leveldb_writebatch_put(leveldb_writebatch_t *batch,
                            const char *key,
                            size_t klen,
                            const char *val,
                            size_t vlen);

// Adds a delete. A key that is too long makes writing the batch fail.
void leveldb_writebatch_delete(leveldb_writebatch_t *batch, const char *key, size_t klen);

// Calls `put` or `deleted` with `state` for everything in a batch, in its order. The bytes that they are given are valid until they
// return. They may change the batch, which does not change what is iterated over; they must not throw.
void leveldb_writebatch_iterate(const leveldb_writebatch_t *batch,
                                void *state,
                                void (*put)(void*, const char *k, size_t klen, const char *v, size_t vlen),
                                void (*deleted)(void*, const char *k, size_t klen));

// Adds everything in `source` to `destination`, which may be the same batch.
void leveldb_writebatch_append(leveldb_writebatch_t *destination, const leveldb_writebatch_t *source);

// Frees memory that a function of this library returned: values, property values, error messages, the test directory.
// NULL does nothing. The same as `free`.
void leveldb_free(void *ptr);

// Creates options of reads.
leveldb_readoptions_t *leveldb_readoptions_create(void);

// Destroys options of reads.
void leveldb_readoptions_destroy(leveldb_readoptions_t *options);

// Accepted: tamis verifies a block's checksum at its first read whatever is set here, and at every read under
// `leveldb_options_set_paranoid_checks`.
void leveldb_readoptions_set_verify_checksums(leveldb_readoptions_t *options, uint8_t on);

// Accepted: the cache of tamis resists scans by itself.
void leveldb_readoptions_set_fill_cache(leveldb_readoptions_t *options, uint8_t on);

// Sets the snapshot to read from; NULL stands for the state at the time of the read. Reads from a snapshot that was released
// fail.
void leveldb_readoptions_set_snapshot(leveldb_readoptions_t *options,
                                      const leveldb_snapshot_t *snapshot);

// Creates options of writes.
leveldb_writeoptions_t *leveldb_writeoptions_create(void);

// Destroys options of writes.
void leveldb_writeoptions_destroy(leveldb_writeoptions_t *options);

// Sets whether a write returns only when it would survive a power failure (default: no).
void leveldb_writeoptions_set_sync(leveldb_writeoptions_t *options, uint8_t on);

// Destroys an iterator, also after its database was closed.
void leveldb_iter_destroy(leveldb_iterator_t *iter);

// Reports whether an iterator stands on a key. Without a position it has no key and no value, and does not move by
// `leveldb_iter_next` and `leveldb_iter_prev`.
uint8_t leveldb_iter_valid(const leveldb_iterator_t *iter);

// Moves to the first key.
void leveldb_iter_seek_to_first(leveldb_iterator_t *iter);

// Moves to the last key.
void leveldb_iter_seek_to_last(leveldb_iterator_t *iter);

// Moves to the first key that is not less than `k`.
void leveldb_iter_seek(leveldb_iterator_t *iter, const char *k, size_t klen);

// Moves to the next key.
void leveldb_iter_next(leveldb_iterator_t *iter);

// Moves to the key before.
void leveldb_iter_prev(leveldb_iterator_t *iter);

// Returns the key that an iterator stands on, and its length; valid until the iterator moves. NULL and 0 without a position.
const char *leveldb_iter_key(const leveldb_iterator_t *iter,
                             size_t *klen);

// Returns the value that an iterator stands on, and its length; valid until the iterator moves. NULL and 0 without a position.
const char *leveldb_iter_value(const leveldb_iterator_t *iter,
                               size_t *vlen);

// Returns the iterator's first error, if it has met one.
void leveldb_iter_get_error(const leveldb_iterator_t *iter, char **errptr);

// Opens the database in the directory `name`. Close it with `leveldb_close`.
//
// Returns NULL and an error if the directory holds no database and the options create none, or it holds one and they exclude
// that; for a comparator other than LevelDB's own; if the database is open already, here or elsewhere; if it is damaged; or if
// the directory holds a database of LevelDB, in which nothing is changed.
leveldb_t *leveldb_open(const leveldb_options_t *options,
                        const char *name,
                        char **errptr);

// Closes a database. Iterators and snapshots that are left keep what they show, and have to be destroyed all the same.
void leveldb_close(leveldb_t *db);

// Sets the value of a key. Keys have up to 64 KiB, values up to 4 GiB - 1.
void leveldb_put(leveldb_t *db,
                 const leveldb_writeoptions_t *options,
                 const char *key,
                 size_t keylen,
                 const char *val,
                 size_t vallen,
                 char **errptr);

// Deletes a key; it need not exist.
void leveldb_delete(leveldb_t *db,
                    const leveldb_writeoptions_t *options,
                    const char *key,
                    size_t keylen,
                    char **errptr);

// Applies a batch, all of it or nothing. The batch stays as it is.
void leveldb_write(leveldb_t *db,
                   const leveldb_writeoptions_t *options,
                   leveldb_writebatch_t *batch,
                   char **errptr);

// Returns the value of a key, to be freed, and its length in `*vallen`; NULL and 0 if there is none, or with an error.
char *leveldb_get(leveldb_t *db,
                  const leveldb_readoptions_t *options,
                  const char *key,
                  size_t keylen,
                  size_t *vallen,
                  char **errptr);

// Creates an iterator over the state at this time, or that of the options' snapshot. It stands nowhere until it is told where
// to. Destroy it with `leveldb_iter_destroy`. An iterator belongs to one thread at a time.
leveldb_iterator_t *leveldb_create_iterator(leveldb_t *db,
                                            const leveldb_readoptions_t *options);

// Takes a snapshot of the database, for `leveldb_readoptions_set_snapshot`. Release it with `leveldb_release_snapshot`. NULL
// only if `db` is.
const leveldb_snapshot_t *leveldb_create_snapshot(leveldb_t *db);

// Releases a snapshot, also after its database was closed. Iterators that read from it keep what they show.
void leveldb_release_snapshot(leveldb_t *db, const leveldb_snapshot_t *snapshot);

// Returns the value of a property, to be freed; NULL if there is no such property. These exist:
// `leveldb.num-files-at-level<N>`, `leveldb.stats`, `leveldb.sstables` and `leveldb.approximate-memory-usage`.
char *leveldb_property_value(leveldb_t *db,
                             const char *propname);

// Estimates the bytes that ranges of keys take, each from its start up to but not including its limit. What is in memory only
// counts as well. A range that ends before it starts takes none.
void leveldb_approximate_sizes(leveldb_t *db,
                               int num_ranges,
                               const char *const *range_start_key,
                               const size_t *range_start_key_len,
                               const char *const *range_limit_key,
                               const size_t *range_limit_key_len,
                               uint64_t *sizes);

// Compacts the tables that hold keys from `start_key` to `limit_key`, both included, and waits for it; NULL stands for no bound.
// An error is not reported: nothing is lost by it.
void leveldb_compact_range(leveldb_t *db,
                           const char *start_key,
                           size_t start_key_len,
                           const char *limit_key,
                           size_t limit_key_len);

// Removes the database in the directory `name`, and the directory if nothing else is in it. Succeeds if there is none. Fails if
// the database is open, or is LevelDB's.
void leveldb_destroy_db(const leveldb_options_t *options,
                        const char *name,
                        char **errptr);

// Restores the database in the directory `name` to what can still be read of it. No file is removed: what is no longer part of
// the database is renamed to `*.aside` or `*.damaged`. A database without damage is left as it is.
void leveldb_repair_db(const leveldb_options_t *options,
                       const char *name,
                       char **errptr);

// Returns a handle of the environment. Destroy it with `leveldb_env_destroy`.
leveldb_env_t *leveldb_create_default_env(void);

// Destroys a handle of the environment.
void leveldb_env_destroy(leveldb_env_t *env);

// Returns a directory for tests, to be freed, and creates it: that of the environment variable `TEST_TMPDIR`, or
// `leveldbtest-<user id>` in the directory for temporary files. NULL if it cannot be created.
char *leveldb_env_get_test_directory(leveldb_env_t *env);

// Creates options with their defaults: those of LevelDB for what limits memory (4 MiB of write buffer, 8 MiB of cache), those of
// tamis for the rest. Destroy them with `leveldb_options_destroy`; databases opened with them do not need them any more.
leveldb_options_t *leveldb_options_create(void);

// Destroys options.
void leveldb_options_destroy(leveldb_options_t *options);

// Sets the order of keys. One whose name is `leveldb.BytewiseComparator`, or NULL, is the order that there is; with any other
// `leveldb_open` fails. The name is asked for in this call, and the comparator is not used after it.
void leveldb_options_set_comparator(leveldb_options_t *options,
                                    leveldb_comparator_t *comparator);

// Sets the filter. A Bloom filter of LevelDB sets the bits per key of tamis' own filter; another policy, or NULL, stands for
// 10 bits. The policy is not used after this call.
void leveldb_options_set_filter_policy(leveldb_options_t *options,
                                       leveldb_filterpolicy_t *policy);

// Sets whether a database that does not exist is created (default: no).
void leveldb_options_set_create_if_missing(leveldb_options_t *options, uint8_t on);

// Sets whether it is an error that the database exists (default: no).
void leveldb_options_set_error_if_exists(leveldb_options_t *options, uint8_t on);

// Sets whether checksums are verified at every read of a block, not at the first only (default: no).
void leveldb_options_set_paranoid_checks(leveldb_options_t *options, uint8_t on);

// Accepted; there is only one environment.
void leveldb_options_set_env(leveldb_options_t *options, leveldb_env_t *env);

// Accepted and ignored: no function of the interface makes a logger.
void leveldb_options_set_info_log(leveldb_options_t *options, leveldb_logger_t *logger);

// Sets the bytes of writes that are collected in memory before they are written to a table (default: 4 MiB). Up to three such
// buffers are in memory.
void leveldb_options_set_write_buffer_size(leveldb_options_t *options,
                                           size_t bytes);

// Sets the most open table files (default: 1000). Tables that are mapped into memory, as they usually are, need none.
void leveldb_options_set_max_open_files(leveldb_options_t *options,
                                        int files);

// Sets the block cache; NULL stands for one of 8 MiB that the database has for itself. The databases opened with one cache
// divide its capacity by use, and hold no more together; of its share, a database begins with half. The cache may be destroyed
// before them.
void leveldb_options_set_cache(leveldb_options_t *options,
                               leveldb_cache_t *cache);

// Sets the bytes of a block before compression (default: 4 KiB).
void leveldb_options_set_block_size(leveldb_options_t *options, size_t bytes);

// Sets the entries between two keys that a block stores in full, 1 to 255 (default: 16).
void leveldb_options_set_block_restart_interval(leveldb_options_t *options, int entries);

// Sets the bytes of a table (default: 64 MiB).
void leveldb_options_set_max_file_size(leveldb_options_t *options, size_t bytes);

// Sets whether blocks are compressed: `leveldb_no_compression`, or with LZ4 for `leveldb_snappy_compression` (the default) and any
// other number.
void leveldb_options_set_compression(leveldb_options_t *options,
                                     int compression);

// Creates a comparator. `compare` is never called: see `leveldb_options_set_comparator`. `destructor` is called once, by
// `leveldb_comparator_destroy`.
leveldb_comparator_t *leveldb_comparator_create(void *state,
                                                void (*destructor)(void*),
                                                int (*compare)(void*,
                                                               const char *a,
                                                               size_t alen,
                                                               const char *b,
                                                               size_t blen),
                                                const char *(*name)(void*));

// Destroys a comparator and calls its destructor.
void leveldb_comparator_destroy(leveldb_comparator_t *comparator);

// Creates a filter policy of the program's own. It is accepted, and tamis' own filter with 10 bits per key takes its place:
// `create_filter` and `key_may_match` are never called. `destructor` is called once, by `leveldb_filterpolicy_destroy`.
leveldb_filterpolicy_t *leveldb_filterpolicy_create(void *state,
                                                    void (*destructor)(void*),
                                                    char *(*create_filter)(void*,
                                                                           const char *const *key_array,
                                                                           const size_t *key_length_array,
                                                                           int num_keys,
                                                                           size_t *filter_length),
                                                    uint8_t (*key_may_match)(void*,
                                                                             const char *key,
                                                                             size_t length,
                                                                             const char *filter,
                                                                             size_t filter_length),
                                                    const char *(*name)(void*));

// Creates a policy of this many bits per key, 1 to 64.
leveldb_filterpolicy_t *leveldb_filterpolicy_create_bloom(int bits_per_key);

// Destroys a filter policy and calls its destructor, if it has one.
void leveldb_filterpolicy_destroy(leveldb_filterpolicy_t *policy);

// Creates a cache of `capacity` bytes for decompressed blocks.
leveldb_cache_t *leveldb_cache_create_lru(size_t capacity);

// Destroys the handle of a cache. Databases that use it keep its memory until they are closed.
void leveldb_cache_destroy(leveldb_cache_t *cache);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STORAGE_LEVELDB_INCLUDE_C_H_ */
