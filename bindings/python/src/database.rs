//! The database: opening, keyspaces, transactions, and what concerns all of it.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tamis::Db;

use crate::errors::OrRaise;
use crate::handle::{Core, patiently};
use crate::heatmap;
use crate::keyspace::PyKeyspace;
use crate::memory::{SharedReadMemory, SharedWriteMemory};
use crate::options;
use crate::reader::{Reader, Source};
use crate::report::report;
use crate::snapshot::PySnapshot;
use crate::transaction::{self, PyLockTransaction, PyPrepared, PyTransaction};

/// An open database, and its default keyspace. `tamis.open` opens one.
///
/// A context manager that closes it. May be used by several threads at once. After a fork the child cannot use it.
#[pyclass(module = "tamis", extends = PyKeyspace, frozen, weakref, name = "Database")]
pub(crate) struct Database {
    read_only: bool,
}

impl Database {
    fn core<'a>(slf: &'a Bound<'_, Self>) -> &'a Arc<Core> {
        &slf.as_super().as_super().get().core
    }

    /// Calls `op` with the database, detached.
    fn with<R: Send>(slf: &Bound<'_, Self>, op: impl FnOnce(&Db) -> PyResult<R> + Send) -> PyResult<R> {
        let db = Self::core(slf).db()?;
        patiently(slf.py(), || op(db))
    }

    fn handle(slf: &Bound<'_, Self>, keyspace: tamis::Keyspace) -> PyResult<Py<PyKeyspace>> {
        let reader = Reader::new(Self::core(slf).clone(), keyspace, Source::Now);
        Py::new(slf.py(), PyClassInitializer::from(reader).add_subclass(PyKeyspace))
    }
}

#[pymethods]
impl Database {
    #[staticmethod]
    fn _open(
        py: Python<'_>,
        path: PathBuf,
        read_only: bool,
        operators: &Bound<'_, PyAny>,
        given: &Bound<'_, PyDict>,
        memory: (Option<PyRef<'_, SharedReadMemory>>, Option<PyRef<'_, SharedWriteMemory>>),
    ) -> PyResult<Py<Database>> {
        let mut options = options::of_database(operators, given)?;
        options.shared_read_memory = memory.0.map(|memory| memory.0.clone());
        options.shared_write_memory = memory.1.map(|memory| memory.0.clone());
        let path = tamis_bindings::absolute(path);
        let open = || match read_only {
            true => Ok::<_, tamis::Error>((options.open_read_only(path)?, None)),
            false => options.open(path),
        };
        let (db, publisher) = py.detach(open).or_raise()?;
        let keyspace = db.default_keyspace().clone();
        let reader = Reader::new(Arc::new(Core::new(db, publisher)), keyspace, Source::Now);
        Py::new(
            py,
            PyClassInitializer::from(reader).add_subclass(PyKeyspace).add_subclass(Database { read_only }),
        )
    }

    /// Close the database: end background work, sync the log, release the directory. A second call does nothing.
    ///
    /// Whatever belongs to it (keyspaces, snapshots, iterators, transactions) raises ClosedError from then on.
    ///
    /// Raises:
    ///     IoError: if the log could not be synced. The database is closed all the same.
    fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::core(slf).close(slf.py())
    }

    /// Whether the database was closed (or opened before a fork).
    #[getter]
    fn closed(slf: &Bound<'_, Self>) -> bool {
        Self::core(slf).is_closed()
    }

    /// Whether it was opened read-only.
    #[getter]
    fn read_only(&self) -> bool {
        self.read_only
    }

    /// The database's directory.
    #[getter]
    fn path(slf: &Bound<'_, Self>) -> PyResult<PathBuf> {
        Ok(Self::core(slf).db()?.path().to_owned())
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        Self::core(slf).db()?;
        Ok(slf.clone())
    }

    #[pyo3(signature = (*_exc_info))]
    fn __exit__(slf: &Bound<'_, Self>, _exc_info: &Bound<'_, PyTuple>) -> PyResult<()> {
        Self::close(slf)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> String {
        match Self::core(slf).db() {
            Ok(db) => format!("<tamis.Database {}>", db.path().display()),
            Err(_) => "<tamis.Database, closed>".to_owned(),
        }
    }

    /// Return the keyspace `name`. With `create` it is created with `options` if it is not there; an existing one keeps its own.
    ///
    /// Raises:
    ///     NotFound: if there is none of that name.
    ///     InvalidOption: for options that do not exist or do not accept their value.
    #[pyo3(signature = (name, *, create=false, **options))]
    fn keyspace(
        slf: &Bound<'_, Self>,
        name: &str,
        create: bool,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyKeyspace>> {
        if !create && options.is_some() {
            return Err(PyTypeError::new_err(
                "options are those of a new keyspace: pass create=True, or call set_options",
            ));
        }
        let options = options::of_keyspace(options)?;
        let keyspace = Self::with(slf, |db| match create {
            true => db.get_or_create_keyspace(name, options).or_raise(),
            false => db.keyspace(name).or_raise(),
        })?;
        Self::handle(slf, keyspace)
    }

    /// Create the keyspace `name`.
    ///
    /// Raises:
    ///     Exists: if there is one of that name.
    ///     InvalidOption: for options that do not exist or do not accept their value.
    #[pyo3(signature = (name, **options))]
    fn create_keyspace(
        slf: &Bound<'_, Self>,
        name: &str,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyKeyspace>> {
        let options = options::of_keyspace(options)?;
        let keyspace = Self::with(slf, |db| db.create_keyspace(name, options).or_raise())?;
        Self::handle(slf, keyspace)
    }

    /// Return the names of all keyspaces, in the order of their creation.
    fn keyspaces(slf: &Bound<'_, Self>) -> PyResult<Vec<String>> {
        Self::with(slf, |db| Ok(db.keyspaces()))
    }

    /// Drop the keyspace `name` with all its keys. Handles of it raise Error from then on.
    ///
    /// Raises:
    ///     NotFound: if there is none of that name.
    ///     InvalidArgument: for the default keyspace.
    fn drop_keyspace(slf: &Bound<'_, Self>, name: &str) -> PyResult<()> {
        Self::with(slf, |db| db.drop_keyspace(name).or_raise())
    }

    /// Rename the keyspace `name`. Raises what `drop_keyspace` raises, and Exists if `new_name` is taken.
    fn rename_keyspace(slf: &Bound<'_, Self>, name: &str, new_name: &str) -> PyResult<()> {
        Self::with(slf, |db| db.rename_keyspace(name, new_name).or_raise())
    }

    /// Return a snapshot of all keyspaces as of now.
    fn snapshot(slf: &Bound<'_, Self>) -> PyResult<Py<PySnapshot>> {
        PySnapshot::take(slf.py(), Self::core(slf))
    }

    /// Begin an optimistic transaction: nothing is locked, and the commit raises Conflict if somebody else has meanwhile written what
    /// it depends on. That is what it has read (`isolation='serializable'`) or what it writes ('snapshot').
    #[pyo3(signature = (*, isolation="serializable", durability=None))]
    fn transaction(
        slf: &Bound<'_, Self>,
        isolation: &str,
        durability: Option<&str>,
    ) -> PyResult<Py<PyTransaction>> {
        PyTransaction::begin(slf.py(), Self::core(slf), transaction::options(isolation, durability, 1)?)
    }

    /// Call `function` with an optimistic transaction, commit it, and return what the function returned. After a conflict all of it is
    /// repeated with a new transaction, after a pause that grows: the function should have no effects but through the transaction.
    ///
    /// Raises:
    ///     Conflict: after `attempts` conflicts.
    ///     Exception: whatever the function raises; nothing is committed then, and nothing repeated.
    #[pyo3(signature = (function, *, isolation="serializable", durability=None, attempts=100))]
    fn transact<'py>(
        slf: &Bound<'py, Self>,
        function: &Bound<'py, PyAny>,
        isolation: &str,
        durability: Option<&str>,
        attempts: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = transaction::options(isolation, durability, attempts)?;
        transaction::repeat(slf.py(), Self::core(slf), options, function)
    }

    /// Begin a transaction that locks what it reads and writes. It waits for each lock for `timeout` seconds at most.
    #[pyo3(signature = (*, timeout=1.0, durability=None))]
    fn lock_transaction(
        slf: &Bound<'_, Self>,
        timeout: f64,
        durability: Option<&str>,
    ) -> PyResult<Py<PyLockTransaction>> {
        PyLockTransaction::begin(slf.py(), Self::core(slf), timeout, durability)
    }

    /// Return the transactions that were prepared and not ended, also those of before a crash.
    fn prepared_transactions(slf: &Bound<'_, Self>) -> PyResult<Vec<PyPrepared>> {
        PyPrepared::all(slf.py(), Self::core(slf))
    }

    /// Make every write acknowledged so far durable across a power failure.
    fn sync(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::with(slf, |db| db.sync().or_raise())
    }

    /// Write the memtables of all keyspaces to tables, and return when they are there.
    fn flush(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::with(slf, |db| db.flush().or_raise())
    }

    /// Merge all tables of all keyspaces into their last levels, and return when that is done.
    fn compact(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::with(slf, |db| db.compact().or_raise())
    }

    /// Wait until background work has nothing left to do.
    fn wait_for_compaction(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::with(slf, |db| db.wait_for_compaction().or_raise())
    }

    /// Make a copy of the database in the new directory `path`, which can be opened by itself. Tables are linked where the file system
    /// can, so it costs little.
    ///
    /// Raises:
    ///     Exists: if there is something at `path`.
    fn checkpoint(slf: &Bound<'_, Self>, path: PathBuf) -> PyResult<()> {
        Self::with(slf, |db| db.checkpoint(path).or_raise())
    }

    /// Read every file and check all of it. Damage is no exception: it is in the VerifyReport that is returned.
    fn verify<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let done = Self::with(slf, |db| db.verify().or_raise())?;
        report(slf.py(), "VerifyReport", &done)
    }

    /// Return the database's statistics, as Stats: what reads and writes cost since it was opened, all keyspaces, troubles.
    fn stats<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let stats = Self::with(slf, |db| Ok(db.stats()))?;
        report(slf.py(), "Stats", &stats)
    }

    /// The options of the database, as their names and texts.
    #[getter]
    fn database_options<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        options::dict(slf.py(), &Self::core(slf).db()?.options().to_text())
    }

    /// Return the segments of elastic filters, as SegmentStats, by keyspace, level, run and key. Without elastic filters there are none.
    fn segments<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let segments = Self::with(slf, |db| Ok(db.segments()))?;
        report(slf.py(), "SegmentStats", &segments)
    }

    /// Return a picture of where gets of absent keys go and where the memory of elastic filters follows them, as a Heatmap.
    ///
    /// `keyspace`: only this one. `by`: equal widths hold equal numbers of keys ('data') or are equal differences between keys ('key').
    /// `what` the colours show: lookups of absent keys ('hotness'), or all of them ('asked'). `hex`: keys as hexadecimal digits.
    ///
    /// Raises:
    ///     InvalidArgument: if no table has an elastic filter (see the option `filter`).
    ///     NotFound: if there is no such keyspace.
    #[pyo3(signature = (*, keyspace=None, by="data", what="hotness", hex=false))]
    fn heatmap<'py>(
        slf: &Bound<'py, Self>,
        keyspace: Option<&str>,
        by: &str,
        what: &str,
        hex: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (by, what) = heatmap::choices(by, what)?;
        let (svg, segments) = Self::with(slf, |db| heatmap::draw(db, keyspace, by, what, hex))?;
        let segments = report(slf.py(), "SegmentStats", &segments)?;
        slf.py().import("tamis._heatmap")?.getattr("Heatmap")?.call1((svg, segments))
    }
}

/// Checks a database that is not open: see `tamis.verify`.
#[pyfunction]
pub(crate) fn _verify_at<'py>(
    py: Python<'py>,
    path: PathBuf,
    operators: &Bound<'py, PyAny>,
    given: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = options::of_database(operators, given)?;
    let done = patiently(py, || tamis_doctor::verify(path, options.into_options()).or_raise())?;
    report(py, "VerifyReport", &done)
}

/// Restores a damaged database: see `tamis.salvage`.
#[pyfunction]
pub(crate) fn _salvage<'py>(
    py: Python<'py>,
    path: PathBuf,
    dry_run: bool,
    operators: &Bound<'py, PyAny>,
    given: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = options::of_database(operators, given)?;
    let done = py.detach(|| tamis_doctor::salvage(path, options.into_options(), dry_run)).or_raise()?;
    report(py, "SalvageReport", &done)
}
