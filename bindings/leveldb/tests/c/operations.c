/* Databases, writes, reads, iterators and snapshots, with assertions that hold for LevelDB and for tamis alike. Together with objects.c these are
   all functions of leveldb/c.h. The program takes a directory to work in, and is linked with one library or the other. */

#include "database.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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

int main(int argc, char** argv) {
  CHECK(argc == 2);
  begin(argv[1]);
  ends_without_closing(); /* First, as a forked process has no threads. */
  opening();
  destroy_db();
  reads_and_writes();
  batches();
  iterators();
  snapshots();
  repair();
  destruction();
  end();
  puts("operations: ok");
  return 0;
}
