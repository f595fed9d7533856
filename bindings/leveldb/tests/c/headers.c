/* The two headers declare the same: this compiles only if every function of tamis/leveldb.h has the type that leveldb/c.h gives it. */

#include <leveldb/c.h>

#undef STORAGE_LEVELDB_INCLUDE_C_H_
/* Enumerators cannot be declared twice. */
#define leveldb_no_compression tamis_no_compression
#define leveldb_snappy_compression tamis_snappy_compression
#include <tamis/leveldb.h>
#undef leveldb_no_compression
#undef leveldb_snappy_compression

_Static_assert((int)tamis_no_compression == (int)leveldb_no_compression, "no compression");
_Static_assert((int)tamis_snappy_compression == (int)leveldb_snappy_compression, "compression");

int main(void) { return 0; }
