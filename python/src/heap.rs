//! The heap of objects: blocks of bytes that survive, and capacity memory.
//!
//! - In Rust a transaction is a closure, in Python a block of code. So a heap's transactions run in
//!   a thread of their own, which makes the steps that the block asks for, one by one, and knows
//!   nothing of Python. Steps that are dropped before the commit undo the transaction.
//! - No call holds the interpreter's lock while it waits.
//! - A forked process is refused in every call: the memory is its parent's.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};

use parking_lot::{Mutex, RwLock};
use perdura::heap_types::{HeapError, Offset, Ptr, Tx};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::errors::{heaping, opening, over, refused};
use crate::octets::Octets;
use crate::options;
use crate::sys::Capacity;
use crate::terms::{Flushed, Promise};
use crate::viewed::Viewed;

/// Bytes that are zeroed at once.
const ZEROS: [u8; 16 << 10] = [0; 16 << 10];

/// The heap.
#[pyclass(frozen, subclass, module = "perdura._native")]
pub struct Heap {
    heap: Arc<Viewed<perdura::Heap>>,
    /// Held for writing while a commit changes the memory, so that nobody reads half of it.
    contents: Arc<RwLock<()>>,
    /// The thread of the transactions, which ends when this is dropped.
    begins: mpsc::Sender<Begin>,
}

/// A transaction that is to be run.
struct Begin {
    heap: Arc<perdura::Heap>,
    steps: mpsc::Receiver<Step>,
    outcome: mpsc::Sender<Result<(), Ended>>,
}

#[pymethods]
impl Heap {
    #[new]
    #[pyo3(signature = (dir, **options))]
    fn new(py: Python<'_>, dir: PathBuf, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let options = options::options(py, options)?;
        let heap = py.detach(|| perdura::Heap::open_in(&dir, &options)).map_err(opening)?;
        let (heap, contents) = (Arc::new(Viewed::new(heap)), Arc::<RwLock<()>>::default());
        let (begins, asked) = mpsc::channel();
        let work = {
            let contents = Arc::clone(&contents);
            move || asked.into_iter().for_each(|begin: Begin| begin.run(&contents))
        };
        std::thread::Builder::new().name("perdura-heap".into()).spawn(work)?;
        Ok(Self { heap, contents, begins })
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
        let (to_steps, steps) = mpsc::channel();
        let (outcome, from_outcome) = mpsc::channel();
        // The thread takes this, for it ends after the heap only.
        drop(self.begins.send(Begin { heap, steps, outcome }));
        let running = Running { steps: to_steps, outcome: from_outcome };
        Ok(HeapSteps { heap: Arc::clone(&self.heap), running: Mutex::new(Some(running)) })
    }

    /// Takes capacity memory, all zeros, which has the buffer protocol.
    fn capacity(&self, py: Python<'_>, size: u64) -> PyResult<Capacity> {
        Capacity::take(py, &self.heap, size)
    }

    /// Makes the state of this moment the one that an unwarned loss goes back to.
    fn checkpoint(&self, py: Python<'_>) -> PyResult<()> {
        let heap = self.heap.get_lasting()?;
        py.detach(|| heap.region().map_or(Ok(()), |region| region.checkpoint())).map_err(refused)
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
    fn promise(&self) -> PyResult<Promise> {
        match self.heap.get()?.promise() {
            Some(promise) => Ok(promise.into()),
            None => unreachable!("a heap in a directory has a promise"),
        }
    }

    #[getter]
    fn dirty_bytes(&self) -> PyResult<u64> {
        Ok(self.heap.get()?.region().map_or(0, |region| region.used_bytes()))
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

impl Drop for Heap {
    /// A forked process does not have the thread, whose channel it may have in any state.
    fn drop(&mut self) {
        if self.heap.is_forked() {
            std::mem::forget(self.begins.clone());
        }
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
    outcome: mpsc::Receiver<Result<(), Ended>>,
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
        let running = self.running.lock().take();
        let running = running.ok_or_else(over)?;
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
        let steps = self.running.lock().as_ref().map(|running| running.steps.clone());
        let steps = steps.ok_or_else(over)?;
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
        if self.heap.is_forked() {
            std::mem::forget(running);
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
            // A transaction that could not begin says why in its outcome.
            drop(self.steps.send(Step::Commit));
        }
        drop(self.steps);
        match self.outcome.recv() {
            Ok(outcome) => outcome,
            Err(_) => unreachable!("the thread gives each transaction an outcome"),
        }
    }
}

impl Begin {
    /// Runs the transaction, whose steps come one by one. Without a commit it is undone.
    fn run(self, contents: &RwLock<()>) {
        let Self { heap, steps, outcome } = self;
        let mut changing = None;
        let ended = heap.transaction(|tx| {
            for step in steps {
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
        // Who waits for the outcome may close the heap then, whose memory goes with its last user.
        drop(heap);
        drop(outcome.send(ended));
    }
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
