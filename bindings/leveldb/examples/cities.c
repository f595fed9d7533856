/* Loads lines "key TAB value" from standard input, and looks around in them: a program written for LevelDB.

   cities DIRECTORY < cities.tsv */

#ifdef TAMIS_HEADER
#include <tamis/leveldb.h>
#else
#include <leveldb/c.h>
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 1000, LINE_BYTES = 1 << 16 };

static void stop_on(char* error, const char* what) {
  if (error == NULL) return;
  fprintf(stderr, "cities: could not %s: %s\n", what, error);
  exit(1);
}

/* Prints how many keys start with `prefix`, and the first and the last of them. */
static void show(leveldb_t* db, const leveldb_readoptions_t* reads, const char* prefix) {
  size_t prefix_len = strlen(prefix), len = 0;
  unsigned long count = 0;
  char first[256] = "", last[256] = "";
  leveldb_iterator_t* iter = leveldb_create_iterator(db, reads);
  for (leveldb_iter_seek(iter, prefix, prefix_len); leveldb_iter_valid(iter); leveldb_iter_next(iter)) {
    const char* key = leveldb_iter_key(iter, &len);
    if (len < prefix_len || memcmp(key, prefix, prefix_len) != 0) break;
    snprintf(count == 0 ? first : last, sizeof first, "%.*s", (int)len, key);
    count++;
  }
  char* error = NULL;
  leveldb_iter_get_error(iter, &error);
  stop_on(error, "iterate");
  leveldb_iter_destroy(iter);
  printf("%s: %lu keys, from \"%s\" to \"%s\"\n", prefix, count, first, count > 1 ? last : first);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: cities DIRECTORY < FILE\n");
    return 2;
  }
  char* error = NULL;
  leveldb_options_t* options = leveldb_options_create();
  leveldb_options_set_create_if_missing(options, 1);
  leveldb_filterpolicy_t* policy = leveldb_filterpolicy_create_bloom(10);
  leveldb_options_set_filter_policy(options, policy);
  leveldb_t* db = leveldb_open(options, argv[1], &error);
  stop_on(error, "open the database");

  leveldb_writeoptions_t* writes = leveldb_writeoptions_create();
  leveldb_writebatch_t* batch = leveldb_writebatch_create();
  static char line[LINE_BYTES];
  unsigned long lines = 0;
  int more = 1;
  while (more) {
    more = fgets(line, sizeof line, stdin) != NULL;
    if (more) {
      size_t key_len = strcspn(line, "\t\n");
      const char* value = line[key_len] == '\t' ? line + key_len + 1 : line + key_len;
      leveldb_writebatch_put(batch, line, key_len, value, strcspn(value, "\n"));
      lines++;
    }
    if (!more || lines % BATCH == 0) {
      leveldb_write(db, writes, batch, &error);
      stop_on(error, "write");
      leveldb_writebatch_clear(batch);
    }
  }
  printf("%lu lines loaded\n", lines);

  leveldb_readoptions_t* reads = leveldb_readoptions_create();
  show(db, reads, "IS/");
  show(db, reads, "CH/");
  leveldb_compact_range(db, NULL, 0, NULL, 0);
  const char* start[] = {"A", "U"};
  const char* limit[] = {"B", "V"};
  const size_t lens[] = {1, 1};
  uint64_t sizes[2];
  leveldb_approximate_sizes(db, 2, start, lens, limit, lens, sizes);
  printf("A to B: about %llu bytes, U to V: about %llu\n", (unsigned long long)sizes[0], (unsigned long long)sizes[1]);
  char* stats = leveldb_property_value(db, "leveldb.stats");
  /* The table of levels; counters follow. */
  const char* counters = strstr(stats, "Reads");
  printf("%.*s", (int)(counters == NULL ? strlen(stats) : (size_t)(counters - stats)), stats);
  leveldb_free(stats);

  leveldb_writebatch_destroy(batch);
  leveldb_writeoptions_destroy(writes);
  leveldb_readoptions_destroy(reads);
  leveldb_close(db);
  leveldb_options_destroy(options);
  leveldb_filterpolicy_destroy(policy);
  return 0;
}
