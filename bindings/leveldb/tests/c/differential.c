/* One random sequence of operations through two libraries side by side, LevelDB and tamis: every answer has to be the same.

   differential FIRST.so SECOND.so DIRECTORY SEED STEPS */

#include "check.h"

#include <dlfcn.h>
#include <stdint.h>
#include <unistd.h>

#define FUNCTIONS(F)                                                                                             \
  F(open) F(close) F(put) F(delete) F(write) F(get) F(create_iterator) F(create_snapshot) F(release_snapshot)   \
  F(compact_range) F(destroy_db) F(iter_destroy) F(iter_valid) F(iter_seek_to_first) F(iter_seek_to_last)       \
  F(iter_seek) F(iter_next) F(iter_prev) F(iter_key) F(iter_value) F(iter_get_error) F(writebatch_create)       \
  F(writebatch_destroy) F(writebatch_clear) F(writebatch_put) F(writebatch_delete) F(writebatch_iterate)        \
  F(writebatch_append) F(options_create) F(options_destroy) F(options_set_create_if_missing)                    \
  F(options_set_error_if_exists) F(options_set_write_buffer_size) F(options_set_block_size)                     \
  F(options_set_block_restart_interval) F(options_set_max_file_size) F(options_set_compression)                 \
  F(options_set_filter_policy) F(options_set_cache) F(options_set_paranoid_checks)                              \
  F(filterpolicy_create_bloom) F(filterpolicy_destroy) F(cache_create_lru) F(cache_destroy)                     \
  F(readoptions_create) F(readoptions_destroy) F(readoptions_set_snapshot) F(readoptions_set_verify_checksums)  \
  F(readoptions_set_fill_cache) F(writeoptions_create) F(writeoptions_destroy) F(writeoptions_set_sync) F(free)

enum { SNAPSHOTS = 4, ITERATORS = 4, KEY_BYTES = 512, VALUE_BYTES = 6000, BATCH_BYTES = 1 << 16 };

/* One library, and what is open in it. */
struct side {
#define DECLARE(name) __typeof__(leveldb_##name)* name;
  FUNCTIONS(DECLARE)
#undef DECLARE
  char path[4096];
  leveldb_t* db;
  leveldb_readoptions_t* reads;
  leveldb_writeoptions_t* writes;
  leveldb_filterpolicy_t* policy;
  leveldb_cache_t* cache;
  const leveldb_snapshot_t* snapshots[SNAPSHOTS];
  leveldb_iterator_t* iterators[ITERATORS];
};

static struct side sides[2];
static uint64_t state;
static unsigned long long seed, step;

#define BOTH(side) for (struct side* side = sides; side < sides + 2; side++)

#define AGREE(condition)                                                                            \
  do {                                                                                              \
    if (!(condition)) {                                                                             \
      fprintf(stderr, "%s:%d: seed %llu, step %llu: the libraries disagree: %s\n", __FILE__,        \
              __LINE__, seed, step, #condition);                                                    \
      abort();                                                                                      \
    }                                                                                               \
  } while (0)

/* xorshift64* */
static uint32_t draw(uint32_t below) {
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return (uint32_t)((state * 2685821657736338717ull) >> 32) % below;
}

/* A key of few: short ones of few bytes, and some with a long start in common. */
static size_t draw_key(char* key) {
  static const char bytes[] = {'\0', '\1', 'a', 'b', '\xfe', '\xff'};
  size_t len = 0;
  if (draw(8) == 0) {
    len = 200 + draw(3) * 100;
    memset(key, 'p', len);
  }
  for (size_t more = draw(5); more > 0; more--) key[len++] = bytes[draw(sizeof bytes)];
  return len;
}

static size_t draw_value(char* value) {
  size_t len = draw(10) == 0 ? draw(VALUE_BYTES) : draw(40);
  char first = (char)draw(256);
  for (size_t i = 0; i < len; i++) value[i] = (char)(first + (i % 7) * (i % 3));
  return len;
}

static void load(struct side* side, const char* library, const char* dir, int number) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
#define LOAD(name)                                        \
  *(void**)(&side->name) = dlsym(handle, "leveldb_" #name); \
  CHECK(side->name != NULL);
  FUNCTIONS(LOAD)
#undef LOAD
  snprintf(side->path, sizeof side->path, "%s/%d", dir, number);
  side->reads = side->readoptions_create();
  side->writes = side->writeoptions_create();
}

static void close_both(void) {
  BOTH(side) {
    for (int i = 0; i < ITERATORS; i++) {
      if (side->iterators[i] != NULL) side->iter_destroy(side->iterators[i]);
      side->iterators[i] = NULL;
    }
    for (int i = 0; i < SNAPSHOTS; i++) {
      if (side->snapshots[i] != NULL) side->release_snapshot(side->db, side->snapshots[i]);
      side->snapshots[i] = NULL;
    }
    if (side->db != NULL) side->close(side->db);
    if (side->policy != NULL) side->filterpolicy_destroy(side->policy);
    if (side->cache != NULL) side->cache_destroy(side->cache);
    side->db = NULL;
    side->policy = NULL;
    side->cache = NULL;
  }
}

/* Opens both with the same options, drawn anew. */
static void open_both(void) {
  size_t write_buffer = (size_t)1 << (16 + draw(4)), block = (size_t)1 << (10 + draw(4));
  int restart = 1 + (int)draw(20), compression = (int)draw(2), bits = (int)draw(20), cache = (int)draw(2);
  uint8_t paranoid = (uint8_t)draw(2);
  BOTH(side) {
    char* error = NULL;
    leveldb_options_t* options = side->options_create();
    side->options_set_create_if_missing(options, 1);
    side->options_set_write_buffer_size(options, write_buffer);
    side->options_set_block_size(options, block);
    side->options_set_block_restart_interval(options, restart);
    side->options_set_max_file_size(options, 1 << 20);
    side->options_set_compression(options, compression);
    side->options_set_paranoid_checks(options, paranoid);
    if (bits > 0) side->options_set_filter_policy(options, side->policy = side->filterpolicy_create_bloom(bits));
    if (cache) side->options_set_cache(options, side->cache = side->cache_create_lru(1 << 16));
    side->db = side->open(options, side->path, &error);
    CHECK_OK(error);

    leveldb_t* second = side->open(options, side->path, &error);
    CHECK(second == NULL && error != NULL);
    side->free(error);
    error = NULL;
    side->options_set_error_if_exists(options, 1);
    side->options_destroy(options);
  }
}

/* An iteration over a batch as bytes. */
struct written {
  size_t len;
  char bytes[BATCH_BYTES];
};

static void written_part(struct written* written, const void* data, size_t len) {
  CHECK(written->len + len <= BATCH_BYTES);
  memcpy(written->bytes + written->len, data, len);
  written->len += len;
}

static void written_put(void* argument, const char* key, size_t key_len, const char* value, size_t value_len) {
  struct written* written = argument;
  written_part(written, "+", 1);
  written_part(written, &key_len, sizeof key_len);
  written_part(written, key, key_len);
  written_part(written, &value_len, sizeof value_len);
  written_part(written, value, value_len);
}

static void written_delete(void* argument, const char* key, size_t key_len) {
  struct written* written = argument;
  written_part(written, "-", 1);
  written_part(written, &key_len, sizeof key_len);
  written_part(written, key, key_len);
}

static void write_batch(void) {
  leveldb_writebatch_t* batches[2][2];
  for (int i = 0; i < 2; i++) {
    batches[i][0] = sides[i].writebatch_create();
    batches[i][1] = sides[i].writebatch_create();
  }
  for (uint32_t operations = draw(9); operations > 0; operations--) {
    char key[KEY_BYTES], value[VALUE_BYTES];
    size_t key_len = draw_key(key), value_len = draw_value(value);
    uint32_t kind = draw(12), which = draw(2);
    for (int i = 0; i < 2; i++) {
      leveldb_writebatch_t* batch = batches[i][which];
      if (kind == 0) {
        sides[i].writebatch_clear(batch);
      } else if (kind == 1) {
        sides[i].writebatch_append(batches[i][1], batches[i][0]);
        sides[i].writebatch_clear(batches[i][0]);
      } else if (kind < 5) {
        sides[i].writebatch_delete(batch, key, key_len);
      } else {
        sides[i].writebatch_put(batch, key, key_len, value, value_len);
      }
    }
  }
  static struct written written[2];
  for (int i = 0; i < 2; i++) {
    char* error = NULL;
    sides[i].writebatch_append(batches[i][0], batches[i][1]);
    written[i].len = 0;
    sides[i].writebatch_iterate(batches[i][0], &written[i], written_put, written_delete);
    sides[i].write(sides[i].db, sides[i].writes, batches[i][0], &error);
    CHECK_OK(error);
    sides[i].writebatch_destroy(batches[i][0]);
    sides[i].writebatch_destroy(batches[i][1]);
  }
  AGREE(written[0].len == written[1].len && memcmp(written[0].bytes, written[1].bytes, written[0].len) == 0);
}

/* Sets the same read options on both sides: now, or one of the snapshots. */
static void draw_reads(void) {
  uint32_t which = draw(2 * SNAPSHOTS);
  uint8_t verify = (uint8_t)draw(2), fill = (uint8_t)draw(2);
  BOTH(side) {
    side->readoptions_set_snapshot(side->reads, which < SNAPSHOTS ? side->snapshots[which] : NULL);
    side->readoptions_set_verify_checksums(side->reads, verify);
    side->readoptions_set_fill_cache(side->reads, fill);
  }
}

static void get(void) {
  char key[KEY_BYTES];
  size_t key_len = draw_key(key), len[2];
  char* value[2];
  draw_reads();
  for (int i = 0; i < 2; i++) {
    char* error = NULL;
    value[i] = sides[i].get(sides[i].db, sides[i].reads, key, key_len, &len[i], &error);
    CHECK_OK(error);
  }
  AGREE((value[0] == NULL) == (value[1] == NULL));
  AGREE(len[0] == len[1]);
  if (value[0] != NULL) AGREE(memcmp(value[0], value[1], len[0]) == 0);
  for (int i = 0; i < 2; i++) sides[i].free(value[i]);
}

/* Returns whether the iterators stand on an entry, which has to be the same. */
static int same_item(int which) {
  leveldb_iterator_t* iter[2] = {sides[0].iterators[which], sides[1].iterators[which]};
  int valid = sides[0].iter_valid(iter[0]);
  AGREE(valid == sides[1].iter_valid(iter[1]));
  if (valid) {
    size_t len[2];
    const char* key[2] = {sides[0].iter_key(iter[0], &len[0]), sides[1].iter_key(iter[1], &len[1])};
    AGREE(len[0] == len[1] && memcmp(key[0], key[1], len[0]) == 0);
    const char* value[2] = {sides[0].iter_value(iter[0], &len[0]), sides[1].iter_value(iter[1], &len[1])};
    AGREE(len[0] == len[1] && memcmp(value[0], value[1], len[0]) == 0);
  }
  for (int i = 0; i < 2; i++) {
    char* error = NULL;
    sides[i].iter_get_error(iter[i], &error);
    CHECK_OK(error);
  }
  return valid;
}

static void iterate(void) {
  int which = (int)draw(ITERATORS);
  if (sides[0].iterators[which] == NULL || draw(20) == 0) {
    draw_reads();
    BOTH(side) {
      if (side->iterators[which] != NULL) side->iter_destroy(side->iterators[which]);
      side->iterators[which] = side->create_iterator(side->db, side->reads);
    }
  }
  /* Next and prev need a position, in LevelDB. */
  for (uint32_t moves = 1 + draw(12); moves > 0; moves--) {
    char key[KEY_BYTES];
    size_t key_len = draw_key(key);
    uint32_t kind = same_item(which) ? draw(16) : draw(4);
    BOTH(side) {
      leveldb_iterator_t* iter = side->iterators[which];
      if (kind == 0) {
        side->iter_seek_to_first(iter);
      } else if (kind == 1) {
        side->iter_seek_to_last(iter);
      } else if (kind < 4) {
        side->iter_seek(iter, key, key_len);
      } else if (kind < 10) {
        side->iter_next(iter);
      } else {
        side->iter_prev(iter);
      }
    }
  }
  same_item(which);
}

static void snapshot(void) {
  int which = (int)draw(SNAPSHOTS);
  BOTH(side) {
    if (side->snapshots[which] != NULL) {
      side->readoptions_set_snapshot(side->reads, NULL);
      side->release_snapshot(side->db, side->snapshots[which]);
      side->snapshots[which] = NULL;
    } else {
      side->snapshots[which] = side->create_snapshot(side->db);
    }
  }
}

static void compact(void) {
  char start[KEY_BYTES], limit[KEY_BYTES];
  size_t start_len = draw_key(start), limit_len = draw_key(limit);
  uint32_t open = draw(4);
  BOTH(side) {
    side->compact_range(side->db, open & 1 ? NULL : start, start_len, open & 2 ? NULL : limit, limit_len);
  }
}

static void change(void) {
  char key[KEY_BYTES], value[VALUE_BYTES];
  size_t key_len = draw_key(key), value_len = draw_value(value);
  int is_delete = draw(3) == 0;
  uint8_t sync = draw(200) == 0;
  BOTH(side) {
    char* error = NULL;
    side->writeoptions_set_sync(side->writes, sync);
    if (is_delete) {
      side->delete (side->db, side->writes, key, key_len, &error);
    } else {
      side->put(side->db, side->writes, key, key_len, value, value_len, &error);
    }
    CHECK_OK(error);
    side->writeoptions_set_sync(side->writes, 0);
  }
}

/* Everything, in both directions. */
static void compare_all(void) {
  BOTH(side) {
    side->readoptions_set_snapshot(side->reads, NULL);
    if (side->iterators[0] != NULL) side->iter_destroy(side->iterators[0]);
    side->iterators[0] = side->create_iterator(side->db, side->reads);
    side->iter_seek_to_first(side->iterators[0]);
  }
  int forwards = 0, backwards = 0;
  for (; same_item(0); forwards++) BOTH(side) side->iter_next(side->iterators[0]);
  BOTH(side) side->iter_seek_to_last(side->iterators[0]);
  for (; same_item(0); backwards++) BOTH(side) side->iter_prev(side->iterators[0]);
  AGREE(forwards == backwards);
}

int main(int argc, char** argv) {
  CHECK(argc == 6);
  seed = strtoull(argv[4], NULL, 10);
  unsigned long long steps = strtoull(argv[5], NULL, 10);
  state = seed * 2 + 1;
  for (int i = 0; i < 16; i++) draw(2);
  for (int i = 0; i < 2; i++) load(&sides[i], argv[1 + i], argv[3], i);
  open_both();
  for (step = 0; step < steps; step++) {
    uint32_t kind = draw(1000);
    if (kind < 350) {
      change();
    } else if (kind < 450) {
      write_batch();
    } else if (kind < 700) {
      get();
    } else if (kind < 960) {
      iterate();
    } else if (kind < 992) {
      snapshot();
    } else if (kind < 996) {
      compact();
    } else if (kind < 998) {
      compare_all();
    } else {
      BOTH(side) side->readoptions_set_snapshot(side->reads, NULL);
      close_both();
      open_both();
      compare_all();
    }
  }
  compare_all();
  close_both();
  BOTH(side) {
    char* error = NULL;
    leveldb_options_t* options = side->options_create();
    side->destroy_db(options, side->path, &error);
    CHECK_OK(error);
    side->options_destroy(options);
    side->readoptions_destroy(side->reads);
    side->writeoptions_destroy(side->writes);
  }
  printf("differential: ok, %llu steps from seed %llu\n", steps, seed);
  return 0;
}
