//! Marking, by several threads, the objects that references lead to.
//!
//! Each thread has a stack of its own. A thread with a long stack leaves a part of it to the
//! others, and a thread with none waits for such a part. All objects are marked when all threads
//! wait.

use std::sync::atomic::AtomicU64;
use std::sync::{Condvar, Mutex, PoisonError};

use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::engine::classes::SPAN_BYTES;
use crate::layout::SHADOW_WORDS;
use crate::ptr::{Offset, Persist, Ptr};
use crate::sys::Table;

/// Pieces on a stack above which the thread leaves half of them to the others.
const STACK_SHARED: usize = 512;
/// Bytes of an object that are looked at in one go; the rest is left to the thread that comes
/// first.
const PIECE_BYTES: u64 = 256 << 10;

/// A bit for each unit of 16 B at which an object may begin.
#[derive(Debug)]
pub(super) struct Marks {
    pub words: Table<AtomicU64>,
}

impl Marks {
    pub fn new(spans: u64) -> Result<Self, Errno> {
        Ok(Self { words: Table::new(spans as usize * SHADOW_WORDS)? })
    }
}

/// An object or a compartment to which a reference leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    /// Offset of its first byte.
    pub object: Offset,
    /// Bytes of the object's slot, or of the compartment.
    pub len_bytes: u64,
    /// Type of the pointer that was followed first ([`Persist::type_id`]); 0 for a compartment.
    pub type_id: u64,
    /// Whether this is a compartment and not an object.
    pub is_compartment: bool,
}

/// Takes the pointers that an object holds.
pub struct Visitor<'v> {
    core: &'v Core,
    found: &'v mut dyn FnMut(u64, u64),
}

impl Visitor<'_> {
    /// Takes a pointer of the object. A null pointer is ignored.
    pub fn visit<T: Persist>(&mut self, ptr: Ptr<T>) {
        if let Some(offset) = ptr.offset() {
            (self.found)(offset.get(), T::type_id());
        }
    }

    /// Reads a value from the object, `inside` bytes from its first byte; `None` if the value would
    /// leave the object.
    pub fn read<T: Persist>(&self, object: &Reached, inside: u64) -> Option<T> {
        let end = inside.checked_add(size_of::<T>() as u64)?;
        if end > object.len_bytes {
            return None;
        }
        let mut value = T::new_zeroed();
        self.core.memory.read(object.object.get() + inside, value.as_mut_bytes());
        Some(value)
    }
}

/// A way to find references.
pub(super) trait Tracer: Sync {
    /// The object around an offset that a reference names.
    fn find(&self, offset: u64, type_id: u64) -> Option<Reached>;
    /// Hands the references in `from..to` of an object to `found`, each with its offset and type.
    fn trace(&self, object: &Reached, from: u64, to: u64, found: &mut dyn FnMut(u64, u64));
    /// Whether objects may be looked at in pieces.
    const IN_PIECES: bool;
}

fn find(core: &Core, offset: u64, type_id: u64) -> Option<Reached> {
    let (start, len_bytes) = core.engine.object_around(offset)?;
    Some(Reached { object: Offset::of(start), len_bytes, type_id, is_compartment: false })
}

/// Takes every word that can be a reference for one.
pub(super) struct Conservative<'c> {
    core: &'c Core,
}

impl<'c> Conservative<'c> {
    pub fn new(core: &'c Core) -> Self {
        Self { core }
    }
}

impl Tracer for Conservative<'_> {
    const IN_PIECES: bool = true;

    fn find(&self, offset: u64, type_id: u64) -> Option<Reached> {
        find(self.core, offset, type_id)
    }

    fn trace(&self, object: &Reached, from: u64, to: u64, found: &mut dyn FnMut(u64, u64)) {
        let base = self.core.memory.base() as u64;
        let end = self.core.layout.spans * SPAN_BYTES;
        let first = self.core.layout.first_span() * SPAN_BYTES;
        let mut words = [0_u64; 512];
        let mut at = object.object.get() + from;
        let stop = object.object.get() + to;
        while at < stop {
            let len = ((stop - at) / 8).min(words.len() as u64) as usize;
            if len == 0 {
                return;
            }
            self.core.memory.read(at, words[..len].as_mut_bytes());
            for word in &words[..len] {
                for offset in [*word, word.wrapping_sub(base)] {
                    if (first..end).contains(&offset) {
                        found(offset, 0);
                    }
                }
            }
            at += len as u64 * 8;
        }
    }
}

/// Asks the application for an object's references.
pub(super) struct Traced<'c, F> {
    core: &'c Core,
    each: &'c F,
}

impl<'c, F> Traced<'c, F> {
    pub fn new(core: &'c Core, each: &'c F) -> Self {
        Self { core, each }
    }
}

impl<F: Fn(&Reached, &mut Visitor<'_>) + Sync> Tracer for Traced<'_, F> {
    const IN_PIECES: bool = false;

    fn find(&self, offset: u64, type_id: u64) -> Option<Reached> {
        find(self.core, offset, type_id)
    }

    fn trace(&self, object: &Reached, _: u64, _: u64, found: &mut dyn FnMut(u64, u64)) {
        (self.each)(object, &mut Visitor { core: self.core, found });
    }
}

/// A part of an object or compartment that is still to be looked at.
#[derive(Clone, Copy)]
struct Piece {
    object: Reached,
    from: u64,
}

/// The pieces that threads leave to each other.
#[derive(Default)]
struct Shared {
    pieces: Vec<Piece>,
    waiting: usize,
}

/// Marks all objects that references from `first` lead to; `first` is marked already.
pub(super) fn run(core: &Core, tracer: &impl Tracer, marks: &Marks, first: Vec<Reached>) {
    let threads = match core.config.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let pieces = first.into_iter().map(|object| Piece { object, from: 0 }).collect();
    let shared = Mutex::new(Shared { pieces, waiting: 0 });
    let changed = Condvar::new();
    let work = || {
        let mut stack = Vec::new();
        while refill(&mut stack, &shared, &changed, threads) {
            while let Some(piece) = stack.pop() {
                follow(tracer, marks, piece, &mut stack);
                if threads > 1 && stack.len() > STACK_SHARED {
                    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
                    if shared.waiting > 0 && shared.pieces.is_empty() {
                        shared.pieces.extend(stack.drain(..STACK_SHARED / 2));
                        changed.notify_all();
                    }
                }
            }
        }
    };
    // The others would wait for a thread whose trace panics, so such a thread counts as one that
    // waits for ever.
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| {
                let _ending = Ending { shared: &shared, changed: &changed };
                work();
            });
        }
        let _ending = Ending { shared: &shared, changed: &changed };
        work();
    });
}

struct Ending<'s> {
    shared: &'s Mutex<Shared>,
    changed: &'s Condvar,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.lock().unwrap_or_else(PoisonError::into_inner).waiting += 1;
            self.changed.notify_all();
        }
    }
}

/// Gets a share of the pieces that other threads left. Returns false when all threads wait.
fn refill(
    stack: &mut Vec<Piece>,
    shared: &Mutex<Shared>,
    changed: &Condvar,
    threads: usize,
) -> bool {
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    shared.waiting += 1;
    while shared.pieces.is_empty() {
        if shared.waiting >= threads {
            changed.notify_all();
            return false;
        }
        shared = changed.wait(shared).unwrap_or_else(PoisonError::into_inner);
    }
    shared.waiting -= 1;
    let share = shared.pieces.len().div_ceil(threads).min(STACK_SHARED);
    let rest = shared.pieces.len() - share;
    stack.extend(shared.pieces.drain(rest..));
    true
}

/// Looks at a piece: the objects that it refers to are marked and put on the stack.
fn follow<T: Tracer>(tracer: &T, marks: &Marks, piece: Piece, stack: &mut Vec<Piece>) {
    let Piece { object, from } = piece;
    let to = if T::IN_PIECES { object.len_bytes.min(from + PIECE_BYTES) } else { object.len_bytes };
    if to < object.len_bytes {
        stack.push(Piece { object, from: to });
    }
    tracer.trace(&object, from, to, &mut |offset, type_id| {
        if let Some(reached) = tracer.find(offset, type_id)
            && marks.set(reached.object.get())
        {
            stack.push(Piece { object: reached, from: 0 });
        }
    });
}
