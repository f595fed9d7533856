/* What the conformance script cannot ask: null pointers, impossible lengths, error objects, merge operators, threads. api DIRECTORY */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tamis.h"

static char path_buffer[4096];
static const char *base;

static const char *path(const char *name) {
  snprintf(path_buffer, sizeof path_buffer, "%s/%s", base, name);
  return path_buffer;
}

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: %s is not so\n", __FILE__, __LINE__, #condition);     \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)

/* The call failed with this code; frees the error. */
#define FAILS(code, call)                                                           \
  do {                                                                              \
    tamis_error *error = NULL;                                                      \
    (void)(call);                                                                   \
    if (tamis_error_code(error) != (code)) {                                        \
      fprintf(stderr, "%s:%d: %s: code %d (%s) instead of %d\n", __FILE__, __LINE__, #call, \
              tamis_error_code(error), tamis_error_text(error), (int)(code));       \
      exit(1);                                                                      \
    }                                                                               \
    CHECK(strlen(tamis_error_text(error)) > 0);                                     \
    tamis_error_free(error);                                                        \
  } while (0)

static tamis_db *open_new(const char *name, const tamis_options *options) {
  tamis_error *error = NULL;
  tamis_db *db = tamis_open(path(name), options, &error);
  if (db == NULL) fprintf(stderr, "%s\n", tamis_error_text(error));
  CHECK(db != NULL);
  return db;
}

static void null_pointers_are_errors(void) {
  const int32_t invalid = TAMIS_CODE_INVALID_ARGUMENT;
  tamis_db *db = open_new("nulls", NULL);
  void *value = NULL;
  size_t len = 0;
  FAILS(invalid, tamis_open(NULL, NULL, &error));
  FAILS(invalid, tamis_open_read_only(NULL, NULL, &error));
  FAILS(invalid, tamis_close(NULL, &error));
  FAILS(invalid, tamis_put(NULL, NULL, "k", 1, "v", 1, &error));
  FAILS(invalid, tamis_put(db, NULL, NULL, 1, "v", 1, &error));
  FAILS(invalid, tamis_put(db, NULL, "k", 1, NULL, 1, &error));
  FAILS(invalid, tamis_put(db, NULL, "k", SIZE_MAX, "v", 1, &error));
  FAILS(invalid, tamis_put(db, NULL, "k", 1, "v", (size_t)1 << (sizeof(size_t) * 8 - 1), &error));
  FAILS(invalid, tamis_get(db, NULL, NULL, "k", 1, NULL, &len, &error));
  FAILS(invalid, tamis_get(db, NULL, NULL, "k", 1, &value, NULL, &error));
  FAILS(invalid, tamis_get_slice(db, NULL, NULL, "k", 1, NULL, &error));
  FAILS(invalid, tamis_get_into(db, NULL, NULL, "k", 1, NULL, 1, &len, &error));
  FAILS(invalid, tamis_contains(NULL, NULL, NULL, "k", 1, &error));
  FAILS(invalid, tamis_multi_get(db, NULL, NULL, NULL, NULL, 1, NULL, &error));
  FAILS(invalid, tamis_delete_range(db, NULL, NULL, 3, NULL, 0, &error));
  FAILS(invalid, tamis_iter_range(NULL, NULL, NULL, NULL, 0, NULL, 0, &error));
  FAILS(invalid, tamis_iter_next(NULL, NULL, NULL, NULL, NULL, &error));
  FAILS(invalid, tamis_iter_seek(NULL, "k", 1, &error));
  FAILS(invalid, tamis_snapshot_new(NULL, &error));
  FAILS(invalid, tamis_write(db, NULL, NULL, &error));
  FAILS(invalid, tamis_batch_put(NULL, NULL, "k", 1, "v", 1, &error));
  FAILS(invalid, tamis_begin(NULL, 0, NULL, &error));
  FAILS(invalid, tamis_begin(db, -1, NULL, &error));
  FAILS(invalid, tamis_begin(db, 0, "often", &error));
  FAILS(invalid, tamis_transaction_commit(NULL, NULL, &error));
  FAILS(invalid, tamis_keyspace_create(db, NULL, NULL, &error));
  FAILS(invalid, tamis_keyspace_create(db, "\xff", NULL, &error));
  FAILS(invalid, tamis_keyspace_set_options(db, NULL, NULL, NULL, 1, &error));
  FAILS(invalid, tamis_options_set(NULL, "cache_bytes", "1", &error));
  FAILS(invalid, tamis_options_add_merge_operator(NULL, NULL, &error));
  FAILS(invalid, tamis_table_builder_new(NULL, NULL, &error));
  FAILS(invalid, tamis_table_builder_put(NULL, "k", 1, "v", 1, &error));
  FAILS(invalid, tamis_ingest(db, NULL, NULL, 1, false, NULL, NULL, &error));
  FAILS(invalid, tamis_checkpoint(db, NULL, &error));
  FAILS(invalid, tamis_stats(NULL, &error));
  FAILS(invalid, tamis_explain(db, NULL, NULL, 1, &error));
  FAILS(invalid, tamis_prepared_commit(NULL, "n", 1, &error));

  /* Nobody has to ask for the error, and an empty key may be a null pointer. */
  CHECK(!tamis_put(NULL, NULL, "k", 1, "v", 1, NULL));
  CHECK(tamis_put(db, NULL, NULL, 0, NULL, 0, NULL));
  CHECK(tamis_get(db, NULL, NULL, NULL, 0, &value, &len, NULL) == TAMIS_ANSWER_YES);
  CHECK(value != NULL && len == 0);
  tamis_free(value);
  CHECK(tamis_multi_get(db, NULL, NULL, NULL, NULL, 0, NULL, NULL));

  /* All of these accept null. */
  tamis_error_free(NULL), tamis_options_free(NULL), tamis_keyspace_options_free(NULL), tamis_db_free(NULL);
  tamis_keyspace_free(NULL), tamis_snapshot_free(NULL), tamis_iter_free(NULL), tamis_batch_free(NULL);
  tamis_transaction_free(NULL), tamis_table_builder_free(NULL), tamis_slice_free(NULL), tamis_list_free(NULL);
  tamis_free(NULL);
  CHECK(tamis_error_code(NULL) == 0 && strcmp(tamis_error_text(NULL), "") == 0);
  CHECK(tamis_slice_data(NULL) == NULL && tamis_list_item(NULL, 0, NULL) == NULL && tamis_batch_len(NULL) == 0);
  CHECK(!tamis_merge_result_set(NULL, "v", 1) && !tamis_merge_result_fail(NULL, "no"));
  tamis_db_free(db);
}

static void errors_say_what_and_where(void) {
  tamis_error *error = NULL;
  tamis_db *db = open_new("errors", NULL);
  tamis_keyspace *accounts = tamis_keyspace_create(db, "accounts", NULL, NULL);
  tamis_transaction *transaction = tamis_begin(db, TAMIS_ISOLATION_SNAPSHOT, NULL, NULL);
  CHECK(tamis_transaction_put(transaction, accounts, "a\0b", 3, "1", 1, NULL));
  CHECK(tamis_put(db, accounts, "a\0b", 3, "2", 1, NULL));
  CHECK(!tamis_transaction_commit(transaction, NULL, &error));
  size_t len = 0;
  CHECK(tamis_error_code(error) == TAMIS_CODE_CONFLICT && strcmp(tamis_error_name(error), "conflict") == 0);
  CHECK(tamis_error_is_retryable(error) && strcmp(tamis_error_keyspace(error), "accounts") == 0);
  CHECK(memcmp(tamis_error_key(error, &len), "a\0b", 3) == 0 && len == 3);
  tamis_error_free(error), error = NULL;
  tamis_transaction_free(transaction);

  /* An error outlives everything. */
  tamis_open(path("errors"), NULL, &error);
  CHECK(tamis_error_code(error) == TAMIS_CODE_OPEN_HERE && !tamis_error_is_retryable(error));
  CHECK(tamis_error_keyspace(error) == NULL && tamis_error_key(error, &len) == NULL && len == 0);
  tamis_db_free(db);
  CHECK(strstr(tamis_error_text(error), "errors") != NULL);
  tamis_error_free(error);
  tamis_keyspace_free(accounts);

  db = open_new("errors", NULL);
  CHECK(tamis_close(db, NULL) && tamis_close(db, NULL));
  FAILS(TAMIS_CODE_CLOSED, tamis_stats(db, &error));
  tamis_db_free(db);
}

/* A merge operator that keeps the longest operand and refuses empty ones. Counts its calls, so that one can see that it was asked. */
typedef struct longest {
  int destroyed;
} longest;

static bool longest_merge(void *context, const void *key, size_t key_len, const void *start, size_t start_len,
                          const void *const *operands, const size_t *lens, size_t count, tamis_merge_result *result) {
  (void)context, (void)key, (void)key_len;
  const void *best = start;
  size_t best_len = start == NULL ? 0 : start_len;
  for (size_t i = 0; i < count; i++) {
    if (lens[i] == 0) return tamis_merge_result_fail(result, "an empty operand \xff") && false;
    if (lens[i] > best_len) best = operands[i], best_len = lens[i];
  }
  return tamis_merge_result_set(result, best, best_len);
}

static bool longest_partial(void *context, const void *key, size_t key_len, const void *const *operands,
                            const size_t *lens, size_t count, tamis_merge_result *result) {
  for (size_t i = 0; i < count; i++)
    if (lens[i] == 0) return false;
  return longest_merge(context, key, key_len, NULL, 0, operands, lens, count, result);
}

static void longest_destroy(void *context) { ((longest *)context)->destroyed++; }

static void merge_operators_are_called_and_destroyed(void) {
  longest state = {0};
  const tamis_merge_operator operator= {"longest", &state, longest_merge, longest_partial, longest_destroy};
  tamis_options *options = tamis_options_new();
  tamis_merge_operator wrong = operator;
  wrong.merge = NULL;
  FAILS(TAMIS_CODE_INVALID_ARGUMENT, tamis_options_add_merge_operator(options, &wrong, &error));
  wrong = operator, wrong.name = "two words";
  FAILS(TAMIS_CODE_INVALID_ARGUMENT, tamis_options_add_merge_operator(options, &wrong, &error));
  CHECK(state.destroyed == 0);
  CHECK(tamis_options_add_merge_operator(options, &operator, NULL));
  CHECK(tamis_options_set(options, "merge_operator", "longest", NULL));
  tamis_db *db = open_new("merge", options);
  tamis_options_free(options);

  CHECK(tamis_merge(db, NULL, "k", 1, "bb", 2, NULL) && tamis_merge(db, NULL, "k", 1, "a", 1, NULL));
  CHECK(tamis_flush(db, NULL, NULL));
  CHECK(tamis_merge(db, NULL, "k", 1, "ccc", 3, NULL) && tamis_compact(db, NULL, NULL));
  void *value = NULL;
  size_t len = 0;
  CHECK(tamis_get(db, NULL, NULL, "k", 1, &value, &len, NULL) == TAMIS_ANSWER_YES);
  CHECK(len == 3 && memcmp(value, "ccc", 4) == 0);
  tamis_free(value);
  tamis_error *error = NULL;
  CHECK(tamis_merge(db, NULL, "bad", 3, "", 0, NULL));
  CHECK(tamis_get(db, NULL, NULL, "bad", 3, &value, &len, &error) == TAMIS_ANSWER_ERROR);
  CHECK(tamis_error_code(error) == TAMIS_CODE_MERGE && strstr(tamis_error_text(error), "an empty operand") != NULL);
  tamis_error_free(error);
  CHECK(state.destroyed == 0);
  tamis_db_free(db);
  CHECK(state.destroyed == 1);
  FAILS(TAMIS_CODE_INCOMPATIBLE, tamis_open(path("merge"), NULL, &error));
  options = tamis_options_new();
  CHECK(tamis_options_set(options, "merge_operator", "longest", NULL));
  FAILS(TAMIS_CODE_UNREGISTERED_OPERATOR, tamis_open(path("merge"), options, &error));
  tamis_options_free(options);
}

/* Handles of a database are for all threads; its iterators are not. */
enum { THREADS = 4, WRITES = 500 };

typedef struct task {
  tamis_db *db;
  tamis_iter *iter;
  int number;
  int refused;
} task;

static void *write_and_read(void *argument) {
  task *task = argument;
  for (int i = 0; i < WRITES; i++) {
    char key[32], value[32];
    size_t len = 0;
    int key_len = snprintf(key, sizeof key, "%d/%d", task->number, i);
    CHECK(tamis_put(task->db, NULL, key, (size_t)key_len, &i, sizeof i, NULL));
    CHECK(tamis_get_into(task->db, NULL, NULL, key, (size_t)key_len, value, sizeof value, &len, NULL) ==
          TAMIS_ANSWER_YES);
    CHECK(len == sizeof i && memcmp(value, &i, sizeof i) == 0);
    int64_t sum = 0;
    CHECK(tamis_increment(task->db, NULL, "sum", 3, 1, &sum, NULL) && sum > i);
    /* All threads share an iterator, which they must not: an answer, or an error, and no crash. */
    tamis_error *error = NULL;
    if (tamis_iter_next(task->iter, NULL, NULL, NULL, NULL, &error) == TAMIS_ANSWER_ERROR) {
      CHECK(tamis_error_code(error) == TAMIS_CODE_INVALID_ARGUMENT);
      task->refused++;
      tamis_error_free(error);
    }
  }
  return NULL;
}

static void threads_share_a_database(void) {
  tamis_db *db = open_new("threads", NULL);
  char fill[16] = {0};
  for (int i = 0; i < THREADS * WRITES; i++) {
    int len = snprintf(fill, sizeof fill, "x%d", i);
    CHECK(tamis_put(db, NULL, fill, (size_t)len, "", 0, NULL));
  }
  tamis_iter *iter = tamis_iter_range(db, NULL, NULL, NULL, 0, NULL, 0, NULL);
  pthread_t threads[THREADS];
  task tasks[THREADS];
  for (int i = 0; i < THREADS; i++) {
    tasks[i] = (task){db, iter, i, 0};
    CHECK(pthread_create(&threads[i], NULL, write_and_read, &tasks[i]) == 0);
  }
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  int64_t sum = 0;
  CHECK(tamis_increment(db, NULL, "sum", 3, 0, &sum, NULL) && sum == THREADS * WRITES);
  tamis_iter_free(iter);
  tamis_db_free(db);
}

static void slices_and_snapshots_outlive_their_database(void) {
  tamis_db *db = open_new("outlive", NULL);
  char large[100000];
  memset(large, 'x', sizeof large);
  CHECK(tamis_put(db, NULL, "large", 5, large, sizeof large, NULL) && tamis_flush(db, NULL, NULL));
  tamis_slice *slice = NULL;
  CHECK(tamis_get_slice(db, NULL, NULL, "large", 5, &slice, NULL) == TAMIS_ANSWER_YES);
  tamis_snapshot *snapshot = tamis_snapshot_new(db, NULL);
  tamis_batch *batch = tamis_batch_new();
  tamis_keyspace *keyspace = tamis_keyspace_create(db, "more", NULL, NULL);
  CHECK(tamis_batch_put(batch, keyspace, "k", 1, "v", 1, NULL) && tamis_batch_len(batch) == 1);
  CHECK(tamis_snapshot_seq(snapshot) > 0);
  tamis_keyspace_free(keyspace);
  tamis_db_free(db);
  CHECK(tamis_slice_len(slice) == sizeof large && memcmp(tamis_slice_data(slice), large, sizeof large) == 0);
  tamis_slice_free(slice);
  tamis_db *other = open_new("another", NULL);
  FAILS(TAMIS_CODE_INVALID_ARGUMENT, tamis_contains(other, NULL, snapshot, "k", 1, &error));
  FAILS(TAMIS_CODE_FOREIGN_KEYSPACE, tamis_write(other, batch, "sync", &error));
  CHECK(tamis_batch_len(batch) == 0);
  tamis_batch_free(batch);
  tamis_snapshot_free(snapshot);
  tamis_db_free(other);
}

static void reports_are_json(void) {
  tamis_options *options = tamis_options_new();
  CHECK(tamis_options_set(options, "read_memory_bytes", "64 MiB", NULL));
  tamis_db *db = open_new("reports", options);
  tamis_options_free(options);
  tamis_error *error = NULL;
  CHECK(tamis_put(db, NULL, "k\xff", 2, "v", 1, NULL) && tamis_wait_for_compaction(db, NULL) && tamis_sync(db, NULL));
  CHECK(tamis_flush(db, NULL, NULL) && tamis_cancel_compactions(db, NULL) && tamis_set_read_memory(db, 32 << 20, NULL));
  FAILS(TAMIS_CODE_INVALID_OPTION, tamis_set_read_memory(db, 1, &error));
  FAILS(TAMIS_CODE_INVALID_OPTION, tamis_set_filter_budget(db, 1 << 20, &error));
  char *text = tamis_tables(db, NULL, NULL);
  CHECK(text != NULL && text[0] == '[' && strstr(text, "\"smallest\":\"k\\\\xff\"") != NULL);
  tamis_free(text);
  CHECK((text = tamis_keyspace_stats(db, NULL, NULL)) != NULL && strstr(text, "\"name\":\"default\"") != NULL);
  tamis_free(text);
  CHECK((text = tamis_segments(db, NULL)) != NULL && strcmp(text, "[]") == 0);
  tamis_free(text);
  CHECK((text = tamis_explain(db, NULL, "k\xff", 2, NULL)) != NULL && strstr(text, "\"kind\":\"found\"") != NULL);
  tamis_free(text);
  CHECK((text = tamis_options_in_force(db, NULL)) != NULL && strstr(text, "read_memory_bytes = 64 MiB\n") != NULL);
  tamis_free(text);
  CHECK((text = tamis_keyspace_options_in_force(db, NULL, NULL)) != NULL && strstr(text, "merge_operator = none\n") != NULL);
  tamis_free(text);
  CHECK((text = tamis_options_describe(NULL)) != NULL && strstr(text, "\"name\":\"keyspace.filter\"") != NULL);
  tamis_free(text);
  tamis_db_free(db);
  text = tamis_verify_at(path("reports"), NULL, &error);
  CHECK(text != NULL && strstr(text, "\"unopenable\":null") != NULL);
  tamis_free(text);
  text = tamis_salvage(path("reports"), NULL, true, &error);
  CHECK(text != NULL && strstr(text, "\"dry_run\":true") != NULL);
  tamis_free(text);
  CHECK(strlen(tamis_version()) >= 5);
}

static void databases_share_memory(void) {
  // A multiple of six MiB: two databases with three uses each, and nothing is rounded.
  tamis_shared_read_memory *reads = tamis_shared_read_memory_new(96 << 20);
  tamis_shared_write_memory *writes = tamis_shared_write_memory_new(64 << 20);
  tamis_options *options = tamis_options_new();
  CHECK(tamis_options_share_read_memory(options, reads, NULL) && tamis_options_share_write_memory(options, writes, NULL));
  tamis_db *one = open_new("sharing-1", options), *two = open_new("sharing-2", options);
  CHECK(tamis_put(one, NULL, "k", 1, "v", 1, NULL));
  char *text = tamis_shared_read_memory_members(reads, NULL);
  CHECK(text != NULL && strstr(text, "sharing-1\",\"bytes\":50331648,") != NULL && strstr(text, "sharing-2\",\"bytes\":50331648,") != NULL);
  tamis_free(text);
  text = tamis_shared_write_memory_members(writes, NULL);
  CHECK(text != NULL && strstr(text, "sharing-2\",\"active_bytes\":") != NULL && strstr(text, "\"sealed_bytes\":0}]") != NULL);
  tamis_free(text);
  tamis_db_free(two);
  CHECK(tamis_shared_read_memory_set_bytes(reads, 32 << 20, NULL) && tamis_shared_write_memory_set_bytes(writes, 1 << 20, NULL));
  CHECK((text = tamis_stats(one, NULL)) != NULL && strstr(text, "\"read_memory_bytes\":33554432,") != NULL);
  tamis_free(text);
  /* A limit of its own beside the shared one. */
  CHECK(tamis_options_set(options, "cache_bytes", "1 MiB", NULL));
  FAILS(TAMIS_CODE_INVALID_OPTION, tamis_open(path("sharing-2"), options, &error));
  CHECK(tamis_options_share_read_memory(options, NULL, NULL) && tamis_options_share_write_memory(options, NULL, NULL));
  two = tamis_open(path("sharing-2"), options, NULL);
  CHECK(two != NULL && (text = tamis_shared_write_memory_members(writes, NULL)) != NULL && strstr(text, "sharing-2") == NULL);
  tamis_free(text);
  tamis_db_free(two);
  FAILS(TAMIS_CODE_INVALID_ARGUMENT, tamis_options_share_read_memory(NULL, reads, &error));
  FAILS(TAMIS_CODE_INVALID_ARGUMENT, tamis_options_share_write_memory(NULL, writes, &error));
  FAILS(TAMIS_CODE_INVALID_ARGUMENT, tamis_shared_read_memory_set_bytes(NULL, 1, &error));
  FAILS(TAMIS_CODE_INVALID_ARGUMENT, tamis_shared_write_memory_set_bytes(NULL, 1, &error));
  FAILS(TAMIS_CODE_INVALID_ARGUMENT, tamis_shared_read_memory_members(NULL, &error));
  FAILS(TAMIS_CODE_INVALID_ARGUMENT, tamis_shared_write_memory_members(NULL, &error));
  tamis_options_free(options);
  tamis_shared_read_memory_free(reads), tamis_shared_write_memory_free(writes);
  tamis_shared_read_memory_free(NULL), tamis_shared_write_memory_free(NULL);
  /* The database outlives the handles. */
  CHECK(tamis_put(one, NULL, "l", 1, "v", 1, NULL));
  tamis_db_free(one);
}

/* More memory than there is can be mapped, but not copied. */
static void arguments_that_are_too_long_are_errors(void) {
  tamis_error *error = NULL;
  tamis_db *db = open_new("long", NULL);
  size_t room = (size_t)1 << 45;
  void *value = mmap(NULL, room, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (value == MAP_FAILED) {
    printf("skipped: no room for a mapping of 32 TiB\n");
  } else {
    CHECK(!tamis_put(db, NULL, "k", 1, value, room, &error));
    CHECK(tamis_error_code(error) == TAMIS_CODE_VALUE_TOO_LONG);
    tamis_error_free(error);
    CHECK(!tamis_merge(db, NULL, "k", 1, value, room, &error));
    CHECK(tamis_error_code(error) == TAMIS_CODE_VALUE_TOO_LONG);
    tamis_error_free(error);
    CHECK(munmap(value, room) == 0);
  }
  CHECK(tamis_close(db, NULL));
  tamis_db_free(db);
}

static void a_relative_path_survives_a_change_of_directory(void) {
  tamis_error *error = NULL;
  char here[4096], absolute[4096];
  CHECK(getcwd(here, sizeof here) != NULL);
  CHECK(realpath(base, absolute) != NULL && chdir(absolute) == 0);
  tamis_db *db = tamis_open("relative", NULL, NULL);
  CHECK(db != NULL);
  tamis_table_builder *builder = tamis_table_builder_new("table", NULL, NULL);
  CHECK(builder != NULL);
  CHECK(chdir("/") == 0);
  CHECK(tamis_put(db, NULL, "k", 1, "v", 1, NULL) && tamis_flush(db, NULL, NULL));
  CHECK(tamis_table_builder_put(builder, "t", 1, "v", 1, NULL) && tamis_table_builder_finish(builder, NULL, NULL));
  FAILS(TAMIS_CODE_ENDED, tamis_table_builder_put(builder, "u", 1, "v", 1, &error));
  FAILS(TAMIS_CODE_ENDED, tamis_table_builder_finish(builder, NULL, &error));
  tamis_table_builder_free(builder);
  CHECK(tamis_close(db, NULL));
  tamis_db_free(db);

  /* Both are where they were begun. */
  CHECK(chdir(absolute) == 0);
  db = tamis_open("relative", NULL, NULL);
  const char *tables[] = {"table"};
  CHECK(tamis_contains(db, NULL, NULL, "k", 1, NULL) == TAMIS_ANSWER_YES);
  CHECK(tamis_ingest(db, NULL, tables, 1, true, NULL, NULL, NULL));

  /* An empty path is not the current directory. */
  CHECK(!tamis_checkpoint(db, "", &error));
  CHECK(tamis_error_code(error) == TAMIS_CODE_IO && access("CURRENT", F_OK) != 0);
  tamis_error_free(error);
  CHECK(tamis_open("", NULL, &error) == NULL);
  CHECK(tamis_error_code(error) == TAMIS_CODE_IO && access("LOCK", F_OK) != 0);
  tamis_error_free(error);
  CHECK(tamis_close(db, NULL));
  tamis_db_free(db);
  CHECK(chdir(here) == 0);
}

static void a_child_of_a_fork_can_use_nothing_and_keeps_nobody_out(void) {
  tamis_db *db = open_new("fork", NULL);
  CHECK(tamis_put(db, NULL, "k", 1, "v", 1, NULL));
  tamis_snapshot *snapshot = tamis_snapshot_new(db, NULL);
  tamis_iter *iter = tamis_iter_range(db, NULL, NULL, NULL, 0, NULL, 0, NULL);
  tamis_transaction *transaction = tamis_begin(db, TAMIS_ISOLATION_SNAPSHOT, NULL, NULL);
  CHECK(snapshot != NULL && iter != NULL && transaction != NULL);
  CHECK(tamis_transaction_put(transaction, NULL, "t", 1, "v", 1, NULL));
  int ready[2], done[2];
  CHECK(pipe(ready) == 0 && pipe(done) == 0);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    const int32_t forked = TAMIS_CODE_FORKED;
    const void *key, *value;
    size_t key_len, value_len;
    char byte = 'r';
    close(ready[0]), close(done[1]);
    FAILS(forked, tamis_put(db, NULL, "c", 1, "v", 1, &error));
    FAILS(forked, tamis_contains(db, NULL, NULL, "k", 1, &error));
    FAILS(forked, tamis_contains(db, NULL, snapshot, "k", 1, &error));
    FAILS(forked, tamis_iter_next(iter, &key, &key_len, &value, &value_len, &error));
    FAILS(forked, tamis_transaction_commit(transaction, NULL, &error));
    FAILS(forked, tamis_flush(db, NULL, &error));
    tamis_transaction_free(transaction), tamis_iter_free(iter), tamis_snapshot_free(snapshot);
    /* Lives with the handle until the parent has opened the database again, or has ended. */
    CHECK(write(ready[1], &byte, 1) == 1);
    CHECK(read(done[0], &byte, 1) == 1);
    tamis_db_free(db);
    /* What the child has of the parent's objects is left alone, and valgrind would look for it at an exit. */
    execlp("true", "true", (char *)NULL);
    _exit(1);
  }
  char byte = 0;
  int status = 0;
  close(ready[1]), close(done[0]);
  CHECK(read(ready[0], &byte, 1) == 1);
  CHECK(tamis_transaction_commit(transaction, NULL, NULL));
  tamis_transaction_free(transaction), tamis_iter_free(iter), tamis_snapshot_free(snapshot);
  CHECK(tamis_close(db, NULL));
  tamis_db_free(db);
  db = open_new("fork", NULL);
  CHECK(tamis_contains(db, NULL, NULL, "t", 1, NULL) == TAMIS_ANSWER_YES);
  CHECK(tamis_contains(db, NULL, NULL, "c", 1, NULL) == TAMIS_ANSWER_NO);
  CHECK(write(done[1], &byte, 1) == 1);
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  close(ready[0]), close(done[1]);
  CHECK(tamis_put(db, NULL, "k", 1, "w", 1, NULL) && tamis_close(db, NULL));
  tamis_db_free(db);
}

int main(int count, char **arguments) {
  if (count != 2) return 2;
  base = arguments[1];
  null_pointers_are_errors();
  errors_say_what_and_where();
  merge_operators_are_called_and_destroyed();
  threads_share_a_database();
  slices_and_snapshots_outlive_their_database();
  reports_are_json();
  databases_share_memory();
  arguments_that_are_too_long_are_errors();
  a_relative_path_survives_a_change_of_directory();
  a_child_of_a_fork_can_use_nothing_and_keeps_nobody_out();
  printf("api: passed, version %s\n", tamis_version());
  return 0;
}
