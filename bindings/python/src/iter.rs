//! Iterators over keys, values or both.

use std::collections::VecDeque;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use tamis::{Iter, Slice};

use crate::bytes::Bytes;
use crate::errors::{OrRaise, invalid_argument, raised};
use crate::handle::{Core, Slot};

/// Items are fetched in groups, so that the interpreter is released once for many. A group grows while the iteration goes on, up to
/// this many items or bytes: whoever wants one item does not pay for many, and little is kept alive.
const MOST_ITEMS: usize = 128;
const MOST_BYTES: usize = 256 << 10;

/// What an iterator returns of each item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Keys,
    Values,
    Items,
}

struct State {
    iter: Iter,
    fetched: VecDeque<(Slice, Slice)>,
    /// The items of the next group.
    group: usize,
    /// The most items of a group.
    most: usize,
    /// Whether the iteration has come to its end, by an error or not.
    finished: bool,
    error: Option<tamis::Error>,
}

/// An iterator over keys, values or items in the order of keys, over exactly the state at the time of its creation.
///
/// It may be used by several threads, each item going to one of them. When its database is closed, it raises ClosedError.
#[pyclass(module = "tamis", frozen, name = "Iterator")]
pub(crate) struct Items {
    state: Slot<State>,
    core: Arc<Core>,
    part: Part,
    reverse: bool,
}

impl Items {
    /// `precise`: nothing is fetched before it is asked for, as a transaction depends on all that is.
    pub(crate) fn new(core: Arc<Core>, iter: Iter, part: Part, reverse: bool, precise: bool) -> Items {
        let state = State {
            iter,
            fetched: VecDeque::new(),
            group: 1,
            most: if precise { 1 } else { MOST_ITEMS },
            finished: false,
            error: None,
        };
        Items { state: Slot::new(state, "the iterator is closed"), core, part, reverse }
    }

    fn next(&self) -> PyResult<Option<(Slice, Slice)>> {
        self.state.with(|state| {
            if state.fetched.is_empty() && !state.finished {
                state.fetch(self.reverse);
            }
            match (state.fetched.pop_front(), state.error.take()) {
                (None, Some(error)) => Err(raised(error)),
                (item, error) => {
                    state.error = error;
                    Ok(item)
                }
            }
        })
    }
}

impl Items {
    fn is_forward(&self, what: &str) -> PyResult<()> {
        match self.reverse {
            true => Err(invalid_argument(format!("an iterator in reverse order cannot {what}"))),
            false => Ok(()),
        }
    }

    /// Returns of an item what the iterator is over.
    fn shown<'py>(
        &self,
        py: Python<'py>,
        item: Option<(Slice, Slice)>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some((key, value)) = item else { return Ok(None) };
        Ok(Some(match self.part {
            Part::Keys => PyBytes::new(py, &key).into_any(),
            Part::Values => PyBytes::new(py, &value).into_any(),
            Part::Items => pair(py, &key, &value)?.into_any(),
        }))
    }
}

impl State {
    /// Gives back what was fetched, and fetches no more than is asked for: both ends see where the other one is.
    fn give_back(&mut self) -> Result<(), tamis::Error> {
        self.most = 1;
        self.group = 1;
        if let Some((key, _)) = self.fetched.front() {
            self.iter.seek(key)?;
            self.fetched.clear();
            self.finished = false;
        }
        Ok(())
    }

    fn fetch(&mut self, reverse: bool) {
        let mut bytes = 0;
        while self.fetched.len() < self.group && bytes < MOST_BYTES {
            let item = if reverse { self.iter.next_back() } else { self.iter.next() };
            match item {
                Some(Ok((key, value))) => {
                    bytes += key.len() + value.len();
                    self.fetched.push_back((key, value));
                }
                end => {
                    self.finished = true;
                    self.error = end.and_then(Result::err).map(tamis::Error::from);
                    return;
                }
            }
        }
        self.group = (2 * self.group).min(self.most);
    }
}

#[pymethods]
impl Items {
    fn __iter__(slf: Py<Items>) -> Py<Items> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.core.db()?;
        // Other threads may hold the lock while they wait for the interpreter, so it is waited for detached.
        let item = match self.state.with_now(|state| state.fetched.pop_front()) {
            Some(item) => Some(item),
            None => {
                // Of a loop in C, such as that of `list`, nobody else sees to signals.
                py.check_signals()?;
                py.detach(|| self.next())?
            }
        };
        self.shown(py, item)
    }

    /// Return the next item from the other end; None if there is none. Both ends meet, and no item is returned twice.
    ///
    /// From the first call on items are fetched one by one, so that they cost more. Reverse iterators: not supported.
    fn next_back<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.core.db()?;
        self.is_forward("be asked from the other end")?;
        let item = py.detach(|| {
            self.state.with(|state| {
                state.give_back().or_raise()?;
                state.iter.next_back().transpose().or_raise()
            })
        })?;
        self.shown(py, item)
    }

    /// Moves on to the first item at or after `key` (reverse iterators: not supported).
    ///
    /// An iterator over 'range' never leaves it. Costs a search in every run.
    ///
    /// Raises:
    ///     ClosedError: after the database or the iterator was closed.
    ///     Error: for what keeps the key from being read.
    fn seek(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<()> {
        self.core.db()?;
        self.is_forward("seek")?;
        let key = &*key;
        py.detach(|| {
            self.state.with(|state| {
                state.fetched.clear();
                (state.group, state.finished, state.error) = (1, false, None);
                state.iter.seek(key).or_raise()
            })
        })
    }

    /// Gives up what the iterator keeps alive: memtables, tables. A second call does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.state.take().map(drop))
    }

    fn __enter__(slf: Py<Items>) -> Py<Items> {
        slf
    }

    #[pyo3(signature = (*_exc_info))]
    fn __exit__(&self, py: Python<'_>, _exc_info: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }
}

/// Returns a key and its value as Python's pair.
pub(crate) fn pair<'py>(py: Python<'py>, key: &[u8], value: &[u8]) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, [PyBytes::new(py, key), PyBytes::new(py, value)])
}
