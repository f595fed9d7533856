/* A database to test with: its options, and what is expected of it. Every program has one, in the directory that it is given. */
#ifndef TAMIS_LEVELDB_TESTS_DATABASE_H
#define TAMIS_LEVELDB_TESTS_DATABASE_H

#include "check.h"

#include <stdint.h>

static leveldb_options_t* options;
static leveldb_readoptions_t* reads;
static leveldb_writeoptions_t* writes;
static char path[4096];

static inline leveldb_t* open_db(void) {
  char* error = NULL;
  leveldb_t* db = leveldb_open(options, path, &error);
  CHECK_OK(error);
  CHECK(db != NULL);
  return db;
}

static inline void destroy_db(void) {
  char* error = NULL;
  leveldb_destroy_db(options, path, &error);
  CHECK_OK(error);
}

static inline void put(leveldb_t* db, const char* key, const char* value) {
  char* error = NULL;
  leveldb_put(db, writes, key, strlen(key), value, strlen(value), &error);
  CHECK_OK(error);
}

static inline void delete(leveldb_t* db, const char* key) {
  char* error = NULL;
  leveldb_delete(db, writes, key, strlen(key), &error);
  CHECK_OK(error);
}

/* `expected` is NULL for a key that is not there. */
static inline void expect_at(leveldb_t* db, const leveldb_readoptions_t* how, const char* key, const char* expected) {
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

static inline void expect(leveldb_t* db, const char* key, const char* expected) { expect_at(db, reads, key, expected); }

static inline void expect_item(leveldb_iterator_t* iter, const char* key, const char* value) {
  size_t len;
  CHECK(leveldb_iter_valid(iter));
  const char* found = leveldb_iter_key(iter, &len);
  CHECK(equals(found, len, key));
  found = leveldb_iter_value(iter, &len);
  CHECK(equals(found, len, value));
}

static inline void expect_end(leveldb_iterator_t* iter) {
  char* error = NULL;
  CHECK(!leveldb_iter_valid(iter));
  leveldb_iter_get_error(iter, &error);
  CHECK_OK(error);
}

/* New options, which refer to nothing. */
static inline void reset_options(void) {
  leveldb_options_destroy(options);
  options = leveldb_options_create();
  leveldb_options_set_create_if_missing(options, 1);
}

static inline void begin(const char* dir) {
  snprintf(path, sizeof path, "%.4000s/db", dir);
  options = leveldb_options_create();
  leveldb_options_set_create_if_missing(options, 1);
  reads = leveldb_readoptions_create();
  writes = leveldb_writeoptions_create();
}

static inline void end(void) {
  leveldb_options_destroy(options);
  leveldb_readoptions_destroy(reads);
  leveldb_writeoptions_destroy(writes);
}

#endif
