//! The heap of objects: blocks of bytes that survive, and capacity memory.
//!
//! - In Rust a transaction is a closure, in Python a block of code. So each transaction runs in a
//!   thread of its own, which makes the steps that the block asks for, one by one, and knows
//!   nothing of Python. Steps that are dropped before the commit undo the transaction.
//! - No call holds the interpreter's lock while it waits.
//! - A forked process is refused in every call: the memory is its parent's.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use parking_lot::{Mutex, RwLock};
use perdura::heap_types::{HeapError, Offset, Ptr, Tx};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::errors::{heaping, opening, over};
use crate::octets::Octets;
use crate::options;
use crate::sys::Capacity;
use crate::terms::Flushed;
use crate::viewed::Viewed;

/// Bytes that are zeroed at once.
const ZEROS: [u8; 16 << 10] = [0; 16 << 10];

/// The heap.
#[pyclass(frozen, subclass, module = "perdura._native")]
pub struct Heap {
    heap: Arc<Viewed<perdura::Heap>>,
    /// Held for writing while a commit changes the memory, so that nobody reads half of it.
    contents: Arc<RwLock<()>>,
}

#[pymethods]
impl Heap {
    #[new]
    #[pyo3(signature = (dir, **options))]
    fn new(py: Python<'_>, dir: PathBuf, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let options = options::options(py, options)?;
        let heap = py.detach(|| perdura::Heap::open_in(&dir, &options)).map_err(opening)?;
        Ok(Self { heap: Arc::new(Viewed::new(heap)), contents: Arc::default() })
    }

    /// Refuses a closed heap and a forked process.
    fn _check(&self) -> PyResult<()> {
        self.heap.get_lasting().map(drop)
    }

    /// The length of the block that begins at an offset.
    fn _length(&self, py: Python<'_>, offset: u64) -> PyResult<u64> {
        self.read(py, |heap| length(heap, place(offset)?))
    }

    fn _read<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.read(py, |heap| {
            let mut bytes = vec![0; length];
            heap.read_bytes(place(offset)?, &mut bytes)?;
            Ok(bytes)
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn _root(&self, py: Python<'_>, name: &str) -> PyResult<Option<u64>> {
        self.read(py, |heap| Ok(heap.root::<u8>(name)?.and_then(Ptr::offset).map(Offset::get)))
    }

    /// The names of all roots, in their order.
    fn roots(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.read(py, |heap| Ok(heap.roots()?.into_iter().map(|root| root.name).collect()))
    }

    /// Begins a transaction.
    fn _begin(&self) -> PyResult<HeapSteps> {
        let heap = self.heap.get_lasting()?;
        let (steps, asked) = mpsc::channel();
        let contents = Arc::clone(&self.contents);
        let work = move || transact(&heap, &contents, &asked);
        let thread = std::thread::Builder::new().name("perdura-transaction".into()).spawn(work)?;
        let running = Mutex::new(Some(Running { steps, thread }));
        Ok(HeapSteps { heap: Arc::clone(&self.heap), running })
    }

    /// Takes capacity memory, all zeros, which has the buffer protocol.
    fn capacity(&self, py: Python<'_>, size: u64) -> PyResult<Capacity> {
        Capacity::take(py, &self.heap, size)
    }

    fn _close(&self, py: Python<'_>) -> PyResult<Option<Flushed>> {
        self.heap.close(py)
    }

    fn _close_with_views(&self, py: Python<'_>) -> PyResult<()> {
        self.heap.close_with_views(py)
    }

    #[getter]
    fn views(&self) -> usize {
        self.heap.views()
    }

    #[getter]
    fn is_closed(&self) -> bool {
        self.heap.is_closed()
    }
}

impl Heap {
    /// Reads when no commit changes the memory.
    fn read<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&perdura::Heap) -> Result<R, HeapError> + Send,
    ) -> PyResult<R> {
        let heap = self.heap.get_lasting()?;
        let read = || {
            let _unchanged = self.contents.read();
            call(&heap)
        };
        py.detach(read).map_err(heaping)
    }
}

/// The steps of a transaction.
#[pyclass(frozen, module = "perdura._native")]
pub struct HeapSteps {
    heap: Arc<Viewed<perdura::Heap>>,
    /// `None` when the transaction is over.
    running: Mutex<Option<Running>>,
}

struct Running {
    steps: mpsc::Sender<Step>,
    thread: JoinHandle<Result<(), Ended>>,
}

enum Step {
    Do(Box<dyn FnOnce(&mut Tx<'_>) + Send>),
    Commit,
}

/// Why a transaction has changed nothing.
enum Ended {
    Undone,
    Failed(HeapError),
}

impl From<HeapError> for Ended {
    fn from(error: HeapError) -> Self {
        Self::Failed(error)
    }
}

#[pymethods]
impl HeapSteps {
    /// Takes memory for a block. Returns its offset and its length.
    fn allocate(&self, py: Python<'_>, size: u64, zeroed: bool) -> PyResult<(u64, u64)> {
        self.step(py, move |tx| {
            let object = tx.alloc(size)?;
            let length = length(tx.heap(), object)?;
            let pieces = if zeroed { length } else { 0 };
            for at in (0..pieces).step_by(ZEROS.len()) {
                let zeros = &ZEROS[..ZEROS.len().min((length - at) as usize)];
                tx.write_bytes(place(object.get() + at)?, zeros)?;
            }
            Ok((object.get(), length))
        })
    }

    fn free(&self, py: Python<'_>, offset: u64) -> PyResult<()> {
        self.step(py, move |tx| tx.free(place(offset)?))
    }

    fn write(&self, py: Python<'_>, offset: u64, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let data = Octets::of("block", data)?.to_vec();
        self.step(py, move |tx| tx.write_bytes(place(offset)?, &data))
    }

    fn read<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.step(py, move |tx| {
            let mut bytes = vec![0; length];
            tx.read_bytes(place(offset)?, &mut bytes)?;
            Ok(bytes)
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn root(&self, py: Python<'_>, name: String) -> PyResult<Option<u64>> {
        self.step(py, move |tx| Ok(tx.root::<u8>(&name)?.and_then(Ptr::offset).map(Offset::get)))
    }

    fn set_root(&self, py: Python<'_>, name: String, offset: u64) -> PyResult<()> {
        self.step(py, move |tx| tx.set_root(&name, Ptr::<u8>::new(place(offset)?)))
    }

    fn remove_root(&self, py: Python<'_>, name: String) -> PyResult<()> {
        self.step(py, move |tx| tx.remove_root(&name))
    }

    /// Makes all changes durable, or none. A transaction that cannot be committed is undone.
    fn end(&self, py: Python<'_>, commits: bool) -> PyResult<()> {
        self.heap.get()?;
        let running = self.running.lock().take().ok_or_else(over)?;
        match py.detach(|| running.end(commits)) {
            Err(Ended::Failed(error)) => Err(heaping(error)),
            Ok(()) | Err(Ended::Undone) => Ok(()),
        }
    }
}

impl HeapSteps {
    /// Makes a step in the transaction's thread.
    fn step<R: Send + 'static>(
        &self,
        py: Python<'_>,
        step: impl FnOnce(&mut Tx<'_>) -> Result<R, HeapError> + Send + 'static,
    ) -> PyResult<R> {
        self.heap.get()?;
        let steps = match &*self.running.lock() {
            Some(running) => running.steps.clone(),
            None => return Err(over()),
        };
        let (answer, answered) = mpsc::channel();
        let step = Box::new(move |tx: &mut Tx<'_>| drop(answer.send(step(tx))));
        let outcome = py.detach(move || {
            // A transaction that could not begin takes no steps, and drops this one.
            drop(steps.send(Step::Do(step)));
            drop(steps);
            answered.recv()
        });
        match outcome {
            Ok(outcome) => outcome.map_err(heaping),
            Err(_) => self.end(py, false).and_then(|()| Err(over())),
        }
    }
}

impl Drop for HeapSteps {
    /// A transaction that nobody has ended is undone, before its heap can go.
    fn drop(&mut self) {
        let running = self.running.get_mut().take();
        if self.heap.get().is_err() {
            // A forked process does not have the thread.
            return;
        }
        let mut end = running.map(|running| || drop(running.end(false)));
        let _ = Python::try_attach(|py| py.detach(|| end.take().map(|end| end())));
        end.into_iter().for_each(|end| end());
    }
}

impl Running {
    fn end(self, commits: bool) -> Result<(), Ended> {
        if commits {
            // A transaction that could not begin says why when it is joined.
            drop(self.steps.send(Step::Commit));
        }
        drop(self.steps);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Runs a transaction, whose steps come one by one. Without a commit it is undone.
fn transact(
    heap: &perdura::Heap,
    contents: &RwLock<()>,
    asked: &mpsc::Receiver<Step>,
) -> Result<(), Ended> {
    let mut changing = None;
    let outcome = heap.transaction(|tx| {
        for step in asked {
            match step {
                Step::Do(step) => step(tx),
                Step::Commit => {
                    changing = Some(contents.write());
                    return Ok(());
                }
            }
        }
        Err(Ended::Undone)
    });
    drop(changing);
    outcome
}

fn place(offset: u64) -> Result<Offset, HeapError> {
    Offset::new(offset).ok_or(HeapError::Null)
}

fn length(heap: &perdura::heap_types::Heap, object: Offset) -> Result<u64, HeapError> {
    match heap.is_object(object) {
        true => heap.usable_bytes(object),
        false => Err(HeapError::NoObject { offset: object }),
    }
}
