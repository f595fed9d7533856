/* tamis: an embeddable LSM key-value store. SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Written by cbindgen from bindings/c/src: do not edit.
 *
 * ERRORS. A function that can fail returns false, NULL or TAMIS_ANSWER_ERROR, and then stores a new error object through its last argument,
 * `tamis_error **error`, unless that is NULL. Free it with tamis_error_free. On success nothing is stored there. Null pointers where an
 * object is needed, text that is not UTF-8 and impossible lengths are errors (TAMIS_CODE_INVALID_ARGUMENT), and so is a bug that panics
 * inside the library (TAMIS_CODE_PANIC): no panic or exception crosses this interface. After an error, what a function returns through
 * other pointers is unchanged, unless its comment says more.
 *
 * BYTES. Keys and values are any bytes: a pointer and a length. A null pointer of length 0 is the empty key or value; at the end of a
 * range, a null pointer means that the range is open there, and a non-null one of length 0 is the empty key. Keys have at most 65,536
 * bytes, values at most 4 GiB - 1. Arguments are borrowed for the call only. Names, paths and option values are C strings, in UTF-8 (paths:
 * the bytes that the system takes).
 *
 * OWNERSHIP. Objects (opaque structs) belong to the caller, who frees each once with the function of its name in `_free`, which accepts
 * NULL. Buffers and strings that are said to be owned are freed with tamis_free. What is said to be borrowed stays valid until the
 * object that it comes from is freed, or as the comment says.
 *
 * LIFETIMES. Every object holds what it needs of its database: objects may be freed in any order, also after the database's handle. After
 * tamis_close all calls that need the database fail with TAMIS_CODE_CLOSED, whatever the object; slices, errors and lists stay valid.
 *
 * THREADS. tamis_db, tamis_keyspace and tamis_snapshot may be used by any number of threads at once. Batches, iterators, transactions,
 * table builders and options may be used by any thread, but by one at a time: a call during another one fails with
 * TAMIS_CODE_INVALID_ARGUMENT. Freeing an object that another thread uses is undefined, as always.
 * An iterator of a transaction ends with it: the next call with it fails with TAMIS_CODE_ENDED, and later ones find nothing.
 * There is nothing to initialise, and nothing to tear down.
 *
 * FORK. In a child that was forked off, objects of the parent's databases are of no use: calls fail with TAMIS_CODE_FORKED, and freeing or
 * closing an object changes nothing for the parent. The child may open the database once the parent has closed it.
 */


#ifndef TAMIS_H
#define TAMIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>



// The answer of a function that looks for something.
typedef enum tamis_answer {
  // The call failed.
  TAMIS_ANSWER_ERROR = -1,
  // There is none, or it is not so.
  TAMIS_ANSWER_NO = 0,
  // There is one, or it is so.
  TAMIS_ANSWER_YES = 1,
} tamis_answer;

// The kind of an error. Numbers and names are stable: new ones are added, and none is reused.
enum tamis_code
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // An argument that the binding itself refuses: a null pointer, text that is not UTF-8, a choice that does not exist.
  TAMIS_CODE_INVALID_ARGUMENT = 1,
  // A panic was caught at the border: a bug. The database may refuse writes from now on, and is to be reopened.
  TAMIS_CODE_PANIC = 2,
  // The database of this handle was closed.
  TAMIS_CODE_CLOSED = 3,
  // The transaction was committed, rolled back or prepared already.
  TAMIS_CODE_ENDED = 4,
  // An error that this version of the bindings has no number for.
  TAMIS_CODE_OTHER = 5,
  // The calling thread was interrupted while it waited or worked: by its language's own means. What background threads do goes on.
  TAMIS_CODE_INTERRUPTED = 6,
  // The handle is of the process that this one was forked off, and of no use here. That process is not affected.
  TAMIS_CODE_FORKED = 7,
  // The directory holds no database, and the options do not allow creating one.
  TAMIS_CODE_NO_DATABASE = 10,
  // The directory holds a database, and the options ask for a new one.
  TAMIS_CODE_DATABASE_EXISTS = 11,
  // Another process has the database open for writing.
  TAMIS_CODE_LOCKED = 12,
  // This process has the database open already.
  TAMIS_CODE_OPEN_HERE = 13,
  // The database's writer replaces files faster than they can be opened read-only. Try again.
  TAMIS_CODE_CHANGING = 14,
  // An option contradicts the stored database.
  TAMIS_CODE_INCOMPATIBLE = 15,
  // A file of a format that this version does not read.
  TAMIS_CODE_UNSUPPORTED_FORMAT = 16,
  // An option names a merge operator or compaction filter that is not there.
  TAMIS_CODE_UNREGISTERED_OPERATOR = 17,
  // The directory holds somebody else's files, or is a file. Nothing was touched.
  TAMIS_CODE_NOT_EMPTY = 18,
  // A name that no option has.
  TAMIS_CODE_UNKNOWN_OPTION = 20,
  // A value that the option does not accept, or options that contradict each other.
  TAMIS_CODE_INVALID_OPTION = 21,
  // The option cannot be changed while the keyspace is open.
  TAMIS_CODE_FIXED_OPTION = 22,
  // A system call failed.
  TAMIS_CODE_IO = 30,
  // The device or quota is full.
  TAMIS_CODE_NO_SPACE = 31,
  // Bytes on disk are damaged.
  TAMIS_CODE_CORRUPT = 32,
  // The key is longer than 65,536 bytes.
  TAMIS_CODE_KEY_TOO_LONG = 40,
  // The value is longer than the longest allowed.
  TAMIS_CODE_VALUE_TOO_LONG = 41,
  // The start of a range to delete lies after its end.
  TAMIS_CODE_REVERSED_RANGE = 42,
  // The database is open read-only.
  TAMIS_CODE_READ_ONLY = 43,
  // A file could not be written. Writes resume once a retry in the background succeeds.
  TAMIS_CODE_SUSPENDED = 44,
  // Writes stopped after an earlier failure. Reopen the database.
  TAMIS_CODE_POISONED = 45,
  // The keyspace belongs to another database.
  TAMIS_CODE_FOREIGN_KEYSPACE = 46,
  // The keyspace has no merge operator.
  TAMIS_CODE_NO_MERGE_OPERATOR = 47,
  // The keyspace's merge operator could not combine a key's operands.
  TAMIS_CODE_MERGE = 48,
  // The keyspace was dropped.
  TAMIS_CODE_DROPPED = 50,
  // A keyspace of that name exists already.
  TAMIS_CODE_KEYSPACE_EXISTS = 51,
  // No keyspace has that name.
  TAMIS_CODE_NO_KEYSPACE = 52,
  // A name that no keyspace can have.
  TAMIS_CODE_BAD_NAME = 53,
  // The default keyspace cannot be dropped or renamed.
  TAMIS_CODE_DEFAULT_KEYSPACE = 54,
  // A concurrent write is in conflict with the transaction. Nothing was committed; try again.
  TAMIS_CODE_CONFLICT = 60,
  // The transaction has outlived what is kept to validate it. Nothing was committed; try again.
  TAMIS_CODE_TOO_OLD = 61,
  // A lock was held by others for longer than the transaction waits. Drop it and try again.
  TAMIS_CODE_LOCK_TIMEOUT = 62,
  // To wait for a lock would have closed a circle. Drop the transaction and try again.
  TAMIS_CODE_DEADLOCK = 63,
  // The savepoint was undone by a rollback to an earlier one, or belongs to another transaction.
  TAMIS_CODE_NO_SAVEPOINT = 64,
  // Another transaction is prepared under this name.
  TAMIS_CODE_PREPARED_EXISTS = 65,
  // The prepared transaction was committed or aborted already.
  TAMIS_CODE_NOT_PREPARED = 66,
  // A checkpoint or an external table goes to a new name, and this one exists.
  TAMIS_CODE_TARGET_EXISTS = 70,
  // The compaction was cancelled.
  TAMIS_CODE_CANCELLED = 71,
  // The compaction might not fit on the device.
  TAMIS_CODE_NO_ROOM = 72,
  // Keys of an external table must be added in strictly ascending order.
  TAMIS_CODE_OUT_OF_ORDER = 80,
  // An external table needs an entry or a range delete.
  TAMIS_CODE_EMPTY_TABLE = 81,
  // An earlier write to the external table failed. Build it again.
  TAMIS_CODE_FAILED_TABLE = 82,
  // The file is no complete external table.
  TAMIS_CODE_NOT_A_TABLE = 83,
  // Two files of one ingestion overlap.
  TAMIS_CODE_OVERLAP = 84,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tamis_code tamis_code;
#else
typedef int32_t tamis_code;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// How an optimistic transaction is isolated.
typedef enum tamis_isolation {
  // What was read is validated at the commit: the outcome is that of one transaction after the other.
  TAMIS_ISOLATION_SERIALIZABLE = 0,
  // What was written is: the first committer wins. Write skew is possible.
  TAMIS_ISOLATION_SNAPSHOT = 1,
} tamis_isolation;

// Several writes that become visible and durable together, or not at all. For one thread at a time.
typedef struct tamis_batch tamis_batch;

// An open database.
typedef struct tamis_db tamis_db;

// Why a call failed. Belongs to the caller.
typedef struct tamis_error tamis_error;

// An iterator over the keys of a range in order, over exactly the state at the time of its creation. It can be asked from both ends, which
// meet. It keeps the tables that it reads on disk until it is freed. For one thread at a time.
typedef struct tamis_iter tamis_iter;

// A keyspace of a database.
typedef struct tamis_keyspace tamis_keyspace;

// The options of a keyspace, or of an external table.
typedef struct tamis_keyspace_options tamis_keyspace_options;

// A list of byte strings: names, for example.
typedef struct tamis_list tamis_list;

// Where a merge operator puts its result. Valid during the callback only.
typedef struct tamis_merge_result tamis_merge_result;

// The options of a database, among them those of its default keyspace.
typedef struct tamis_options tamis_options;

// Memory for the block caches and elastic filters of several databases in this process: it goes to where it saves most block reads.
// Any number of threads may use it at once.
typedef struct tamis_shared_read_memory tamis_shared_read_memory;

// Memory for the memtables of several databases in this process: beyond half of it the largest memtable is flushed, also that of an
// idle database, and beyond all of it writers wait for flushes of their database. Any number of threads may use it at once.
typedef struct tamis_shared_write_memory tamis_shared_write_memory;

// Bytes that stay where the engine has them: in a block, a mapping or a memtable, which they keep in memory. Never changes.
typedef struct tamis_slice tamis_slice;

// The state of the database at one moment, in all keyspaces. Keeps old versions on disk until it is freed.
typedef struct tamis_snapshot tamis_snapshot;

// Builds a sorted table in a file. For one thread at a time.
typedef struct tamis_table_builder tamis_table_builder;

// A transaction: reads and writes across keyspaces that take effect together, at its commit, or not at all. It sees its own writes. For one
// thread at a time.
typedef struct tamis_transaction tamis_transaction;

// A merge operator: how operands that were merged into a key become its value.
//
// All its functions may be called by any thread, several at a time, until `destroy` was. They must be pure: the same arguments give the
// same result, on every machine and in every later version of the program (one that has to change gets a new name); and combining
// operands in several steps gives what combining them at once gives. They must return normally: no longjmp, no C++ exception, no
// end of the thread. They must not call functions of this library other than tamis_merge_result_set and tamis_merge_result_fail.
typedef struct tamis_merge_operator {
  // The name for the option "merge_operator": 1 to 64 letters, digits, or any of -_.:/. Copied.
  const char *name;
  // The first argument of the functions below; may be NULL.
  void *context;
  // Applies `count` operands, at least one, oldest first, to the value `base`, which is NULL if the key has none (an empty value is not
  // NULL). Sets the result and returns true; or returns false, after tamis_merge_result_fail, if it cannot interpret them: reads
  // of the key fail then until it is put or deleted. Required.
  bool (*merge)(void *context,
                const void *key,
                size_t key_len,
                const void *base,
                size_t base_len,
                const void *const *operands,
                const size_t *operand_lens,
                size_t count,
                struct tamis_merge_result *result);
  // Combines at least two operands, oldest first, into one that has the same effect on every base, sets it and returns true; or
  // returns false if there is none. NULL: there never is.
  bool (*partial_merge)(void *context,
                        const void *key,
                        size_t key_len,
                        const void *const *operands,
                        const size_t *operand_lens,
                        size_t count,
                        struct tamis_merge_result *result);
  // Called once, when the options and all databases that were opened with them are gone. May be NULL.
  void (*destroy)(void *context);
} tamis_merge_operator;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The kind of an error, one of the `tamis_code`s. 0 for NULL. Numbers never change their meaning, and new ones are added.
int32_t tamis_error_code(const struct tamis_error *error);

// The name of the error's kind, like "no-database". Borrowed from the error; "" for NULL.
const char *tamis_error_name(const struct tamis_error *error);

// The message, in English, for people. It names files and says what can be done. Borrowed from the error; "" for NULL.
const char *tamis_error_text(const struct tamis_error *error);

// The name of the keyspace concerned, or NULL. Borrowed from the error.
const char *tamis_error_keyspace(const struct tamis_error *error);

// The key concerned, of conflicts, deadlocks, lock timeouts and merges that failed; otherwise NULL. `len` may be NULL. Borrowed from the
// error.
const void *tamis_error_key(const struct tamis_error *error,
                            size_t *len);

// Whether another attempt of the same transaction may succeed: after a conflict, a deadlock, a lock timeout, or if it took too long.
bool tamis_error_is_retryable(const struct tamis_error *error);

// Frees an error.
void tamis_error_free(struct tamis_error *error);

// Creates options with their defaults. Free them with tamis_options_free, at any time: an opening copies them.
struct tamis_options *tamis_options_new(void);

// Sets an option by its name and value as text: "cache_bytes", "64 MiB". Options of the default keyspace are named like
// "keyspace.filter", or without the prefix. tamis_options_describe and `tamis options` list all. Errors: TAMIS_CODE_UNKNOWN_OPTION,
// TAMIS_CODE_INVALID_OPTION; the options are unchanged then.
bool tamis_options_set(struct tamis_options *options,
                       const char *name,
                       const char *value,
                       struct tamis_error **error);

// Registers a merge operator, so that keyspaces can name it in their option "merge_operator". It is copied. `add`, `append` and `max` are
// built in: tamis_open refuses options that have another one of such a name, with TAMIS_CODE_INVALID_OPTION.
bool tamis_options_add_merge_operator(struct tamis_options *options,
                                      const struct tamis_merge_operator *merge_operator,
                                      struct tamis_error **error);

// Frees options.
void tamis_options_free(struct tamis_options *options);

// Creates options of a keyspace with their defaults. Free them with tamis_keyspace_options_free.
struct tamis_keyspace_options *tamis_keyspace_options_new(void);

// Sets an option of a keyspace, with or without the prefix "keyspace.". Errors: as of tamis_options_set.
bool tamis_keyspace_options_set(struct tamis_keyspace_options *options,
                                const char *name,
                                const char *value,
                                struct tamis_error **error);

// Frees options of a keyspace.
void tamis_keyspace_options_free(struct tamis_keyspace_options *options);

// All options as JSON: a list of objects {name, class, takes, default, doc}, all strings. Owned.
char *tamis_options_describe(struct tamis_error **error);

// Sets the result of a merge: the bytes are copied. The last call counts. Reports whether the arguments were valid.
bool tamis_merge_result_set(struct tamis_merge_result *result,
                            const void *value,
                            size_t value_len);

// Says why there is no result: the text becomes part of the error of whoever reads the key. Reports whether the arguments were valid.
bool tamis_merge_result_fail(struct tamis_merge_result *result,
                             const char *what);

// Opens the database in the directory `path`, or creates it (see the options "create_if_missing" and "error_if_exists"). `options` may be
// NULL: all defaults. A database is open once: threads share the handle. Close it with tamis_close.
//
// Errors, among others: TAMIS_CODE_OPEN_HERE (in this process), TAMIS_CODE_LOCKED (in another one), TAMIS_CODE_NO_DATABASE,
// TAMIS_CODE_DATABASE_EXISTS, TAMIS_CODE_INCOMPATIBLE, TAMIS_CODE_CORRUPT, TAMIS_CODE_IO.
struct tamis_db *tamis_open(const char *path,
                            const struct tamis_options *options,
                            struct tamis_error **error);

// Opens a database for reading, as of now; its writer may have it open. It has no locks, and writes fail with TAMIS_CODE_READ_ONLY.
struct tamis_db *tamis_open_read_only(const char *path,
                                      const struct tamis_options *options,
                                      struct tamis_error **error);

// Ends background work, syncs the log and releases the directory, so that it can be opened again. The handle stays, to be freed with
// tamis_db_free: it and all objects of the database answer TAMIS_CODE_CLOSED from now on. Calls that run meanwhile in other threads end
// as they would have, or with that error. Closing again does nothing. An error is the last failure of the log or the
// manifest; the database is closed all the same.
bool tamis_close(struct tamis_db *db,
                 struct tamis_error **error);

// Closes the database, if tamis_close has not, and frees the handle.
void tamis_db_free(struct tamis_db *db);

// Writes memtables to tables, and waits for it: of one keyspace, or of all if `keyspace` is NULL.
bool tamis_flush(const struct tamis_db *db,
                 const struct tamis_keyspace *keyspace,
                 struct tamis_error **error);

// Compacts a keyspace, or all if `keyspace` is NULL, until each has one sorted run, and waits for it.
bool tamis_compact(const struct tamis_db *db,
                   const struct tamis_keyspace *keyspace,
                   struct tamis_error **error);

// Compacts the keys from `start` up to before `end` of one keyspace (NULL: the default one), and waits for it. Errors, among others:
// TAMIS_CODE_CANCELLED, by tamis_cancel_compactions.
bool tamis_compact_range(const struct tamis_db *db,
                         const struct tamis_keyspace *keyspace,
                         const void *start,
                         size_t start_len,
                         const void *end,
                         size_t end_len,
                         struct tamis_error **error);

// Cancels the running compactions; those that are needed start again later.
bool tamis_cancel_compactions(const struct tamis_db *db, struct tamis_error **error);

// Waits until no flush or compaction is due.
bool tamis_wait_for_compaction(const struct tamis_db *db, struct tamis_error **error);

// Makes all acknowledged writes survive a power failure.
bool tamis_sync(const struct tamis_db *db, struct tamis_error **error);

// Makes a copy of the database, as of now, in the new directory `path`. Tables are hard links where the file system can.
// Errors, among others: TAMIS_CODE_TARGET_EXISTS.
bool tamis_checkpoint(const struct tamis_db *db,
                      const char *path,
                      struct tamis_error **error);

// Changes the memory of elastic filters, in bytes, until the database is closed. Errors: TAMIS_CODE_INVALID_OPTION if they share
// "read_memory_bytes" with the block cache.
bool tamis_set_filter_budget(const struct tamis_db *db,
                             uint64_t bytes,
                             struct tamis_error **error);

// Changes the memory that block cache and elastic filters share (option "read_memory_bytes"), in bytes, until the database is closed.
// Errors: TAMIS_CODE_INVALID_OPTION if it was opened without that option, or for less than an eighth of it.
bool tamis_set_read_memory(const struct tamis_db *db,
                           uint64_t bytes,
                           struct tamis_error **error);

// Takes a snapshot. Free it with tamis_snapshot_free. Costs a few hundred nanoseconds.
struct tamis_snapshot *tamis_snapshot_new(const struct tamis_db *db, struct tamis_error **error);

// The sequence number of the last write that a snapshot sees; 0 for NULL.
uint64_t tamis_snapshot_seq(const struct tamis_snapshot *snapshot);

// Frees a snapshot.
void tamis_snapshot_free(struct tamis_snapshot *snapshot);

// Returns the keyspace of that name. Free it with tamis_keyspace_free. The default one is called "default". Errors:
// TAMIS_CODE_NO_KEYSPACE.
struct tamis_keyspace *tamis_keyspace_open(const struct tamis_db *db,
                                           const char *name,
                                           struct tamis_error **error);

// Creates a keyspace; names are 1 to 255 bytes without control characters. `options` may be NULL. Errors, among others:
// TAMIS_CODE_KEYSPACE_EXISTS, TAMIS_CODE_BAD_NAME, TAMIS_CODE_UNREGISTERED_OPERATOR.
struct tamis_keyspace *tamis_keyspace_create(const struct tamis_db *db,
                                             const char *name,
                                             const struct tamis_keyspace_options *options,
                                             struct tamis_error **error);

// Returns the keyspace of that name, or creates it with these options.
struct tamis_keyspace *tamis_keyspace_get_or_create(const struct tamis_db *db,
                                                    const char *name,
                                                    const struct tamis_keyspace_options *options,
                                                    struct tamis_error **error);

// Frees a keyspace's handle. The keyspace itself stays.
void tamis_keyspace_free(struct tamis_keyspace *keyspace);

// Drops a keyspace with all its contents. Handles of it answer TAMIS_CODE_DROPPED.
bool tamis_keyspace_drop(const struct tamis_db *db, const char *name, struct tamis_error **error);

// Gives a keyspace another name. Handles of it stay valid.
bool tamis_keyspace_rename(const struct tamis_db *db,
                           const char *name,
                           const char *new_name,
                           struct tamis_error **error);

// The names of all keyspaces, in the order of their creation. Owned: free them with tamis_list_free.
struct tamis_list *tamis_keyspace_names(const struct tamis_db *db, struct tamis_error **error);

// Changes `count` options of an open keyspace (NULL: the default one), all or none. Errors: TAMIS_CODE_UNKNOWN_OPTION,
// TAMIS_CODE_INVALID_OPTION, TAMIS_CODE_FIXED_OPTION.
bool tamis_keyspace_set_options(const struct tamis_db *db,
                                const struct tamis_keyspace *keyspace,
                                const char *const *names,
                                const char *const *values,
                                size_t count,
                                struct tamis_error **error);

// Deletes everything in a keyspace (NULL: the default one).
bool tamis_keyspace_clear(const struct tamis_db *db,
                          const struct tamis_keyspace *keyspace,
                          struct tamis_error **error);

// The bytes of a slice: borrowed until it is freed, and not null. NULL for NULL.
const void *tamis_slice_data(const struct tamis_slice *slice);

// The number of bytes of a slice; 0 for NULL.
size_t tamis_slice_len(const struct tamis_slice *slice);

// Frees a slice.
void tamis_slice_free(struct tamis_slice *slice);

// The number of items; 0 for NULL.
size_t tamis_list_len(const struct tamis_list *list);

// One item, from 0, with its length in `len` (which may be NULL). Borrowed until the list is freed. NULL if there is none.
const void *tamis_list_item(const struct tamis_list *list,
                            size_t index,
                            size_t *len);

// Frees a list.
void tamis_list_free(struct tamis_list *list);

// Frees an owned buffer or string that a function of this library returned. Accepts NULL.
void tamis_free(void *buffer);

// The library's version, like "0.1.0". Static.
const char *tamis_version(void);

// Looks up a key, in a keyspace (NULL: the default one) and as of a snapshot (NULL: now). If there is a value, stores a copy of it in
// `*value`, owned, and its length in `*value_len`, and returns TAMIS_ANSWER_YES. A zero byte follows it that does not count.
// Costs one hash of the key and at most one block read per filter that answers "maybe".
enum tamis_answer tamis_get(const struct tamis_db *db,
                            const struct tamis_keyspace *keyspace,
                            const struct tamis_snapshot *snapshot,
                            const void *key,
                            size_t key_len,
                            void **value,
                            size_t *value_len,
                            struct tamis_error **error);

// Like tamis_get, without copying a large value: stores a slice, owned, in `*value`. It stays valid whatever happens to the database, and
// keeps its block, mapping or memtable in memory.
enum tamis_answer tamis_get_slice(const struct tamis_db *db,
                                  const struct tamis_keyspace *keyspace,
                                  const struct tamis_snapshot *snapshot,
                                  const void *key,
                                  size_t key_len,
                                  struct tamis_slice **value,
                                  struct tamis_error **error);

// Like tamis_get, into memory of the caller: copies up to `room` bytes of the value to `buffer`, which may be NULL if `room` is 0, and
// stores the value's whole length in `*value_len`. Allocates nothing.
enum tamis_answer tamis_get_into(const struct tamis_db *db,
                                 const struct tamis_keyspace *keyspace,
                                 const struct tamis_snapshot *snapshot,
                                 const void *key,
                                 size_t key_len,
                                 void *buffer,
                                 size_t room,
                                 size_t *value_len,
                                 struct tamis_error **error);

// Whether a key has a value, at the cost of tamis_get.
enum tamis_answer tamis_contains(const struct tamis_db *db,
                                 const struct tamis_keyspace *keyspace,
                                 const struct tamis_snapshot *snapshot,
                                 const void *key,
                                 size_t key_len,
                                 struct tamis_error **error);

// Whether there is no key at all.
enum tamis_answer tamis_is_empty(const struct tamis_db *db,
                                 const struct tamis_keyspace *keyspace,
                                 const struct tamis_snapshot *snapshot,
                                 struct tamis_error **error);

// Looks up `count` keys as of a single moment, cheaper than one by one. `values` has room for so many slices: each becomes an owned slice,
// or NULL if the key has no value. After an error all are NULL.
bool tamis_multi_get(const struct tamis_db *db,
                     const struct tamis_keyspace *keyspace,
                     const struct tamis_snapshot *snapshot,
                     const void *const *keys,
                     const size_t *key_lens,
                     size_t count,
                     struct tamis_slice **values,
                     struct tamis_error **error);

// Estimates the number of keys from `start` up to before `end`, from the tables' indexes.
bool tamis_approximate_len(const struct tamis_db *db,
                           const struct tamis_keyspace *keyspace,
                           const void *start,
                           size_t start_len,
                           const void *end,
                           size_t end_len,
                           uint64_t *len,
                           struct tamis_error **error);

// Estimates the bytes that the keys from `start` up to before `end` take on disk.
bool tamis_approximate_size(const struct tamis_db *db,
                            const struct tamis_keyspace *keyspace,
                            const void *start,
                            size_t start_len,
                            const void *end,
                            size_t end_len,
                            uint64_t *size,
                            struct tamis_error **error);

// Creates an iterator over the keys from `start` up to before `end`. It reads nothing yet. Free it with tamis_iter_free.
struct tamis_iter *tamis_iter_range(const struct tamis_db *db,
                                    const struct tamis_keyspace *keyspace,
                                    const struct tamis_snapshot *snapshot,
                                    const void *start,
                                    size_t start_len,
                                    const void *end,
                                    size_t end_len,
                                    struct tamis_error **error);

// Creates an iterator over the keys that start with `prefix`.
struct tamis_iter *tamis_iter_prefix(const struct tamis_db *db,
                                     const struct tamis_keyspace *keyspace,
                                     const struct tamis_snapshot *snapshot,
                                     const void *prefix,
                                     size_t prefix_len,
                                     struct tamis_error **error);

// Takes the next item from the front, in ascending order: TAMIS_ANSWER_YES and the item, or TAMIS_ANSWER_NO at the end. Key and value are
// borrowed until the next call with this iterator. `key` and `value` may be NULL if they are not wanted.
enum tamis_answer tamis_iter_next(struct tamis_iter *iter,
                                  const void **key,
                                  size_t *key_len,
                                  const void **value,
                                  size_t *value_len,
                                  struct tamis_error **error);

// Takes the next item from the back, in descending order; otherwise like tamis_iter_next.
enum tamis_answer tamis_iter_next_back(struct tamis_iter *iter,
                                       const void **key,
                                       size_t *key_len,
                                       const void **value,
                                       size_t *value_len,
                                       struct tamis_error **error);

// Moves the front to the first key of the range that is not less than `key`, forwards or back. The item handed out last is no longer valid.
bool tamis_iter_seek(struct tamis_iter *iter,
                     const void *key,
                     size_t key_len,
                     struct tamis_error **error);

// Frees an iterator.
void tamis_iter_free(struct tamis_iter *iter);

// Puts a value, in a keyspace (NULL: the default one), with the database's durability.
bool tamis_put(const struct tamis_db *db,
               const struct tamis_keyspace *keyspace,
               const void *key,
               size_t key_len,
               const void *value,
               size_t value_len,
               struct tamis_error **error);

// Deletes a key; one without a value is no error.
bool tamis_delete(const struct tamis_db *db,
                  const struct tamis_keyspace *keyspace,
                  const void *key,
                  size_t key_len,
                  struct tamis_error **error);

// Merges an operand into a key's value by the keyspace's merge operator, without reading it. Errors, among others:
// TAMIS_CODE_NO_MERGE_OPERATOR.
bool tamis_merge(const struct tamis_db *db,
                 const struct tamis_keyspace *keyspace,
                 const void *key,
                 size_t key_len,
                 const void *operand,
                 size_t operand_len,
                 struct tamis_error **error);

// Deletes the keys from `start` up to before `end`, at the cost of one write. Errors, among others: TAMIS_CODE_REVERSED_RANGE.
bool tamis_delete_range(const struct tamis_db *db,
                        const struct tamis_keyspace *keyspace,
                        const void *start,
                        size_t start_len,
                        const void *end,
                        size_t end_len,
                        struct tamis_error **error);

// Deletes the keys that start with `prefix`, at the cost of one write.
bool tamis_delete_prefix(const struct tamis_db *db,
                         const struct tamis_keyspace *keyspace,
                         const void *prefix,
                         size_t prefix_len,
                         struct tamis_error **error);

// Creates an empty batch. Free it with tamis_batch_free.
struct tamis_batch *tamis_batch_new(void);

// Adds a put. Keys and values are copied, and checked when the batch is written.
bool tamis_batch_put(struct tamis_batch *batch,
                     const struct tamis_keyspace *keyspace,
                     const void *key,
                     size_t key_len,
                     const void *value,
                     size_t value_len,
                     struct tamis_error **error);

// Adds a delete.
bool tamis_batch_delete(struct tamis_batch *batch,
                        const struct tamis_keyspace *keyspace,
                        const void *key,
                        size_t key_len,
                        struct tamis_error **error);

// Adds a merge.
bool tamis_batch_merge(struct tamis_batch *batch,
                       const struct tamis_keyspace *keyspace,
                       const void *key,
                       size_t key_len,
                       const void *operand,
                       size_t operand_len,
                       struct tamis_error **error);

// Adds a delete of the keys from `start` up to before `end`.
bool tamis_batch_delete_range(struct tamis_batch *batch,
                              const struct tamis_keyspace *keyspace,
                              const void *start,
                              size_t start_len,
                              const void *end,
                              size_t end_len,
                              struct tamis_error **error);

// Adds a delete of the keys that start with `prefix`; an empty one is that of every key.
bool tamis_batch_delete_prefix(struct tamis_batch *batch,
                               const struct tamis_keyspace *keyspace,
                               const void *prefix,
                               size_t prefix_len,
                               struct tamis_error **error);

// Empties a batch.
bool tamis_batch_clear(struct tamis_batch *batch, struct tamis_error **error);

// The number of writes in a batch; 0 for NULL, or while another thread uses it.
size_t tamis_batch_len(const struct tamis_batch *batch);

// Frees a batch.
void tamis_batch_free(struct tamis_batch *batch);

// Writes a batch, and empties it, whatever the answer (but not after TAMIS_CODE_INVALID_ARGUMENT). `durability` is the text of the option of
// that name: "buffered", "sync" or "every 100 ms"; NULL: as the database's option says.
// Operations on a keyspace that was dropped since they were added to the batch are left out.
bool tamis_write(const struct tamis_db *db,
                 struct tamis_batch *batch,
                 const char *durability,
                 struct tamis_error **error);

// Sets a key to a new value if it has the expected one: TAMIS_ANSWER_YES if it had, TAMIS_ANSWER_NO if not. A null `expected` of length 0
// expects that there is no value; a null `new_value` of length 0 deletes the key. If the answer is no and `current` is not NULL, stores an
// owned slice there, or NULL if the key has no value.
enum tamis_answer tamis_compare_and_swap(const struct tamis_db *db,
                                         const struct tamis_keyspace *keyspace,
                                         const void *key,
                                         size_t key_len,
                                         const void *expected,
                                         size_t expected_len,
                                         const void *new_value,
                                         size_t new_value_len,
                                         struct tamis_slice **current,
                                         struct tamis_error **error);

// Sets a key if it has no value: TAMIS_ANSWER_YES if it was inserted. If not and `current` is not NULL, stores an owned slice there.
enum tamis_answer tamis_insert_if_absent(const struct tamis_db *db,
                                         const struct tamis_keyspace *keyspace,
                                         const void *key,
                                         size_t key_len,
                                         const void *value,
                                         size_t value_len,
                                         struct tamis_slice **current,
                                         struct tamis_error **error);

// Deletes a key and hands out the value that it had, owned: TAMIS_ANSWER_YES, or TAMIS_ANSWER_NO if it had none.
enum tamis_answer tamis_take(const struct tamis_db *db,
                             const struct tamis_keyspace *keyspace,
                             const void *key,
                             size_t key_len,
                             void **value,
                             size_t *value_len,
                             struct tamis_error **error);

// Adds `by` to the number that is the key's value, modulo 2^64, and stores the sum in `*sum`, which may be NULL. Numbers are eight bytes,
// little-endian, as those of the merge operator `add`; a key without a value is 0. Errors, among others: TAMIS_CODE_MERGE if the value is
// not eight bytes long.
bool tamis_increment(const struct tamis_db *db,
                     const struct tamis_keyspace *keyspace,
                     const void *key,
                     size_t key_len,
                     int64_t by,
                     int64_t *sum,
                     struct tamis_error **error);

// Creates memory of this many bytes, which no database uses yet. Free it with tamis_shared_read_memory_free, at any time: options and
// databases keep what they need of it.
struct tamis_shared_read_memory *tamis_shared_read_memory_new(uint64_t bytes);

// Changes the total. What exceeds a smaller one is evicted before this returns.
bool tamis_shared_read_memory_set_bytes(const struct tamis_shared_read_memory *memory,
                                        uint64_t bytes,
                                        struct tamis_error **error);

// The shares of all databases that are open with it, as a JSON list of objects with the names of the Rust struct `ReadMemoryShare`. Owned.
char *tamis_shared_read_memory_members(const struct tamis_shared_read_memory *memory,
                                       struct tamis_error **error);

// Makes databases that are opened with `options` share this memory, in place of the options cache_bytes, filter_budget_bytes and
// read_memory_bytes, which tamis_open refuses beside it (TAMIS_CODE_INVALID_OPTION). NULL: they share none.
bool tamis_options_share_read_memory(struct tamis_options *options,
                                     const struct tamis_shared_read_memory *memory,
                                     struct tamis_error **error);

// Frees the handle. Databases that are open with the memory go on sharing it.
void tamis_shared_read_memory_free(struct tamis_shared_read_memory *memory);

// Creates memory of this many bytes, which no database uses yet. Free it with tamis_shared_write_memory_free, at any time: options and
// databases keep what they need of it.
struct tamis_shared_write_memory *tamis_shared_write_memory_new(uint64_t bytes);

// Changes the total. What exceeds a smaller one is flushed as databases are written to.
bool tamis_shared_write_memory_set_bytes(const struct tamis_shared_write_memory *memory,
                                         uint64_t bytes,
                                         struct tamis_error **error);

// What the memtables of all databases that are open with it take, as a JSON list of objects with the names of the Rust struct
// `WriteMemoryUse`. Owned.
char *tamis_shared_write_memory_members(const struct tamis_shared_write_memory *memory,
                                        struct tamis_error **error);

// Makes databases that are opened with `options` share this memory, besides their own memtable_budget_bytes. NULL: they share none.
bool tamis_options_share_write_memory(struct tamis_options *options,
                                      const struct tamis_shared_write_memory *memory,
                                      struct tamis_error **error);

// Frees the handle. Databases that are open with the memory go on sharing it.
void tamis_shared_write_memory_free(struct tamis_shared_write_memory *memory);

// The statistics of the database and all its keyspaces, as one JSON object. Owned: free it with tamis_free. The names are those of the
// Rust struct `Stats`, sizes are in bytes, and counters count from the opening.
char *tamis_stats(const struct tamis_db *db,
                  struct tamis_error **error);

// The statistics of one keyspace (NULL: the default one), as a JSON object. Owned.
char *tamis_keyspace_stats(const struct tamis_db *db,
                           const struct tamis_keyspace *keyspace,
                           struct tamis_error **error);

// The tables of one keyspace (NULL: the default one), as a JSON list, newest run first. Owned.
char *tamis_tables(const struct tamis_db *db,
                   const struct tamis_keyspace *keyspace,
                   struct tamis_error **error);

// The segments of the elastic filters of all keyspaces with their hotness, as a JSON list. Owned.
char *tamis_segments(const struct tamis_db *db, struct tamis_error **error);

// Executes one get and returns its path as a JSON object: memtables, runs, filters, blocks, outcome, cost. Owned.
char *tamis_explain(const struct tamis_db *db,
                    const struct tamis_keyspace *keyspace,
                    const void *key,
                    size_t key_len,
                    struct tamis_error **error);

// The options that the database was opened with, those of its default keyspace included: lines `name = value`. Owned.
char *tamis_options_in_force(const struct tamis_db *db,
                             struct tamis_error **error);

// The options of one keyspace (NULL: the default one) as they are now: lines `name = value`. Owned.
char *tamis_keyspace_options_in_force(const struct tamis_db *db,
                                      const struct tamis_keyspace *keyspace,
                                      struct tamis_error **error);

// Reads every file of the database and returns what is wrong, as a JSON object with the list "problems". Owned.
char *tamis_verify(const struct tamis_db *db,
                   struct tamis_error **error);

// The same of a database that need not be open, nor can be: "unopenable" says why. `options` may be NULL. Owned.
char *tamis_verify_at(const char *path,
                      const struct tamis_options *options,
                      struct tamis_error **error);

// Repairs a damaged database that is not open, as far as its files allow, and returns what was lost and kept as a JSON object; with
// `dry_run`, only says what it would do. `options` may be NULL. Owned.
char *tamis_salvage(const char *path,
                    const struct tamis_options *options,
                    bool dry_run,
                    struct tamis_error **error);

// Begins a table in the new file `path`. `options` may be NULL; they should be those of the keyspace that will ingest it. Free it with
// tamis_table_builder_free, which removes the file unless it was finished. Errors, among others: TAMIS_CODE_TARGET_EXISTS.
struct tamis_table_builder *tamis_table_builder_new(const char *path,
                                                    const struct tamis_keyspace_options *options,
                                                    struct tamis_error **error);

// Adds an entry. Keys come in strictly ascending order: TAMIS_CODE_OUT_OF_ORDER.
bool tamis_table_builder_put(struct tamis_table_builder *builder,
                             const void *key,
                             size_t key_len,
                             const void *value,
                             size_t value_len,
                             struct tamis_error **error);

// Adds a delete, which hides what the keyspace has under this key. In order with the entries.
bool tamis_table_builder_delete(struct tamis_table_builder *builder,
                                const void *key,
                                size_t key_len,
                                struct tamis_error **error);

// Adds a delete of the keys from `start` up to before `end` that the keyspace has; not of the table's own entries. At any time.
bool tamis_table_builder_delete_range(struct tamis_table_builder *builder,
                                      const void *start,
                                      size_t start_len,
                                      const void *end,
                                      size_t end_len,
                                      struct tamis_error **error);

// Completes the table and syncs it. `*report`, unless NULL, becomes a JSON object about it, owned. The builder cannot be used any more, and
// is still to be freed.
bool tamis_table_builder_finish(struct tamis_table_builder *builder,
                                char **report,
                                struct tamis_error **error);

// Frees a builder. A table that was not finished is removed.
void tamis_table_builder_free(struct tamis_table_builder *builder);

// Ingests `count` external tables into a keyspace (NULL: the default one), all or none, as if their entries were written now. They are
// verified first. With `move_files` they are linked instead of copied, where the file system can, and their names are removed. `*entries`
// and `*report`, unless NULL, become the number of entries and a JSON object with the tables, owned. Errors, among others:
// TAMIS_CODE_NOT_A_TABLE, TAMIS_CODE_OVERLAP.
bool tamis_ingest(const struct tamis_db *db,
                  const struct tamis_keyspace *keyspace,
                  const char *const *paths,
                  size_t count,
                  bool move_files,
                  uint64_t *entries,
                  char **report,
                  struct tamis_error **error);

// Begins an optimistic transaction. It locks nothing; its commit fails with TAMIS_CODE_CONFLICT if somebody else has meanwhile written what
// it depends on, by `isolation`, one of `tamis_isolation`. `durability` as of tamis_write. Free it with tamis_transaction_free.
struct tamis_transaction *tamis_begin(const struct tamis_db *db,
                                      int32_t isolation,
                                      const char *durability,
                                      struct tamis_error **error);

// Begins a transaction that locks what it reads and writes, and waits up to `timeout_ms` milliseconds for the locks of others
// (TAMIS_CODE_LOCK_TIMEOUT, TAMIS_CODE_DEADLOCK: free it and begin again).
struct tamis_transaction *tamis_begin_locking(const struct tamis_db *db,
                                              uint64_t timeout_ms,
                                              const char *durability,
                                              struct tamis_error **error);

// Rolls a transaction back, unless it has ended, and frees it.
void tamis_transaction_free(struct tamis_transaction *transaction);

// Commits a transaction and stores the sequence number of its writes in `*seq`, which may be NULL. It has ended, whatever the answer: all
// other calls answer TAMIS_CODE_ENDED, and it is still to be freed. tamis_error_is_retryable says whether to try all of it again.
bool tamis_transaction_commit(struct tamis_transaction *transaction,
                              uint64_t *seq,
                              struct tamis_error **error);

// Forgets a transaction's writes and ends it; it is still to be freed.
bool tamis_transaction_rollback(struct tamis_transaction *transaction, struct tamis_error **error);

// Looks up a key within a transaction; otherwise like tamis_get. One that locks takes a shared lock.
enum tamis_answer tamis_transaction_get(struct tamis_transaction *transaction,
                                        const struct tamis_keyspace *keyspace,
                                        const void *key,
                                        size_t key_len,
                                        void **value,
                                        size_t *value_len,
                                        struct tamis_error **error);

// Looks up a key and locks it for writing. Only for transactions that lock.
enum tamis_answer tamis_transaction_get_for_update(struct tamis_transaction *transaction,
                                                   const struct tamis_keyspace *keyspace,
                                                   const void *key,
                                                   size_t key_len,
                                                   void **value,
                                                   size_t *value_len,
                                                   struct tamis_error **error);

// Whether a key has a value, within a transaction.
enum tamis_answer tamis_transaction_contains(struct tamis_transaction *transaction,
                                             const struct tamis_keyspace *keyspace,
                                             const void *key,
                                             size_t key_len,
                                             struct tamis_error **error);

// Looks up `count` keys within a transaction; otherwise like tamis_multi_get. One that locks takes their locks in turn.
bool tamis_transaction_multi_get(struct tamis_transaction *transaction,
                                 const struct tamis_keyspace *keyspace,
                                 const void *const *keys,
                                 const size_t *key_lens,
                                 size_t count,
                                 struct tamis_slice **values,
                                 struct tamis_error **error);

// Creates an iterator over the keys from `start` up to before `end` as the transaction sees them now; otherwise like tamis_iter_range. One
// that locks takes a shared lock of the range.
struct tamis_iter *tamis_transaction_iter_range(struct tamis_transaction *transaction,
                                                const struct tamis_keyspace *keyspace,
                                                const void *start,
                                                size_t start_len,
                                                const void *end,
                                                size_t end_len,
                                                struct tamis_error **error);

// Creates an iterator over the keys that start with `prefix`, as tamis_transaction_iter_range does for a range.
struct tamis_iter *tamis_transaction_iter_prefix(struct tamis_transaction *transaction,
                                                 const struct tamis_keyspace *keyspace,
                                                 const void *prefix,
                                                 size_t prefix_len,
                                                 struct tamis_error **error);

// Puts a value within a transaction. One that locks takes the key's lock. Otherwise like tamis_put.
bool tamis_transaction_put(struct tamis_transaction *transaction,
                           const struct tamis_keyspace *keyspace,
                           const void *key,
                           size_t key_len,
                           const void *value,
                           size_t value_len,
                           struct tamis_error **error);

// Deletes a key within a transaction.
bool tamis_transaction_delete(struct tamis_transaction *transaction,
                              const struct tamis_keyspace *keyspace,
                              const void *key,
                              size_t key_len,
                              struct tamis_error **error);

// Merges an operand within a transaction.
bool tamis_transaction_merge(struct tamis_transaction *transaction,
                             const struct tamis_keyspace *keyspace,
                             const void *key,
                             size_t key_len,
                             const void *operand,
                             size_t operand_len,
                             struct tamis_error **error);

// Deletes the keys from `start` up to before `end` within a transaction.
bool tamis_transaction_delete_range(struct tamis_transaction *transaction,
                                    const struct tamis_keyspace *keyspace,
                                    const void *start,
                                    size_t start_len,
                                    const void *end,
                                    size_t end_len,
                                    struct tamis_error **error);

// Stores a point to return to in `*savepoint`: a number that no other transaction of the process has.
bool tamis_transaction_savepoint(struct tamis_transaction *transaction,
                                 uint64_t *savepoint,
                                 struct tamis_error **error);

// Undoes the writes since a savepoint, and forgets the savepoints after it. Locks stay. Errors, among others: TAMIS_CODE_NO_SAVEPOINT.
bool tamis_transaction_rollback_to(struct tamis_transaction *transaction,
                                   uint64_t savepoint,
                                   struct tamis_error **error);

// Prepares a transaction that locks, under a name of any bytes: it survives a crash with its locks, until tamis_prepared_commit or
// tamis_prepared_abort. The transaction has ended, whatever the answer. Errors, among others: TAMIS_CODE_PREPARED_EXISTS.
bool tamis_transaction_prepare(struct tamis_transaction *transaction,
                               const void *name,
                               size_t name_len,
                               struct tamis_error **error);

// The names of the prepared transactions, in order. Owned: free them with tamis_list_free.
struct tamis_list *tamis_prepared_names(const struct tamis_db *db, struct tamis_error **error);

// Commits a prepared transaction. Errors, among others: TAMIS_CODE_NOT_PREPARED.
bool tamis_prepared_commit(const struct tamis_db *db,
                           const void *name,
                           size_t name_len,
                           struct tamis_error **error);

// Aborts a prepared transaction: its writes are forgotten. Errors, among others: TAMIS_CODE_NOT_PREPARED.
bool tamis_prepared_abort(const struct tamis_db *db,
                          const void *name,
                          size_t name_len,
                          struct tamis_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TAMIS_H */
