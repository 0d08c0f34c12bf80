//! The durable map, without the methods that `collections.abc.MutableMapping` adds in Python.
//!
//! - No call holds the interpreter's lock while it waits for the SSD, the budget or another thread.
//! - No Python code runs under a lock of the store: a transaction collects its changes in Python,
//!   and is made in one call.
//! - A forked process is refused in every call: the memory is its parent's.

use std::ops::Bound as End;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use perdura::StoreError;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::errors::{closed, closing, forked, opening, refused, storing};
use crate::octets::Octets;
use crate::options;
use crate::terms::{Flushed, Promise};

const WHAT: &str = "store";
/// The text with which a transaction ends itself that has seen another value than it expected.
const CONFLICT: &str = "another thread has changed a key that the transaction had read";

/// The durable map.
#[pyclass(frozen, subclass, module = "perdura._native")]
pub struct Store {
    /// The process that opened the store.
    process: u32,
    state: Mutex<State>,
}

enum State {
    Open(Arc<perdura::Store>),
    Closed(Flushed),
}

/// Keys with the values that they are expected to have, or shall have; `None`: no such key.
type Pairs<'py> = Vec<(Octets<'py>, Option<Octets<'py>>)>;

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (dir, **options))]
    fn new(py: Python<'_>, dir: PathBuf, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let options = options::options(py, options)?;
        let store = py.detach(|| perdura::Store::open_with(&dir, &options)).map_err(opening)?;
        let state = Mutex::new(State::Open(Arc::new(store)));
        Ok(Self { process: std::process::id(), state })
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        self.value(key)?.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    #[pyo3(signature = (key, default=None, /))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.value(key)?.map(Bound::into_any).or(default))
    }

    fn __setitem__(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.set(py, key, value, None)
    }

    #[pyo3(signature = (key, value, *, expires_in=None))]
    fn set(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        expires_in: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let after = expires_in.map(|after| options::time("expires_in", after)).transpose()?;
        let (key, value) = (Octets::key(key)?, Octets::of("value", value)?);
        let (key, value) = (&key[..], &value[..]);
        self.change(py, |store| match after {
            Some(after) => store.set_expiring(key, value, after),
            None => store.set(key, value),
        })
    }

    fn __delitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let octets = Octets::key(key)?;
        let octets = &octets[..];
        match self.change(py, |store| store.delete(octets))? {
            true => Ok(()),
            false => Err(PyKeyError::new_err(key.clone().unbind())),
        }
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = Octets::key(key)?;
        let key = &key[..];
        self.change(py, |store| Ok(store.contains(key)))
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(usize::try_from(self.store()?.len()).unwrap_or(usize::MAX))
    }

    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.change(py, perdura::Store::clear)
    }

    /// Lets the key go away after a time. Returns whether there is such a key.
    fn expire(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        after: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let (key, after) = (Octets::key(key)?, options::time("after", after)?);
        let key = &key[..];
        self.change(py, |store| store.expire(key, after))
    }

    /// Keeps the key for good. Returns whether there is such a key.
    fn persist(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = Octets::key(key)?;
        let key = &key[..];
        self.change(py, |store| store.persist(key))
    }

    /// Seconds until the key goes away; `None`: there is no such key, or it does not expire.
    fn expires_in(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
        let key = Octets::key(key)?;
        let key = &key[..];
        let left = self.change(py, |store| Ok(store.expires_in(key)))?;
        Ok(left.map(|left| left.as_secs_f64()))
    }

    /// The next keys of a range in their order, at most `most` of them, with their values. The
    /// first key of the range may be left out, so that a caller can go on where it was.
    #[pyo3(signature = (first, is_left_out, end, most))]
    fn _range<'py>(
        &self,
        py: Python<'py>,
        first: Option<&Bound<'_, PyAny>>,
        is_left_out: bool,
        end: Option<&Bound<'_, PyAny>>,
        most: usize,
    ) -> PyResult<Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
        let first = first.map(Octets::key).transpose()?;
        let end = end.map(Octets::key).transpose()?;
        let from = match first.as_deref() {
            Some(key) if is_left_out => End::Excluded(key),
            Some(key) => End::Included(key),
            None => End::Unbounded,
        };
        let until = end.as_deref().map_or(End::Unbounded, End::Excluded);
        let found: Vec<_> = self
            .change(py, |store| Ok(store.range::<&[u8], _>((from, until)).take(most).collect()))?;
        let pair =
            |(key, value): (Vec<u8>, Vec<u8>)| (PyBytes::new(py, &key), PyBytes::new(py, &value));
        Ok(found.into_iter().map(pair).collect())
    }

    /// The first keys behind `after`, or of all, in their order; at most `most` of them. Their values
    /// are not copied.
    fn _keys<'py>(
        &self,
        py: Python<'py>,
        after: Option<&Bound<'_, PyAny>>,
        most: usize,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let after = after.map(Octets::key).transpose()?;
        let from = after.as_deref().map_or(End::Unbounded, End::Excluded);
        let found: Vec<_> = self.change(py, |store| {
            Ok(store.keys::<&[u8], _>((from, End::Unbounded)).take(most).collect())
        })?;
        Ok(found.iter().map(|key: &Vec<u8>| PyBytes::new(py, key)).collect())
    }

    /// Makes changes, all or none, if the keys of `expected` have those values, with `None` for a
    /// key that shall not be there. Otherwise nothing changes, and a key that has another value is
    /// returned.
    fn _commit<'py>(
        &self,
        py: Python<'py>,
        expected: &Bound<'py, PyDict>,
        changes: &Bound<'py, PyDict>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let (expected, changes) = (pairs(expected)?, pairs(changes)?);
        let (expected, changes) = (slices(&expected), slices(&changes));
        let mut keys: Vec<&[u8]> = expected.iter().chain(&changes).map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys.dedup();
        if keys.is_empty() {
            return Ok(None);
        }
        let mut other: Option<&[u8]> = None;
        let outcome = self.attempt(py, |store| {
            store.transaction(&keys, |tx| {
                other = None;
                for (key, value) in &expected {
                    if tx.get(key)?.as_deref() != *value {
                        other = Some(key);
                        return tx.abort(CONFLICT);
                    }
                }
                for (key, value) in &changes {
                    match value {
                        Some(value) => tx.set(key, value)?,
                        None => tx.delete(key).map(drop)?,
                    }
                }
                Ok(())
            })
        })?;
        match outcome {
            Ok(()) => Ok(None),
            Err(StoreError::Aborted(CONFLICT)) => Ok(other.map(|key| PyBytes::new(py, key))),
            Err(error) => Err(storing(error)),
        }
    }

    /// Makes the state of this moment the one that an unwarned loss goes back to.
    fn checkpoint(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.store()?;
        py.detach(|| store.checkpoint()).map_err(refused)
    }

    fn close(&self, py: Python<'_>) -> PyResult<Flushed> {
        self.check_process()?;
        let store = match &*self.state.lock() {
            State::Open(store) => Arc::clone(store),
            State::Closed(flushed) => return Ok(*flushed),
        };
        let flushed = Flushed::from(py.detach(|| store.close()).map_err(closing)?);
        let before = std::mem::replace(&mut *self.state.lock(), State::Closed(flushed));
        // The memory may be large, and to give it back may take a while.
        py.detach(|| drop((before, store)));
        Ok(flushed)
    }

    #[getter]
    fn is_closed(&self) -> bool {
        matches!(*self.state.lock(), State::Closed(_))
    }

    #[getter]
    fn promise(&self) -> PyResult<Promise> {
        Ok(self.store()?.promise().into())
    }

    #[getter]
    fn dirty_bytes(&self) -> PyResult<u64> {
        Ok(self.store()?.engine().region().used_bytes())
    }
}

impl Store {
    fn check_process(&self) -> PyResult<()> {
        match std::process::id() == self.process {
            true => Ok(()),
            false => Err(forked(WHAT, self.process)),
        }
    }

    fn store(&self) -> PyResult<Arc<perdura::Store>> {
        self.check_process()?;
        match &*self.state.lock() {
            State::Open(store) => Ok(Arc::clone(store)),
            State::Closed(_) => Err(closed(WHAT)),
        }
    }

    fn value<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let octets = Octets::key(key)?;
        let octets = &octets[..];
        let value = self.change(key.py(), |store| store.get(octets))?;
        Ok(value.map(|value| PyBytes::new(key.py(), &value)))
    }

    /// Calls the store with the interpreter's lock released.
    fn change<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&perdura::Store) -> Result<R, StoreError> + Send,
    ) -> PyResult<R> {
        self.attempt(py, call)?.map_err(storing)
    }

    fn attempt<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&perdura::Store) -> Result<R, StoreError> + Send,
    ) -> PyResult<Result<R, StoreError>> {
        let store = self.store()?;
        Ok(py.detach(|| call(&store)))
    }
}

impl Drop for Store {
    /// A store that nobody has closed is flushed here, which may take a while.
    fn drop(&mut self) {
        let mut state =
            Some(std::mem::replace(self.state.get_mut(), State::Closed(Flushed::default())));
        // At the end of the interpreter there is no lock that could be released.
        let _ = Python::try_attach(|py| py.detach(|| drop(state.take())));
        drop(state);
    }
}

fn pairs<'py>(dict: &Bound<'py, PyDict>) -> PyResult<Pairs<'py>> {
    let pair = |(key, value): (Bound<'py, PyAny>, Bound<'py, PyAny>)| {
        let value = (!value.is_none()).then(|| Octets::of("value", &value)).transpose()?;
        Ok((Octets::key(&key)?, value))
    };
    dict.iter().map(pair).collect()
}

/// The same pairs in a form that may be used without the interpreter's lock.
fn slices<'o>(pairs: &'o Pairs<'_>) -> Vec<(&'o [u8], Option<&'o [u8]>)> {
    pairs.iter().map(|(key, value)| (&key[..], value.as_deref())).collect()
}
