//! The allocator itself, for both kinds of memory: spans, slots, caches of threads.
//!
//! Everything here lies in DRAM and is lost with the process. Callers record the state that must
//! survive: the engine tells its [`Backing`] when spans change their use, and hands out or takes
//! back slots.
//!
//! A slot is free in a run's states, then in a thread's cache, then used, then in a cache again,
//! then free. Its state is changed by the thread whose cache holds the slot, or under the lock of
//! its class.
//!
//! Lock order: a class's list, then the pool. Nothing here calls `malloc`.

mod cache;
mod central;
pub(crate) mod classes;
mod pool;
pub(crate) mod spans;
pub(crate) mod walk;

use std::sync::atomic::Ordering::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

use perdura_dirty::{Held, Rank, taking};
use rustix::io::Errno;

pub(crate) use cache::{Bin, ThreadCache};
use central::Central;
use classes::{CLASSES, SPAN_BYTES, class_aligned, class_info, class_of};
use pool::Pool;
use spans::{CACHED, FREE, Slot, Span, SpanTable, USED};

/// The two kinds of memory (pMem: NVMPersist and NVMCap).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Memory whose contents survive the process.
    Persistent = 0,
    /// A plain heap, whose contents are gone after a restart.
    Capacity = 1,
}

impl Kind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Persistent, Self::Capacity];
}

/// The use of a run of spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Run {
    /// The run holds slots of a class.
    Slots { class: u8 },
    /// The run holds one object.
    Large { spans: u32 },
}

/// The memory below the engine. No call is on the fast path.
pub(crate) trait Backing: Send + Sync {
    /// Lets a range serve a kind. If `at_once`, the range is a bucket, which may get its pages now.
    /// Otherwise it is the buckets of one large object, of which perhaps little is ever touched.
    fn enter_bucket(&self, kind: Kind, offset: u64, len: u64, at_once: bool) -> Result<(), Errno>;
    /// Notes that a range holds nothing, so that its pages may go.
    fn leave_bucket(&self, offset: u64, len: u64);
    /// Notes that a run begins to be used, durably where that is needed.
    fn enter_run(&self, kind: Kind, start: u64, run: Run);
    /// Notes that a run without objects is no longer used.
    fn leave_run(&self, kind: Kind, start: u64);
}

/// Why the engine has no memory for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoMemory {
    /// No free spans are left.
    Exhausted { needed_bytes: u64, free_bytes: u64 },
    /// The kernel or the region refuses.
    Refused(Errno),
}

/// Why an object cannot be freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotFreed {
    /// No object begins there.
    NoObject,
    /// The object is free already.
    Twice,
    /// The object is of the other kind.
    OtherKind,
}

/// An object that was found.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Found {
    Slot(Slot),
    Large { kind: Kind, spans: u32 },
}

impl Found {
    pub fn kind(&self) -> Kind {
        match self {
            Self::Slot(slot) => slot.kind,
            Self::Large { kind, .. } => *kind,
        }
    }

    /// Bytes that the object may use.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Slot(slot) => u64::from(class_info(slot.class).bytes),
            Self::Large { spans, .. } => u64::from(*spans) * SPAN_BYTES,
        }
    }
}

/// The allocator of a heap.
pub(crate) struct Engine {
    pub spans: SpanTable,
    pool: Mutex<Pool>,
    central: [[Mutex<Central>; CLASSES]; 2],
    backing: Box<dyn Backing>,
    /// Free spans that objects must leave to the logs.
    keep_spans: std::sync::atomic::AtomicU64,
}

/// An engine of which all locks are held.
pub(crate) struct Halted<'e> {
    pool: Held<MutexGuard<'e, Pool>>,
    _central: [[Held<MutexGuard<'e, Central>>; CLASSES]; 2],
}

impl Halted<'_> {
    /// The spans of a kind's buckets, bucket by bucket.
    pub fn owned(&self, kind: Kind) -> impl Iterator<Item = std::ops::Range<u64>> {
        self.pool.owned(kind)
    }
}

impl Engine {
    /// Takes all locks, so that the process can fork.
    pub fn halt(&self) -> Halted<'_> {
        let central = Kind::ALL.map(|kind| std::array::from_fn(|c| self.lock_central(kind, c)));
        Halted { pool: self.pool(), _central: central }
    }

    /// An engine over the spans from `first` to `end`, all free.
    pub fn new(
        first: u64,
        end: u64,
        bucket_spans: u64,
        backing: Box<dyn Backing>,
    ) -> Result<Self, Errno> {
        Ok(Self {
            spans: SpanTable::new(end)?,
            pool: Mutex::new(Pool::new(first, end, bucket_spans)?),
            central: std::array::from_fn(|_| std::array::from_fn(|_| Mutex::default())),
            backing,
            keep_spans: 0.into(),
        })
    }

    /// Sets how many free spans objects must leave.
    pub fn keep_free(&self, spans: u64) {
        self.keep_spans.store(spans, Relaxed);
    }

    /// Takes an object of `bytes`, at a multiple of `align` (a power of two), out of a cache. Its
    /// state says "used".
    #[inline]
    pub fn alloc(
        &self,
        cache: &ThreadCache,
        kind: Kind,
        bytes: u64,
        align: u64,
    ) -> Result<u64, NoMemory> {
        let class = if align <= classes::UNIT_BYTES {
            class_of(bytes)
        } else {
            class_aligned(bytes, align)
        };
        let Some(class) = class else { return self.alloc_large(kind, bytes, align) };
        let bin = cache.bin(kind, class);
        let offset = match bin.pop() {
            Some(offset) => offset,
            None => self.refill(bin, kind, class)?,
        };
        self.state_of(offset).store(USED, Relaxed);
        Ok(offset)
    }

    /// The object that begins at `offset`.
    #[inline]
    pub fn find(&self, offset: u64) -> Result<Found, NotFreed> {
        if let Some(slot) = self.spans.slot_at(offset) {
            return match self.spans.state(slot.states, slot.slot).load(Relaxed) {
                USED => Ok(Found::Slot(slot)),
                _ => Err(NotFreed::Twice),
            };
        }
        match self.spans.get(offset / SPAN_BYTES) {
            Span::Large { kind, spans } if offset.is_multiple_of(SPAN_BYTES) => {
                Ok(Found::Large { kind, spans })
            }
            _ => Err(NotFreed::NoObject),
        }
    }

    /// First byte and length of the persistent object that holds the byte at `offset`.
    #[inline]
    pub fn object_around(&self, offset: u64) -> Option<(u64, u64)> {
        let span = offset / SPAN_BYTES;
        match self.spans.get(span) {
            Span::Slots { kind: Kind::Persistent, class, back, states } => {
                let info = class_info(usize::from(class));
                let start = (span - u64::from(back)) * SPAN_BYTES;
                let slot = info.slot_holding(offset - start)?;
                let is_used = self.spans.state(states, slot).load(Relaxed) == USED;
                let bytes = u64::from(info.bytes);
                is_used.then_some((start + u64::from(slot) * bytes, bytes))
            }
            Span::Large { .. } => self.large_around(span, 0),
            Span::Inside { back } => self.large_around(span, back),
            Span::Slots { .. } | Span::Other | Span::Nothing => None,
        }
    }

    /// The large persistent object that begins `back` spans before `span` and holds it.
    fn large_around(&self, span: u64, back: u32) -> Option<(u64, u64)> {
        let start = span.checked_sub(u64::from(back))?;
        match self.spans.get(start) {
            // The object may have been freed, and another may begin there by now.
            Span::Large { kind: Kind::Persistent, spans } if back < spans => {
                Some((start * SPAN_BYTES, u64::from(spans) * SPAN_BYTES))
            }
            _ => None,
        }
    }

    /// Marks the object at `offset` as no longer used. Of several threads that free an object one
    /// succeeds. The object is not handed out again before [`Engine::give`].
    #[inline]
    pub fn unuse(&self, kind: Kind, offset: u64) -> Result<Found, NotFreed> {
        let found = self.find(offset)?;
        if found.kind() != kind {
            return Err(NotFreed::OtherKind);
        }
        match &found {
            Found::Slot(slot) => {
                // No locked exchange is needed: two threads that free one object at the same
                // instant are both wrong, and the second is met when the slot is given to its run.
                let state = self.spans.state(slot.states, slot.slot);
                state.store(CACHED, Relaxed);
            }
            Found::Large { kind, spans } => {
                let what = Span::Large { kind: *kind, spans: *spans };
                if !self.spans.remove_large(offset / SPAN_BYTES, what) {
                    return Err(NotFreed::Twice);
                }
            }
        }
        Ok(found)
    }

    /// Frees an object, as [`Engine::unuse`] and [`Engine::give`] do together, without the steps
    /// between them that only transactions need. `record` records the free and may refuse; `drain`
    /// is as in [`Engine::give`].
    #[inline]
    pub fn free<E>(
        &self,
        cache: &ThreadCache,
        kind: Kind,
        offset: u64,
        record: impl FnOnce() -> Result<(), E>,
        drain: impl FnOnce(),
    ) -> Result<Result<(), E>, NotFreed> {
        let Some(slot) = self.spans.slot_at(offset) else {
            let found = self.unuse(kind, offset)?;
            if let Err(refused) = record() {
                self.reuse(offset, found);
                return Ok(Err(refused));
            }
            self.give(cache, offset, found, drain);
            return Ok(Ok(()));
        };
        if slot.kind != kind {
            return Err(NotFreed::OtherKind);
        }
        let state = self.spans.state(slot.states, slot.slot);
        if state.load(Relaxed) != USED {
            return Err(NotFreed::Twice);
        }
        state.store(CACHED, Relaxed);
        if let Err(refused) = record() {
            state.store(USED, Relaxed);
            return Ok(Err(refused));
        }
        let bin = cache.bin(kind, slot.class);
        if !bin.push(offset, class_info(slot.class).cached_max) {
            drain();
            self.overflow(bin, slot);
            bin.push(offset, u32::MAX);
        }
        Ok(Ok(()))
    }

    /// Takes back a call of [`Engine::unuse`]: the object is still used.
    pub fn reuse(&self, offset: u64, found: Found) {
        match found {
            Found::Slot(slot) => self.spans.state(slot.states, slot.slot).store(USED, Relaxed),
            Found::Large { kind, spans } => {
                self.spans.set(offset / SPAN_BYTES, Span::Large { kind, spans });
            }
        }
    }

    /// Gives an object's memory back. `drain` is called before slots leave the thread's cache.
    #[inline]
    pub fn give(&self, cache: &ThreadCache, offset: u64, found: Found, drain: impl FnOnce()) {
        match found {
            Found::Slot(slot) => {
                let bin = cache.bin(slot.kind, slot.class);
                if !bin.push(offset, class_info(slot.class).cached_max) {
                    drain();
                    self.overflow(bin, slot);
                    bin.push(offset, u32::MAX);
                }
            }
            Found::Large { kind, spans } => {
                drain();
                self.release_run(kind, offset / SPAN_BYTES, u64::from(spans));
            }
        }
    }

    /// Gives all slots of a cache back.
    pub fn flush_cache(&self, cache: &ThreadCache) {
        for kind in Kind::ALL {
            for class in 0..CLASSES {
                let bin = cache.bin(kind, class);
                let mut central = self.lock_central(kind, class);
                while let Some(offset) = bin.pop() {
                    central.give(self, offset, false);
                }
            }
        }
    }

    /// Takes spans for the heap's own use, if `keep` free spans are left.
    pub fn take_spans(&self, kind: Kind, spans: u64, keep: u64) -> Result<u64, NoMemory> {
        let start = self.take_run(kind, spans, 1, keep)?;
        for span in start..start + spans {
            self.spans.set(span, Span::Other);
        }
        Ok(start)
    }

    /// Takes spans for a compartment, which must leave the logs their own.
    pub fn take_compartment(&self, kind: Kind, spans: u64) -> Result<u64, NoMemory> {
        let start = self.take_run(kind, spans, 1, self.keep_spans.load(Relaxed))?;
        for span in start..start + spans {
            self.spans.set(span, Span::Other);
        }
        Ok(start)
    }

    /// Gives back spans of the heap's own, or of a compartment.
    pub fn put_spans(&self, start: u64, spans: u64) {
        for span in start..start + spans {
            self.spans.set(span, Span::Nothing);
        }
        self.put_run(start, spans);
    }

    /// Enters spans of the heap's own that were found when a heap is opened.
    pub fn claim_spans(&self, kind: Kind, start: u64, spans: u64) {
        self.pool().claim(kind, start, spans);
        for span in start..start + spans {
            self.spans.set(span, Span::Other);
        }
    }

    /// Enters a large object that was found when a heap is opened.
    pub fn claim_large(&self, start: u64, spans: u32) {
        self.pool().claim(Kind::Persistent, start, u64::from(spans));
        self.spans.set_large(start, Kind::Persistent, spans);
    }

    /// Enters a run of slots that was found when a heap is opened; `is_used` names the slots that
    /// hold objects.
    pub fn claim_slots(&self, start: u64, class: usize, is_used: impl Fn(u32) -> bool) {
        let info = class_info(class);
        let states = {
            let mut pool = self.pool();
            pool.claim(Kind::Persistent, start, u64::from(info.spans));
            pool.take_states(info.slots)
        };
        let mut free = 0;
        for (slot, state) in self.spans.states_of(states, info.slots).iter().enumerate() {
            let is_used = is_used(slot as u32);
            state.store(if is_used { USED } else { FREE }, Relaxed);
            free += u32::from(!is_used);
        }
        self.spans.set_run(start, Kind::Persistent, class, states);
        self.lock_central(Kind::Persistent, class).enter(self, start, free);
    }

    /// The number of free spans that persistent memory may have.
    pub fn free_for_persistent(&self) -> u64 {
        self.pool().free_for_persistent()
    }

    /// The number of free spans; and, for each kind, the number of its buckets' spans, and how many
    /// of these are free.
    pub fn count_spans(&self) -> (u64, [(u64, u64); 2]) {
        let pool = self.pool();
        (pool.free_spans(), Kind::ALL.map(|kind| pool.owned_spans(kind)))
    }

    /// The spans of buckets that serve no kind.
    pub fn unowned(&self) -> Vec<std::ops::Range<u64>> {
        self.pool().unowned()
    }

    #[inline]
    fn state_of(&self, offset: u64) -> &std::sync::atomic::AtomicU8 {
        match self.spans.slot_at(offset) {
            Some(slot) => self.spans.state(slot.states, slot.slot),
            None => unreachable!("a cache holds slots only, not {offset:#x}"),
        }
    }

    #[cold]
    #[inline(never)]
    fn refill(&self, bin: &Bin, kind: Kind, class: usize) -> Result<u64, NoMemory> {
        let wanted = class_info(class).cached_max.div_ceil(2);
        self.lock_central(kind, class).fill(self, bin, kind, class, wanted)?;
        match bin.pop() {
            Some(offset) => Ok(offset),
            None => unreachable!("a list that was refilled gave nothing"),
        }
    }

    #[cold]
    #[inline(never)]
    fn overflow(&self, bin: &Bin, slot: Slot) {
        let mut central = self.lock_central(slot.kind, slot.class);
        // The oldest half goes: slots that were freed last are in the processor's cache still.
        bin.drop_oldest(class_info(slot.class).cached_max / 2 + 1, |offset| {
            central.give(self, offset, true);
        });
    }

    fn alloc_large(&self, kind: Kind, bytes: u64, align: u64) -> Result<u64, NoMemory> {
        let spans = bytes.max(1).div_ceil(SPAN_BYTES);
        let align_spans = align.div_ceil(SPAN_BYTES);
        let keep = self.keep_spans.load(Relaxed);
        let Ok(count) = u32::try_from(spans) else {
            let free_bytes = self.pool().free_spans() * SPAN_BYTES;
            return Err(NoMemory::Exhausted { needed_bytes: bytes, free_bytes });
        };
        let start = self.take_run(kind, spans, align_spans, keep)?;
        self.backing.enter_run(kind, start, Run::Large { spans: count });
        self.spans.set_large(start, kind, count);
        Ok(start * SPAN_BYTES)
    }

    /// Takes a run of slots, and enters it in the tables.
    fn new_run(&self, kind: Kind, class: usize) -> Result<u64, NoMemory> {
        let info = class_info(class);
        let keep = self.keep_spans.load(Relaxed);
        let start = self.take_run(kind, u64::from(info.spans), 1, keep)?;
        self.backing.enter_run(kind, start, Run::Slots { class: class as u8 });
        let states = self.pool().take_states(info.slots);
        for state in self.spans.states_of(states, info.slots) {
            state.store(FREE, Relaxed);
        }
        self.spans.set_run(start, kind, class, states);
        Ok(start)
    }

    fn release_run(&self, kind: Kind, start: u64, spans: u64) {
        self.backing.leave_run(kind, start);
        if let Span::Slots { states, class, .. } = self.spans.get(start) {
            self.pool().put_states(states, class_info(usize::from(class)).slots);
        }
        for span in start..start + spans {
            self.spans.set(span, Span::Nothing);
        }
        self.put_run(start, spans);
    }

    fn take_run(&self, kind: Kind, spans: u64, align: u64, keep: u64) -> Result<u64, NoMemory> {
        let mut pool = self.pool();
        let Some(taken) = pool.take(kind, spans, align, keep) else {
            let free_bytes = pool.free_spans() * SPAN_BYTES;
            return Err(NoMemory::Exhausted { needed_bytes: spans * SPAN_BYTES, free_bytes });
        };
        let (first, len) = taken.new_buckets.unwrap_or((0, 0));
        let at_once = kind == Kind::Persistent || spans <= pool.bucket_spans();
        let step = if at_once { 1 } else { len.max(1) };
        for bucket in (first..first + len).step_by(step as usize) {
            let start = pool.spans_of(bucket).start;
            let bytes = (pool.spans_of(bucket + step - 1).end - start) * SPAN_BYTES;
            let entered = self.backing.enter_bucket(kind, start * SPAN_BYTES, bytes, at_once);
            if let Err(errno) = entered {
                let left = pool.refuse(taken, spans);
                self.leave(left);
                return Err(NoMemory::Refused(errno));
            }
        }
        Ok(taken.start)
    }

    fn put_run(&self, start: u64, spans: u64) {
        let mut pool = self.pool();
        let left = pool.put(start, spans);
        // The lock is held, so that no thread takes these spans before their pages are gone.
        self.leave(left);
    }

    fn leave(&self, left: Option<std::ops::Range<u64>>) {
        if let Some(left) = left {
            let bytes = (left.end - left.start) * SPAN_BYTES;
            self.backing.leave_bucket(left.start * SPAN_BYTES, bytes);
        }
    }

    fn lock_central(&self, kind: Kind, class: usize) -> Held<MutexGuard<'_, Central>> {
        let central = &self.central[kind as usize][class];
        let number = kind as usize * CLASSES + class;
        taking(Rank::Class(number as u16), || {
            central.lock().unwrap_or_else(PoisonError::into_inner)
        })
    }

    fn pool(&self) -> Held<MutexGuard<'_, Pool>> {
        taking(Rank::Pool, || self.pool.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
