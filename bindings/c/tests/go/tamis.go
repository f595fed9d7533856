// Package tamis is a second client of the C interface: enough of it, through cgo, to run the conformance script.
//
// Go's garbage collector does not move what is passed for the length of a call, so keys and values are passed where they are.
package tamis

// #cgo pkg-config: tamis
// #include <stdlib.h>
// #include <tamis.h>
import "C"

import "unsafe"

// Error is an error of the library.
type Error struct {
	Code     int
	Name     string
	Text     string
	Keyspace string
	Key      []byte
	Retry    bool
}

func (e *Error) Error() string { return e.Text }

// taken turns an error object into a Go error, and frees it.
func taken(object *C.tamis_error) error {
	if object == nil {
		return nil
	}
	defer C.tamis_error_free(object)
	var length C.size_t
	key := C.tamis_error_key(object, &length)
	e := &Error{
		Code:  int(C.tamis_error_code(object)),
		Name:  C.GoString(C.tamis_error_name(object)),
		Text:  C.GoString(C.tamis_error_text(object)),
		Retry: bool(C.tamis_error_is_retryable(object)),
	}
	if name := C.tamis_error_keyspace(object); name != nil {
		e.Keyspace = C.GoString(name)
	}
	if key != nil {
		e.Key = C.GoBytes(key, C.int(length))
	}
	return e
}

// nothing is where empty byte strings are: the interface takes a null pointer for "no bound" or "no value".
var nothing = []byte{0}

// in returns bytes as arguments; nil stays null.
func in(data []byte) (unsafe.Pointer, C.size_t) {
	if data == nil {
		return nil, 0
	}
	if len(data) == 0 {
		return unsafe.Pointer(&nothing[0]), 0
	}
	return unsafe.Pointer(&data[0]), C.size_t(len(data))
}

// owned copies a buffer of the library's, and frees it.
func owned(data unsafe.Pointer, length C.size_t) []byte {
	defer C.tamis_free(data)
	return C.GoBytes(data, C.int(length))
}

func fromSlice(slice *C.tamis_slice) []byte {
	if slice == nil {
		return nil
	}
	defer C.tamis_slice_free(slice)
	return C.GoBytes(C.tamis_slice_data(slice), C.int(C.tamis_slice_len(slice)))
}

func fromList(list *C.tamis_list) [][]byte {
	defer C.tamis_list_free(list)
	items := [][]byte{}
	for i := C.size_t(0); i < C.tamis_list_len(list); i++ {
		var length C.size_t
		item := C.tamis_list_item(list, i, &length)
		items = append(items, C.GoBytes(item, C.int(length)))
	}
	return items
}

// DB is a database; Keyspace, Snapshot and so on are its objects.
type (
	DB          struct{ c *C.tamis_db }
	Keyspace    struct{ c *C.tamis_keyspace }
	Snapshot    struct{ c *C.tamis_snapshot }
	Batch       struct{ c *C.tamis_batch }
	Transaction struct{ c *C.tamis_transaction }
	Iterator    struct{ c *C.tamis_iter }
)

func (k *Keyspace) ptr() *C.tamis_keyspace {
	if k == nil {
		return nil
	}
	return k.c
}

func (s *Snapshot) ptr() *C.tamis_snapshot {
	if s == nil {
		return nil
	}
	return s.c
}

// Option is a name and a value as text.
type Option struct{ Name, Value string }

// Open opens a database.
func Open(path string, readOnly bool, options []Option) (*DB, error) {
	var e *C.tamis_error
	given := C.tamis_options_new()
	defer C.tamis_options_free(given)
	for _, option := range options {
		name, value := C.CString(option.Name), C.CString(option.Value)
		C.tamis_options_set(given, name, value, &e)
		C.free(unsafe.Pointer(name))
		C.free(unsafe.Pointer(value))
		if e != nil {
			return nil, taken(e)
		}
	}
	at := C.CString(path)
	defer C.free(unsafe.Pointer(at))
	var db *C.tamis_db
	if readOnly {
		db = C.tamis_open_read_only(at, given, &e)
	} else {
		db = C.tamis_open(at, given, &e)
	}
	if db == nil {
		return nil, taken(e)
	}
	return &DB{db}, nil
}

// Close closes the database; its objects answer "closed" from then on.
func (db *DB) Close() error {
	var e *C.tamis_error
	C.tamis_close(db.c, &e)
	return taken(e)
}

// Free frees a handle.
func (db *DB) Free() { C.tamis_db_free(db.c) }

// Free frees a handle.
func (k *Keyspace) Free() { C.tamis_keyspace_free(k.c) }

// Free frees a snapshot.
func (s *Snapshot) Free() { C.tamis_snapshot_free(s.c) }

// Free frees a batch.
func (b *Batch) Free() { C.tamis_batch_free(b.c) }

// Free rolls back and frees a transaction.
func (t *Transaction) Free() { C.tamis_transaction_free(t.c) }

// Free frees an iterator.
func (i *Iterator) Free() { C.tamis_iter_free(i.c) }

// How a keyspace is opened.
const (
	Existing = iota
	Create
	GetOrCreate
)

// Keyspace returns a keyspace.
func (db *DB) Keyspace(name string, how int, options []Option) (*Keyspace, error) {
	var e *C.tamis_error
	given := C.tamis_keyspace_options_new()
	defer C.tamis_keyspace_options_free(given)
	for _, option := range options {
		name, value := C.CString(option.Name), C.CString(option.Value)
		C.tamis_keyspace_options_set(given, name, value, &e)
		C.free(unsafe.Pointer(name))
		C.free(unsafe.Pointer(value))
		if e != nil {
			return nil, taken(e)
		}
	}
	called := C.CString(name)
	defer C.free(unsafe.Pointer(called))
	var keyspace *C.tamis_keyspace
	switch how {
	case Existing:
		keyspace = C.tamis_keyspace_open(db.c, called, &e)
	case Create:
		keyspace = C.tamis_keyspace_create(db.c, called, given, &e)
	default:
		keyspace = C.tamis_keyspace_get_or_create(db.c, called, given, &e)
	}
	if keyspace == nil {
		return nil, taken(e)
	}
	return &Keyspace{keyspace}, nil
}

// DropKeyspace drops a keyspace.
func (db *DB) DropKeyspace(name string) error {
	var e *C.tamis_error
	called := C.CString(name)
	defer C.free(unsafe.Pointer(called))
	C.tamis_keyspace_drop(db.c, called, &e)
	return taken(e)
}

// RenameKeyspace renames a keyspace.
func (db *DB) RenameKeyspace(name, newName string) error {
	var e *C.tamis_error
	from, to := C.CString(name), C.CString(newName)
	defer C.free(unsafe.Pointer(from))
	defer C.free(unsafe.Pointer(to))
	C.tamis_keyspace_rename(db.c, from, to, &e)
	return taken(e)
}

// Keyspaces lists the keyspaces' names.
func (db *DB) Keyspaces() ([][]byte, error) {
	var e *C.tamis_error
	list := C.tamis_keyspace_names(db.c, &e)
	if list == nil {
		return nil, taken(e)
	}
	return fromList(list), nil
}

// SetOptions changes options of an open keyspace.
func (db *DB) SetOptions(k *Keyspace, options []Option) error {
	var e *C.tamis_error
	count := len(options)
	size := C.size_t(count) * C.size_t(unsafe.Sizeof(uintptr(0)))
	names := (*[1 << 20]*C.char)(C.malloc(size + 1))
	values := (*[1 << 20]*C.char)(C.malloc(size + 1))
	defer C.free(unsafe.Pointer(names))
	defer C.free(unsafe.Pointer(values))
	for i, option := range options {
		names[i], values[i] = C.CString(option.Name), C.CString(option.Value)
		defer C.free(unsafe.Pointer(names[i]))
		defer C.free(unsafe.Pointer(values[i]))
	}
	C.tamis_keyspace_set_options(db.c, k.ptr(), &names[0], &values[0], C.size_t(count), &e)
	return taken(e)
}

// Get looks up a key; nil if it has no value.
func (db *DB) Get(k *Keyspace, s *Snapshot, key []byte) ([]byte, error) {
	var e *C.tamis_error
	var value unsafe.Pointer
	var length C.size_t
	data, size := in(key)
	if C.tamis_get(db.c, k.ptr(), s.ptr(), data, size, &value, &length, &e) != C.TAMIS_ANSWER_YES {
		return nil, taken(e)
	}
	return owned(value, length), nil
}

// Contains reports whether a key has a value.
func (db *DB) Contains(k *Keyspace, s *Snapshot, key []byte) (bool, error) {
	var e *C.tamis_error
	data, size := in(key)
	return C.tamis_contains(db.c, k.ptr(), s.ptr(), data, size, &e) == C.TAMIS_ANSWER_YES, taken(e)
}

// IsEmpty reports whether there is no key.
func (db *DB) IsEmpty(k *Keyspace, s *Snapshot) (bool, error) {
	var e *C.tamis_error
	return C.tamis_is_empty(db.c, k.ptr(), s.ptr(), &e) == C.TAMIS_ANSWER_YES, taken(e)
}

// MultiGet looks up several keys. The arrays of pointers are C's, as cgo asks.
func (db *DB) MultiGet(k *Keyspace, s *Snapshot, t *Transaction, keys [][]byte) ([][]byte, error) {
	var e *C.tamis_error
	count := len(keys)
	size := C.size_t(count)*8 + 8
	data := (*[1 << 20]unsafe.Pointer)(C.malloc(size))
	lens := (*[1 << 20]C.size_t)(C.malloc(size))
	values := (*[1 << 20]*C.tamis_slice)(C.malloc(size))
	defer C.free(unsafe.Pointer(data))
	defer C.free(unsafe.Pointer(lens))
	defer C.free(unsafe.Pointer(values))
	for i, key := range keys {
		data[i], lens[i] = C.CBytes(key), C.size_t(len(key))
		defer C.free(data[i])
	}
	var done C.bool
	if t != nil {
		done = C.tamis_transaction_multi_get(t.c, k.ptr(), &data[0], &lens[0], C.size_t(count), &values[0], &e)
	} else {
		done = C.tamis_multi_get(db.c, k.ptr(), s.ptr(), &data[0], &lens[0], C.size_t(count), &values[0], &e)
	}
	if !done {
		return nil, taken(e)
	}
	found := [][]byte{}
	for i := 0; i < count; i++ {
		found = append(found, fromSlice(values[i]))
	}
	return found, nil
}

// Range iterates over a range; nil bounds are open.
func (db *DB) Range(k *Keyspace, s *Snapshot, start, end []byte) (*Iterator, error) {
	var e *C.tamis_error
	from, fromLen := in(start)
	to, toLen := in(end)
	iter := C.tamis_iter_range(db.c, k.ptr(), s.ptr(), from, fromLen, to, toLen, &e)
	if iter == nil {
		return nil, taken(e)
	}
	return &Iterator{iter}, nil
}

// Prefix iterates over the keys with a prefix.
func (db *DB) Prefix(k *Keyspace, s *Snapshot, prefix []byte) (*Iterator, error) {
	var e *C.tamis_error
	data, size := in(prefix)
	iter := C.tamis_iter_prefix(db.c, k.ptr(), s.ptr(), data, size, &e)
	if iter == nil {
		return nil, taken(e)
	}
	return &Iterator{iter}, nil
}

// Next returns the next item, from the back or the front; a nil key at the end.
func (i *Iterator) Next(back bool) (key, value []byte, err error) {
	var e *C.tamis_error
	var k, v unsafe.Pointer
	var kLen, vLen C.size_t
	var found int32
	if back {
		found = int32(C.tamis_iter_next_back(i.c, &k, &kLen, &v, &vLen, &e))
	} else {
		found = int32(C.tamis_iter_next(i.c, &k, &kLen, &v, &vLen, &e))
	}
	if found != C.TAMIS_ANSWER_YES {
		return nil, nil, taken(e)
	}
	return C.GoBytes(k, C.int(kLen)), C.GoBytes(v, C.int(vLen)), nil
}

// Seek moves the front.
func (i *Iterator) Seek(key []byte) error {
	var e *C.tamis_error
	data, size := in(key)
	C.tamis_iter_seek(i.c, data, size, &e)
	return taken(e)
}

// Writer is where writes go: a database, a batch or a transaction.
type Writer interface {
	Put(k *Keyspace, key, value []byte) error
	Delete(k *Keyspace, key []byte) error
	Merge(k *Keyspace, key, operand []byte) error
	DeleteRange(k *Keyspace, start, end []byte) error
}

// Put puts a value.
func (db *DB) Put(k *Keyspace, key, value []byte) error {
	var e *C.tamis_error
	a, aLen := in(key)
	b, bLen := in(value)
	C.tamis_put(db.c, k.ptr(), a, aLen, b, bLen, &e)
	return taken(e)
}

// Delete deletes a key.
func (db *DB) Delete(k *Keyspace, key []byte) error {
	var e *C.tamis_error
	a, aLen := in(key)
	C.tamis_delete(db.c, k.ptr(), a, aLen, &e)
	return taken(e)
}

// Merge merges an operand.
func (db *DB) Merge(k *Keyspace, key, operand []byte) error {
	var e *C.tamis_error
	a, aLen := in(key)
	b, bLen := in(operand)
	C.tamis_merge(db.c, k.ptr(), a, aLen, b, bLen, &e)
	return taken(e)
}

// DeleteRange deletes a range.
func (db *DB) DeleteRange(k *Keyspace, start, end []byte) error {
	var e *C.tamis_error
	a, aLen := in(start)
	b, bLen := in(end)
	C.tamis_delete_range(db.c, k.ptr(), a, aLen, b, bLen, &e)
	return taken(e)
}

// DeletePrefix deletes the keys with a prefix.
func (db *DB) DeletePrefix(k *Keyspace, prefix []byte) error {
	var e *C.tamis_error
	a, aLen := in(prefix)
	C.tamis_delete_prefix(db.c, k.ptr(), a, aLen, &e)
	return taken(e)
}

// Clear empties a keyspace.
func (db *DB) Clear(k *Keyspace) error {
	var e *C.tamis_error
	C.tamis_keyspace_clear(db.c, k.ptr(), &e)
	return taken(e)
}

// NewBatch returns an empty batch.
func NewBatch() *Batch { return &Batch{C.tamis_batch_new()} }

// Put adds a put.
func (b *Batch) Put(k *Keyspace, key, value []byte) error {
	var e *C.tamis_error
	x, xLen := in(key)
	y, yLen := in(value)
	C.tamis_batch_put(b.c, k.ptr(), x, xLen, y, yLen, &e)
	return taken(e)
}

// Delete adds a delete.
func (b *Batch) Delete(k *Keyspace, key []byte) error {
	var e *C.tamis_error
	x, xLen := in(key)
	C.tamis_batch_delete(b.c, k.ptr(), x, xLen, &e)
	return taken(e)
}

// Merge adds a merge.
func (b *Batch) Merge(k *Keyspace, key, operand []byte) error {
	var e *C.tamis_error
	x, xLen := in(key)
	y, yLen := in(operand)
	C.tamis_batch_merge(b.c, k.ptr(), x, xLen, y, yLen, &e)
	return taken(e)
}

// DeleteRange adds a delete of a range.
func (b *Batch) DeleteRange(k *Keyspace, start, end []byte) error {
	var e *C.tamis_error
	x, xLen := in(start)
	y, yLen := in(end)
	C.tamis_batch_delete_range(b.c, k.ptr(), x, xLen, y, yLen, &e)
	return taken(e)
}

// DeletePrefix adds a delete of the keys with a prefix.
func (b *Batch) DeletePrefix(k *Keyspace, prefix []byte) error {
	var e *C.tamis_error
	x, xLen := in(prefix)
	C.tamis_batch_delete_prefix(b.c, k.ptr(), x, xLen, &e)
	return taken(e)
}

// Write writes a batch; an empty durability is the database's.
func (db *DB) Write(b *Batch, durability string) error {
	var e *C.tamis_error
	var text *C.char
	if durability != "" {
		text = C.CString(durability)
		defer C.free(unsafe.Pointer(text))
	}
	C.tamis_write(db.c, b.c, text, &e)
	return taken(e)
}

// Snapshot takes a snapshot.
func (db *DB) Snapshot() (*Snapshot, error) {
	var e *C.tamis_error
	snapshot := C.tamis_snapshot_new(db.c, &e)
	if snapshot == nil {
		return nil, taken(e)
	}
	return &Snapshot{snapshot}, nil
}

// Begin begins an optimistic transaction.
func (db *DB) Begin(isolation int) (*Transaction, error) {
	var e *C.tamis_error
	transaction := C.tamis_begin(db.c, C.int32_t(isolation), nil, &e)
	if transaction == nil {
		return nil, taken(e)
	}
	return &Transaction{transaction}, nil
}

// BeginLocking begins a transaction that locks.
func (db *DB) BeginLocking(milliseconds uint64) (*Transaction, error) {
	var e *C.tamis_error
	transaction := C.tamis_begin_locking(db.c, C.uint64_t(milliseconds), nil, &e)
	if transaction == nil {
		return nil, taken(e)
	}
	return &Transaction{transaction}, nil
}

// Get looks up a key, for update or not.
func (t *Transaction) Get(k *Keyspace, key []byte, forUpdate bool) ([]byte, error) {
	var e *C.tamis_error
	var value unsafe.Pointer
	var length C.size_t
	data, size := in(key)
	var found int32
	if forUpdate {
		found = int32(C.tamis_transaction_get_for_update(t.c, k.ptr(), data, size, &value, &length, &e))
	} else {
		found = int32(C.tamis_transaction_get(t.c, k.ptr(), data, size, &value, &length, &e))
	}
	if found != C.TAMIS_ANSWER_YES {
		return nil, taken(e)
	}
	return owned(value, length), nil
}

// Contains reports whether a key has a value.
func (t *Transaction) Contains(k *Keyspace, key []byte) (bool, error) {
	var e *C.tamis_error
	data, size := in(key)
	return C.tamis_transaction_contains(t.c, k.ptr(), data, size, &e) == C.TAMIS_ANSWER_YES, taken(e)
}

// Range iterates over a range.
func (t *Transaction) Range(k *Keyspace, start, end []byte) (*Iterator, error) {
	var e *C.tamis_error
	from, fromLen := in(start)
	to, toLen := in(end)
	iter := C.tamis_transaction_iter_range(t.c, k.ptr(), from, fromLen, to, toLen, &e)
	if iter == nil {
		return nil, taken(e)
	}
	return &Iterator{iter}, nil
}

// Prefix iterates over the keys with a prefix.
func (t *Transaction) Prefix(k *Keyspace, prefix []byte) (*Iterator, error) {
	var e *C.tamis_error
	data, size := in(prefix)
	iter := C.tamis_transaction_iter_prefix(t.c, k.ptr(), data, size, &e)
	if iter == nil {
		return nil, taken(e)
	}
	return &Iterator{iter}, nil
}

// Put puts a value.
func (t *Transaction) Put(k *Keyspace, key, value []byte) error {
	var e *C.tamis_error
	a, aLen := in(key)
	b, bLen := in(value)
	C.tamis_transaction_put(t.c, k.ptr(), a, aLen, b, bLen, &e)
	return taken(e)
}

// Delete deletes a key.
func (t *Transaction) Delete(k *Keyspace, key []byte) error {
	var e *C.tamis_error
	a, aLen := in(key)
	C.tamis_transaction_delete(t.c, k.ptr(), a, aLen, &e)
	return taken(e)
}

// Merge merges an operand.
func (t *Transaction) Merge(k *Keyspace, key, operand []byte) error {
	var e *C.tamis_error
	a, aLen := in(key)
	b, bLen := in(operand)
	C.tamis_transaction_merge(t.c, k.ptr(), a, aLen, b, bLen, &e)
	return taken(e)
}

// DeleteRange deletes a range.
func (t *Transaction) DeleteRange(k *Keyspace, start, end []byte) error {
	var e *C.tamis_error
	a, aLen := in(start)
	b, bLen := in(end)
	C.tamis_transaction_delete_range(t.c, k.ptr(), a, aLen, b, bLen, &e)
	return taken(e)
}

// Commit commits and ends a transaction.
func (t *Transaction) Commit() error {
	var e *C.tamis_error
	C.tamis_transaction_commit(t.c, nil, &e)
	return taken(e)
}

// Rollback ends a transaction.
func (t *Transaction) Rollback() error {
	var e *C.tamis_error
	C.tamis_transaction_rollback(t.c, &e)
	return taken(e)
}

// Savepoint returns a point to return to.
func (t *Transaction) Savepoint() (uint64, error) {
	var e *C.tamis_error
	var savepoint C.uint64_t
	C.tamis_transaction_savepoint(t.c, &savepoint, &e)
	return uint64(savepoint), taken(e)
}

// RollbackTo returns to a savepoint.
func (t *Transaction) RollbackTo(savepoint uint64) error {
	var e *C.tamis_error
	C.tamis_transaction_rollback_to(t.c, C.uint64_t(savepoint), &e)
	return taken(e)
}

// Prepare prepares a transaction that locks.
func (t *Transaction) Prepare(name []byte) error {
	var e *C.tamis_error
	data, size := in(name)
	C.tamis_transaction_prepare(t.c, data, size, &e)
	return taken(e)
}

// Prepared lists the names of prepared transactions.
func (db *DB) Prepared() ([][]byte, error) {
	var e *C.tamis_error
	list := C.tamis_prepared_names(db.c, &e)
	if list == nil {
		return nil, taken(e)
	}
	return fromList(list), nil
}

// EndPrepared commits or aborts a prepared transaction.
func (db *DB) EndPrepared(name []byte, commit bool) error {
	var e *C.tamis_error
	data, size := in(name)
	if commit {
		C.tamis_prepared_commit(db.c, data, size, &e)
	} else {
		C.tamis_prepared_abort(db.c, data, size, &e)
	}
	return taken(e)
}

// CompareAndSwap sets a key if it has the expected value; nil is none.
func (db *DB) CompareAndSwap(k *Keyspace, key, expected, value []byte) (bool, error) {
	var e *C.tamis_error
	a, aLen := in(key)
	b, bLen := in(expected)
	c, cLen := in(value)
	return C.tamis_compare_and_swap(db.c, k.ptr(), a, aLen, b, bLen, c, cLen, nil, &e) == C.TAMIS_ANSWER_YES, taken(e)
}

// InsertIfAbsent sets a key that has no value; otherwise returns the one that is there.
func (db *DB) InsertIfAbsent(k *Keyspace, key, value []byte) ([]byte, error) {
	var e *C.tamis_error
	var current *C.tamis_slice
	a, aLen := in(key)
	b, bLen := in(value)
	C.tamis_insert_if_absent(db.c, k.ptr(), a, aLen, b, bLen, &current, &e)
	return fromSlice(current), taken(e)
}

// Take deletes a key and returns its value.
func (db *DB) Take(k *Keyspace, key []byte) ([]byte, error) {
	var e *C.tamis_error
	var value unsafe.Pointer
	var length C.size_t
	data, size := in(key)
	if C.tamis_take(db.c, k.ptr(), data, size, &value, &length, &e) != C.TAMIS_ANSWER_YES {
		return nil, taken(e)
	}
	return owned(value, length), nil
}

// Increment adds to a number.
func (db *DB) Increment(k *Keyspace, key []byte, by int64) (int64, error) {
	var e *C.tamis_error
	var sum C.int64_t
	data, size := in(key)
	C.tamis_increment(db.c, k.ptr(), data, size, C.int64_t(by), &sum, &e)
	return int64(sum), taken(e)
}

// Flush writes memtables to tables.
func (db *DB) Flush(k *Keyspace) error {
	var e *C.tamis_error
	C.tamis_flush(db.c, k.ptr(), &e)
	return taken(e)
}

// Compact compacts.
func (db *DB) Compact(k *Keyspace) error {
	var e *C.tamis_error
	C.tamis_compact(db.c, k.ptr(), &e)
	return taken(e)
}

// CompactRange compacts a range.
func (db *DB) CompactRange(k *Keyspace, start, end []byte) error {
	var e *C.tamis_error
	a, aLen := in(start)
	b, bLen := in(end)
	C.tamis_compact_range(db.c, k.ptr(), a, aLen, b, bLen, &e)
	return taken(e)
}

// Sync makes writes durable.
func (db *DB) Sync() error {
	var e *C.tamis_error
	C.tamis_sync(db.c, &e)
	return taken(e)
}

// Checkpoint copies the database.
func (db *DB) Checkpoint(path string) error {
	var e *C.tamis_error
	to := C.CString(path)
	defer C.free(unsafe.Pointer(to))
	C.tamis_checkpoint(db.c, to, &e)
	return taken(e)
}

// Approximate estimates the number or the bytes of the keys in a range.
func (db *DB) Approximate(k *Keyspace, start, end []byte, size bool) (uint64, error) {
	var e *C.tamis_error
	var number C.uint64_t
	a, aLen := in(start)
	b, bLen := in(end)
	if size {
		C.tamis_approximate_size(db.c, k.ptr(), a, aLen, b, bLen, &number, &e)
	} else {
		C.tamis_approximate_len(db.c, k.ptr(), a, aLen, b, bLen, &number, &e)
	}
	return uint64(number), taken(e)
}

func json(text *C.char, e *C.tamis_error) (string, error) {
	if text == nil {
		return "", taken(e)
	}
	defer C.tamis_free(unsafe.Pointer(text))
	return C.GoString(text), nil
}

// Verify returns the report of a verification, as JSON.
func (db *DB) Verify() (string, error) {
	var e *C.tamis_error
	text := C.tamis_verify(db.c, &e)
	return json(text, e)
}

// Stats returns statistics, as JSON.
func (db *DB) Stats() (string, error) {
	var e *C.tamis_error
	text := C.tamis_stats(db.c, &e)
	return json(text, e)
}

// Explain returns the path of a get, as JSON.
func (db *DB) Explain(k *Keyspace, key []byte) (string, error) {
	var e *C.tamis_error
	data, size := in(key)
	text := C.tamis_explain(db.c, k.ptr(), data, size, &e)
	return json(text, e)
}

// BuildTable writes an external table with these entries.
func BuildTable(path string, entries [][2][]byte) error {
	var e *C.tamis_error
	to := C.CString(path)
	defer C.free(unsafe.Pointer(to))
	builder := C.tamis_table_builder_new(to, nil, &e)
	if builder == nil {
		return taken(e)
	}
	defer C.tamis_table_builder_free(builder)
	for _, entry := range entries {
		a, aLen := in(entry[0])
		b, bLen := in(entry[1])
		if !C.tamis_table_builder_put(builder, a, aLen, b, bLen, &e) {
			return taken(e)
		}
	}
	C.tamis_table_builder_finish(builder, nil, &e)
	return taken(e)
}

// Ingest ingests external tables and returns the number of entries.
func (db *DB) Ingest(k *Keyspace, paths []string) (uint64, error) {
	var e *C.tamis_error
	pointers := (*[1 << 20]*C.char)(C.malloc(C.size_t(len(paths))*8 + 8))
	defer C.free(unsafe.Pointer(pointers))
	for i, path := range paths {
		pointers[i] = C.CString(path)
		defer C.free(unsafe.Pointer(pointers[i]))
	}
	var entries C.uint64_t
	C.tamis_ingest(db.c, k.ptr(), &pointers[0], C.size_t(len(paths)), false, &entries, nil, &e)
	return uint64(entries), taken(e)
}
