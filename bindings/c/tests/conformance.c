/* The conformance script over the C interface: conformance FILE... The grammar is in ../../conformance/README.md. Each test runs in a
 * new directory below TMPDIR or /tmp. Exits with 1 if an answer was another one than expected. */
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tamis.h"

static const char *file = "";
static size_t line_number;

static void die(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "%s:%zu: ", file, line_number);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  exit(2);
}

static void *must(void *memory) {
  if (memory == NULL) die("out of memory");
  return memory;
}

/* A token: bytes, or a word. `data` has a zero byte after its end. */
typedef struct token {
  bool is_bytes;
  char *data;
  size_t len;
} token;

enum { MOST_TOKENS = 64 };

typedef struct line {
  token tokens[MOST_TOKENS];
  size_t count;
} line;

static int hexadecimal(char digit) {
  const char *digits = "0123456789abcdef", *at = digit ? strchr(digits, digit) : NULL;
  if (at == NULL) die("%c is no hexadecimal digit", digit);
  return (int)(at - digits);
}

static token quoted(char **at) {
  char *from = *at + 1, *end = strchr(from, '"');
  if (end == NULL) die("a quote is not closed");
  size_t len = 0, times = 1;
  char *once = must(malloc((size_t)(end - from) + 1));
  while (from < end) {
    if (from[0] == '\\') {
      if (end - from < 4 || from[1] != 'x') die("a strange escape");
      once[len++] = (char)(hexadecimal(from[2]) * 16 + hexadecimal(from[3]));
      from += 4;
    } else {
      once[len++] = *from++;
    }
  }
  *at = end + 1;
  if (**at == '*') times = strtoull(*at + 1, at, 10);
  token token = {true, must(malloc(len * times + 1)), len * times};
  for (size_t i = 0; i < times; i++) memcpy(token.data + i * len, once, len);
  token.data[token.len] = 0;
  free(once);
  return token;
}

static void parse(char *text, line *to) {
  to->count = 0;
  for (;;) {
    text += strspn(text, " \n");
    if (*text == 0) return;
    if (to->count == MOST_TOKENS) die("too many tokens");
    token *next = &to->tokens[to->count++];
    if (*text == '"') {
      *next = quoted(&text);
    } else {
      size_t len = strcspn(text, " \n");
      *next = (token){false, must(malloc(len + 1)), len};
      memcpy(next->data, text, len);
      next->data[len] = 0;
      text += len;
    }
  }
}

static void free_line(line *parsed) {
  for (size_t i = 0; i < parsed->count; i++) free(parsed->tokens[i].data);
  parsed->count = 0;
}

static bool is_word(const token *token, const char *word) {
  return !token->is_bytes && strcmp(token->data, word) == 0;
}

static const char *word(const token *token) {
  if (token->is_bytes) die("a word is expected");
  return token->data;
}

static const token *bytes(const token *token) {
  if (!token->is_bytes) die("bytes are expected, not %s", token->data);
  return token;
}

/* A name or path: bytes without zeros. */
static const char *text(const token *token) {
  if (strlen(bytes(token)->data) != token->len) die("a zero byte in a text");
  return token->data;
}

/* Bytes, or a null pointer for `none` and `-`. */
static const void *optional(const token *token) {
  return is_word(token, "none") || is_word(token, "-") ? NULL : bytes(token)->data;
}

static size_t optional_len(const token *token) { return optional(token) ? token->len : 0; }

/* An answer: the tokens that would be written in the script. No token: done. */
static line answer;

static void add_word(const char *format, ...) {
  char text[64];
  va_list arguments;
  va_start(arguments, format);
  int len = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (answer.count == MOST_TOKENS || len < 0) die("too long an answer");
  answer.tokens[answer.count++] = (token){false, must(strdup(text)), (size_t)len};
}

static void add_bytes(const void *data, size_t len) {
  if (answer.count == MOST_TOKENS) die("too long an answer");
  token added = {true, must(malloc(len + 1)), len};
  if (len > 0) memcpy(added.data, data, len);
  added.data[len] = 0;
  answer.tokens[answer.count++] = added;
}

static void add_slice(tamis_slice *slice) {
  if (slice != NULL)
    add_bytes(tamis_slice_data(slice), tamis_slice_len(slice));
  else
    add_word("none");
  tamis_slice_free(slice);
}

static void add_value(tamis_answer found, void *value, size_t len) {
  if (found == TAMIS_ANSWER_YES) {
    add_bytes(value, len);
    tamis_free(value);
  } else if (found == TAMIS_ANSWER_NO) {
    add_word("none");
  }
}

static void add_truth(tamis_answer truth) {
  if (truth != TAMIS_ANSWER_ERROR) add_word(truth == TAMIS_ANSWER_YES ? "true" : "false");
}

static void add_list(tamis_list *list) {
  if (list == NULL) return;
  add_word("list");
  for (size_t i = 0; i < tamis_list_len(list); i++) {
    size_t len = 0;
    const void *item = tamis_list_item(list, i, &len);
    add_bytes(item, len);
  }
  tamis_list_free(list);
}

/* Handles. */

typedef enum kind { DATABASE, KEYSPACE, BATCH, SNAPSHOT, TRANSACTION, ITERATOR, SAVEPOINT } kind;

typedef struct handle {
  char *name;
  kind kind;
  void *object;
  tamis_db *db; /* of a keyspace or snapshot: the database's handle, which lives as long as the test */
  uint64_t savepoint;
} handle;

enum { MOST_HANDLES = 64 };
static handle handles[MOST_HANDLES];
static size_t handle_count;
/* Databases whose names were reused: other handles still need them. */
static tamis_db *old_databases[MOST_HANDLES];
static size_t old_count;

static handle *find(const char *name, size_t len) {
  for (size_t i = 0; i < handle_count; i++)
    if (strlen(handles[i].name) == len && memcmp(handles[i].name, name, len) == 0) return &handles[i];
  return NULL;
}

static void forget(handle *gone) {
  switch (gone->kind) {
  case DATABASE: old_databases[old_count++] = gone->object; break;
  case KEYSPACE: tamis_keyspace_free(gone->object); break;
  case BATCH: tamis_batch_free(gone->object); break;
  case SNAPSHOT: tamis_snapshot_free(gone->object); break;
  case TRANSACTION: tamis_transaction_free(gone->object); break;
  case ITERATOR: tamis_iter_free(gone->object); break;
  case SAVEPOINT: break;
  }
  free(gone->name);
  *gone = handles[--handle_count];
}

static void forget_all(void) {
  while (old_count > 0) tamis_db_free(old_databases[--old_count]);
  while (handle_count > 0) {
    forget(&handles[0]);
    /* Databases first, or last: the library promises that any order does. */
    while (old_count > 0) tamis_db_free(old_databases[--old_count]);
  }
}

static void keep(const char *name, kind kind, void *object, tamis_db *db) {
  handle *old = find(name, strlen(name));
  if (old != NULL) forget(old);
  if (object == NULL) return;
  if (handle_count == MOST_HANDLES) die("too many handles");
  handles[handle_count++] = (handle){must(strdup(name)), kind, object, db, 0};
}

static handle *handle_of(const char *name) {
  handle *found = find(name, strcspn(name, "@"));
  if (found == NULL) die("no handle %s", name);
  return found;
}

static void *object_of(const char *name, kind kind) {
  handle *found = handle_of(name);
  if (found->kind != kind) die("%s is something else", name);
  return found->object;
}

/* A place to read or write: X, or X@KS. */
typedef struct place {
  handle *handle;
  tamis_db *db;
  tamis_keyspace *keyspace;
  tamis_snapshot *snapshot;
} place;

static place place_of(const token *token) {
  const char *name = word(token), *at = strchr(name, '@');
  place place = {.handle = handle_of(name)};
  place.db = place.handle->db;
  if (at != NULL) place.keyspace = object_of(at + 1, KEYSPACE);
  if (place.handle->kind == DATABASE) place.db = place.handle->object;
  if (place.handle->kind == KEYSPACE) place.keyspace = place.handle->object;
  if (place.handle->kind == SNAPSHOT) place.snapshot = place.handle->object;
  return place;
}

static char directory[4096];

static const char *path_of(const token *token, char *to, size_t room) {
  snprintf(to, room, "%s/%s", directory, text(token));
  return to;
}

/* Commands. Each adds its answer; an error is stored in `error`. */

static bool is_entries_of(tamis_iter *iter, bool back, tamis_error **error) {
  const void *key, *value;
  size_t key_len, value_len;
  tamis_answer step;
  add_word("list");
  while ((step = (back ? tamis_iter_next_back : tamis_iter_next)(iter, &key, &key_len, &value, &value_len, error)) ==
         TAMIS_ANSWER_YES) {
    add_bytes(key, key_len);
    add_bytes(value, value_len);
  }
  return step != TAMIS_ANSWER_ERROR;
}

static tamis_iter *iterator(const token *a, bool prefix, tamis_error **error) {
  place at = place_of(a);
  if (at.handle->kind == TRANSACTION && !prefix)
    return tamis_transaction_iter_range(at.handle->object, at.keyspace, optional(a + 1), optional_len(a + 1),
                                        optional(a + 2), optional_len(a + 2), error);
  if (at.handle->kind == TRANSACTION)
    return tamis_transaction_iter_prefix(at.handle->object, at.keyspace, bytes(a + 1)->data, a[1].len, error);
  if (prefix) return tamis_iter_prefix(at.db, at.keyspace, at.snapshot, bytes(a + 1)->data, a[1].len, error);
  return tamis_iter_range(at.db, at.keyspace, at.snapshot, optional(a + 1), optional_len(a + 1), optional(a + 2),
                          optional_len(a + 2), error);
}

static void scan(const token *a, bool prefix, bool back, tamis_error **error) {
  tamis_iter *iter = iterator(a, prefix, error);
  if (iter != NULL) is_entries_of(iter, back, error);
  tamis_iter_free(iter);
}

static void step(const token *a, bool back, tamis_error **error) {
  const void *key, *value;
  size_t key_len, value_len;
  tamis_iter *iter = object_of(word(a), ITERATOR);
  tamis_answer found =
      (back ? tamis_iter_next_back : tamis_iter_next)(iter, &key, &key_len, &value, &value_len, error);
  if (found == TAMIS_ANSWER_NO) add_word("none");
  if (found != TAMIS_ANSWER_YES) return;
  add_word("list");
  add_bytes(key, key_len);
  add_bytes(value, value_len);
}

static void get(const token *a, tamis_error **error) {
  place at = place_of(a);
  const token *key = bytes(a + 1);
  void *value = NULL;
  size_t len = 0;
  if (at.handle->kind == TRANSACTION) {
    tamis_answer found =
        tamis_transaction_get(at.handle->object, at.keyspace, key->data, key->len, &value, &len, error);
    add_value(found, value, len);
    return;
  }
  tamis_answer found = tamis_get(at.db, at.keyspace, at.snapshot, key->data, key->len, &value, &len, error);
  if (found != TAMIS_ANSWER_ERROR) {
    /* The other two ways say the same. */
    tamis_slice *slice = NULL;
    char start[16];
    size_t whole = 0;
    tamis_answer sliced = tamis_get_slice(at.db, at.keyspace, at.snapshot, key->data, key->len, &slice, error);
    tamis_answer copied =
        tamis_get_into(at.db, at.keyspace, at.snapshot, key->data, key->len, start, sizeof start, &whole, error);
    size_t most = len < sizeof start ? len : sizeof start;
    if (sliced != found || copied != found || tamis_slice_len(slice) != len || whole != len ||
        (len > 0 && memcmp(tamis_slice_data(slice), value, len) != 0) || memcmp(start, value ? value : "", most) != 0)
      die("three ways to get, and not one answer");
    tamis_slice_free(slice);
  }
  add_value(found, value, len);
}

static void multi_get(const token *a, size_t count, tamis_error **error) {
  place at = place_of(a);
  const void *keys[MOST_TOKENS];
  size_t lens[MOST_TOKENS];
  tamis_slice *values[MOST_TOKENS];
  for (size_t i = 1; i < count; i++) keys[i - 1] = bytes(a + i)->data, lens[i - 1] = a[i].len;
  bool done = at.handle->kind == TRANSACTION
                  ? tamis_transaction_multi_get(at.handle->object, at.keyspace, keys, lens, count - 1, values, error)
                  : tamis_multi_get(at.db, at.keyspace, at.snapshot, keys, lens, count - 1, values, error);
  if (!done) return;
  add_word("list");
  for (size_t i = 0; i + 1 < count; i++) add_slice(values[i]);
}

/* put, merge, delete, delete-range. */
static void write_to(const char *command, const token *a, tamis_error **error) {
  place at = place_of(a);
  void *object = at.handle->object;
  const void *one = optional(a + 1), *two = NULL;
  size_t one_len = optional_len(a + 1), two_len = 0;
  if (strcmp(command, "delete") != 0) two = optional(a + 2), two_len = optional_len(a + 2);
  kind kind = at.handle->kind;
#define WRITE(name, ...)                                                               \
  (kind == BATCH         ? tamis_batch_##name(object, at.keyspace, __VA_ARGS__, error) \
   : kind == TRANSACTION ? tamis_transaction_##name(object, at.keyspace, __VA_ARGS__, error) \
                         : tamis_##name(at.db, at.keyspace, __VA_ARGS__, error))
  if (strcmp(command, "put") == 0) WRITE(put, one, one_len, two, two_len);
  if (strcmp(command, "merge") == 0) WRITE(merge, one, one_len, two, two_len);
  if (strcmp(command, "delete") == 0) WRITE(delete, one, one_len);
  if (strcmp(command, "delete-range") == 0) WRITE(delete_range, one, one_len, two, two_len);
#undef WRITE
}

static void open_database(const char *command, const token *a, size_t count, tamis_error **error) {
  char path[8192];
  tamis_options *options = tamis_options_new();
  bool set = true;
  keep(word(a), DATABASE, NULL, NULL);
  for (size_t i = 2; i + 1 < count && set; i += 2) set = tamis_options_set(options, word(a + i), word(a + i + 1), error);
  if (set) {
    path_of(a + 1, path, sizeof path);
    tamis_db *db = (strcmp(command, "open") == 0 ? tamis_open : tamis_open_read_only)(path, options, error);
    keep(word(a), DATABASE, db, NULL);
  }
  tamis_options_free(options);
}

static void open_keyspace(const char *command, const token *a, size_t count, tamis_error **error) {
  tamis_db *db = object_of(word(a + 1), DATABASE);
  tamis_keyspace_options *options = tamis_keyspace_options_new();
  bool set = true;
  for (size_t i = 3; i + 1 < count && set; i += 2)
    set = tamis_keyspace_options_set(options, word(a + i), word(a + i + 1), error);
  if (set && strcmp(command, "keyspace") == 0) keep(word(a), KEYSPACE, tamis_keyspace_open(db, text(a + 2), error), db);
  if (set && strcmp(command, "create-keyspace") == 0)
    keep(word(a), KEYSPACE, tamis_keyspace_create(db, text(a + 2), options, error), db);
  if (set && strcmp(command, "get-or-create-keyspace") == 0)
    keep(word(a), KEYSPACE, tamis_keyspace_get_or_create(db, text(a + 2), options, error), db);
  tamis_keyspace_options_free(options);
}

static void set_options(const token *a, size_t count, tamis_error **error) {
  place at = place_of(a);
  const char *names[MOST_TOKENS], *values[MOST_TOKENS];
  size_t changes = 0;
  for (size_t i = 1; i + 1 < count; i += 2) names[changes] = word(a + i), values[changes++] = word(a + i + 1);
  tamis_keyspace_set_options(at.db, at.keyspace, names, values, changes, error);
}

static void build_table(const token *a, size_t count, tamis_error **error) {
  char path[8192], *report = NULL;
  tamis_table_builder *builder = tamis_table_builder_new(path_of(a, path, sizeof path), NULL, error);
  bool done = builder != NULL;
  for (size_t i = 1; i + 1 < count && done; i += 2)
    done = tamis_table_builder_put(builder, bytes(a + i)->data, a[i].len, bytes(a + i + 1)->data, a[i + 1].len, error);
  if (done && tamis_table_builder_finish(builder, &report, error) && strstr(report, "\"entries\":") == NULL)
    die("a strange report: %s", report);
  tamis_free(report);
  tamis_table_builder_free(builder);
}

static void ingest(const token *a, size_t count, tamis_error **error) {
  place at = place_of(a);
  char paths[4][8192];
  const char *pointers[4];
  uint64_t entries = 0;
  if (count > 5) die("too many tables");
  for (size_t i = 1; i < count; i++) pointers[i - 1] = path_of(a + i, paths[i - 1], sizeof paths[0]);
  if (tamis_ingest(at.db, at.keyspace, pointers, count - 1, false, &entries, NULL, error)) add_word("%" PRIu64, entries);
}

static void has_field(char *json, const token *name) {
  char field[128];
  if (json == NULL) return;
  snprintf(field, sizeof field, "\"%s\":", text(name));
  if (json[0] != '{' || strstr(json, field) == NULL) die("no field %s in %s", field, json);
  add_word("any");
  tamis_free(json);
}

/* The number of items of the list "problems", which are strings. */
static void count_problems(char *json) {
  if (json == NULL) return;
  const char *at = strstr(json, "\"problems\":[");
  if (at == NULL) die("no problems in %s", json);
  size_t quotes = 0;
  for (at += strlen("\"problems\":["); *at != ']'; at++) quotes += *at == '"' && at[-1] != '\\';
  add_word("%zu", quotes / 2);
  tamis_free(json);
}

static void swap(const token *a, tamis_error **error) {
  place at = place_of(a);
  tamis_slice *current = NULL;
  add_truth(tamis_compare_and_swap(at.db, at.keyspace, bytes(a + 1)->data, a[1].len, optional(a + 2),
                                   optional_len(a + 2), optional(a + 3), optional_len(a + 3), &current, error));
  tamis_slice_free(current);
}

static void insert(const token *a, tamis_error **error) {
  place at = place_of(a);
  tamis_slice *current = NULL;
  tamis_answer inserted = tamis_insert_if_absent(at.db, at.keyspace, bytes(a + 1)->data, a[1].len, bytes(a + 2)->data,
                                                 a[2].len, &current, error);
  if (inserted != TAMIS_ANSWER_ERROR) add_slice(current);
}

static void execute(const char *command, const token *a, size_t count, tamis_error **error) {
#define IS(name) (strcmp(command, name) == 0)
  char path[8192];
  void *value = NULL;
  size_t len = 0;
  place at = {0};
  if (count > 0 && !a[0].is_bytes && find(a[0].data, strcspn(a[0].data, "@")) != NULL) at = place_of(a);
  if (IS("open") || IS("open-read-only")) {
    open_database(command, a, count, error);
  } else if (IS("close")) {
    tamis_close(object_of(word(a), DATABASE), error);
  } else if (IS("release")) {
    forget(handle_of(word(a)));
  } else if (IS("put") || IS("delete") || IS("merge") || IS("delete-range")) {
    write_to(command, a, error);
  } else if (IS("delete-prefix")) {
    if (at.handle->kind == BATCH)
      tamis_batch_delete_prefix(at.handle->object, at.keyspace, bytes(a + 1)->data, a[1].len, error);
    else
      tamis_delete_prefix(at.db, at.keyspace, bytes(a + 1)->data, a[1].len, error);
  } else if (IS("clear")) {
    tamis_keyspace_clear(at.db, at.keyspace, error);
  } else if (IS("get")) {
    get(a, error);
  } else if (IS("contains")) {
    add_truth(at.handle->kind == TRANSACTION
                  ? tamis_transaction_contains(at.handle->object, at.keyspace, bytes(a + 1)->data, a[1].len, error)
                  : tamis_contains(at.db, at.keyspace, at.snapshot, bytes(a + 1)->data, a[1].len, error));
  } else if (IS("multi-get")) {
    multi_get(a, count, error);
  } else if (IS("scan") || IS("scan-back")) {
    scan(a, false, IS("scan-back"), error);
  } else if (IS("scan-prefix") || IS("scan-prefix-back")) {
    scan(a, true, IS("scan-prefix-back"), error);
  } else if (IS("is-empty")) {
    add_truth(tamis_is_empty(at.db, at.keyspace, at.snapshot, error));
  } else if (IS("iter") || IS("iter-prefix")) {
    keep(word(a), ITERATOR, iterator(a + 1, IS("iter-prefix"), error), NULL);
  } else if (IS("next") || IS("prev")) {
    step(a, IS("prev"), error);
  } else if (IS("seek")) {
    tamis_iter_seek(object_of(word(a), ITERATOR), bytes(a + 1)->data, a[1].len, error);
  } else if (IS("batch")) {
    keep(word(a), BATCH, tamis_batch_new(), NULL);
  } else if (IS("write")) {
    tamis_write(at.db, object_of(word(a + 1), BATCH), count > 2 ? word(a + 2) : NULL, error);
  } else if (IS("snapshot")) {
    tamis_db *db = object_of(word(a + 1), DATABASE);
    keep(word(a), SNAPSHOT, tamis_snapshot_new(db, error), db);
  } else if (IS("transaction")) {
    int32_t isolation = TAMIS_ISOLATION_SERIALIZABLE;
    if (count > 2) isolation = is_word(a + 2, "snapshot") ? TAMIS_ISOLATION_SNAPSHOT : 1000;
    keep(word(a), TRANSACTION, tamis_begin(object_of(word(a + 1), DATABASE), isolation, NULL, error), NULL);
  } else if (IS("lock-transaction")) {
    keep(word(a), TRANSACTION,
         tamis_begin_locking(object_of(word(a + 1), DATABASE), strtoull(word(a + 2), NULL, 10), NULL, error), NULL);
  } else if (IS("get-for-update")) {
    tamis_answer found = tamis_transaction_get_for_update(at.handle->object, at.keyspace, bytes(a + 1)->data, a[1].len,
                                                          &value, &len, error);
    add_value(found, value, len);
  } else if (IS("commit")) {
    tamis_transaction_commit(object_of(word(a), TRANSACTION), NULL, error);
  } else if (IS("rollback")) {
    tamis_transaction_rollback(object_of(word(a), TRANSACTION), error);
  } else if (IS("savepoint")) {
    uint64_t savepoint = 0;
    if (tamis_transaction_savepoint(object_of(word(a + 1), TRANSACTION), &savepoint, error)) {
      keep(word(a), SAVEPOINT, &savepoint, NULL);
      handle_of(word(a))->savepoint = savepoint;
    }
  } else if (IS("rollback-to")) {
    tamis_transaction_rollback_to(object_of(word(a), TRANSACTION), handle_of(word(a + 1))->savepoint, error);
  } else if (IS("prepare")) {
    tamis_transaction_prepare(object_of(word(a), TRANSACTION), bytes(a + 1)->data, a[1].len, error);
  } else if (IS("prepared")) {
    add_list(tamis_prepared_names(at.db, error));
  } else if (IS("commit-prepared")) {
    tamis_prepared_commit(at.db, bytes(a + 1)->data, a[1].len, error);
  } else if (IS("abort-prepared")) {
    tamis_prepared_abort(at.db, bytes(a + 1)->data, a[1].len, error);
  } else if (IS("compare-and-swap")) {
    swap(a, error);
  } else if (IS("insert-if-absent")) {
    insert(a, error);
  } else if (IS("take")) {
    tamis_answer found = tamis_take(at.db, at.keyspace, bytes(a + 1)->data, a[1].len, &value, &len, error);
    add_value(found, value, len);
  } else if (IS("increment")) {
    int64_t sum = 0;
    if (tamis_increment(at.db, at.keyspace, bytes(a + 1)->data, a[1].len, strtoll(word(a + 2), NULL, 10), &sum, error))
      add_word("%" PRId64, sum);
  } else if (IS("keyspace") || IS("create-keyspace") || IS("get-or-create-keyspace")) {
    open_keyspace(command, a, count, error);
  } else if (IS("drop-keyspace")) {
    tamis_keyspace_drop(at.db, text(a + 1), error);
  } else if (IS("rename-keyspace")) {
    tamis_keyspace_rename(at.db, text(a + 1), text(a + 2), error);
  } else if (IS("keyspaces")) {
    add_list(tamis_keyspace_names(at.db, error));
  } else if (IS("set-options")) {
    set_options(a, count, error);
  } else if (IS("flush")) {
    tamis_flush(at.db, at.keyspace, error);
  } else if (IS("compact")) {
    tamis_compact(at.db, at.keyspace, error);
  } else if (IS("compact-range")) {
    tamis_compact_range(at.db, at.keyspace, optional(a + 1), optional_len(a + 1), optional(a + 2), optional_len(a + 2),
                        error);
  } else if (IS("sync")) {
    tamis_sync(at.db, error);
  } else if (IS("checkpoint")) {
    tamis_checkpoint(at.db, path_of(a + 1, path, sizeof path), error);
  } else if (IS("verify")) {
    count_problems(tamis_verify(at.db, error));
  } else if (IS("approximate-len") || IS("approximate-size")) {
    uint64_t number = 0;
    if ((IS("approximate-len") ? tamis_approximate_len : tamis_approximate_size)(
            at.db, at.keyspace, optional(a + 1), optional_len(a + 1), optional(a + 2), optional_len(a + 2), &number,
            error))
      add_word("%" PRIu64, number);
  } else if (IS("build-table")) {
    build_table(a, count, error);
  } else if (IS("ingest")) {
    ingest(a, count, error);
  } else if (IS("stats")) {
    has_field(tamis_stats(at.db, error), a + 1);
  } else if (IS("explain")) {
    has_field(tamis_explain(at.db, at.keyspace, bytes(a + 1)->data, a[1].len, error), a + 2);
  } else {
    die("no command %s", command);
  }
#undef IS
}

static int remove_one(const char *path, const struct stat *info, int flag, struct FTW *walk) {
  (void)info, (void)flag, (void)walk;
  return remove(path);
}

static void new_directory(void) {
  const char *parent = getenv("TMPDIR");
  snprintf(directory, sizeof directory, "%s/tamis-conformance-XXXXXX", parent && *parent ? parent : "/tmp");
  if (mkdtemp(directory) == NULL) die("%s: %s", directory, strerror(errno));
}

static void remove_directory(void) {
  if (directory[0] != 0) nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
  directory[0] = 0;
}

static bool is_same(const token *one, const token *other) {
  return one->is_bytes == other->is_bytes && one->len == other->len && memcmp(one->data, other->data, one->len) == 0;
}

static bool is_expected(const token *expected, size_t count) {
  bool failed = answer.count == 2 && is_word(&answer.tokens[0], "error");
  if (count == 0 || (count == 1 && is_word(expected, "any"))) return !failed;
  if (count != answer.count) return false;
  for (size_t i = 0; i < count; i++)
    if (!is_same(expected + i, &answer.tokens[i])) return false;
  return true;
}

static void show(const token *tokens, size_t count) {
  if (count == 0) fputs(" done", stderr);
  for (size_t i = 0; i < count; i++) {
    if (!tokens[i].is_bytes)
      fprintf(stderr, " %s", tokens[i].data);
    else
      fprintf(stderr, " \"%.40s\" (%zu bytes)", tokens[i].data, tokens[i].len);
  }
}

static size_t run(const char *path, size_t *tests) {
  FILE *script = fopen(path, "r");
  char *text = NULL;
  size_t room = 0, failed = 0;
  line parsed;
  file = path, line_number = 0;
  if (script == NULL) die("%s", strerror(errno));
  while (getline(&text, &room, script) >= 0) {
    line_number++;
    if (text[0] == '#') continue;
    parse(text, &parsed);
    if (parsed.count > 0 && is_word(&parsed.tokens[0], "test")) {
      forget_all();
      remove_directory();
      new_directory();
      ++*tests;
    } else if (parsed.count > 0) {
      size_t arrow = 1;
      while (arrow < parsed.count && !is_word(&parsed.tokens[arrow], "=>")) arrow++;
      size_t from = arrow < parsed.count ? arrow + 1 : arrow;
      tamis_error *error = NULL;
      execute(word(&parsed.tokens[0]), parsed.tokens + 1, arrow - 1, &error);
      if (error != NULL) {
        free_line(&answer);
        if (strlen(tamis_error_text(error)) == 0) die("an error without a text");
        add_word("error");
        add_word("%s", tamis_error_name(error));
        tamis_error_free(error);
      }
      if (!is_expected(parsed.tokens + from, parsed.count - from)) {
        fprintf(stderr, "%s:%zu: %.100s  expected", path, line_number, text);
        show(parsed.tokens + from, parsed.count - from);
        fputs(", answered", stderr);
        show(answer.tokens, answer.count);
        fputc('\n', stderr);
        failed++;
      }
      free_line(&answer);
    }
    free_line(&parsed);
  }
  forget_all();
  remove_directory();
  free(text);
  fclose(script);
  return failed;
}

int main(int count, char **files) {
  size_t failed = 0, tests = 0;
  for (int i = 1; i < count; i++) failed += run(files[i], &tests);
  printf("conformance: %zu tests, %zu wrong answers\n", tests, failed);
  return failed == 0 && tests > 0 ? 0 : 1;
}
