//! One operation over one or more lanes, of which everything happens or nothing.

use std::sync::atomic::Ordering::Release;

use perdura_region::{Heat, LaneId, Undo};

use crate::error::Stop;
use crate::fuse::Fuse;
use crate::heap::Heap;
use crate::lane::Lane;
use crate::log::{self, Log, RECORD_BYTES_MAX, whole};
use crate::spans::Spans;

/// The lanes that an operation works on.
#[derive(Debug, Clone, Copy)]
pub enum LaneSet<'l> {
    /// A single lane.
    One(LaneId),
    /// Several lanes, ascending, none of them twice.
    Many(&'l [LaneId]),
}

/// An operation in progress. Dropping it without [`Op::commit`] rolls it back.
pub struct Op<'h> {
    spans: &'h Spans,
    /// The lowest lane. Its undo log serves the operation, and its credit pays for all lanes.
    lead: Lane<'h>,
    /// The other lanes, ascending.
    rest: Vec<Lane<'h>>,
    /// Whether the operation began with budget bytes to pay with.
    has_credit: bool,
    /// A change that is not made yet: as long as it is the only one, making it is the commit.
    last: Option<LastStore>,
    /// What is changed, with the old bytes in the thread's undo slot: as long as they have room
    /// there, closing the slot is the commit.
    undo: Undo<'h>,
    /// What is changed, once there is no room in the slot: then everything is in the log.
    log: Log,
    /// Objects allocated, which are freed if the operation is rolled back.
    fresh: Vec<u64>,
    /// Objects that are freed when the operation commits.
    doomed: Vec<u64>,
    /// How many times the operation has begun to change memory.
    changes: u32,
    /// Whether the operation has committed.
    done: bool,
}

/// Objects that [`Op::is_fresh`] looks at.
const FRESH_LOOKED_AT: usize = 16;

/// A change of one word that waits for the commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastStore {
    lane: LaneId,
    /// Region offset of the word.
    pub offset: u64,
    /// The word after the commit.
    pub value: u64,
}

impl Heap {
    /// Locks the lanes and begins an operation that may spend `credit_bytes`, which
    /// [`crate::Region::satisfy`] returned.
    // An operation is large: it is made where it is kept, and not moved there.
    #[inline]
    pub fn begin(&self, lanes: LaneSet<'_>, credit_bytes: u64) -> Op<'_> {
        let (lead, others) = match lanes {
            LaneSet::One(lane) => (lane, &[][..]),
            LaneSet::Many([lead, others @ ..]) => (*lead, others),
            LaneSet::Many([]) => panic!("an operation without lanes"),
        };
        assert!(others.first().is_none_or(|lane| *lane > lead));
        assert!(others.is_sorted_by(|a, b| a < b), "lanes are locked in ascending order");
        let lead = self.lock_with(lead, credit_bytes);
        let rest = others.iter().map(|lane| self.lock(*lane)).collect();
        Op::on(lead, rest, credit_bytes > 0)
    }
}

impl<'h> Lane<'h> {
    /// Begins an operation on this lane alone, without budget bytes to pay with.
    #[inline]
    pub fn begin(self) -> Op<'h> {
        Op::on(self, Vec::new(), false)
    }
}

impl<'h> Op<'h> {
    #[inline(always)]
    fn on(lead: Lane<'h>, rest: Vec<Lane<'h>>, has_credit: bool) -> Self {
        let (fresh, doomed) = (Vec::new(), Vec::new());
        let spans = lead.spans;
        let log = Log::at(spans.layout.lane_block(lead.id()));
        let (last, undo, changes, done) = (None, lead.guard.undo(), 0, false);
        Self { spans, lead, rest, has_credit, last, undo, log, fresh, doomed, changes, done }
    }

    /// A lane that the operation holds.
    ///
    /// # Panics
    /// If the operation does not hold the lane.
    #[inline]
    pub fn lane(&self, id: LaneId) -> &Lane<'h> {
        if self.lead.id() == id {
            return &self.lead;
        }
        match self.rest.binary_search_by_key(&id, Lane::id) {
            Ok(index) => &self.rest[index],
            Err(_) => panic!("the operation does not hold lane {}", id.0),
        }
    }

    /// Whether the operation holds the lane.
    #[inline]
    pub fn holds(&self, id: LaneId) -> bool {
        self.lead.id() == id || self.rest.binary_search_by_key(&id, Lane::id).is_ok()
    }

    /// A lane that the operation holds, to change the volatile state that the heap's user keeps
    /// with it.
    ///
    /// # Panics
    /// If the operation does not hold the lane.
    #[inline]
    pub fn lane_mut(&mut self, id: LaneId) -> &mut Lane<'h> {
        if self.lead.id() == id { &mut self.lead } else { among(&mut self.rest, id) }
    }

    /// Lets the operation take spans of the reserve.
    pub fn use_reserve(&mut self) {
        self.lead.use_reserve();
        self.rest.iter_mut().for_each(Lane::use_reserve);
    }

    /// All lanes that the operation holds, ascending.
    pub fn lanes(&self) -> impl Iterator<Item = &Lane<'h>> {
        std::iter::once(&self.lead).chain(&self.rest)
    }

    /// Changes a word that references lead to. The change is undone if the operation is.
    ///
    /// # Errors
    /// The operation must end without commit, for the reason that [`Stop`] names.
    #[inline]
    pub fn store(&mut self, id: LaneId, offset: u64, value: u64) -> Result<(), Stop> {
        self.settle()?;
        self.store_undoably(id, offset, value)
    }

    /// Changes a word as [`Op::store`] does, but together with the commit if no other change
    /// follows: one word needs no undo log. Until then memory has the old word, and
    /// [`Op::last_store`] the new one.
    ///
    /// # Errors
    /// The errors of [`Op::store`].
    pub fn store_last(&mut self, id: LaneId, offset: u64, value: u64) -> Result<(), Stop> {
        let is_last = self.last.is_none_or(|last| last.offset == offset);
        if !is_last || !self.undo.is_empty() || !self.log.is_empty() {
            return self.store(id, offset, value);
        }
        self.changes += 1;
        self.pay(id, |lane, _| lane.guard.announce(offset, 8).map_err(Stop::Need))?;
        self.last = Some(LastStore { lane: id, offset, value });
        Ok(())
    }

    /// How many times the operation has begun to change memory: while the number stays as it was,
    /// what was read is still so.
    pub fn changes(&self) -> u32 {
        self.changes
    }

    /// The change of a word that [`Op::store_last`] has left for the commit.
    pub fn last_store(&self) -> Option<LastStore> {
        self.last
    }

    /// Makes the change that waits for the commit, so that other changes can follow.
    #[inline]
    fn settle(&mut self) -> Result<(), Stop> {
        match self.last.take() {
            Some(last) => self.store_undoably(last.lane, last.offset, last.value),
            None => Ok(()),
        }
    }

    /// Moves what the undo slot keeps to the log, whose end then commits everything.
    #[cold]
    fn spill(&mut self) -> Result<(), Stop> {
        let (fuse, lead) = (&self.spans.fuse, &mut self.lead);
        for (offset, old) in self.undo.entries() {
            match old.first_chunk::<8>() {
                Some(word) if old.len() == 8 && offset.is_multiple_of(8) => {
                    self.log.word(fuse, lead, [offset, u64::from_le_bytes(*word)])?;
                }
                _ => self.log.bytes(fuse, lead, offset, old)?,
            }
        }
        fuse.burn()?;
        self.undo.close();
        Ok(())
    }

    fn store_undoably(&mut self, id: LaneId, offset: u64, value: u64) -> Result<(), Stop> {
        self.changes += 1;
        let old = self.lane(id).load(offset);
        if old == value {
            return Ok(());
        }
        let fuse = &self.spans.fuse;
        fuse.burn()?;
        if self.log.is_empty() {
            let mut is_kept = false;
            self.pay(id, |lane, undo| {
                let Some(word) = lane.guard.keep_word(undo, offset).map_err(Stop::Need)? else {
                    return Ok(());
                };
                is_kept = true;
                fuse.burn()?;
                word.store(value, Release);
                Ok(())
            })?;
            if is_kept {
                return Ok(());
            }
            self.spill()?;
        }
        self.log.word(fuse, &mut self.lead, [offset, old])?;
        fuse.burn()?;
        self.pay(id, |lane, _| lane.guard.store(offset, value).map_err(Stop::Need))
    }

    /// Changes bytes that references lead to. The change is undone if the operation is.
    ///
    /// # Errors
    /// The errors of [`Op::store`].
    pub fn overwrite(&mut self, id: LaneId, offset: u64, bytes: &[u8]) -> Result<(), Stop> {
        if self.try_overwrite(id, offset, std::iter::once(bytes))? {
            return Ok(());
        }
        if self.log.is_empty() {
            self.spill()?;
        }
        let mut at = offset;
        for piece in bytes.chunks(RECORD_BYTES_MAX) {
            let old = self.lane(id).bytes(at, piece.len()).to_vec();
            self.log.bytes(&self.spans.fuse, &mut self.lead, at, &old)?;
            self.spans.fuse.burn()?;
            self.fill(id, at, piece.len(), None)?.copy_from_slice(piece);
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Changes bytes that references lead to, as [`Op::overwrite`] does, if that costs little more
    /// than storing them: the old bytes fit the thread's undo slot. `parts` follow one another from
    /// `offset` on. Returns whether the bytes were changed.
    ///
    /// # Errors
    /// The errors of [`Op::store`].
    pub fn try_overwrite<'b>(
        &mut self,
        id: LaneId,
        offset: u64,
        parts: impl Iterator<Item = &'b [u8]> + Clone,
    ) -> Result<bool, Stop> {
        self.settle()?;
        if !self.log.is_empty() {
            return Ok(false);
        }
        self.changes += 1;
        let fuse = &self.spans.fuse;
        fuse.burn()?;
        let len = parts.clone().map(<[u8]>::len).sum();
        let stop = |need| Stop::Need(whole(need, len as u64));
        let mut is_done = false;
        self.pay(id, |lane, undo| {
            if let Some(place) = lane.guard.keep(undo, offset, len).map_err(stop)? {
                is_done = true;
                fill(place, parts, fuse)?;
                lane.note_overwritten();
            }
            Ok(())
        })?;
        Ok(is_done)
    }

    /// Takes memory for an object, whose bytes are arbitrary at first. The memory is free again if
    /// the operation is rolled back.
    ///
    /// # Errors
    /// The errors of [`Op::store`], or memory is used up.
    pub fn alloc(&mut self, id: LaneId, bytes: u64) -> Result<u64, Stop> {
        self.alloc_with(id, |lane| lane.alloc(bytes))
    }

    /// Takes a grain as [`Op::alloc`] does, away from the objects of its size: for one that will
    /// outlive most of them.
    ///
    /// # Errors
    /// The errors of [`Op::alloc`].
    pub fn alloc_lasting_grain(&mut self, id: LaneId) -> Result<u64, Stop> {
        self.alloc_with(id, Lane::alloc_lasting_grain)
    }

    fn alloc_with(
        &mut self,
        id: LaneId,
        alloc: impl FnOnce(&mut Lane<'h>) -> Result<u64, Stop>,
    ) -> Result<u64, Stop> {
        let mut taken = 0;
        self.pay(id, |lane, _| {
            taken = alloc(lane)?;
            Ok(())
        })?;
        noted(&mut self.fresh, &mut self.lead.state_mut().scratch[0]).push(taken);
        Ok(taken)
    }

    /// Whether an object is one of those that the operation took last: to these no committed
    /// reference leads, so they may be filled again.
    pub fn is_fresh(&self, offset: u64) -> bool {
        self.fresh.iter().rev().take(FRESH_LOOKED_AT).any(|fresh| *fresh == offset)
    }

    /// Frees an object when the operation commits.
    pub fn free(&mut self, offset: u64) {
        noted(&mut self.doomed, &mut self.lead.state_mut().scratch[1]).push(offset);
    }

    /// Takes objects out of the operation. They stay if the operation is rolled back, and the
    /// caller frees them with [`Lane::free_unreached`].
    pub fn disown(&mut self, objects: impl IntoIterator<Item = u64>) {
        let mut objects: Vec<u64> = objects.into_iter().collect();
        objects.sort_unstable();
        self.fresh.retain(|fresh| objects.binary_search(fresh).is_err());
    }

    /// Announces bytes that no reference leads to, for the caller to fill: of a fresh object, or
    /// behind an object's end. `heat` is [`Lane::heat_of_successor`] of the object that a fresh one
    /// replaces, or cold; `None` for bytes behind an object's end.
    ///
    /// # Errors
    /// The errors of [`Op::store`].
    pub fn fill(
        &mut self,
        id: LaneId,
        offset: u64,
        len: usize,
        heat: Option<Heat>,
    ) -> Result<&mut [u8], Stop> {
        self.changes += 1;
        self.spans.fuse.burn()?;
        let stop = |need| Stop::Need(whole(need, len as u64));
        if self.has_credit {
            // Paid for here; the second announcement below finds everything entered.
            self.pay(id, |lane, _| lane.guard.announce(offset, len as u64).map_err(stop))?;
        }
        self.lane_mut(id).guard.announced_mut(offset, len, heat).map_err(stop)
    }

    /// Makes all changes final, in one store.
    ///
    /// # Errors
    /// A test has let the heap die ([`Stop::Killed`]).
    pub fn commit(mut self) -> Result<(), Stop> {
        self.conclude()
    }

    /// Makes all changes final, in one store. The lanes are held until the operation is dropped,
    /// which undoes nothing any more; no other change may follow.
    ///
    /// # Errors
    /// A test has let the heap die ([`Stop::Killed`]).
    #[inline]
    pub fn conclude(&mut self) -> Result<(), Stop> {
        self.spans.fuse.burn()?;
        if let Some(last) = self.last.take() {
            self.lane_mut(last.lane).guard.store_announced(last.offset, last.value);
        } else if !self.undo.is_empty() {
            self.undo.close();
        } else if !self.log.is_empty() {
            self.log.void(&mut self.lead);
        }
        self.done = true;
        if self.spans.fuse.burn().is_ok() {
            self.fresh.clear();
            self.release_all();
        }
        Ok(())
    }

    fn release_all(&mut self) {
        if self.doomed.is_empty() && self.log.more.is_empty() {
            return;
        }
        let mut doomed = std::mem::take(&mut self.doomed);
        doomed.append(&mut self.log.more);
        for &object in &doomed {
            if self.rest.is_empty() {
                self.lead.release(object);
            } else {
                let id = self.owner(object);
                self.lane_mut(id).release(object);
            }
        }
        doomed.clear();
        self.doomed = doomed;
    }

    fn owner(&self, object: u64) -> LaneId {
        match self.spans.run_of(object).1.run() {
            Some((lane, _)) => lane,
            None => panic!("object {object:#x} is freed twice"),
        }
    }

    /// Runs `f` on a lane to which the operation's credit is lent meanwhile.
    #[inline]
    fn pay(
        &mut self,
        id: LaneId,
        f: impl FnOnce(&mut Lane<'h>, &mut Undo<'h>) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let Self { lead, rest, undo, has_credit, .. } = self;
        let is_lead = lead.id() == id;
        let is_lent = *has_credit && !is_lead;
        let credit = if is_lent { lead.guard.withdraw() } else { 0 };
        let lane = if is_lead { &mut *lead } else { among(rest, id) };
        lane.guard.deposit(credit);
        // Called at one place, so that it becomes a part of its caller.
        let outcome = f(lane, undo);
        if is_lent {
            let left = lane.guard.withdraw();
            lead.guard.deposit(left);
        }
        outcome
    }

    #[cold]
    fn roll_back(&mut self) {
        self.undo.put_back();
        if !self.log.is_empty() {
            for undo in self.log.entries(&self.lead).into_iter().rev() {
                let (offset, old) = match undo {
                    log::Undo::Word { offset, old } => (offset, old.to_le_bytes().to_vec()),
                    log::Undo::Bytes { offset, old } => (offset, old),
                };
                let lane = self.holder(offset);
                // Bytes that could not be announced were not changed, and must not be stored to.
                if lane.bytes(offset, old.len()) != old.as_slice() {
                    let put_back = match old.first_chunk::<8>() {
                        Some(word) if old.len() == 8 && offset.is_multiple_of(8) => {
                            lane.guard.store(offset, u64::from_le_bytes(*word))
                        }
                        _ => lane.guard.write(offset, &old),
                    };
                    assert!(put_back.is_ok(), "what an operation changed stays announced");
                }
            }
            self.log.void(&mut self.lead);
        }
        let mut fresh = std::mem::take(&mut self.fresh);
        self.doomed.clear();
        self.doomed.append(&mut fresh);
        self.fresh = fresh;
        self.release_all();
    }

    /// The lane, of those held, that owns `offset`.
    fn holder(&mut self, offset: u64) -> &mut Lane<'h> {
        match self.spans.lane_at(offset) {
            Some(id) => self.lane_mut(id),
            None => panic!("offset {offset:#x} belongs to no lane"),
        }
    }
}

impl Lane<'_> {
    /// Changes bytes that references lead to, as an operation of its own: after a kill it is whole
    /// or absent. Returns whether the bytes were changed: not if they do not fit the thread's undo
    /// slot, or something has to be waited for.
    ///
    /// # Errors
    /// A test has let the heap die ([`Stop::Killed`]).
    #[inline]
    pub fn replace(&mut self, offset: u64, bytes: &[u8]) -> Result<bool, Stop> {
        let fuse = &self.spans.fuse;
        fuse.burn()?;
        let mut undo = self.guard.undo();
        let Ok(Some(place)) = self.guard.keep(&mut undo, offset, bytes.len()) else {
            return Ok(false);
        };
        fill(place, std::iter::once(bytes), fuse)?;
        fuse.burn()?;
        undo.close();
        self.note_overwritten();
        Ok(true)
    }

    /// Changes a word that references lead to, as an operation of its own, in one store.
    ///
    /// # Errors
    /// [`Stop::Need`] if the lane must be released and the need waited for.
    #[inline]
    pub fn store_alone(&mut self, offset: u64, word: u64) -> Result<(), Stop> {
        self.spans.fuse.burn()?;
        self.guard.store(offset, word).map_err(Stop::Need)
    }
}

/// The lane of an operation that is not the lowest.
fn among<'l, 'h>(rest: &'l mut [Lane<'h>], id: LaneId) -> &'l mut Lane<'h> {
    match rest.binary_search_by_key(&id, Lane::id) {
        Ok(index) => &mut rest[index],
        Err(_) => panic!("the operation does not hold lane {}", id.0),
    }
}

/// Copies `parts` one behind the other; in halves where a test plans a death, which may be between
/// two of them.
fn fill<'b>(
    mut place: &mut [u8],
    parts: impl Iterator<Item = &'b [u8]>,
    fuse: &Fuse,
) -> Result<(), Stop> {
    for part in parts {
        let piece = if fuse.is_lit() { part.len().div_ceil(2) } else { part.len() };
        for bytes in part.chunks(piece.max(1)) {
            fuse.burn()?;
            let (here, behind) = place.split_at_mut(bytes.len());
            here.copy_from_slice(bytes);
            place = behind;
        }
    }
    Ok(())
}

impl Drop for Op<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.spans.fuse.is_burnt() {
            return;
        }
        if !self.done {
            self.roll_back();
        }
        let lists = [&mut self.fresh, &mut self.doomed].into_iter();
        for (list, kept) in lists.zip(&mut self.lead.state_mut().scratch) {
            if list.capacity() > 0 {
                *kept = std::mem::take(list);
            }
        }
    }
}

/// A list of objects, which gets the memory that the lane keeps for it when it is first used: many
/// operations use none, and then the lane's line stays with the processor that has it.
fn noted<'l>(list: &'l mut Vec<u64>, kept: &mut Vec<u64>) -> &'l mut Vec<u64> {
    if list.capacity() == 0 {
        *list = std::mem::take(kept);
    }
    list
}
