//! The heap of objects: blocks of bytes that survive, and capacity memory.
//!
//! - In Rust a transaction is a closure, in Python a block of code. So a heap's transactions run in
//!   a thread of their own, which makes the steps that the block asks for, one by one, and knows
//!   nothing of Python. Steps that are dropped before the commit undo the transaction.
//! - No call holds the interpreter's lock while it waits.
//! - Python may raise `KeyboardInterrupt` between any two of its own steps. So who has the turn, and
//!   what became of a transaction, is kept here, where each changes in one call.
//! - A forked process is refused in every call: the memory is its parent's.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};

use parking_lot::{Mutex, RwLock};
use perdura::heap_types::{HeapError, Offset, Ptr, Tx};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::errors::{begins, heaping, nested, opening, over, refused};
use crate::octets::Octets;
use crate::options;
use crate::sys::Capacity;
use crate::terms::{Flushed, Promise};
use crate::turn::{Taken, Turn};
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
    /// The turn that a transaction has, with its steps, or a close.
    turn: Arc<Turn<Steps>>,
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
        Ok(Self { heap, contents, begins, turn: Arc::default() })
    }

    /// The length of the block that begins at an offset.
    fn _length(&self, py: Python<'_>, offset: u64) -> PyResult<u64> {
        match self.own_steps()? {
            Some(steps) => steps.make(py, move |tx| length(tx.heap(), place(offset)?)),
            None => self.read(py, |heap| length(heap, place(offset)?)),
        }
    }

    fn _read<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = match self.own_steps()? {
            Some(steps) => steps.make(py, move |tx| {
                let mut bytes = vec![0; length];
                tx.read_bytes(place(offset)?, &mut bytes)?;
                Ok(bytes)
            }),
            None => self.read(py, |heap| {
                let mut bytes = vec![0; length];
                heap.read_bytes(place(offset)?, &mut bytes)?;
                Ok(bytes)
            }),
        };
        Ok(PyBytes::new(py, &bytes?))
    }

    fn _root(&self, py: Python<'_>, name: String) -> PyResult<Option<u64>> {
        match self.own_steps()? {
            Some(steps) => steps.root(py, name),
            None => self.read(py, |heap| {
                Ok(heap.root::<u8>(&name)?.and_then(Ptr::offset).map(Offset::get))
            }),
        }
    }

    /// The names of all roots, in their order.
    fn roots(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.read(py, |heap| Ok(heap.roots()?.into_iter().map(|root| root.name).collect()))
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

    /// Flushes everything, gives the memory back, and reports. Capacity memory is forgotten.
    ///
    /// Raises:
    ///     BufferError: arrays or other views of capacity memory live.
    ///     DeviceError: the SSD has failed; repair it and close again.
    fn close(&self, py: Python<'_>) -> PyResult<Option<Flushed>> {
        let _turn = self.turn_to_close(py)?;
        self.heap.close(py)
    }

    /// Closes the heap, when the last view of its capacity memory is gone.
    fn _close_with_views(&self, py: Python<'_>) -> PyResult<()> {
        let _turn = self.turn_to_close(py)?;
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
    /// The steps of the transaction that this thread is in.
    fn own_steps(&self) -> PyResult<Option<Steps>> {
        self.heap.get()?;
        Ok(self.turn.mine())
    }

    /// Waits until no transaction runs. A heap that is closed has none, and a forked process would
    /// wait for a thread that it does not have.
    fn turn_to_close(&self, py: Python<'_>) -> PyResult<Option<Taken<Steps>>> {
        if self.heap.is_closed() || self.heap.is_forked() {
            return Ok(None);
        }
        Turn::take(&self.turn, py, "close").map(Some)
    }

    /// Begins a transaction when it is its turn.
    fn begin(&self, py: Python<'_>) -> PyResult<Running> {
        self.heap.get_lasting()?;
        let turn = Turn::take(&self.turn, py, "transaction")?;
        // Another thread may have closed it meanwhile.
        let heap = self.heap.get_lasting()?;
        let (to_steps, steps) = mpsc::channel();
        let (outcome, from_outcome) = mpsc::channel();
        // The thread takes this, for it ends after the heap only.
        drop(self.begins.send(Begin { heap, steps, outcome }));
        let steps = Steps(to_steps);
        turn.set(steps.clone());
        Ok(Running { steps, outcome: from_outcome, turn })
    }

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

/// A transaction, which Python's `HeapTransaction` is made of.
#[pyclass(frozen, subclass, module = "perdura._native")]
pub struct HeapSteps {
    heap: Py<Heap>,
    phase: Mutex<Phase>,
    /// The blocks that the transaction makes. They live until it ends: a second object of the same
    /// block would not know that it is undone.
    blocks: Py<PyList>,
}

enum Phase {
    New,
    Running(Running),
    /// The transaction begins or ends, in another thread.
    Changing,
    Made,
    Undone,
}

struct Running {
    steps: Steps,
    outcome: mpsc::Receiver<Result<(), Ended>>,
    /// Given back when everything else about the end is known.
    turn: Taken<Steps>,
}

/// Where a transaction's steps go.
#[derive(Clone)]
pub struct Steps(mpsc::Sender<Step>);

enum Step {
    Do(Box<dyn FnOnce(&mut Tx<'_>) + Send>),
    End { commits: bool },
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
    #[new]
    fn new(py: Python<'_>, heap: Py<Heap>) -> Self {
        Self { heap, phase: Mutex::new(Phase::New), blocks: PyList::empty(py).unbind() }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.heap)?;
        visit.call(&self.blocks)
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let this = slf.get();
        if !matches!(*this.phase.lock(), Phase::New) {
            return Err(nested("a transaction is used once: begin another by heap.transaction()"));
        }
        let running = this.heap.get().begin(slf.py())?;
        let begun = {
            let mut phase = this.phase.lock();
            let is_new = matches!(*phase, Phase::New);
            if is_new {
                *phase = Phase::Running(running);
                None
            } else {
                Some(running)
            }
        };
        match begun {
            None => Ok(slf.clone()),
            Some(running) => {
                drop(slf.py().detach(|| running.end(false)));
                Err(nested("another thread has begun this transaction"))
            }
        }
    }

    /// Makes all changes durable, or none if an exception ended the block. A transaction that
    /// cannot be committed is undone.
    #[pyo3(signature = (kind, _error, _trace))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.end(py, kind.is_none())
    }

    #[getter(_blocks)]
    fn blocks(&self, py: Python<'_>) -> Py<PyList> {
        self.blocks.clone_ref(py)
    }

    /// Whether this thread sees the changes: the transaction is made, or is this thread's own.
    #[getter(_counts)]
    fn counts(&self) -> bool {
        match &*self.phase.lock() {
            Phase::Made => true,
            Phase::Running(running) => running.turn.is_mine(),
            Phase::New | Phase::Changing | Phase::Undone => false,
        }
    }

    /// Takes memory for a block. Returns its offset and its length.
    fn _allocate(&self, py: Python<'_>, size: u64, zeroed: bool) -> PyResult<(u64, u64)> {
        self.steps()?.make(py, move |tx| {
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

    fn _free(&self, py: Python<'_>, offset: u64) -> PyResult<()> {
        self.steps()?.make(py, move |tx| tx.free(place(offset)?))
    }

    fn _write(&self, py: Python<'_>, offset: u64, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let data = Octets::of("block", data)?.to_vec();
        self.steps()?.make(py, move |tx| tx.write_bytes(place(offset)?, &data))
    }

    fn _root(&self, py: Python<'_>, name: String) -> PyResult<Option<u64>> {
        self.steps()?.root(py, name)
    }

    fn _set_root(&self, py: Python<'_>, name: String, offset: u64) -> PyResult<()> {
        self.steps()?.make(py, move |tx| tx.set_root(&name, Ptr::<u8>::new(place(offset)?)))
    }

    fn _remove_root(&self, py: Python<'_>, name: String) -> PyResult<()> {
        self.steps()?.make(py, move |tx| tx.remove_root(&name))
    }
}

impl HeapSteps {
    fn steps(&self) -> PyResult<Steps> {
        self.heap.get().heap.get()?;
        match &*self.phase.lock() {
            Phase::Running(running) => Ok(running.steps.clone()),
            Phase::New => Err(begins()),
            Phase::Changing | Phase::Made | Phase::Undone => Err(over()),
        }
    }

    fn end(&self, py: Python<'_>, commits: bool) -> PyResult<()> {
        self.heap.get().heap.get()?;
        let running = {
            let mut phase = self.phase.lock();
            match std::mem::replace(&mut *phase, Phase::Changing) {
                Phase::Running(running) => running,
                other => {
                    *phase = other;
                    drop(phase);
                    return Err(over());
                }
            }
        };
        let (ended, turn) = py.detach(|| running.end(commits));
        *self.phase.lock() = if ended.is_ok() { Phase::Made } else { Phase::Undone };
        // No block is without its transaction's outcome when the next transaction begins.
        drop(turn);
        let blocks = self.blocks.bind(py);
        blocks.set_slice(0, blocks.len(), &PyList::empty(py))?;
        match ended {
            Err(Ended::Failed(error)) => Err(heaping(error)),
            Ok(()) | Err(Ended::Undone) => Ok(()),
        }
    }
}

impl Steps {
    /// Makes a step in the transaction's thread.
    fn make<R: Send + 'static>(
        &self,
        py: Python<'_>,
        step: impl FnOnce(&mut Tx<'_>) -> Result<R, HeapError> + Send + 'static,
    ) -> PyResult<R> {
        let (answer, answered) = mpsc::channel();
        let step = Box::new(move |tx: &mut Tx<'_>| drop(answer.send(step(tx))));
        let outcome = py.detach(move || {
            // A transaction that is over takes no steps, and drops this one.
            drop(self.0.send(Step::Do(step)));
            answered.recv()
        });
        match outcome {
            Ok(outcome) => outcome.map_err(heaping),
            Err(_) => Err(over()),
        }
    }

    fn root(&self, py: Python<'_>, name: String) -> PyResult<Option<u64>> {
        self.make(py, move |tx| Ok(tx.root::<u8>(&name)?.and_then(Ptr::offset).map(Offset::get)))
    }
}

impl Drop for HeapSteps {
    /// A transaction that nobody has ended is undone, before its heap can go.
    fn drop(&mut self) {
        let Phase::Running(running) = std::mem::replace(self.phase.get_mut(), Phase::Undone) else {
            return;
        };
        if self.heap.get().heap.is_forked() {
            std::mem::forget(running);
            return;
        }
        let mut end = Some(|| drop(running.end(false)));
        let _ = Python::try_attach(|py| py.detach(|| end.take().map(|end| end())));
        end.into_iter().for_each(|end| end());
    }
}

impl Running {
    fn end(self, commits: bool) -> (Result<(), Ended>, Taken<Steps>) {
        // A transaction that could not begin says why in its outcome.
        drop(self.steps.0.send(Step::End { commits }));
        match self.outcome.recv() {
            Ok(outcome) => (outcome, self.turn),
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
                    Step::End { commits: true } => {
                        changing = Some(contents.write());
                        return Ok(());
                    }
                    Step::End { commits: false } => break,
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
