/* Every function of leveldb/c.h, with assertions that hold for LevelDB and for tamis alike. The program takes a directory to work in,
   and is linked with one library or the other. */

#include "check.h"

#include <dirent.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static leveldb_options_t* options;
static leveldb_readoptions_t* reads;
static leveldb_writeoptions_t* writes;
static char path[4096];

static leveldb_t* open_db(void) {
  char* error = NULL;
  leveldb_t* db = leveldb_open(options, path, &error);
  CHECK_OK(error);
  CHECK(db != NULL);
  return db;
}

static void destroy_db(void) {
  char* error = NULL;
  leveldb_destroy_db(options, path, &error);
  CHECK_OK(error);
}

static void put(leveldb_t* db, const char* key, const char* value) {
  char* error = NULL;
  leveldb_put(db, writes, key, strlen(key), value, strlen(value), &error);
  CHECK_OK(error);
}

static void delete(leveldb_t* db, const char* key) {
  char* error = NULL;
  leveldb_delete(db, writes, key, strlen(key), &error);
  CHECK_OK(error);
}

/* `expected` is NULL for a key that is not there. */
static void expect_at(leveldb_t* db, const leveldb_readoptions_t* how, const char* key, const char* expected) {
  char* error = NULL;
  size_t len = 4711;
  char* value = leveldb_get(db, how, key, strlen(key), &len, &error);
  CHECK_OK(error);
  if (expected == NULL) {
    CHECK(value == NULL);
    CHECK(len == 0);
  } else {
    CHECK(equals(value, len, expected));
  }
  leveldb_free(value);
}

static void expect(leveldb_t* db, const char* key, const char* expected) { expect_at(db, reads, key, expected); }

static void expect_item(leveldb_iterator_t* iter, const char* key, const char* value) {
  size_t len;
  CHECK(leveldb_iter_valid(iter));
  const char* found = leveldb_iter_key(iter, &len);
  CHECK(equals(found, len, key));
  found = leveldb_iter_value(iter, &len);
  CHECK(equals(found, len, value));
}

static void expect_end(leveldb_iterator_t* iter) {
  char* error = NULL;
  CHECK(!leveldb_iter_valid(iter));
  leveldb_iter_get_error(iter, &error);
  CHECK_OK(error);
}

static void opening(void) {
  char* error = NULL;
  destroy_db();
  destroy_db(); /* There is none: that is no error. */

  leveldb_options_set_create_if_missing(options, 0);
  CHECK(leveldb_open(options, path, &error) == NULL);
  CHECK_FAILED(error, "Invalid argument: ");

  leveldb_options_set_create_if_missing(options, 1);
  leveldb_t* db = open_db();
  put(db, "key", "value");

  /* An error replaces one that the caller has not freed. */
  error = strdup("an older error");
  CHECK(leveldb_open(options, path, &error) == NULL);
  CHECK(strcmp(error, "an older error") != 0);
  CHECK_FAILED(error, "IO error: ");

  /* A success leaves it alone. */
  char* older = strdup("an older error");
  error = older;
  leveldb_put(db, writes, "another", 7, "value", 5, &error);
  CHECK(error == older && strcmp(error, "an older error") == 0);
  free(older);
  error = NULL;

  leveldb_destroy_db(options, path, &error); /* It is open. */
  CHECK_FAILED(error, "IO error: ");
  expect(db, "key", "value");
  leveldb_close(db);

  leveldb_options_set_error_if_exists(options, 1);
  CHECK(leveldb_open(options, path, &error) == NULL);
  CHECK_FAILED(error, "Invalid argument: ");
  leveldb_options_set_error_if_exists(options, 0);

  db = open_db();
  expect(db, "key", "value");
  leveldb_close(db);
}

/* What a process wrote is there after it has ended without closing the database. */
static void ends_without_closing(void) {
  destroy_db();
  leveldb_options_set_create_if_missing(options, 1);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    leveldb_t* db = open_db();
    put(db, "key", "value");
    delete(db, "never there");
    put(db, "other", "value");
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  leveldb_t* db = open_db();
  expect(db, "key", "value");
  expect(db, "other", "value");
  leveldb_close(db);
  destroy_db();
}

static void reads_and_writes(void) {
  char* error = NULL;
  leveldb_t* db = open_db();
  expect(db, "absent", NULL);
  put(db, "a", "1");
  put(db, "a", "2");
  expect(db, "a", "2");
  delete(db, "a");
  expect(db, "a", NULL);
  delete(db, "never there");

  /* An empty value is not an absent one, and the empty key is a key. */
  put(db, "empty", "");
  expect(db, "empty", "");
  put(db, "", "at the empty key");
  expect(db, "", "at the empty key");
  delete(db, "");
  expect(db, "", NULL);

  /* Bytes of all values, zeros among them. */
  char bytes[256];
  for (int i = 0; i < 256; i++) bytes[i] = (char)(255 - i);
  leveldb_put(db, writes, bytes, sizeof bytes, bytes, sizeof bytes, &error);
  CHECK_OK(error);
  size_t len;
  char* value = leveldb_get(db, reads, bytes, sizeof bytes, &len, &error);
  CHECK_OK(error);
  CHECK(len == sizeof bytes && memcmp(value, bytes, len) == 0);
  leveldb_free(value);
  CHECK(leveldb_get(db, reads, bytes, sizeof bytes - 1, &len, &error) == NULL && len == 0);
  CHECK_OK(error);

  /* A long key and a long value. */
  size_t key_len = 60000, value_len = (size_t)16 << 20;
  char* key = malloc(key_len);
  char* large = malloc(value_len);
  memset(key, 'k', key_len);
  for (size_t i = 0; i < value_len; i++) large[i] = (char)(i * 2654435761u >> 13);
  leveldb_put(db, writes, key, key_len, large, value_len, &error);
  CHECK_OK(error);
  value = leveldb_get(db, reads, key, key_len, &len, &error);
  CHECK_OK(error);
  CHECK(len == value_len && memcmp(value, large, len) == 0);
  leveldb_free(value);
  free(key);
  free(large);

  leveldb_writeoptions_set_sync(writes, 1);
  put(db, "synced", "yes");
  leveldb_writeoptions_set_sync(writes, 0);
  leveldb_readoptions_set_verify_checksums(reads, 1);
  leveldb_readoptions_set_fill_cache(reads, 0);
  expect(db, "synced", "yes");
  leveldb_close(db);
  db = open_db();
  expect(db, "synced", "yes");
  expect(db, "empty", "");
  expect(db, "a", NULL);
  leveldb_readoptions_set_verify_checksums(reads, 0);
  leveldb_readoptions_set_fill_cache(reads, 1);
  leveldb_close(db);
  destroy_db();
}

/* What an iteration over a batch has to show. */
struct log {
  char text[256];
};

static void log_put(void* state, const char* key, size_t key_len, const char* value, size_t value_len) {
  struct log* log = state;
  size_t end = strlen(log->text);
  snprintf(log->text + end, sizeof log->text - end, "+%.*s=%.*s ", (int)key_len, key, (int)value_len, value);
}

static void log_delete(void* state, const char* key, size_t key_len) {
  struct log* log = state;
  size_t end = strlen(log->text);
  snprintf(log->text + end, sizeof log->text - end, "-%.*s ", (int)key_len, key);
}

static void expect_batch(const leveldb_writebatch_t* batch, const char* expected) {
  struct log log = {""};
  leveldb_writebatch_iterate(batch, &log, log_put, log_delete);
  CHECK(strcmp(log.text, expected) == 0);
}

static void batches(void) {
  char* error = NULL;
  leveldb_t* db = open_db();
  leveldb_writebatch_t* batch = leveldb_writebatch_create();
  expect_batch(batch, "");
  leveldb_write(db, writes, batch, &error); /* Nothing. */
  CHECK_OK(error);

  leveldb_writebatch_put(batch, "a", 1, "1", 1);
  leveldb_writebatch_put(batch, "b", 1, "", 0);
  leveldb_writebatch_delete(batch, "a", 1);
  leveldb_writebatch_put(batch, "", 0, "e", 1);
  expect_batch(batch, "+a=1 +b= -a +=e ");
  expect(db, "b", NULL);
  leveldb_write(db, writes, batch, &error);
  CHECK_OK(error);
  expect(db, "a", NULL);
  expect(db, "b", "");
  expect(db, "", "e");

  /* A batch can be written again, and be part of another. */
  leveldb_writebatch_t* other = leveldb_writebatch_create();
  leveldb_writebatch_put(other, "c", 1, "3", 1);
  leveldb_writebatch_append(other, batch);
  leveldb_writebatch_delete(other, "b", 1);
  expect_batch(other, "+c=3 +a=1 +b= -a +=e -b ");
  expect_batch(batch, "+a=1 +b= -a +=e ");
  leveldb_write(db, writes, other, &error);
  CHECK_OK(error);
  expect(db, "b", NULL);
  expect(db, "c", "3");
  leveldb_write(db, writes, batch, &error);
  CHECK_OK(error);
  expect(db, "b", "");

  leveldb_writebatch_clear(batch);
  expect_batch(batch, "");
  leveldb_writebatch_put(batch, "after", 5, "clear", 5);
  expect_batch(batch, "+after=clear ");
  leveldb_writebatch_clear(other);
  leveldb_writebatch_append(batch, other);
  expect_batch(batch, "+after=clear ");
  leveldb_writeoptions_set_sync(writes, 1);
  leveldb_write(db, writes, batch, &error);
  CHECK_OK(error);
  leveldb_writeoptions_set_sync(writes, 0);
  expect(db, "after", "clear");
  leveldb_writebatch_destroy(batch);
  leveldb_writebatch_destroy(other);
  leveldb_close(db);
  destroy_db();
}

static void iterators(void) {
  char* error = NULL;
  leveldb_t* db = open_db();
  leveldb_iterator_t* iter = leveldb_create_iterator(db, reads);
  expect_end(iter); /* It stands nowhere yet. */
  leveldb_iter_seek_to_first(iter);
  expect_end(iter);
  leveldb_iter_seek_to_last(iter);
  expect_end(iter);
  leveldb_iter_seek(iter, "b", 1);
  expect_end(iter);
  leveldb_iter_destroy(iter);

  put(db, "a", "1");
  put(db, "b", "2");
  put(db, "c", "3");
  put(db, "d", "4");
  delete(db, "c");
  iter = leveldb_create_iterator(db, reads);
  put(db, "bb", "written after the iterator was created");
  delete(db, "a");

  leveldb_iter_seek_to_first(iter);
  expect_item(iter, "a", "1");
  leveldb_iter_next(iter);
  expect_item(iter, "b", "2");
  leveldb_iter_next(iter);
  expect_item(iter, "d", "4");
  leveldb_iter_next(iter);
  expect_end(iter);

  leveldb_iter_seek_to_last(iter);
  expect_item(iter, "d", "4");
  leveldb_iter_prev(iter);
  expect_item(iter, "b", "2");
  leveldb_iter_prev(iter);
  expect_item(iter, "a", "1");
  leveldb_iter_prev(iter);
  expect_end(iter);

  /* There and back, several times. */
  leveldb_iter_seek(iter, "b", 1);
  expect_item(iter, "b", "2");
  leveldb_iter_next(iter);
  expect_item(iter, "d", "4");
  leveldb_iter_prev(iter);
  expect_item(iter, "b", "2");
  leveldb_iter_prev(iter);
  expect_item(iter, "a", "1");
  leveldb_iter_next(iter);
  expect_item(iter, "b", "2");
  leveldb_iter_seek_to_last(iter);
  leveldb_iter_prev(iter);
  leveldb_iter_next(iter);
  expect_item(iter, "d", "4");

  /* Between keys, before all and after all. */
  leveldb_iter_seek(iter, "bz", 2);
  expect_item(iter, "d", "4");
  leveldb_iter_seek(iter, "", 0);
  expect_item(iter, "a", "1");
  leveldb_iter_seek(iter, "e", 1);
  expect_end(iter);
  leveldb_iter_seek(iter, "a", 1);
  expect_item(iter, "a", "1");

  /* The sought key may be the iterator's own. */
  leveldb_iter_next(iter);
  size_t len;
  const char* key = leveldb_iter_key(iter, &len);
  leveldb_iter_seek(iter, key, len);
  expect_item(iter, "b", "2");
  leveldb_iter_get_error(iter, &error);
  CHECK_OK(error);
  leveldb_iter_destroy(iter);

  iter = leveldb_create_iterator(db, reads);
  leveldb_iter_seek_to_first(iter);
  expect_item(iter, "b", "2");
  leveldb_iter_next(iter);
  expect_item(iter, "bb", "written after the iterator was created");
  leveldb_iter_destroy(iter);
  leveldb_close(db);
  destroy_db();
}

static void snapshots(void) {
  leveldb_t* db = open_db();
  put(db, "key", "old");
  put(db, "gone", "soon");
  const leveldb_snapshot_t* snapshot = leveldb_create_snapshot(db);
  const leveldb_snapshot_t* same = leveldb_create_snapshot(db);
  CHECK(snapshot != NULL && same != NULL);
  put(db, "key", "new");
  put(db, "later", "yes");
  delete(db, "gone");
  leveldb_compact_range(db, NULL, 0, NULL, 0);

  leveldb_readoptions_t* past = leveldb_readoptions_create();
  leveldb_readoptions_set_snapshot(past, snapshot);
  expect_at(db, past, "key", "old");
  expect_at(db, past, "gone", "soon");
  expect_at(db, past, "later", NULL);
  expect(db, "key", "new");
  expect(db, "gone", NULL);
  leveldb_iterator_t* iter = leveldb_create_iterator(db, past);
  leveldb_iter_seek_to_first(iter);
  expect_item(iter, "gone", "soon");
  leveldb_iter_next(iter);
  expect_item(iter, "key", "old");
  leveldb_iter_next(iter);
  expect_end(iter);

  /* An iterator does not need the options or the snapshot once it is there. */
  leveldb_readoptions_set_snapshot(past, NULL);
  expect_at(db, past, "key", "new");
  leveldb_release_snapshot(db, snapshot);
  put(db, "key", "newer");
  leveldb_compact_range(db, NULL, 0, NULL, 0);
  leveldb_iter_seek_to_last(iter);
  expect_item(iter, "key", "old");
  leveldb_iter_destroy(iter);

  leveldb_readoptions_set_snapshot(past, same);
  expect_at(db, past, "key", "old");
  leveldb_release_snapshot(db, same);
  leveldb_readoptions_destroy(past);
  leveldb_close(db);
  destroy_db();
}

/* Returns the value of a property, which has to exist. */
static char* property(leveldb_t* db, const char* name) {
  char* value = leveldb_property_value(db, name);
  CHECK(value != NULL);
  return value;
}

static uint64_t number(leveldb_t* db, const char* name) {
  char* value = property(db, name);
  char* end;
  CHECK(*value >= '0' && *value <= '9');
  uint64_t number = strtoull(value, &end, 10);
  CHECK(*end == '\0');
  leveldb_free(value);
  return number;
}

static uint64_t files(leveldb_t* db) {
  uint64_t files = 0;
  for (int level = 0; level < 7; level++) {
    char name[64];
    snprintf(name, sizeof name, "leveldb.num-files-at-level%d", level);
    files += number(db, name);
  }
  return files;
}

static void sizes_and_properties(void) {
  enum { KEYS = 8000 };
  leveldb_t* db = open_db();
  CHECK(files(db) == 0);
  char key[32], value[128];
  uint32_t random = 1;
  for (int i = 0; i < KEYS; i++) {
    snprintf(key, sizeof key, "k%020d", i);
    /* Bytes that do not compress well. */
    for (size_t j = 0; j < 100; j++) value[j] = (char)('!' + (random = random * 1664525 + 1013904223) % 90);
    value[100] = '\0';
    put(db, key, value);
  }
  leveldb_compact_range(db, NULL, 0, NULL, 0);
  CHECK(files(db) >= 1);

  const char* start[] = {"a", "k00000000000000000000", "k00000000000000004000", "k00000000000000004000", "l", "z"};
  const char* limit[] = {"b", "k00000000000000008000", "k00000000000000004000", "k00000000000000008000", "m", "a"};
  size_t start_len[6], limit_len[6];
  uint64_t sizes[6];
  for (int i = 0; i < 6; i++) {
    start_len[i] = strlen(start[i]);
    limit_len[i] = strlen(limit[i]);
    sizes[i] = UINT64_MAX;
  }
  leveldb_approximate_sizes(db, 6, start, start_len, limit, limit_len, sizes);
  CHECK(sizes[0] < 10000);
  CHECK(sizes[1] > 100 * KEYS / 2 && sizes[1] < 200 * KEYS);
  CHECK(sizes[2] < 10000);
  CHECK(sizes[3] > sizes[1] / 3 && sizes[3] < sizes[1] * 2 / 3);
  CHECK(sizes[4] < 10000);
  CHECK(sizes[5] == 0); /* It ends before it starts. */
  leveldb_approximate_sizes(db, 0, start, start_len, limit, limit_len, sizes);

  char* text = property(db, "leveldb.stats");
  CHECK(strstr(text, "Level") != NULL && strstr(text, "Files") != NULL && strstr(text, "Size(MB)") != NULL);
  leveldb_free(text);
  text = property(db, "leveldb.sstables");
  CHECK(strstr(text, "k000") != NULL);
  leveldb_free(text);
  CHECK(number(db, "leveldb.approximate-memory-usage") > 0);
  const char* unknown[] = {"",      "stats",    "leveldb.",   "leveldb.nosuchprop", "leveldb.num-files-at-level",
                           "nosuch", "leveldb.num-files-at-level7", "leveldb.num-files-at-level0x",
                           "leveldb.num-files-at-level-1", "leveldb.num-files-at-level99999999999999999999",
                           "leveldb.Stats"};
  for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
    /* LevelDB takes a level without digits for level 0. */
    if (strcmp(unknown[i], "leveldb.num-files-at-level") != 0) CHECK(leveldb_property_value(db, unknown[i]) == NULL);
  }

  /* Compactions of parts, with either bound open, leave the contents as they are. */
  for (int i = 0; i < KEYS; i += 2) {
    snprintf(key, sizeof key, "k%020d", i);
    delete(db, key);
  }
  leveldb_compact_range(db, start[1], start_len[1], start[2], start_len[2]);
  leveldb_compact_range(db, NULL, 0, start[2], start_len[2]);
  leveldb_compact_range(db, start[2], start_len[2], NULL, 0);
  leveldb_compact_range(db, start[2], start_len[2], start[1], start_len[1]);
  leveldb_compact_range(db, "", 0, "", 0);
  leveldb_iterator_t* iter = leveldb_create_iterator(db, reads);
  int count = 0;
  for (leveldb_iter_seek_to_first(iter); leveldb_iter_valid(iter); leveldb_iter_next(iter)) {
    size_t len;
    const char* found = leveldb_iter_key(iter, &len);
    snprintf(key, sizeof key, "k%020d", 2 * count + 1);
    CHECK(equals(found, len, key));
    count++;
  }
  expect_end(iter);
  CHECK(count == KEYS / 2);
  for (leveldb_iter_seek_to_last(iter); leveldb_iter_valid(iter); leveldb_iter_prev(iter)) count--;
  expect_end(iter);
  CHECK(count == 0);
  leveldb_iter_destroy(iter);
  leveldb_close(db);
  destroy_db();
}

/* An object of the program's, which counts the ends of its life. */
struct counted {
  const char* name;
  int destroyed;
};

static void destructor(void* state) { ((struct counted*)state)->destroyed++; }

static const char* name(void* state) { return ((struct counted*)state)->name; }

static int compare(void* state, const char* a, size_t a_len, const char* b, size_t b_len) {
  (void)state;
  int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
  return order != 0 ? order : (a_len > b_len) - (a_len < b_len);
}

static char* create_filter(void* state, const char* const* keys, const size_t* key_lens, int count, size_t* len) {
  (void)state;
  (void)keys;
  (void)key_lens;
  (void)count;
  *len = 4;
  char* filter = malloc(4);
  memcpy(filter, "fake", 4);
  return filter;
}

static uint8_t key_may_match(void* state, const char* key, size_t key_len, const char* filter, size_t len) {
  (void)state;
  (void)key;
  (void)key_len;
  CHECK(equals(filter, len, "fake"));
  return 1;
}

/* New options, which refer to nothing. */
static void reset_options(void) {
  leveldb_options_destroy(options);
  options = leveldb_options_create();
  leveldb_options_set_create_if_missing(options, 1);
}

static void comparators(void) {
  struct counted counted = {"leveldb.BytewiseComparator", 0};
  leveldb_comparator_t* comparator = leveldb_comparator_create(&counted, destructor, compare, name);
  leveldb_options_set_comparator(options, comparator);
  leveldb_t* db = open_db();
  put(db, "b", "2");
  put(db, "a", "1");
  put(db, "\xff", "3");
  leveldb_iterator_t* iter = leveldb_create_iterator(db, reads);
  leveldb_iter_seek_to_first(iter);
  expect_item(iter, "a", "1");
  leveldb_iter_seek_to_last(iter);
  expect_item(iter, "\xff", "3");
  leveldb_iter_destroy(iter);
  leveldb_close(db);
  destroy_db();
  CHECK(counted.destroyed == 0);
  leveldb_comparator_destroy(comparator);
  CHECK(counted.destroyed == 1);
  reset_options();
  CHECK(counted.destroyed == 1);
}

static void filter_policies(void) {
  struct counted counted = {"a filter of the program's", 0};
  leveldb_filterpolicy_t* policies[] = {
      leveldb_filterpolicy_create(&counted, destructor, create_filter, key_may_match, name),
      leveldb_filterpolicy_create_bloom(10), leveldb_filterpolicy_create_bloom(1)};
  for (int i = 0; i < 3; i++) {
    leveldb_options_set_filter_policy(options, policies[i]);
    leveldb_t* db = open_db();
    char key[16];
    for (int j = 0; j < 1000; j++) {
      snprintf(key, sizeof key, "key%d", j);
      put(db, key, key);
    }
    leveldb_compact_range(db, NULL, 0, NULL, 0);
    for (int j = 0; j < 1000; j++) {
      snprintf(key, sizeof key, "key%d", j);
      expect(db, key, key);
      key[0] = 'x';
      expect(db, key, NULL);
    }
    leveldb_close(db);
    destroy_db();
    leveldb_options_set_filter_policy(options, NULL);
    CHECK(counted.destroyed == (i > 0));
    leveldb_filterpolicy_destroy(policies[i]);
    CHECK(counted.destroyed == 1);
  }
}

/* Opens a database with the options as they are, writes to it, reads it back after another opening, and removes it. */
static void works(void) {
  leveldb_t* db = open_db();
  char key[16], value[64];
  for (int i = 0; i < 2000; i++) {
    snprintf(key, sizeof key, "key%d", i);
    snprintf(value, sizeof value, "value of %d, and some more bytes", i);
    put(db, key, value);
  }
  leveldb_compact_range(db, NULL, 0, NULL, 0);
  put(db, "key7", "another");
  leveldb_close(db);
  db = open_db();
  expect(db, "key7", "another");
  expect(db, "key1999", "value of 1999, and some more bytes");
  expect(db, "key2000", NULL);
  leveldb_close(db);
  destroy_db();
}

static void all_options(void) {
  leveldb_options_set_paranoid_checks(options, 1);
  works();
  leveldb_options_set_paranoid_checks(options, 0);
  leveldb_options_set_info_log(options, NULL);
  leveldb_env_t* env = leveldb_create_default_env();
  CHECK(env != NULL);
  leveldb_options_set_env(options, env);
  works();

  size_t sizes[] = {0, 1, 4096, 100000};
  int numbers[] = {1, 2, 16, 1000};
  for (int i = 0; i < 4; i++) {
    leveldb_options_set_write_buffer_size(options, sizes[i]);
    leveldb_options_set_block_size(options, sizes[i]);
    leveldb_options_set_max_file_size(options, sizes[i]);
    leveldb_options_set_max_open_files(options, numbers[i]);
    leveldb_options_set_block_restart_interval(options, numbers[i]);
    leveldb_options_set_compression(options, i % 2 ? leveldb_snappy_compression : leveldb_no_compression);
    works();
  }
  reset_options();
  leveldb_env_destroy(env);
}

static void shared_cache(void) {
  leveldb_cache_t* cache = leveldb_cache_create_lru(1 << 20);
  CHECK(cache != NULL);
  leveldb_options_set_cache(options, cache);
  works();
  leveldb_t* first = open_db();
  char other[4200];
  snprintf(other, sizeof other, "%s-other", path);
  char* error = NULL;
  leveldb_t* second = leveldb_open(options, other, &error);
  CHECK_OK(error);
  put(first, "key", "in the first");
  put(second, "key", "in the second");
  leveldb_compact_range(first, NULL, 0, NULL, 0);
  leveldb_compact_range(second, NULL, 0, NULL, 0);
  for (int i = 0; i < 3; i++) {
    expect(first, "key", "in the first");
    expect(second, "key", "in the second");
  }
  leveldb_close(first);
  expect(second, "key", "in the second");
  leveldb_close(second);
  destroy_db();
  leveldb_destroy_db(options, other, &error);
  CHECK_OK(error);
  reset_options();
  leveldb_cache_destroy(cache);

  cache = leveldb_cache_create_lru(0);
  leveldb_options_set_cache(options, cache);
  works();
  reset_options();
  leveldb_cache_destroy(cache);
}

static void repair(void) {
  /* In a directory of its own: LevelDB keeps what it set aside there. */
  char* error = NULL;
  char parent[4096];
  snprintf(parent, sizeof parent, "%s", path);
  snprintf(path, sizeof path, "%.4000s-to-repair", parent);
  leveldb_t* db = open_db();
  put(db, "flushed", "yes");
  leveldb_compact_range(db, NULL, 0, NULL, 0);
  put(db, "logged", "yes");
  leveldb_close(db);
  leveldb_repair_db(options, path, &error); /* Nothing is wrong. */
  CHECK_OK(error);
  db = open_db();
  expect(db, "flushed", "yes");
  expect(db, "logged", "yes");
  leveldb_close(db);

  /* Without the file that names the manifest. */
  char current[4200];
  snprintf(current, sizeof current, "%s/CURRENT", path);
  CHECK(unlink(current) == 0);
  leveldb_options_set_create_if_missing(options, 0);
  CHECK(leveldb_open(options, path, &error) == NULL);
  CHECK(error != NULL);
  leveldb_free(error);
  error = NULL;
  leveldb_repair_db(options, path, &error);
  CHECK_OK(error);
  db = open_db();
  expect(db, "flushed", "yes");
  expect(db, "logged", "yes");
  leveldb_close(db);
  leveldb_options_set_create_if_missing(options, 1);
  destroy_db();
  snprintf(path, sizeof path, "%s", parent);
}

/* The directory goes with the database, unless somebody else has a file in it. */
static void destruction(void) {
  struct stat found;
  leveldb_t* db = open_db();
  put(db, "key", "value");
  leveldb_close(db);
  CHECK(stat(path, &found) == 0);
  destroy_db();
  CHECK(stat(path, &found) != 0);

  leveldb_close(open_db());
  char foreign[4200];
  snprintf(foreign, sizeof foreign, "%s/of-somebody-else", path);
  FILE* file = fopen(foreign, "w");
  CHECK(file != NULL && fclose(file) == 0);
  destroy_db();
  CHECK(stat(foreign, &found) == 0);
  DIR* dir = opendir(path);
  CHECK(dir != NULL);
  int left = 0;
  while (readdir(dir) != NULL) left++;
  closedir(dir);
  CHECK(left == 3); /* With "." and "..". */
  CHECK(unlink(foreign) == 0 && rmdir(path) == 0);
}

static void environment(void) {
  leveldb_env_t* env = leveldb_create_default_env();
  CHECK(setenv("TEST_TMPDIR", path, 1) == 0);
  char* dir = leveldb_env_get_test_directory(env);
  CHECK(dir != NULL && strcmp(dir, path) == 0);
  leveldb_free(dir);
  CHECK(unsetenv("TEST_TMPDIR") == 0);
  dir = leveldb_env_get_test_directory(env);
  struct stat found;
  CHECK(dir != NULL && strstr(dir, "leveldbtest-") != NULL);
  CHECK(stat(dir, &found) == 0 && S_ISDIR(found.st_mode));
  leveldb_free(dir);
  leveldb_free(NULL);
  leveldb_env_destroy(env);
  rmdir(path);
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  snprintf(path, sizeof path, "%s/db", argv[1]);
  CHECK(leveldb_major_version() == 1);
  CHECK(leveldb_minor_version() >= 22);
  options = leveldb_options_create();
  reads = leveldb_readoptions_create();
  writes = leveldb_writeoptions_create();

  ends_without_closing(); /* First, as a forked process has no threads. */
  opening();
  destroy_db();
  reads_and_writes();
  batches();
  iterators();
  snapshots();
  sizes_and_properties();
  comparators();
  filter_policies();
  all_options();
  shared_cache();
  repair();
  destruction();
  environment();

  leveldb_options_destroy(options);
  leveldb_readoptions_destroy(reads);
  leveldb_writeoptions_destroy(writes);
  puts("conformance: ok");
  return 0;
}
