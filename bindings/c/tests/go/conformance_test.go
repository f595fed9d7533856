package tamis

import (
	"encoding/hex"
	stdjson "encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A token of the script, or a part of an answer: bytes, or a word.
type token struct {
	isBytes bool
	text    string
}

func word(text string) token { return token{text: text} }

func value(data []byte) token {
	if data == nil {
		return word("none")
	}
	return token{true, string(data)}
}

func (t token) bytes() []byte {
	if !t.isBytes {
		panic("bytes are expected, not " + t.text)
	}
	return append([]byte{}, t.text...)
}

// optional is nil for `none` and `-`.
func (t token) optional() []byte {
	if t == word("none") || t == word("-") {
		return nil
	}
	return t.bytes()
}

func unescaped(text string) string {
	parts := strings.Split(text, `\x`)
	for i, part := range parts[1:] {
		decoded, err := hex.DecodeString(part[:2])
		if err != nil {
			panic(err)
		}
		parts[i+1] = string(decoded) + part[2:]
	}
	return strings.Join(parts, "")
}

func tokens(line string) (all []token) {
	for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
		if line[0] != '"' {
			text, rest, _ := strings.Cut(line, " ")
			all, line = append(all, word(text)), rest
			continue
		}
		text, rest, _ := strings.Cut(line[1:], `"`)
		times := 1
		repeat, rest, _ := strings.Cut(rest, " ")
		if strings.HasPrefix(repeat, "*") {
			times, _ = strconv.Atoi(repeat[1:])
		}
		all, line = append(all, token{true, strings.Repeat(unescaped(text), times)}), rest
	}
	return all
}

type machine struct {
	dir     string
	handles map[string]any
	// The database of a keyspace, a snapshot or a transaction.
	of  map[any]*DB
	dbs []*DB
}

type freed interface{ Free() }

func (m *machine) release(name string) {
	handle := m.handles[name]
	delete(m.handles, name)
	// Databases are freed at the end of the test: others name them.
	if _, isDB := handle.(*DB); !isDB {
		if object, ok := handle.(freed); ok {
			object.Free()
		}
	}
}

func (m *machine) keep(name string, handle any, db *DB, err error) ([]token, error) {
	if err != nil {
		return nil, err
	}
	m.release(name)
	m.handles[name] = handle
	m.of[handle] = db
	return nil, nil
}

func (m *machine) end() {
	for name := range m.handles {
		m.release(name)
	}
	for _, db := range m.dbs {
		db.Free()
	}
}

// place takes X or X@KS apart: the database, the keyspace, and what else X is.
func (m *machine) place(t token) (db *DB, k *Keyspace, object any) {
	name, keyspace, within := strings.Cut(t.text, "@")
	object = m.handles[name]
	if within {
		k = m.handles[keyspace].(*Keyspace)
	}
	switch handle := object.(type) {
	case *DB:
		return handle, k, object
	case *Keyspace:
		return m.of[object], handle, object
	case nil:
		panic("no handle " + name)
	}
	return m.of[object], k, object
}

func list(items ...token) []token { return append([]token{word("list")}, items...) }

func values(items [][]byte, err error) ([]token, error) {
	answer := list()
	for _, item := range items {
		answer = append(answer, value(item))
	}
	return answer, err
}

func one(data []byte, err error) ([]token, error) { return []token{value(data)}, err }

func truth(yes bool, err error) ([]token, error) { return []token{word(fmt.Sprint(yes))}, err }

func (m *machine) iterator(a []token, prefix bool) (*Iterator, error) {
	db, k, object := m.place(a[0])
	snapshot, _ := object.(*Snapshot)
	transaction, within := object.(*Transaction)
	switch {
	case within && prefix:
		return transaction.Prefix(k, a[1].bytes())
	case within:
		return transaction.Range(k, a[1].optional(), a[2].optional())
	case prefix:
		return db.Prefix(k, snapshot, a[1].bytes())
	}
	return db.Range(k, snapshot, a[1].optional(), a[2].optional())
}

func (m *machine) scan(a []token, prefix, back bool) ([]token, error) {
	iterator, err := m.iterator(a, prefix)
	if err != nil {
		return nil, err
	}
	defer iterator.Free()
	answer := list()
	for {
		k, v, err := iterator.Next(back)
		if k == nil || err != nil {
			return answer, err
		}
		answer = append(answer, value(k), value(v))
	}
}

func (m *machine) get(a []token) ([]token, error) {
	db, k, object := m.place(a[0])
	if transaction, ok := object.(*Transaction); ok {
		return one(transaction.Get(k, a[1].bytes(), false))
	}
	snapshot, _ := object.(*Snapshot)
	return one(db.Get(k, snapshot, a[1].bytes()))
}

func options(a []token) (all []Option) {
	for i := 0; i+1 < len(a); i += 2 {
		all = append(all, Option{a[i].text, a[i+1].text})
	}
	return all
}

func field(text string, err error, name token) ([]token, error) {
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if err := stdjson.Unmarshal([]byte(text), &object); err != nil {
		panic(err)
	}
	if _, ok := object[name.text]; !ok {
		panic("no field " + name.text)
	}
	return nil, nil
}

func (m *machine) execute(command string, a []token) ([]token, error) {
	path := func(t token) string { return filepath.Join(m.dir, t.text) }
	switch command {
	case "open", "open-read-only":
		m.release(a[0].text)
		db, err := Open(path(a[1]), command != "open", options(a[2:]))
		if err == nil {
			m.dbs = append(m.dbs, db)
		}
		return m.keep(a[0].text, db, nil, err)
	case "release":
		m.release(a[0].text)
		return nil, nil
	case "batch":
		return m.keep(a[0].text, NewBatch(), nil, nil)
	case "iter", "iter-prefix":
		iterator, err := m.iterator(a[1:], command == "iter-prefix")
		return m.keep(a[0].text, iterator, nil, err)
	case "snapshot":
		db, _, _ := m.place(a[1])
		snapshot, err := db.Snapshot()
		return m.keep(a[0].text, snapshot, db, err)
	case "transaction":
		db, _, _ := m.place(a[1])
		isolation := 0
		if len(a) > 2 && a[2].text == "snapshot" {
			isolation = 1
		} else if len(a) > 2 {
			isolation = -1
		}
		transaction, err := db.Begin(isolation)
		return m.keep(a[0].text, transaction, db, err)
	case "lock-transaction":
		db, _, _ := m.place(a[1])
		milliseconds, _ := strconv.ParseUint(a[2].text, 10, 64)
		transaction, err := db.BeginLocking(milliseconds)
		return m.keep(a[0].text, transaction, db, err)
	case "savepoint":
		_, _, object := m.place(a[1])
		savepoint, err := object.(*Transaction).Savepoint()
		return m.keep(a[0].text, savepoint, nil, err)
	case "keyspace", "create-keyspace", "get-or-create-keyspace":
		db, _, _ := m.place(a[1])
		how := map[string]int{"keyspace": Existing, "create-keyspace": Create}
		as, ok := how[command]
		if !ok {
			as = GetOrCreate
		}
		keyspace, err := db.Keyspace(a[2].text, as, options(a[3:]))
		return m.keep(a[0].text, keyspace, db, err)
	case "build-table":
		var entries [][2][]byte
		for i := 1; i+1 < len(a); i += 2 {
			entries = append(entries, [2][]byte{a[i].bytes(), a[i+1].bytes()})
		}
		return nil, BuildTable(path(a[0]), entries)
	}
	db, k, object := m.place(a[0])
	snapshot, _ := object.(*Snapshot)
	transaction, within := object.(*Transaction)
	switch command {
	case "close":
		return nil, db.Close()
	case "put", "delete", "merge", "delete-range":
		writer, ok := object.(Writer)
		if !ok {
			writer = db
		}
		switch command {
		case "put":
			return nil, writer.Put(k, a[1].bytes(), a[2].bytes())
		case "delete":
			return nil, writer.Delete(k, a[1].bytes())
		case "merge":
			return nil, writer.Merge(k, a[1].bytes(), a[2].bytes())
		}
		return nil, writer.DeleteRange(k, a[1].optional(), a[2].optional())
	case "delete-prefix":
		if batch, ok := object.(*Batch); ok {
			return nil, batch.DeletePrefix(k, a[1].bytes())
		}
		return nil, db.DeletePrefix(k, a[1].bytes())
	case "clear":
		return nil, db.Clear(k)
	case "get":
		return m.get(a)
	case "contains":
		if within {
			return truth(transaction.Contains(k, a[1].bytes()))
		}
		return truth(db.Contains(k, snapshot, a[1].bytes()))
	case "multi-get":
		keys := [][]byte{}
		for _, key := range a[1:] {
			keys = append(keys, key.bytes())
		}
		return values(db.MultiGet(k, snapshot, transaction, keys))
	case "scan", "scan-back":
		return m.scan(a, false, command == "scan-back")
	case "scan-prefix", "scan-prefix-back":
		return m.scan(a, true, command == "scan-prefix-back")
	case "is-empty":
		return truth(db.IsEmpty(k, snapshot))
	case "next", "prev":
		key, found, err := object.(*Iterator).Next(command == "prev")
		if key == nil {
			return []token{word("none")}, err
		}
		return list(value(key), value(found)), err
	case "seek":
		return nil, object.(*Iterator).Seek(a[1].bytes())
	case "write":
		durability := ""
		if len(a) > 2 {
			durability = a[2].text
		}
		return nil, db.Write(m.handles[a[1].text].(*Batch), durability)
	case "get-for-update":
		return one(transaction.Get(k, a[1].bytes(), true))
	case "commit":
		return nil, transaction.Commit()
	case "rollback":
		return nil, transaction.Rollback()
	case "rollback-to":
		return nil, transaction.RollbackTo(m.handles[a[1].text].(uint64))
	case "prepare":
		return nil, transaction.Prepare(a[1].bytes())
	case "prepared":
		return values(db.Prepared())
	case "commit-prepared", "abort-prepared":
		return nil, db.EndPrepared(a[1].bytes(), command == "commit-prepared")
	case "compare-and-swap":
		return truth(db.CompareAndSwap(k, a[1].bytes(), a[2].optional(), a[3].optional()))
	case "insert-if-absent":
		return one(db.InsertIfAbsent(k, a[1].bytes(), a[2].bytes()))
	case "take":
		return one(db.Take(k, a[1].bytes()))
	case "increment":
		by, _ := strconv.ParseInt(a[2].text, 10, 64)
		sum, err := db.Increment(k, a[1].bytes(), by)
		return []token{word(fmt.Sprint(sum))}, err
	case "drop-keyspace":
		return nil, db.DropKeyspace(a[1].text)
	case "rename-keyspace":
		return nil, db.RenameKeyspace(a[1].text, a[2].text)
	case "keyspaces":
		return values(db.Keyspaces())
	case "set-options":
		return nil, db.SetOptions(k, options(a[1:]))
	case "flush":
		return nil, db.Flush(k)
	case "compact":
		return nil, db.Compact(k)
	case "compact-range":
		return nil, db.CompactRange(k, a[1].optional(), a[2].optional())
	case "sync":
		return nil, db.Sync()
	case "checkpoint":
		return nil, db.Checkpoint(path(a[1]))
	case "verify":
		text, err := db.Verify()
		var report struct{ Problems []string }
		if err == nil {
			err = stdjson.Unmarshal([]byte(text), &report)
		}
		return []token{word(fmt.Sprint(len(report.Problems)))}, err
	case "approximate-len", "approximate-size":
		number, err := db.Approximate(k, a[1].optional(), a[2].optional(), command == "approximate-size")
		return []token{word(fmt.Sprint(number))}, err
	case "ingest":
		var paths []string
		for _, file := range a[1:] {
			paths = append(paths, path(file))
		}
		entries, err := db.Ingest(k, paths)
		return []token{word(fmt.Sprint(entries))}, err
	case "stats":
		text, err := db.Stats()
		return field(text, err, a[1])
	case "explain":
		text, err := db.Explain(k, a[1].bytes())
		return field(text, err, a[2])
	}
	panic("no command " + command)
}

func excerpt(answer []token) string {
	text := fmt.Sprintf("%+v", answer)
	return text[:min(len(text), 200)]
}

func TestConformance(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(os.Getenv("TAMIS_CONFORMANCE"), "*.txt"))
	if len(files) == 0 {
		t.Fatal("TAMIS_CONFORMANCE names no directory with a script")
	}
	tests := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var m *machine
		for number, line := range strings.Split(string(text), "\n") {
			parsed := tokens(line)
			if len(parsed) == 0 || line[0] == '#' {
				continue
			}
			if parsed[0] == word("test") {
				if m != nil {
					m.end()
				}
				m = &machine{dir: t.TempDir(), handles: map[string]any{}, of: map[any]*DB{}}
				tests++
				continue
			}
			arguments, expected := parsed[1:], []token(nil)
			for i, token := range arguments {
				if token == word("=>") {
					arguments, expected = arguments[:i], arguments[i+1:]
					break
				}
			}
			answer, err := m.execute(parsed[0].text, arguments)
			if failure, ok := err.(*Error); ok {
				answer = []token{word("error"), word(failure.Name)}
			} else if err != nil {
				t.Fatal(err)
			}
			fine := reflect.DeepEqual(answer, expected)
			if len(expected) == 0 || reflect.DeepEqual(expected, []token{word("any")}) {
				fine = err == nil
			}
			if !fine {
				t.Errorf("%s:%d: %.100s answered %s", filepath.Base(file), number+1, line, excerpt(answer))
			}
		}
		if m != nil {
			m.end()
		}
	}
	t.Logf("%d tests", tests)
}

func TestGoroutinesShareADatabase(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "db"), false, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Free()
	var group sync.WaitGroup
	for g := 0; g < 8; g++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := 0; i < 200; i++ {
				if _, err := db.Increment(nil, []byte("sum"), 1); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	group.Wait()
	if sum, err := db.Increment(nil, []byte("sum"), 0); err != nil || sum != 1600 {
		t.Fatal(sum, err)
	}
}
