/* Reads lines `COUNTRY/REGION/CITY@LATITUDE,LONGITUDE<TAB>…` from standard input into a new database, in batches, and shows what is
 * under a prefix, from both ends: gzip -dc geonames-cities.tsv.gz | cities FR/ */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "tamis.h"

static void stop(tamis_error *error) {
  fprintf(stderr, "cities: %s\n", tamis_error_text(error));
  exit(1);
}

/* Keys are what stands before the coordinates, values the coordinates. */
static size_t load(tamis_db *db, FILE *from) {
  tamis_error *error = NULL;
  tamis_batch *batch = tamis_batch_new();
  char *line = NULL;
  size_t room = 0, count = 0;
  for (ssize_t len; (len = getline(&line, &room, from)) > 0;) {
    char *at = memchr(line, '@', (size_t)len);
    if (at == NULL) continue;
    size_t key_len = (size_t)(at - line), value_len = strcspn(at + 1, "\t\n");
    if (!tamis_batch_put(batch, NULL, line, key_len, at + 1, value_len, &error)) stop(error);
    if (++count % 1000 == 0 && !tamis_write(db, batch, NULL, &error)) stop(error);
  }
  if (!tamis_write(db, batch, "sync", &error)) stop(error);
  free(line);
  tamis_batch_free(batch);
  return count;
}

static void show(tamis_db *db, const char *prefix, bool from_the_end) {
  tamis_error *error = NULL;
  tamis_iter *iter = tamis_iter_prefix(db, NULL, NULL, prefix, strlen(prefix), &error);
  if (iter == NULL) stop(error);
  const void *key, *value;
  size_t key_len, value_len;
  for (int i = 0; i < 3; i++) {
    tamis_answer found = from_the_end ? tamis_iter_next_back(iter, &key, &key_len, &value, &value_len, &error)
                                      : tamis_iter_next(iter, &key, &key_len, &value, &value_len, &error);
    if (found == TAMIS_ANSWER_ERROR) stop(error);
    if (found == TAMIS_ANSWER_NO) break;
    printf("  %.*s  %.*s\n", (int)key_len, (const char *)key, (int)value_len, (const char *)value);
  }
  tamis_iter_free(iter);
}

int main(int count, char **arguments) {
  const char *prefix = count > 1 ? arguments[1] : "";
  char directory[] = "/tmp/tamis-cities-XXXXXX", path[64];
  if (mkdtemp(directory) == NULL) return 1;
  snprintf(path, sizeof path, "%s/db", directory);

  tamis_error *error = NULL;
  tamis_options *options = tamis_options_new();
  if (!tamis_options_set(options, "filter", "ribbon", &error)) stop(error);
  tamis_db *db = tamis_open(path, options, &error);
  tamis_options_free(options);
  if (db == NULL) stop(error);

  printf("%zu cities in %s\n", load(db, stdin), path);
  printf("the first and the last under \"%s\":\n", prefix);
  show(db, prefix, false);
  show(db, prefix, true);

  if (!tamis_flush(db, NULL, &error)) stop(error);
  void *value = NULL;
  size_t value_len = 0;
  const char *lyon = "FR/Auvergne-Rhône-Alpes/Lyon";
  tamis_answer found = tamis_get(db, NULL, NULL, lyon, strlen(lyon), &value, &value_len, &error);
  if (found == TAMIS_ANSWER_ERROR) stop(error);
  if (found == TAMIS_ANSWER_YES) printf("%s lies at %s\n", lyon, (char *)value);
  tamis_free(value);
  char *path_of_read = tamis_explain(db, NULL, lyon, strlen(lyon), &error);
  if (path_of_read == NULL) stop(error);
  printf("how it was found: %.300s…\n", path_of_read);
  tamis_free(path_of_read);
  if (!tamis_close(db, &error)) stop(error);
  tamis_db_free(db);
  return found == TAMIS_ANSWER_YES ? 0 : 1;
}
