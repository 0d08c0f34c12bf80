//! Checkpoints of an application's memory (pMem's last slide: "Optimizing Checkpoints Using NVM as
//! Virtual Memory").
//!
//! The application keeps its state in areas of capacity memory, at full speed, and calls
//! [`Checkpointer::checkpoint`] when the state is consistent. Pages changed since the last
//! checkpoint are copied to persistent pages to which nothing refers (shadow paging), mostly in the
//! background before (*pre-copy*), so that only the last changes must be copied while the
//! application waits. One store of the head's word makes the checkpoint count: it chooses one of
//! two page tables for all areas at once. Pages that did not change are shared with the checkpoint
//! before.
//!
//! Invariants: a page or table that the committed word refers to is not written. Slots are free if
//! the committed table does not name them; they are found anew at every open, so nothing can leak.
//!
//! Changed pages are known from the kernel (asynchronous write-protection, Linux 6.7), or found by
//! comparing each page with its copy: see [`Checkpointer::tracking`].

mod area;
mod written;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::compartments::Compartment;
use crate::engine::Kind;
use crate::error::HeapError;
use crate::heap::Heap;
use crate::layout::{sealed, unsealed};
use crate::log::settle::settle;
use crate::ptr::{Offset, Persist, Ptr};
use area::{AreaState, store_bytes};

/// Most areas of a checkpointer.
pub const AREAS_MAX: usize = 16;
/// Bytes of the longest name of an area.
pub const AREA_NAME_MAX: usize = 31;
/// Pages that are copied in the background under one hold of the lock.
const BATCH_PAGES: u64 = 256;

/// Why a checkpoint, or a restart from one, is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The heap refuses a call.
    #[error(transparent)]
    Heap(#[from] HeapError),
    /// The last checkpoint has the area with another size.
    #[error("area {name:?} was made with {made_bytes} bytes; it was asked for with {asked_bytes}")]
    AreaSize {
        /// Name of the area.
        name: String,
        /// Bytes of the area in the last checkpoint.
        made_bytes: u64,
        /// Bytes asked for.
        asked_bytes: u64,
    },
    /// The name of an area is empty, is too long, or has a zero byte.
    #[error("area name {name:?}: it must have 1 to {AREA_NAME_MAX} bytes, none of them zero")]
    AreaName {
        /// The name asked for.
        name: String,
    },
    /// An area of this name is registered already.
    #[error("area {name:?} is in use already")]
    AreaTaken {
        /// The name asked for.
        name: String,
    },
    /// The checkpointer has no room for another area.
    #[error("no room for area {name:?}: there are {AREAS_MAX} already")]
    AreasFull {
        /// The name asked for.
        name: String,
    },
    /// A checkpoint has areas that were not asked for, so it cannot be restored or replaced.
    #[error("area {name:?} of the last checkpoint was not registered: register all areas first")]
    AreaMissing {
        /// Name of the area.
        name: String,
    },
    /// A page of a checkpoint is damaged.
    #[error(
        "page {page} of area {name:?} is damaged: its sum is {found:#010x}, not {expected:#010x}"
    )]
    Damaged {
        /// The area.
        name: String,
        /// Number of the page in the area.
        page: u64,
        /// Sum of the page as it is.
        found: u32,
        /// Sum of the page when it was written.
        expected: u32,
    },
    /// The head of the checkpoints is damaged.
    #[error("the head of the checkpoints, at {offset}, holds the impossible value {value:#x}")]
    Head {
        /// Offset in the heap.
        offset: Offset,
        /// The value found.
        value: u64,
    },
    /// The kernel no longer tells which pages were written.
    #[error("the kernel does not say which pages were written: {source}")]
    Tracking {
        /// The system's error.
        source: std::io::Error,
    },
}

/// A way to find changed pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageTracking {
    /// The kernel notes writes (userfaultfd's asynchronous write-protection and `PAGEMAP_SCAN`).
    Protected,
    /// Each page is compared with its last copy, so all memory is read at every checkpoint.
    Compared,
}

/// An area of capacity memory that checkpoints include.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// Address of the first byte, which is another one after a restart.
    pub base: *mut u8,
    /// Bytes of the area.
    pub len_bytes: u64,
    /// Whether the last checkpoint has the area, so that [`Checkpointer::restore`] fills it.
    pub is_known: bool,
}

/// A checkpoint that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpointed {
    /// Number of the checkpoint; the first is 1.
    pub number: u64,
    /// Pages that were copied while the caller waited.
    pub pages: u64,
    /// Pages that were copied before, in the background; some of them more than once.
    pub precopied_pages: u64,
    /// Time that the caller waited.
    pub pause: Duration,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    /// The number of the last checkpoint, sealed. Its lowest bit chooses the page table.
    committed: u64,
    unused: [u64; 7],
    areas: [Entry; AREAS_MAX],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Entry {
    name: [u8; AREA_NAME_MAX + 1],
    /// Bytes of the area; 0 if the entry is free.
    len_bytes: u64,
    /// The persistent compartment with its tables and pages.
    store: u64,
    unused: [u64; 2],
}

impl Persist for Head {
    const NAME: &'static str = "checkpoint head";
}

/// Makes checkpoints of areas of capacity memory, and restarts from them.
///
/// ```
/// use std::sync::Arc;
/// use perdura_heap::checkpoint::Checkpointer;
/// use perdura_heap::{Config, Durability, Heap, Memory};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let memory = Memory::anonymous(8 << 20, Durability::Ordered)?;
/// let heap = Arc::new(Heap::open(memory, Config::default())?);
/// let checkpointer = Checkpointer::open(heap, "simulation")?;
/// let grid = checkpointer.register("grid", 1 << 20)?;
/// checkpointer.restore()?; // after a restart: what the last checkpoint had
/// // SAFETY: inside the area, which this thread alone uses.
/// unsafe { grid.base.add(77).write(42) };
/// assert_eq!(checkpointer.checkpoint()?.number, 1);
/// # Ok(())
/// # }
/// ```
pub struct Checkpointer {
    shared: Arc<Shared>,
    background: Mutex<Option<Background>>,
}

struct Background {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: JoinHandle<()>,
}

struct Shared {
    heap: Arc<Heap>,
    head: u64,
    state: Mutex<State>,
}

struct State {
    number: u64,
    areas: Vec<AreaState>,
    precopied: u64,
}

impl Checkpointer {
    /// Opens the checkpoints of this name in a heap, or makes them if there are none. The name is a
    /// root of the heap.
    ///
    /// # Errors
    /// The root is of another type, or its head is damaged.
    pub fn open(heap: Arc<Heap>, name: &str) -> Result<Self, CheckpointError> {
        let found = heap.root::<Head>(name)?;
        let head = match found {
            Some(head) => head,
            None => heap.transaction(|tx| {
                let mut empty = <Head as zerocopy::FromZeros>::new_zeroed();
                empty.committed = sealed(0);
                tx.root_or_make(name, |tx| tx.put(empty))
            })?,
        };
        let offset = head.offset().ok_or(HeapError::Null)?;
        let value = heap.read(head)?.committed;
        let number = unsealed(value).ok_or(CheckpointError::Head { offset, value })?;
        let state = State { number, areas: Vec::new(), precopied: 0 };
        let shared = Shared { heap, head: offset.get(), state: Mutex::new(state) };
        Ok(Self { shared: Arc::new(shared), background: Mutex::new(None) })
    }

    /// Takes an area of capacity memory under a name. If the last checkpoint has it, its contents
    /// come back by [`Checkpointer::restore`]; until then it is all zeros. The heap needs twice its
    /// size of persistent memory.
    ///
    /// # Errors
    /// No memory; or the area is there with another size.
    pub fn register(&self, name: &str, bytes: u64) -> Result<Area, CheckpointError> {
        if !(1..=AREA_NAME_MAX).contains(&name.len()) || name.bytes().any(|byte| byte == 0) {
            return Err(CheckpointError::AreaName { name: name.to_owned() });
        }
        let heap = &self.shared.heap;
        let mut state = self.shared.lock();
        if state.areas.iter().any(|area| area.name == name) {
            return Err(CheckpointError::AreaTaken { name: name.to_owned() });
        }
        let memory = heap.compartment(Kind::Capacity, bytes)?;
        let made = self.shared.enter(name, memory.len_bytes);
        let (store, is_known) = match made {
            Ok(made) => made,
            Err(error) => {
                heap.remove_compartment(memory)?;
                return Err(error);
            }
        };
        let is_known = is_known && state.number > 0;
        let area = AreaState::open(heap, name, memory, store, state.number, is_known)?;
        state.areas.push(area);
        let base = heap.pointer(memory.offset);
        Ok(Area { base, len_bytes: memory.len_bytes, is_known })
    }

    /// Fills all areas from the last checkpoint. Returns its number; `None` if there is none.
    ///
    /// # Errors
    /// A page is damaged; or the checkpoint has an area that was not registered.
    pub fn restore(&self) -> Result<Option<u64>, CheckpointError> {
        let mut state = self.shared.lock();
        if state.number == 0 {
            return Ok(None);
        }
        self.shared.check_all(&state)?;
        for area in &mut state.areas {
            area.restore(&self.shared.heap)?;
        }
        Ok(Some(state.number))
    }

    /// Makes a checkpoint of all areas, which is durable when this returns. No thread may write to
    /// the areas meanwhile.
    ///
    /// # Errors
    /// The kernel refuses, or an area of the last checkpoint was not registered; the last
    /// checkpoint holds.
    pub fn checkpoint(&self) -> Result<Checkpointed, CheckpointError> {
        let began = Instant::now();
        let shared = &*self.shared;
        let mut state = shared.lock();
        shared.check_all(&state)?;
        let mut pages = 0;
        for area in &mut state.areas {
            area.begin_round();
            loop {
                let (copied, is_done) = area.copy(&shared.heap, u64::MAX)?;
                pages += copied;
                if is_done {
                    break;
                }
            }
        }
        let number = state.number + 1;
        for area in &mut state.areas {
            area.write_table(&shared.heap, number);
        }
        let memory = &shared.heap.core.memory;
        memory.fence();
        // A transaction that entered an area must not be put in place over the number.
        settle(&shared.heap.core);
        memory.persist_word(shared.head, sealed(number));
        state.number = number;
        state.areas.iter_mut().for_each(AreaState::settle);
        let precopied_pages = std::mem::take(&mut state.precopied);
        Ok(Checkpointed { number, pages, precopied_pages, pause: began.elapsed() })
    }

    /// Copies the pages written since the last checkpoint or pre-copy, while the application goes
    /// on. Pages that it writes again are copied again. Returns how many pages were copied.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn precopy(&self) -> Result<u64, CheckpointError> {
        self.shared.precopy()
    }

    /// Pre-copies in a thread of its own, once in each period `every`, until the checkpointer is
    /// dropped. A failure ends the thread, and the next checkpoint meets the failure as well.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn precopy_in_background(&self, every: Duration) -> Result<(), CheckpointError> {
        let shared = Arc::clone(&self.shared);
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = Arc::clone(&stop);
        let work = move || {
            loop {
                let (flag, changed) = &*stopped;
                let is_over = flag.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = changed.wait_timeout_while(is_over, every, |is_over| !*is_over);
                let (is_over, _) = waited.unwrap_or_else(PoisonError::into_inner);
                if *is_over {
                    return;
                }
                drop(is_over);
                if let Err(error) = shared.precopy() {
                    tracing::warn!("no pre-copy any more: {error}");
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("precopy".to_owned()).spawn(work);
        let thread = thread.map_err(|source| CheckpointError::Tracking { source })?;
        let mut background = self.background.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = background.replace(Background { stop, thread }) {
            before.end();
        }
        Ok(())
    }

    /// The way in which changed pages are found; the slowest one, if areas differ.
    pub fn tracking(&self) -> PageTracking {
        let state = self.shared.lock();
        match state.areas.iter().any(|area| area.tracking() == PageTracking::Compared) {
            true => PageTracking::Compared,
            false => PageTracking::Protected,
        }
    }

    /// The number of the last checkpoint; 0 if there is none.
    pub fn number(&self) -> u64 {
        self.shared.lock().number
    }

    /// Finds changed pages by comparing, whatever the kernel offers; for measuring and for tests.
    #[doc(hidden)]
    pub fn compare_pages(&self) {
        self.shared.lock().areas.iter_mut().for_each(AreaState::compare_pages);
    }
}

impl Background {
    fn end(self) {
        let (flag, changed) = &*self.stop;
        *flag.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
        if self.thread.join().is_err() {
            tracing::error!("the thread that pre-copies has panicked");
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        let background = self.background.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(background) = background {
            background.end();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn head(&self) -> Result<Head, HeapError> {
        self.heap.read(Ptr::<Head>::new(Offset::of(self.head)))
    }

    /// The store of an area, which is found in the head or made, and whether it was found.
    fn enter(&self, name: &str, len_bytes: u64) -> Result<(Compartment, bool), CheckpointError> {
        let head = self.head()?;
        let mut key = [0; AREA_NAME_MAX + 1];
        key[..name.len()].copy_from_slice(name.as_bytes());
        if let Some(entry) =
            head.areas.iter().find(|entry| entry.len_bytes > 0 && entry.name == key)
        {
            let (made_bytes, asked_bytes) = (entry.len_bytes, len_bytes);
            if made_bytes != asked_bytes {
                let name = name.to_owned();
                return Err(CheckpointError::AreaSize { name, made_bytes, asked_bytes });
            }
            let all = self.heap.compartments();
            let offset = Offset::new(self.head).ok_or(HeapError::Null)?;
            let store = all.into_iter().find(|found| {
                found.offset.get() == entry.store && found.len_bytes >= store_bytes(len_bytes)
            });
            let store = store.ok_or(CheckpointError::Head { offset, value: entry.store })?;
            return Ok((store, true));
        }
        let full = || CheckpointError::AreasFull { name: name.to_owned() };
        let index = head.areas.iter().position(|entry| entry.len_bytes == 0).ok_or_else(full)?;
        let store = self.heap.compartment(Kind::Persistent, store_bytes(len_bytes))?;
        let entry = Entry { name: key, len_bytes, store: store.offset.get(), unused: [0; 2] };
        let at = self.head + 64 + (index * size_of::<Entry>()) as u64;
        let written = self.heap.transaction(|tx| tx.write_bytes(Offset::of(at), entry.as_bytes()));
        if let Err(error) = written {
            self.heap.remove_compartment(store)?;
            return Err(CheckpointError::Heap(error));
        }
        Ok((store, false))
    }

    /// Refuses unless every area of the last checkpoint is registered, because all areas share the
    /// choice of the table.
    fn check_all(&self, state: &State) -> Result<(), CheckpointError> {
        for entry in self.head()?.areas.iter().filter(|entry| entry.len_bytes > 0) {
            let len = entry.name.iter().position(|byte| *byte == 0).unwrap_or(AREA_NAME_MAX);
            let name = String::from_utf8_lossy(&entry.name[..len]);
            if !state.areas.iter().any(|area| area.name == name) {
                return Err(CheckpointError::AreaMissing { name: name.into_owned() });
            }
        }
        Ok(())
    }

    fn precopy(&self) -> Result<u64, CheckpointError> {
        let mut copied = 0;
        let areas = self.lock().areas.len();
        for index in 0..areas {
            self.lock().areas[index].begin_round();
            loop {
                let mut state = self.lock();
                let (some, is_done) = state.areas[index].copy(&self.heap, BATCH_PAGES)?;
                // The thread that locks the areas next may make the copies count, and its fence
                // does not cover them.
                self.heap.core.memory.fence();
                state.precopied += some;
                copied += some;
                if is_done {
                    break;
                }
            }
        }
        Ok(copied)
    }
}
