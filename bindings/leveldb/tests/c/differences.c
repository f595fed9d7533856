/* What tamis promises beyond LevelDB, and where it differs: to be linked with libtamis_leveldb. The program takes a directory to work
   in, and optionally that of a database that LevelDB wrote. */

#include "database.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/stat.h>

static int calls = 0;

static void called(void* state) {
  (void)state;
  calls++;
}

static const char* reverse_name(void* state) {
  (void)state;
  return "a reverse order";
}

static const char* no_name(void* state) {
  (void)state;
  return NULL;
}

static int reverse(void* state, const char* a, size_t a_len, const char* b, size_t b_len) {
  (void)state;
  (void)a;
  (void)b;
  return (a_len < b_len) - (a_len > b_len);
}

static void other_orders_are_refused(void) {
  char* error = NULL;
  const char* (*names[])(void*) = {reverse_name, no_name, NULL};
  for (int i = 0; i < 3; i++) {
    leveldb_comparator_t* comparator = leveldb_comparator_create(NULL, i < 2 ? called : NULL, reverse, names[i]);
    leveldb_options_set_comparator(options, comparator);
    CHECK(leveldb_open(options, path, &error) == NULL);
    CHECK(i > 0 || strstr(error, "a reverse order") != NULL);
    CHECK_FAILED(error, "Not implemented: ");
    leveldb_repair_db(options, path, &error);
    CHECK_FAILED(error, "Not implemented: ");
    leveldb_comparator_destroy(comparator);
  }
  CHECK(calls == 2);
  leveldb_options_set_comparator(options, NULL);
  struct stat found;
  CHECK(stat(path, &found) != 0); /* Nothing was created. */
}

static void limits(void) {
  char* error = NULL;
  leveldb_t* db = open_db();
  size_t longest = 64 << 10;
  char* key = malloc(longest + 1);
  memset(key, 'k', longest + 1);
  leveldb_put(db, writes, key, longest, "v", 1, &error);
  CHECK_OK(error);
  leveldb_put(db, writes, key, longest + 1, "v", 1, &error);
  CHECK_FAILED(error, "Invalid argument: ");
  leveldb_delete(db, writes, key, longest + 1, &error);
  CHECK_FAILED(error, "Invalid argument: ");
  size_t len;
  char* value = leveldb_get(db, reads, key, longest, &len, &error);
  CHECK_OK(error);
  CHECK(equals(value, len, "v"));
  leveldb_free(value);
  CHECK(leveldb_get(db, reads, key, longest + 1, &len, &error) == NULL); /* It cannot be there. */
  CHECK_OK(error);

  /* An iterator turns around at the longest key. */
  put(db, "a", "1");
  leveldb_iterator_t* iter = leveldb_create_iterator(db, reads);
  leveldb_iter_seek(iter, key, longest + 1);
  CHECK(!leveldb_iter_valid(iter));
  leveldb_iter_seek_to_last(iter);
  CHECK(leveldb_iter_valid(iter));
  leveldb_iter_prev(iter);
  expect_item(iter, "a", "1");
  leveldb_iter_next(iter);
  leveldb_iter_key(iter, &len);
  CHECK(len == longest);
  leveldb_iter_next(iter);
  CHECK(!leveldb_iter_valid(iter));
  leveldb_iter_get_error(iter, &error);
  CHECK_OK(error);
  leveldb_iter_destroy(iter);

  /* A batch fails as a whole, keeps its contents, and can be used again once it is cleared. */
  leveldb_writebatch_t* batch = leveldb_writebatch_create();
  leveldb_writebatch_put(batch, "b", 1, "2", 1);
  leveldb_writebatch_put(batch, key, longest + 1, "v", 1);
  leveldb_write(db, writes, batch, &error);
  CHECK_FAILED(error, "Invalid argument: ");
  expect(db, "b", NULL);
  leveldb_writebatch_clear(batch);
  leveldb_writebatch_put(batch, "b", 1, "2", 1);
  leveldb_write(db, writes, batch, &error);
  CHECK_OK(error);
  expect(db, "b", "2");
  leveldb_writebatch_destroy(batch);
  free(key);
  leveldb_close(db);
}

/* What is left when a database is closed can be read and destroyed. */
static void handles_outlive_the_database(void) {
  char* error = NULL;
  leveldb_t* db = open_db();
  put(db, "in a table", "1");
  leveldb_compact_range(db, NULL, 0, NULL, 0);
  put(db, "in memory", "2");
  const leveldb_snapshot_t* snapshot = leveldb_create_snapshot(db);
  leveldb_iterator_t* moved = leveldb_create_iterator(db, reads);
  leveldb_iterator_t* fresh = leveldb_create_iterator(db, reads);
  leveldb_iter_seek(moved, "in a", 4);
  leveldb_close(db);

  /* The directory is free. */
  leveldb_destroy_db(options, path, &error);
  CHECK_OK(error);
  db = open_db();
  put(db, "in memory", "of another database");
  expect_item(moved, "in a table", "1");
  leveldb_iter_next(moved);
  if (leveldb_iter_valid(moved)) expect_item(moved, "in memory", "2");
  leveldb_iter_seek_to_last(fresh);
  if (leveldb_iter_valid(fresh)) expect_item(fresh, "in memory", "2");
  leveldb_iter_destroy(moved);
  leveldb_iter_destroy(fresh);

  /* The snapshot is none of this database. */
  size_t len;
  leveldb_readoptions_set_snapshot(reads, snapshot);
  CHECK(leveldb_get(db, reads, "in memory", 9, &len, &error) == NULL);
  CHECK_FAILED(error, "Invalid argument: ");
  leveldb_iterator_t* none = leveldb_create_iterator(db, reads);
  leveldb_iter_seek_to_first(none);
  CHECK(!leveldb_iter_valid(none));
  leveldb_iter_get_error(none, &error);
  CHECK_FAILED(error, "Invalid argument: ");
  leveldb_iter_get_error(none, &error); /* It stays. */
  CHECK_FAILED(error, "Invalid argument: ");
  leveldb_iter_destroy(none);
  leveldb_release_snapshot(db, snapshot);

  /* A snapshot that was released is known to be. */
  CHECK(leveldb_get(db, reads, "in memory", 9, &len, &error) == NULL);
  CHECK_FAILED(error, "Invalid argument: ");
  leveldb_readoptions_set_snapshot(reads, NULL);
  expect(db, "in memory", "of another database");
  leveldb_close(db);
}

/* Caches, policies and options may be destroyed as soon as they were set or used. */
static void parts_are_not_needed(void) {
  calls = 0;
  leveldb_options_t* own = leveldb_options_create();
  leveldb_options_set_create_if_missing(own, 1);
  leveldb_cache_t* cache = leveldb_cache_create_lru(1 << 20);
  leveldb_options_set_cache(own, cache);
  leveldb_cache_destroy(cache);
  leveldb_filterpolicy_t* policy = leveldb_filterpolicy_create(NULL, called, NULL, NULL, NULL);
  leveldb_options_set_filter_policy(own, policy);
  leveldb_filterpolicy_destroy(policy);
  CHECK(calls == 1);
  char* error = NULL;
  leveldb_t* db = leveldb_open(own, path, &error);
  CHECK_OK(error);
  leveldb_options_set_cache(own, NULL);
  leveldb_options_destroy(own);
  put(db, "key", "value");
  leveldb_compact_range(db, NULL, 0, NULL, 0);
  expect(db, "key", "value");
  leveldb_close(db);
  CHECK(calls == 1);
}

/* A batch that changes while it is iterated over. */
struct changing {
  leveldb_writebatch_t* batch;
  int seen;
};

static void on_put(void* state, const char* key, size_t key_len, const char* value, size_t value_len) {
  struct changing* changing = state;
  changing->seen++;
  if (changing->seen == 3) {
    leveldb_writebatch_destroy(changing->batch);
  } else if (changing->seen < 3) {
    leveldb_writebatch_put(changing->batch, key, key_len, value, value_len);
    leveldb_writebatch_append(changing->batch, changing->batch);
    leveldb_writebatch_clear(changing->batch);
    leveldb_writebatch_put(changing->batch, "other", 5, "contents", 8);
  }
  CHECK(equals(value, value_len, "value") && key_len == 1 && *key == 'a' + changing->seen - 1);
}

static void on_delete(void* state, const char* key, size_t key_len) {
  (void)state;
  (void)key;
  CHECK(key_len == 0);
}

static void batches_change_while_iterated(void) {
  struct changing changing = {leveldb_writebatch_create(), 0};
  leveldb_writebatch_delete(changing.batch, "", 0);
  for (const char* key = "abcd"; *key; key++) leveldb_writebatch_put(changing.batch, key, 1, "value", 5);
  leveldb_writebatch_iterate(changing.batch, &changing, on_put, on_delete);
  CHECK(changing.seen == 4);
}

/* NULL is an error where there is a place for one, and nothing elsewhere. */
static void null_is_survived(void) {
  char* error = NULL;
  size_t len = 1;
  leveldb_t* db = open_db();
  leveldb_writebatch_t* batch = leveldb_writebatch_create();
  CHECK(leveldb_open(NULL, path, &error) == NULL);
  CHECK_FAILED(error, "Invalid argument: ");
  CHECK(leveldb_open(options, NULL, &error) == NULL);
  CHECK_FAILED(error, "Invalid argument: ");
  CHECK(leveldb_open(options, path, NULL) == NULL); /* Open already, and nobody asks why. */
  leveldb_put(NULL, writes, "k", 1, "v", 1, &error);
  CHECK_FAILED(error, "Invalid argument: ");
  leveldb_put(db, NULL, "k", 1, "v", 1, &error);
  CHECK_FAILED(error, "Invalid argument: ");
  leveldb_put(db, writes, NULL, 1, "v", 1, &error);
  CHECK_FAILED(error, "Invalid argument: ");
  leveldb_put(db, writes, "k", SIZE_MAX, "v", 1, &error);
  CHECK_FAILED(error, "Invalid argument: ");
  leveldb_put(db, writes, "k", 1, NULL, 0, &error); /* Nothing is read at NULL. */
  CHECK_OK(error);
  leveldb_put(db, writes, NULL, 0, "v", 1, NULL);
  leveldb_delete(db, writes, NULL, 1, &error);
  CHECK_FAILED(error, "Invalid argument: ");
  leveldb_write(db, writes, NULL, &error);
  CHECK_FAILED(error, "Invalid argument: ");
  CHECK(leveldb_get(NULL, reads, "k", 1, &len, &error) == NULL && len == 0);
  CHECK_FAILED(error, "Invalid argument: ");
  CHECK(leveldb_get(db, NULL, "k", 1, NULL, NULL) == NULL);
  leveldb_writebatch_put(batch, NULL, 1, "v", 1);
  leveldb_write(db, writes, batch, &error);
  CHECK_FAILED(error, "Invalid argument: ");
  leveldb_writebatch_clear(batch);
  leveldb_writebatch_put(batch, "k", 1, "v", 1);
  leveldb_writebatch_iterate(batch, NULL, NULL, NULL);
  leveldb_writebatch_iterate(NULL, NULL, on_put, on_delete);
  leveldb_writebatch_append(batch, NULL);
  leveldb_writebatch_append(NULL, batch);
  leveldb_writebatch_clear(NULL);
  leveldb_writebatch_put(NULL, "k", 1, "v", 1);
  leveldb_writebatch_delete(NULL, "k", 1);
  leveldb_iterator_t* iter = leveldb_create_iterator(db, reads);
  leveldb_iter_seek(iter, NULL, 1);
  CHECK(!leveldb_iter_valid(iter));
  leveldb_iter_get_error(iter, &error);
  CHECK_FAILED(error, "Invalid argument: ");
  leveldb_iter_get_error(iter, NULL);
  leveldb_iter_seek_to_first(iter);
  CHECK(leveldb_iter_valid(iter));
  leveldb_iter_seek(iter, NULL, 0);
  CHECK(leveldb_iter_valid(iter) && leveldb_iter_key(iter, NULL) != NULL);
  leveldb_iter_seek(iter, "z", 1);
  leveldb_iter_next(iter);
  leveldb_iter_prev(iter);
  CHECK(leveldb_iter_key(iter, &len) == NULL && len == 0);
  CHECK(leveldb_iter_value(iter, &len) == NULL && len == 0);
  CHECK(!leveldb_iter_valid(NULL) && leveldb_iter_key(NULL, &len) == NULL && leveldb_iter_value(NULL, &len) == NULL);
  leveldb_iter_next(NULL);
  leveldb_iter_prev(NULL);
  leveldb_iter_seek(NULL, "k", 1);
  leveldb_iter_seek_to_first(NULL);
  leveldb_iter_seek_to_last(NULL);
  leveldb_iter_get_error(NULL, &error);
  CHECK_OK(error);
  leveldb_iter_destroy(leveldb_create_iterator(NULL, reads));
  leveldb_iter_destroy(leveldb_create_iterator(db, NULL));
  CHECK(leveldb_create_snapshot(NULL) == NULL);
  CHECK(leveldb_property_value(NULL, "leveldb.stats") == NULL);
  CHECK(leveldb_property_value(db, NULL) == NULL);
  const char* keys[] = {"a", NULL};
  size_t lens[] = {1, 1};
  uint64_t sizes[] = {7, 7};
  leveldb_approximate_sizes(db, 2, keys, lens, keys, lens, sizes);
  CHECK(sizes[0] == 0 && sizes[1] == 0);
  leveldb_approximate_sizes(db, -1, keys, lens, keys, lens, sizes);
  leveldb_approximate_sizes(db, 1, NULL, lens, keys, lens, sizes);
  leveldb_approximate_sizes(NULL, 1, keys, lens, keys, lens, sizes);
  leveldb_compact_range(NULL, NULL, 0, NULL, 0);
  leveldb_destroy_db(NULL, NULL, &error);
  CHECK_FAILED(error, "Invalid argument: ");
  leveldb_destroy_db(options, "", &error); /* It is not the current directory. */
  CHECK_FAILED(error, "Invalid argument: ");
  leveldb_repair_db(NULL, path, &error);
  CHECK_FAILED(error, "Invalid argument: ");
  leveldb_options_set_write_buffer_size(NULL, 1);
  leveldb_options_set_cache(NULL, NULL);
  leveldb_readoptions_set_snapshot(NULL, NULL);
  leveldb_writeoptions_set_sync(NULL, 1);
  leveldb_filterpolicy_destroy(leveldb_filterpolicy_create(NULL, NULL, NULL, NULL, NULL));
  leveldb_comparator_destroy(leveldb_comparator_create(NULL, NULL, NULL, NULL));
  leveldb_options_destroy(NULL);
  leveldb_readoptions_destroy(NULL);
  leveldb_writeoptions_destroy(NULL);
  leveldb_cache_destroy(NULL);
  leveldb_env_destroy(NULL);
  leveldb_comparator_destroy(NULL);
  leveldb_filterpolicy_destroy(NULL);
  leveldb_writebatch_destroy(NULL);
  leveldb_iter_destroy(NULL);
  leveldb_release_snapshot(db, NULL);
  leveldb_iter_destroy(iter);
  leveldb_writebatch_destroy(batch);
  leveldb_close(db);
  leveldb_close(NULL);
}

enum { THREADS = 4, ROUNDS = 500 };

struct worker {
  leveldb_t* db;
  int number;
};

static void* work(void* argument) {
  struct worker* worker = argument;
  char key[32], value[32];
  for (int i = 0; i < ROUNDS; i++) {
    snprintf(key, sizeof key, "%d/%d", worker->number, i);
    snprintf(value, sizeof value, "%d", i);
    put(worker->db, key, value);
    expect(worker->db, key, value);
    if (i % 50 == 0) {
      const leveldb_snapshot_t* snapshot = leveldb_create_snapshot(worker->db);
      leveldb_iterator_t* iter = leveldb_create_iterator(worker->db, reads);
      leveldb_iter_seek(iter, key, strlen(key));
      expect_item(iter, key, value);
      leveldb_iter_destroy(iter);
      leveldb_release_snapshot(worker->db, snapshot);
      leveldb_free(leveldb_property_value(worker->db, "leveldb.stats"));
    }
    if (i % 200 == 100) leveldb_compact_range(worker->db, NULL, 0, NULL, 0);
  }
  return NULL;
}

static void threads_share_a_database(void) {
  leveldb_t* db = open_db();
  pthread_t threads[THREADS];
  struct worker workers[THREADS];
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (struct worker){db, i};
    CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
  }
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  expect(db, "0/499", "499");
  expect(db, "3/0", "0");
  leveldb_close(db);
}

/* Damage is an error of kind "Corruption", and stays with the iterator that met it. */
static void damage(void) {
  char* error = NULL;
  char key[16];
  leveldb_options_set_compression(options, leveldb_no_compression);
  leveldb_t* db = open_db();
  for (int i = 0; i < 5000; i++) {
    snprintf(key, sizeof key, "key%05d", i);
    put(db, key, "some value that is there for its length");
  }
  leveldb_compact_range(db, NULL, 0, NULL, 0);
  leveldb_close(db);
  DIR* dir = opendir(path);
  CHECK(dir != NULL);
  int damaged = 0;
  for (struct dirent* entry; (entry = readdir(dir)) != NULL;) {
    size_t len = strlen(entry->d_name);
    if (len < 4 || strcmp(entry->d_name + len - 4, ".tam") != 0) continue;
    char table[8192];
    snprintf(table, sizeof table, "%s/%s", path, entry->d_name);
    FILE* file = fopen(table, "r+b");
    CHECK(file != NULL && fseek(file, 50000, SEEK_SET) == 0);
    int byte = fgetc(file);
    CHECK(byte != EOF && fseek(file, 50000, SEEK_SET) == 0 && fputc(byte ^ 0x55, file) != EOF && fclose(file) == 0);
    damaged++;
  }
  closedir(dir);
  CHECK(damaged == 1);

  db = open_db();
  leveldb_iterator_t* iter = leveldb_create_iterator(db, reads);
  int seen = 0;
  for (leveldb_iter_seek_to_first(iter); leveldb_iter_valid(iter); leveldb_iter_next(iter)) seen++;
  CHECK(seen > 100 && seen < 5000);
  leveldb_iter_get_error(iter, &error);
  CHECK_FAILED(error, "Corruption: ");
  leveldb_iter_seek(iter, "key04999", 8);
  expect_item(iter, "key04999", "some value that is there for its length");
  leveldb_iter_get_error(iter, &error); /* Whoever asks at the end hears of it. */
  CHECK_FAILED(error, "Corruption: ");
  leveldb_iter_destroy(iter);
  int failed = 0;
  for (int i = 0; i < 5000; i++) {
    size_t len = 1;
    snprintf(key, sizeof key, "key%05d", i);
    char* value = leveldb_get(db, reads, key, 8, &len, &error);
    CHECK((value == NULL) == (error != NULL));
    if (error != NULL) {
      CHECK(len == 0);
      CHECK_FAILED(error, "Corruption: ");
      failed++;
    }
    leveldb_free(value);
  }
  CHECK(failed > 0 && failed < 1000);
  leveldb_close(db);
  leveldb_options_set_compression(options, leveldb_snappy_compression);
}

/* LevelDB makes an empty database where there was none. */
static void nothing_is_not_repaired(void) {
  char* error = NULL;
  struct stat found;
  leveldb_repair_db(options, path, &error);
  CHECK_FAILED(error, "IO error: ");
  CHECK(stat(path, &found) != 0);
}

/* A database of LevelDB is refused. The script compares the directory before and after. */
static void leveldb_is_refused(const char* foreign) {
  char* error = NULL;
  CHECK(leveldb_open(options, foreign, &error) == NULL);
  CHECK(strstr(error, foreign) != NULL && strstr(error, "LevelDB") != NULL);
  CHECK_FAILED(error, "Not implemented: ");
  leveldb_repair_db(options, foreign, &error);
  CHECK_FAILED(error, "Not implemented: ");
  leveldb_destroy_db(options, foreign, &error);
  CHECK_FAILED(error, "Not implemented: ");
}

static void run(void (*test)(void)) {
  test();
  destroy_db();
}

int main(int argc, char** argv) {
  CHECK(argc >= 2);
  begin(argv[1]);
  run(other_orders_are_refused);
  run(limits);
  run(handles_outlive_the_database);
  run(parts_are_not_needed);
  run(batches_change_while_iterated);
  run(null_is_survived);
  run(threads_share_a_database);
  run(damage);
  run(nothing_is_not_repaired);
  for (int i = 2; i < argc; i++) leveldb_is_refused(argv[i]);
  end();
  puts("differences: ok");
  return 0;
}
