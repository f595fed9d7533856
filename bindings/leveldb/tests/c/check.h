/* Assertions of the tests: they are there in every build, and say where and in which library they failed. */
#ifndef TAMIS_LEVELDB_TESTS_CHECK_H
#define TAMIS_LEVELDB_TESTS_CHECK_H

/* LevelDB's own header, or that of tamis. */
#ifdef TAMIS_HEADER
#include <tamis/leveldb.h>
#else
#include <leveldb/c.h>
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                              \
  do {                                                                                \
    if (!(condition)) {                                                               \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);       \
      abort();                                                                        \
    }                                                                                 \
  } while (0)

/* No error is set. */
#define CHECK_OK(error)                                                               \
  do {                                                                                \
    if ((error) != NULL) {                                                            \
      fprintf(stderr, "%s:%d: unexpected error: %s\n", __FILE__, __LINE__, (error));  \
      abort();                                                                        \
    }                                                                                 \
  } while (0)

/* An error is set whose text begins so; clears it. */
#define CHECK_FAILED(error, start)                                                            \
  do {                                                                                        \
    if ((error) == NULL || strncmp((error), (start), strlen(start)) != 0) {                   \
      fprintf(stderr, "%s:%d: expected an error \"%s...\", found: %s\n", __FILE__, __LINE__,  \
              (start), (error) == NULL ? "none" : (error));                                   \
      abort();                                                                                \
    }                                                                                         \
    free(error);                                                                              \
    (error) = NULL;                                                                           \
  } while (0)

/* The bytes at `data` are those of the string. */
static inline int equals(const char* data, size_t len, const char* string) {
  return data != NULL && len == strlen(string) && memcmp(data, string, len) == 0;
}

#endif
