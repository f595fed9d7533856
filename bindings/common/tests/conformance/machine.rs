//! The commands.

use std::collections::HashMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tamis::ingest::{ExternalTableBuilder, IngestOptions};
use tamis::maintenance::CompactOptions;
use tamis::transactions::{
    Isolation, LockOptions, LockTransaction, PreparedTransaction, Savepoint, TransactionOptions,
};
use tamis::{
    Iter, Keyspace, KeyspaceOptions, ReadError, Readable, Slice, Snapshot, Transaction, TransactionError,
    WriteBatch,
};
use tamis_bindings::{Code, Database, Failure, json, options};

use super::script::{Answer, Token};

enum Handle {
    Db(Arc<Database>),
    Keyspace(Arc<Database>, Keyspace),
    Batch(WriteBatch),
    Snapshot(Arc<Database>, Snapshot),
    Transaction(Arc<Database>, Option<Transaction>),
    Locks(Arc<Database>, Option<LockTransaction>),
    Iter(Arc<Database>, Box<Iter>),
    Savepoint(Savepoint),
}

#[derive(Default)]
pub(crate) struct Machine {
    handles: HashMap<String, Handle>,
}

type Done = Result<Answer, Failure>;
type Range<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

fn range<'a>(from: &'a Token, to: &'a Token) -> Range<'a> {
    let start = from.optional().map_or(Bound::Unbounded, Bound::Included);
    (start, to.optional().map_or(Bound::Unbounded, Bound::Excluded))
}

fn text(token: &Token) -> &str {
    std::str::from_utf8(token.bytes()).expect("a name that is text")
}

fn number(number: impl ToString) -> Answer {
    Answer::Word(number.to_string())
}

fn list(items: impl Iterator<Item = Result<(Slice, Slice), ReadError>>) -> Done {
    let mut list = Vec::new();
    for item in items {
        let (key, value) = item?;
        list.extend([Some(key.to_vec()), Some(value.to_vec())]);
    }
    Ok(Answer::List(list))
}

fn item(item: Option<Result<(Slice, Slice), ReadError>>) -> Done {
    match item {
        None => Ok(Answer::Value(None)),
        some => list(some.into_iter()),
    }
}

/// A read that all readable places have.
enum Read<'a> {
    Get(&'a [u8]),
    Contains(&'a [u8]),
    MultiGet(Vec<&'a [u8]>),
    Scan(Range<'a>),
    ScanBack(Range<'a>),
    ScanPrefix(&'a [u8]),
    ScanPrefixBack(&'a [u8]),
    IsEmpty,
}

fn read(place: &impl Readable, read: &Read<'_>) -> Done {
    match read {
        Read::Get(key) => Ok(Answer::value(place.get(key)?)),
        Read::Contains(key) => Ok(number(place.contains_key(key)?)),
        Read::MultiGet(keys) => {
            let values = place.multi_get(keys)?;
            Ok(Answer::List(values.into_iter().map(|value| value.map(|value| value.to_vec())).collect()))
        }
        Read::Scan(range) => list(place.range::<&[u8]>(*range)),
        Read::ScanBack(range) => list(place.range::<&[u8]>(*range).rev()),
        Read::ScanPrefix(prefix) => list(place.prefix(prefix)),
        Read::ScanPrefixBack(prefix) => list(place.prefix(prefix).rev()),
        Read::IsEmpty => Ok(number(place.is_empty()?)),
    }
}

/// A write that databases, batches and transactions have.
enum Write<'a> {
    Put(&'a [u8], &'a [u8]),
    Delete(&'a [u8]),
    Merge(&'a [u8], &'a [u8]),
    DeleteRange(Range<'a>),
}

impl Machine {
    pub(crate) fn execute(&mut self, dir: &Path, command: &str, arguments: &[Token]) -> Answer {
        match self.command(dir, command, arguments) {
            Ok(answer) => answer,
            Err(failure) => Answer::Error(failure.code.name().to_owned()),
        }
    }

    fn command(&mut self, dir: &Path, command: &str, a: &[Token]) -> Done {
        let name = |i: usize| a[i].word();
        let path = |token: &Token| dir.join(text(token));
        match command {
            "open" | "open-read-only" => {
                let (handle, at) = (name(0), path(&a[1]));
                self.handles.remove(handle);
                let mut given = options::Opening::default();
                for pair in a[2..].chunks_exact(2) {
                    options::set(&mut given, pair[0].word(), pair[1].word())?;
                }
                let open = if command == "open" { Database::open } else { Database::open_read_only };
                let db = open(&at, given)?;
                return self.keep(handle, Handle::Db(Arc::new(db)));
            }
            "close" => self.database(name(0)).close()?,
            "release" => drop(self.handles.remove(name(0)).expect("a handle")),
            "put" => self.write(name(0), &Write::Put(a[1].bytes(), a[2].bytes()))?,
            "delete" => self.write(name(0), &Write::Delete(a[1].bytes()))?,
            "merge" => self.write(name(0), &Write::Merge(a[1].bytes(), a[2].bytes()))?,
            "delete-range" => self.write(name(0), &Write::DeleteRange(range(&a[1], &a[2])))?,
            "delete-prefix" => self.delete_prefix(name(0), a[1].bytes())?,
            "clear" => self.keyspace(name(0))?.clear()?,
            "get" => return self.read(name(0), &Read::Get(a[1].bytes())),
            "contains" => return self.read(name(0), &Read::Contains(a[1].bytes())),
            "multi-get" => {
                return self.read(name(0), &Read::MultiGet(a[1..].iter().map(Token::bytes).collect()));
            }
            "scan" => return self.read(name(0), &Read::Scan(range(&a[1], &a[2]))),
            "scan-back" => return self.read(name(0), &Read::ScanBack(range(&a[1], &a[2]))),
            "scan-prefix" => return self.read(name(0), &Read::ScanPrefix(a[1].bytes())),
            "scan-prefix-back" => return self.read(name(0), &Read::ScanPrefixBack(a[1].bytes())),
            "is-empty" => return self.read(name(0), &Read::IsEmpty),
            "iter" => {
                let (db, iter) = self.iter(name(1), |place| place.over(range(&a[2], &a[3])))?;
                return self.keep(name(0), Handle::Iter(db, Box::new(iter)));
            }
            "iter-prefix" => {
                let (db, iter) = self.iter(name(1), |place| place.prefixed(a[2].bytes()))?;
                return self.keep(name(0), Handle::Iter(db, Box::new(iter)));
            }
            "next" => return item(self.open_iter(name(0))?.next()),
            "prev" => return item(self.open_iter(name(0))?.next_back()),
            "seek" => self.open_iter(name(0))?.seek(a[1].bytes())?,
            "batch" => return self.keep(name(0), Handle::Batch(WriteBatch::new())),
            "write" => {
                let Some(Handle::Batch(batch)) = self.handles.get_mut(name(1)) else { panic!("a batch") };
                let durability = a.get(2).map(|token| token.word().parse()).transpose()?;
                let batch = std::mem::take(batch);
                let database = self.database(name(0));
                let db = database.db()?;
                match durability {
                    Some(durability) => db.write_with(batch, durability)?,
                    None => db.write(batch)?,
                }
            }
            "snapshot" => {
                let database = self.database(name(1));
                let snapshot = database.db()?.snapshot();
                return self.keep(name(0), Handle::Snapshot(database, snapshot));
            }
            "transaction" => {
                let isolation = match a.get(2).map_or("serializable", Token::word) {
                    "serializable" => Isolation::Serializable,
                    "snapshot" => Isolation::Snapshot,
                    other => return Err(Failure::argument(format!("no isolation `{other}`"))),
                };
                let database = self.database(name(1));
                let given = TransactionOptions { isolation, ..TransactionOptions::default() };
                let transaction = database.db()?.transaction_with(given);
                return self.keep(name(0), Handle::Transaction(database, Some(transaction)));
            }
            "lock-transaction" => {
                let database = self.database(name(1));
                let timeout = Duration::from_millis(a[2].number().unsigned_abs());
                let given = LockOptions { timeout, ..LockOptions::default() };
                let transaction = database.db()?.lock_transaction_with(given)?;
                return self.keep(name(0), Handle::Locks(database, Some(transaction)));
            }
            "get-for-update" => {
                let (target, keyspace) = self.target(name(0))?;
                let locks = self.locks(target)?;
                return Ok(Answer::value(match keyspace {
                    Some(keyspace) => locks.get_for_update_in(&keyspace, a[1].bytes())?,
                    None => locks.get_for_update(a[1].bytes())?,
                }));
            }
            "commit" => match self.handles.get_mut(name(0)) {
                Some(Handle::Transaction(db, transaction)) => {
                    let transaction = transaction.take();
                    db.db()?;
                    transaction.ok_or_else(Failure::ended)?.commit()?;
                }
                Some(Handle::Locks(db, transaction)) => {
                    let transaction = transaction.take();
                    db.db()?;
                    transaction.ok_or_else(Failure::ended)?.commit()?;
                }
                _ => panic!("a transaction"),
            },
            "rollback" => match self.handles.get_mut(name(0)) {
                Some(Handle::Transaction(_, transaction)) => {
                    transaction.take().ok_or_else(Failure::ended)?.rollback();
                }
                Some(Handle::Locks(_, transaction)) => {
                    transaction.take().ok_or_else(Failure::ended)?.rollback()
                }
                _ => panic!("a transaction"),
            },
            "savepoint" => {
                let savepoint = match self.handles.get_mut(name(1)) {
                    Some(Handle::Transaction(db, transaction)) => {
                        db.db()?;
                        transaction.as_mut().ok_or_else(Failure::ended)?.savepoint()
                    }
                    _ => self.locks(name(1))?.savepoint(),
                };
                return self.keep(name(0), Handle::Savepoint(savepoint));
            }
            "rollback-to" => {
                let Some(&Handle::Savepoint(savepoint)) = self.handles.get(name(1)) else {
                    panic!("a savepoint")
                };
                match self.handles.get_mut(name(0)) {
                    Some(Handle::Transaction(db, transaction)) => {
                        db.db()?;
                        transaction.as_mut().ok_or_else(Failure::ended)?.rollback_to(savepoint)?;
                    }
                    _ => self.locks(name(0))?.rollback_to(savepoint)?,
                }
            }
            "prepare" => {
                self.locks(name(0))?;
                let Some(Handle::Locks(_, transaction)) = self.handles.get_mut(name(0)) else {
                    panic!("a lock transaction")
                };
                // It stays prepared without this handle.
                drop(transaction.take().ok_or_else(Failure::ended)?.prepare(a[1].bytes())?);
            }
            "prepared" => {
                let names = self.prepared(name(0))?;
                return Ok(Answer::List(names.iter().map(|one| Some(one.name().to_vec())).collect()));
            }
            "commit-prepared" => self.prepared_of(name(0), a[1].bytes())?.commit()?,
            "abort-prepared" => self.prepared_of(name(0), a[1].bytes())?.abort()?,
            "compare-and-swap" => {
                let swapped = self.keyspace(name(0))?.compare_and_swap(
                    a[1].bytes(),
                    a[2].optional(),
                    a[3].optional(),
                )?;
                return Ok(number(swapped.is_ok()));
            }
            "insert-if-absent" => {
                return Ok(Answer::value(
                    self.keyspace(name(0))?.insert_if_absent(a[1].bytes(), a[2].bytes())?,
                ));
            }
            "take" => return Ok(Answer::value(self.keyspace(name(0))?.take(a[1].bytes())?)),
            "increment" => {
                return Ok(number(self.keyspace(name(0))?.increment(a[1].bytes(), a[2].number())?));
            }
            "keyspace" | "create-keyspace" | "get-or-create-keyspace" => {
                let database = self.database(name(1));
                let (db, called) = (database.db()?, text(&a[2]));
                let mut given = KeyspaceOptions::default();
                for pair in a[3..].chunks_exact(2) {
                    options::set_of_keyspace(&mut given, pair[0].word(), pair[1].word())?;
                }
                let keyspace = match command {
                    "keyspace" => db.keyspace(called)?,
                    "create-keyspace" => db.create_keyspace(called, given)?,
                    _ => db.get_or_create_keyspace(called, given)?,
                };
                return self.keep(name(0), Handle::Keyspace(database, keyspace));
            }
            "drop-keyspace" => self.database(name(0)).db()?.drop_keyspace(text(&a[1]))?,
            "rename-keyspace" => self.database(name(0)).db()?.rename_keyspace(text(&a[1]), text(&a[2]))?,
            "keyspaces" => {
                let names = self.database(name(0)).db()?.keyspaces();
                return Ok(Answer::List(names.into_iter().map(|name| Some(name.into_bytes())).collect()));
            }
            "set-options" => {
                let changes: Vec<(&str, &str)> =
                    a[1..].chunks_exact(2).map(|pair| (pair[0].word(), pair[1].word())).collect();
                self.keyspace(name(0))?.set_options(&changes)?;
            }
            "flush" => match &self.handles[name(0)] {
                Handle::Db(db) => db.db()?.flush()?,
                _ => self.keyspace(name(0))?.flush()?,
            },
            "compact" => match &self.handles[name(0)] {
                Handle::Db(db) => db.db()?.compact()?,
                _ => self.keyspace(name(0))?.compact()?,
            },
            "compact-range" => {
                self.keyspace(name(0))?
                    .compact_range::<&[u8]>(range(&a[1], &a[2]), CompactOptions::default())?;
            }
            "sync" => self.database(name(0)).db()?.sync()?,
            "checkpoint" => self.database(name(0)).db()?.checkpoint(path(&a[1]))?,
            "verify" => return Ok(number(self.database(name(0)).db()?.verify()?.problems.len())),
            "approximate-len" => {
                return Ok(number(self.keyspace(name(0))?.approximate_len::<&[u8]>(range(&a[1], &a[2]))?));
            }
            "approximate-size" => {
                return Ok(number(self.keyspace(name(0))?.approximate_size::<&[u8]>(range(&a[1], &a[2]))?));
            }
            "build-table" => {
                let mut builder = ExternalTableBuilder::create(path(&a[0]), &KeyspaceOptions::default())?;
                for entry in a[1..].chunks_exact(2) {
                    builder.put(entry[0].bytes(), entry[1].bytes())?;
                }
                builder.finish()?;
            }
            "ingest" => {
                let files: Vec<_> = a[1..].iter().map(path).collect();
                let report = self.keyspace(name(0))?.ingest(&files, IngestOptions::default())?;
                return Ok(number(report.entries));
            }
            "stats" => return has_field(&json::stats(self.database(name(0)).db()?), text(&a[1])),
            "explain" => {
                return has_field(&json::explain(&self.keyspace(name(0))?, a[1].bytes())?, text(&a[2]));
            }
            other => panic!("no command `{other}`"),
        }
        Ok(Answer::Done)
    }

    fn keep(&mut self, name: &str, handle: Handle) -> Done {
        self.handles.insert(name.to_owned(), handle);
        Ok(Answer::Done)
    }

    fn database(&self, name: &str) -> Arc<Database> {
        match &self.handles[name] {
            Handle::Db(db) => db.clone(),
            _ => panic!("`{name}` is no database"),
        }
    }

    /// The keyspace of a handle, or the default one of a database.
    fn keyspace(&self, name: &str) -> Result<Keyspace, Failure> {
        match &self.handles[name] {
            Handle::Db(db) => Ok(db.db()?.default_keyspace().clone()),
            Handle::Keyspace(db, keyspace) => db.db().map(|_| keyspace.clone()),
            _ => panic!("`{name}` is no keyspace"),
        }
    }

    /// The parts of `X` or `X@KS`.
    fn target<'n>(&self, name: &'n str) -> Result<(&'n str, Option<Keyspace>), Failure> {
        match name.split_once('@') {
            None => Ok((name, None)),
            Some((target, keyspace)) => {
                let Handle::Keyspace(_, keyspace) = &self.handles[keyspace] else { panic!("a keyspace") };
                Ok((target, Some(keyspace.clone())))
            }
        }
    }

    fn locks(&mut self, name: &str) -> Result<&mut LockTransaction, Failure> {
        match self.handles.get_mut(name) {
            Some(Handle::Locks(db, transaction)) => {
                db.db()?;
                transaction.as_mut().ok_or_else(Failure::ended)
            }
            _ => panic!("`{name}` is no lock transaction"),
        }
    }

    fn open_iter(&mut self, name: &str) -> Result<&mut Iter, Failure> {
        match self.handles.get_mut(name) {
            Some(Handle::Iter(db, iter)) => db.db().map(|_| &mut **iter),
            _ => panic!("`{name}` is no iterator"),
        }
    }

    fn prepared(&self, name: &str) -> Result<Vec<PreparedTransaction>, Failure> {
        Ok(self.database(name).db()?.prepared_transactions()?)
    }

    fn prepared_of(&self, name: &str, called: &[u8]) -> Result<PreparedTransaction, Failure> {
        let found = self.prepared(name)?.into_iter().find(|one| one.name() == called);
        found.ok_or_else(|| TransactionError::NotPrepared { name: called.to_vec() }.into())
    }

    fn read(&mut self, name: &str, what: &Read<'_>) -> Done {
        let (target, keyspace) = self.target(name)?;
        match self.handles.get_mut(target) {
            Some(Handle::Db(db)) => read(db.db()?, what),
            Some(Handle::Keyspace(db, keyspace)) => {
                db.db()?;
                read(keyspace, what)
            }
            Some(Handle::Snapshot(db, snapshot)) => {
                db.db()?;
                match &keyspace {
                    Some(keyspace) => read(&snapshot.keyspace(keyspace), what),
                    None => read(snapshot, what),
                }
            }
            Some(Handle::Transaction(db, transaction)) => {
                db.db()?;
                let transaction = transaction.as_ref().ok_or_else(Failure::ended)?;
                match &keyspace {
                    Some(keyspace) => read(&transaction.keyspace(keyspace), what),
                    None => read(transaction, what),
                }
            }
            Some(Handle::Locks(..)) => {
                let Read::Get(key) = what else { panic!("not in a lock transaction") };
                let locks = self.locks(target)?;
                Ok(Answer::value(match &keyspace {
                    Some(keyspace) => locks.get_in(keyspace, key)?,
                    None => locks.get(key)?,
                }))
            }
            _ => panic!("`{target}` cannot be read"),
        }
    }

    fn iter(
        &self,
        name: &str,
        make: impl Fn(&dyn Iterable) -> Iter,
    ) -> Result<(Arc<Database>, Iter), Failure> {
        let (target, keyspace) = self.target(name)?;
        let (db, iter) = match &self.handles[target] {
            Handle::Db(db) => (db, make(db.db()?)),
            Handle::Keyspace(db, keyspace) => (db.db().map(|_| db)?, make(keyspace)),
            Handle::Snapshot(db, snapshot) => match &keyspace {
                Some(keyspace) => (db.db().map(|_| db)?, make(&snapshot.keyspace(keyspace))),
                None => (db.db().map(|_| db)?, make(snapshot)),
            },
            Handle::Transaction(db, transaction) => {
                db.db()?;
                let transaction = transaction.as_ref().ok_or_else(Failure::ended)?;
                match &keyspace {
                    Some(keyspace) => (db, make(&transaction.keyspace(keyspace))),
                    None => (db, make(transaction)),
                }
            }
            _ => panic!("`{target}` has no iterators"),
        };
        Ok((db.clone(), iter))
    }

    fn delete_prefix(&mut self, name: &str, prefix: &[u8]) -> Result<(), Failure> {
        let (target, keyspace) = self.target(name)?;
        let Some(Handle::Batch(batch)) = self.handles.get_mut(target) else {
            return Ok(self.keyspace(name)?.delete_prefix(prefix)?);
        };
        match &keyspace {
            Some(keyspace) => batch.delete_prefix_in(keyspace, prefix),
            None => batch.delete_prefix(prefix),
        };
        Ok(())
    }

    fn write(&mut self, name: &str, what: &Write<'_>) -> Result<(), Failure> {
        let (target, keyspace) = self.target(name)?;
        macro_rules! write_in {
            ($to:expr, $keyspace:expr) => {
                match what {
                    Write::Put(key, value) => $to.put_in($keyspace, key, value)?,
                    Write::Delete(key) => $to.delete_in($keyspace, key)?,
                    Write::Merge(key, operand) => $to.merge_in($keyspace, key, operand)?,
                    Write::DeleteRange(range) => $to.delete_range_in::<&[u8]>($keyspace, *range)?,
                }
            };
        }
        macro_rules! write {
            ($to:expr) => {
                match what {
                    Write::Put(key, value) => $to.put(key, value)?,
                    Write::Delete(key) => $to.delete(key)?,
                    Write::Merge(key, operand) => $to.merge(key, operand)?,
                    Write::DeleteRange(range) => $to.delete_range::<&[u8]>(*range)?,
                }
            };
        }
        match self.handles.get_mut(target) {
            Some(Handle::Db(db)) => write!(db.db()?),
            Some(Handle::Keyspace(db, keyspace)) => {
                db.db()?;
                write!(keyspace);
            }
            Some(Handle::Batch(batch)) => {
                match (what, &keyspace) {
                    (Write::Put(key, value), None) => batch.put(key, value),
                    (Write::Put(key, value), Some(keyspace)) => batch.put_in(keyspace, key, value),
                    (Write::Delete(key), None) => batch.delete(key),
                    (Write::Delete(key), Some(keyspace)) => batch.delete_in(keyspace, key),
                    (Write::Merge(key, operand), None) => batch.merge(key, operand),
                    (Write::Merge(key, operand), Some(keyspace)) => batch.merge_in(keyspace, key, operand),
                    (Write::DeleteRange(range), None) => batch.delete_range::<&[u8]>(*range),
                    (Write::DeleteRange(range), Some(keyspace)) => {
                        batch.delete_range_in::<&[u8]>(keyspace, *range)
                    }
                };
            }
            Some(Handle::Transaction(db, transaction)) => {
                db.db()?;
                let transaction = transaction.as_mut().ok_or_else(Failure::ended)?;
                match &keyspace {
                    Some(keyspace) => write_in!(transaction, keyspace),
                    None => write!(transaction),
                }
            }
            Some(Handle::Locks(..)) => {
                let transaction = self.locks(target)?;
                match &keyspace {
                    Some(keyspace) => write_in!(transaction, keyspace),
                    None => write!(transaction),
                }
            }
            _ => panic!("`{target}` cannot be written"),
        }
        Ok(())
    }
}

/// [`Readable`] has generic methods; this is what the script needs of it as an object.
trait Iterable {
    fn over(&self, range: Range<'_>) -> Iter;
    fn prefixed(&self, prefix: &[u8]) -> Iter;
}

impl<R: Readable> Iterable for R {
    fn over(&self, range: Range<'_>) -> Iter {
        self.range::<&[u8]>(range)
    }

    fn prefixed(&self, prefix: &[u8]) -> Iter {
        self.prefix(prefix)
    }
}

fn has_field(object: &str, field: &str) -> Done {
    let object: serde_json::Value = serde_json::from_str(object).expect("JSON");
    match object.get(field) {
        Some(_) => Ok(Answer::Done),
        None => Err(Failure::new(Code::Other, format!("no field `{field}`"))),
    }
}
