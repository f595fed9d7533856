//! Keyspaces: what can be done with one ordered map.

use std::path::PathBuf;

use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMapping, PyTuple};
use tamis::ingest::IngestOptions;
use tamis::maintenance::CompactOptions;
use tamis::{Db, Keyspace, Slice, WriteBatch};

use crate::batch::Batch;
use crate::bytes::{Bytes, durability, range};
use crate::errors::{OrRaise, failed};
use crate::handle::patiently;
use crate::options;
use crate::reader::{Reader, bytes};
use crate::report::report;

/// An ordered map of the database, with its own options, filters and tree.
///
/// A mapping from bytes to bytes. Writes are acknowledged with the durability of the database, or of the call: 'buffered' survives
/// the death of the process, 'sync' a power failure.
///
/// All methods that write raise InvalidArgument for keys beyond 64 KiB and values beyond 4 GiB - 1, ReadOnly in a database that was
/// opened so, ClosedError, and IoError; then nothing of the write is visible.
#[pyclass(module = "tamis", extends = Reader, subclass, frozen, name = "Keyspace")]
pub(crate) struct PyKeyspace;

/// Returns the exception for a key without a value.
pub(crate) fn absent(py: Python<'_>, key: &[u8]) -> PyErr {
    PyKeyError::new_err(bytes(py, key).unbind())
}

impl PyKeyspace {
    /// Calls `op` with the keyspace, detached.
    pub(crate) fn with<R: Send>(
        slf: &Bound<'_, Self>,
        op: impl FnOnce(&Keyspace, &Db) -> PyResult<R> + Send,
    ) -> PyResult<R> {
        let reader = slf.as_super().get();
        let db = reader.core.db()?;
        patiently(slf.py(), || op(&reader.keyspace, db))
    }

    /// Commits what `fill` adds to a batch.
    fn write(
        slf: &Bound<'_, Self>,
        durable: Option<&str>,
        fill: impl FnOnce(&mut WriteBatch, &Keyspace) + Send,
    ) -> PyResult<()> {
        let durable = durability(durable)?;
        Self::with(slf, |keyspace, db| {
            let mut batch = WriteBatch::new();
            fill(&mut batch, keyspace);
            match durable {
                Some(durable) => db.write_with(batch, durable),
                None => db.write(batch),
            }
            .or_raise()
        })
    }

    fn taken(slf: &Bound<'_, Self>, key: &[u8]) -> PyResult<Option<Slice>> {
        Self::with(slf, |keyspace, _| keyspace.take(key).or_raise())
    }

    /// Writes all pairs of a mapping, or of an iterable of pairs, in one batch.
    fn put_all(slf: &Bound<'_, Self>, pairs: &Bound<'_, PyAny>, durable: Option<&str>) -> PyResult<()> {
        let pairs = match pairs.cast::<PyMapping>() {
            Ok(mapping) => mapping.items()?.into_any(),
            Err(_) => pairs.clone(),
        };
        let mut batch = WriteBatch::new();
        let keyspace = &slf.as_super().get().keyspace;
        for pair in pairs.try_iter()? {
            let (key, value): (Bytes<'_>, Bytes<'_>) = pair?.extract()?;
            batch.put_in(keyspace, &key, &value);
        }
        let durable = durability(durable)?;
        Self::with(slf, |_, db| match durable {
            Some(durable) => db.write_with(batch, durable).or_raise(),
            None => db.write(batch).or_raise(),
        })
    }

    /// Replaces the value of a key by what a function makes of it.
    fn change<'py>(
        slf: &Bound<'py, Self>,
        key: &[u8],
        function: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let py = slf.py();
        let mut current = Self::with(slf, |keyspace, _| keyspace.get(key).or_raise())?;
        loop {
            let answer = function.call1((current.as_ref().map(|value| bytes(py, value)),))?;
            let new: Option<Bytes<'_>> = answer.extract()?;
            let (was, will) = (current.as_deref(), new.as_deref());
            let swapped =
                Self::with(slf, |keyspace, _| keyspace.compare_and_swap(key, was, will).or_raise())?;
            match swapped {
                Ok(()) => return Ok(new.map(|new| bytes(py, &new))),
                Err(mismatch) => current = mismatch.current,
            }
            py.check_signals()?;
        }
    }
}

#[pymethods]
impl PyKeyspace {
    fn __setitem__(slf: &Bound<'_, Self>, key: Bytes<'_>, value: Bytes<'_>) -> PyResult<()> {
        Self::put(slf, key, value, None)
    }

    /// Deletes `key`, or raises KeyError if it has no value.
    fn __delitem__(slf: &Bound<'_, Self>, key: Bytes<'_>) -> PyResult<()> {
        Self::taken(slf, &key)?.map(drop).ok_or_else(|| absent(slf.py(), &key))
    }

    /// Set the value of `key`.
    #[pyo3(signature = (key, value, *, durability=None))]
    fn put(
        slf: &Bound<'_, Self>,
        key: Bytes<'_>,
        value: Bytes<'_>,
        durability: Option<&str>,
    ) -> PyResult<()> {
        let (key, value) = (&*key, &*value);
        if durability.is_none() {
            return Self::with(slf, |keyspace, _| keyspace.put(key, value).or_raise());
        }
        Self::write(slf, durability, |batch, keyspace| {
            batch.put_in(keyspace, key, value);
        })
    }

    /// Delete `key`. One that has no value may be deleted, and nothing is read: `del` costs more, and raises KeyError.
    #[pyo3(signature = (key, *, durability=None))]
    fn delete(slf: &Bound<'_, Self>, key: Bytes<'_>, durability: Option<&str>) -> PyResult<()> {
        let key = &*key;
        if durability.is_none() {
            return Self::with(slf, |keyspace, _| keyspace.delete(key).or_raise());
        }
        Self::write(slf, durability, |batch, keyspace| {
            batch.delete_in(keyspace, key);
        })
    }

    /// Apply `operand` to the value of `key` with the keyspace's merge operator, without reading the value: it costs as much as a put.
    ///
    /// Raises:
    ///     InvalidArgument: if the keyspace has no merge operator.
    #[pyo3(signature = (key, operand, *, durability=None))]
    fn merge(
        slf: &Bound<'_, Self>,
        key: Bytes<'_>,
        operand: Bytes<'_>,
        durability: Option<&str>,
    ) -> PyResult<()> {
        let (key, operand) = (&*key, &*operand);
        if durability.is_none() {
            return Self::with(slf, |keyspace, _| keyspace.merge(key, operand).or_raise());
        }
        Self::write(slf, durability, |batch, keyspace| {
            batch.merge_in(keyspace, key, operand);
        })
    }

    /// Delete all keys from `start` on and before `stop`, at the cost of one write regardless of how many there are.
    ///
    /// Raises:
    ///     InvalidArgument: if the range ends before it starts.
    #[pyo3(signature = (start=None, stop=None, *, include_start=true, include_stop=false, durability=None))]
    fn delete_range(
        slf: &Bound<'_, Self>,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
        include_start: bool,
        include_stop: bool,
        durability: Option<&str>,
    ) -> PyResult<()> {
        let range = range(None, start.as_deref(), stop.as_deref(), include_start, include_stop);
        Self::write(slf, durability, |batch, keyspace| {
            batch.delete_range_in(keyspace, range);
        })
    }

    /// Delete all keys that begin with `prefix`, at the cost of one write.
    #[pyo3(signature = (prefix, *, durability=None))]
    fn delete_prefix(slf: &Bound<'_, Self>, prefix: Bytes<'_>, durability: Option<&str>) -> PyResult<()> {
        let range = range(Some(&prefix), None, None, true, false);
        Self::write(slf, durability, |batch, keyspace| {
            batch.delete_range_in(keyspace, range);
        })
    }

    /// Delete all keys, at the cost of one write.
    fn clear(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::with(slf, |keyspace, _| keyspace.clear().or_raise())
    }

    /// Delete `key` and return the value that it had, atomically. Without a value, return `default` if given, or raise KeyError.
    #[pyo3(signature = (key, *default))]
    fn pop<'py>(
        slf: &Bound<'py, Self>,
        key: Bytes<'_>,
        default: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if default.len() > 1 {
            return Err(PyTypeError::new_err("pop takes a key and at most one default"));
        }
        match Self::taken(slf, &key)? {
            Some(value) => Ok(bytes(slf.py(), &value).into_any()),
            None => default.get_item(0).map_err(|_| absent(slf.py(), &key)),
        }
    }

    /// Delete the first key, atomically, and return it with its value; raise KeyError if there is none.
    fn popitem<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let item = Self::with(slf, |keyspace, _| {
            loop {
                let Some((key, _)) = keyspace.first().or_raise()? else { return Ok(None) };
                // Somebody else may have taken it.
                if let Some(value) = keyspace.take(&key).or_raise()? {
                    return Ok(Some((key, value)));
                }
            }
        })?;
        let (key, value) = item.ok_or_else(|| PyKeyError::new_err("popitem(): there are no keys"))?;
        crate::iter::pair(slf.py(), &key, &value)
    }

    /// Delete `key` and return the value that it had, atomically; None if it had none.
    fn take<'py>(slf: &Bound<'py, Self>, key: Bytes<'_>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        Ok(Self::taken(slf, &key)?.map(|value| bytes(slf.py(), &value)))
    }

    /// Set the value of `key` to `default` if it has none, atomically, and return the value that it has then.
    fn setdefault<'py>(
        slf: &Bound<'py, Self>,
        key: Bytes<'_>,
        default: Bytes<'_>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let present = {
            let (key, default) = (&*key, &*default);
            Self::with(slf, |keyspace, _| keyspace.insert_if_absent(key, default).or_raise())?
        };
        Ok(match present {
            Some(value) => bytes(slf.py(), &value),
            None => bytes(slf.py(), &default),
        })
    }

    /// Set the value of `key` to `new` if it is `expected`, atomically; None stands for no value, on both sides. Report whether it was.
    fn compare_and_swap(
        slf: &Bound<'_, Self>,
        key: Bytes<'_>,
        expected: Option<Bytes<'_>>,
        new: Option<Bytes<'_>>,
    ) -> PyResult<bool> {
        let (key, expected, new) = (&*key, expected.as_deref(), new.as_deref());
        Self::with(slf, |keyspace, _| Ok(keyspace.compare_and_swap(key, expected, new).or_raise()?.is_ok()))
    }

    /// Add `by` to the number under `key`, atomically, and return the sum. A missing value is 0.
    ///
    /// Numbers are signed, of eight bytes, little-endian: `int.from_bytes(value, 'little', signed=True)`.
    ///
    /// Sums are modulo 2**64: they wrap around, as those of the merge operator 'add' do.
    ///
    /// Raises:
    ///     Error: if the value is not eight bytes long.
    ///     OverflowError: if `by` has more than 64 bits.
    #[pyo3(signature = (key, by=1))]
    fn increment(slf: &Bound<'_, Self>, key: Bytes<'_>, by: i64) -> PyResult<i64> {
        let key = &*key;
        Self::with(slf, |keyspace, _| keyspace.increment(key, by).or_raise())
    }

    /// With a key and a function: replace the value of the key by `function(value)`, atomically, and return the new value. None stands
    /// for no value, on both sides. The function is called again whenever somebody else has written the key meanwhile.
    ///
    /// With a mapping or an iterable of pairs: write all of them, in one batch.
    #[pyo3(signature = (*arguments, durability=None))]
    fn update<'py>(
        slf: &Bound<'py, Self>,
        arguments: &Bound<'py, PyTuple>,
        durability: Option<&str>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        match arguments.len() {
            1 => Self::put_all(slf, &arguments.get_item(0)?, durability).map(|()| None),
            2 if durability.is_none() => {
                let key: Bytes<'_> = arguments.get_item(0)?.extract()?;
                Self::change(slf, &key, &arguments.get_item(1)?)
            }
            2 => Err(PyTypeError::new_err("an update of one key has the durability of the database")),
            _ => Err(PyTypeError::new_err(
                "update takes a mapping, an iterable of pairs, or a key and a function",
            )),
        }
    }

    /// Return a batch, for use as a context manager: its writes are committed together at the end of the block, across keyspaces.
    #[pyo3(signature = (*, durability=None))]
    fn batch(slf: &Bound<'_, Self>, durability: Option<&str>) -> PyResult<Batch> {
        let reader = slf.as_super().get();
        reader.core.db()?;
        let durability = crate::bytes::durability(durability)?;
        Ok(Batch::new(reader.core.clone(), reader.keyspace.clone().into_inner(), durability))
    }

    /// Estimate the number of keys in a range from the metadata of tables, without reading them. Memtables count as a whole.
    #[pyo3(signature = (prefix=None, start=None, stop=None, *, include_start=true, include_stop=false))]
    fn approximate_len(
        slf: &Bound<'_, Self>,
        prefix: Option<Bytes<'_>>,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
        include_start: bool,
        include_stop: bool,
    ) -> PyResult<u64> {
        let range = range(prefix.as_deref(), start.as_deref(), stop.as_deref(), include_start, include_stop);
        Self::with(slf, |keyspace, _| keyspace.approximate_len(range).or_raise())
    }

    /// Estimate the bytes that a range takes in tables; arguments as for `approximate_len`.
    #[pyo3(signature = (prefix=None, start=None, stop=None, *, include_start=true, include_stop=false))]
    fn approximate_size(
        slf: &Bound<'_, Self>,
        prefix: Option<Bytes<'_>>,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
        include_start: bool,
        include_stop: bool,
    ) -> PyResult<u64> {
        let range = range(prefix.as_deref(), start.as_deref(), stop.as_deref(), include_start, include_stop);
        Self::with(slf, |keyspace, _| keyspace.approximate_size(range).or_raise())
    }

    /// Write the memtables to tables, and return when they are there.
    fn flush(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::with(slf, |keyspace, _| keyspace.flush().or_raise())
    }

    /// Merge all tables into the last level, and return when that is done.
    fn compact(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::with(slf, |keyspace, _| keyspace.compact().or_raise())
    }

    /// Merge the tables that hold keys from `start` on and before `stop` into the last level, and return when that is done.
    #[pyo3(signature = (start=None, stop=None, *, include_start=true, include_stop=false))]
    fn compact_range(
        slf: &Bound<'_, Self>,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
        include_start: bool,
        include_stop: bool,
    ) -> PyResult<()> {
        let range = range(None, start.as_deref(), stop.as_deref(), include_start, include_stop);
        Self::with(slf, |keyspace, _| keyspace.compact_range(range, CompactOptions::default()).or_raise())
    }

    /// Make tables that `TableBuilder` built part of the keyspace, at once and without rewriting them. Return an IngestReport.
    ///
    /// `move_files` removes them where they were; `verify=False` skips reading every byte of them before.
    #[pyo3(signature = (files, *, move_files=false, verify=true))]
    fn ingest<'py>(
        slf: &Bound<'py, Self>,
        files: Vec<PathBuf>,
        move_files: bool,
        verify: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = IngestOptions { move_files, verify };
        let done = Self::with(slf, |keyspace, _| keyspace.ingest(&files, options).or_raise())?;
        report(slf.py(), "IngestReport", &done)
    }

    /// Return the path of a read of `key`, as an Explanation: which filters were asked, which tables and blocks were read.
    fn explain<'py>(slf: &Bound<'py, Self>, key: Bytes<'_>) -> PyResult<Bound<'py, PyAny>> {
        let key = &*key;
        let explanation = Self::with(slf, |keyspace, _| keyspace.explain_get(key).or_raise())?;
        report(slf.py(), "Explanation", &explanation)
    }

    /// Return the keyspace's statistics, as KeyspaceStats: its levels and runs, bytes, filters.
    fn keyspace_stats<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let stats = Self::with(slf, |keyspace, _| Ok(keyspace.stats()))?;
        report(slf.py(), "KeyspaceStats", &stats)
    }

    /// Return the tables on disk, as TableStats, by level, run and key.
    fn tables<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let tables = Self::with(slf, |keyspace, _| Ok(keyspace.tables()))?;
        report(slf.py(), "TableStats", &tables)
    }

    /// The options in force, as their names and texts.
    #[getter]
    fn options<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let text = Self::with(slf, |keyspace, _| Ok(keyspace.options().to_text()))?;
        options::dict(slf.py(), &text)
    }

    /// Change options of the open keyspace, all or none; they are stored with it.
    ///
    /// Raises:
    ///     InvalidOption: for an unknown option, a value that it does not accept, or one that is fixed while the keyspace is open.
    #[pyo3(signature = (**options))]
    fn set_options(slf: &Bound<'_, Self>, options: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let pairs = options::pairs(options)?;
        Self::with(slf, |keyspace, _| {
            let pairs: Vec<(&str, &str)> = pairs.iter().map(|(name, value)| (&**name, &**value)).collect();
            tamis_bindings::options::change(keyspace, &pairs).map_err(failed)
        })
    }
}
