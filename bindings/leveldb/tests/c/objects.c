/* Sizes and properties, and the objects that options take, with assertions that hold for LevelDB and for tamis alike. Together with operations.c these are
   all functions of leveldb/c.h. The program takes a directory to work in, and is linked with one library or the other. */

#include "database.h"

#include <sys/stat.h>
#include <unistd.h>

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
  begin(argv[1]);
  CHECK(leveldb_major_version() == 1);
  CHECK(leveldb_minor_version() >= 22);
  sizes_and_properties();
  comparators();
  filter_policies();
  all_options();
  shared_cache();
  environment();
  end();
  puts("objects: ok");
  return 0;
}
