//! Free spans, in contiguity buckets, each of which serves one kind of memory.
//!
//! Pages of the two kinds that lie between each other conflict in a physically indexed cache (pMem,
//! "Conflict unaware JIT allocation"). A bucket gets its pages at once, so that they are contiguous
//! ("Contiguity-Bucket-based Page Allocator"). Buckets also isolate the kinds from each other.
//! Nothing here allocates, because tables are mapped. One lock guards everything (see
//! [`super::Engine`]).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use rustix::io::Errno;

use super::Kind;
use super::spans::{STATES_PER_SPAN, STATES_PIECE};
use crate::sys::Table;

/// Least number of entirely free buckets that a kind keeps before their memory is given back. A
/// kind also keeps a part of all buckets or, for capacity memory, of its own: a large heap of which
/// little is used keeps little. A fold frees chunks of logs that the next chunks take; to empty and
/// fill their buckets each time cost a third of an allocation.
const IDLE_KEPT: u32 = 16;
const IDLE_PART: u32 = 32;
/// Owner of a bucket that serves no kind.
const NOBODY: u32 = 0;
const OWNER_SHIFT: u32 = 30;
const COUNT: u32 = (1 << OWNER_SHIFT) - 1;
/// Sizes of pieces of states: powers of two from 64 to 4,096 slots.
const STATE_SIZES: usize = 7;

/// Spans that were taken, and the buckets that came with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    pub start: u64,
    /// The first of the buckets that served no kind until now, and how many there are.
    pub new_buckets: Option<(u64, u64)>,
}

#[derive(Debug)]
pub(crate) struct Pool {
    /// A bit for each free span.
    free: Table<AtomicU64>,
    /// Owner and number of free spans of each bucket.
    buckets: Table<AtomicU32>,
    bucket_spans: u64,
    first: u64,
    end: u64,
    free_spans: u64,
    /// Free spans in buckets of capacity memory.
    capacity_free: u64,
    /// The bucket, by kind, below which no bucket of the kind has a free span.
    rover: [u64; 2],
    idle: [u32; 2],
    /// Spans of idle buckets, by kind; the first and the last bucket may be short.
    idle_spans: [u64; 2],
    /// Number of buckets, by kind.
    owned: [u32; 2],
    states: States,
}

impl Pool {
    /// A pool of the spans from `first` to `end`, all free.
    pub fn new(first: u64, end: u64, bucket_spans: u64) -> Result<Self, Errno> {
        let pool = Self {
            free: Table::new(end.div_ceil(64) as usize)?,
            buckets: Table::new(end.div_ceil(bucket_spans) as usize)?,
            bucket_spans,
            first,
            end,
            free_spans: end - first,
            capacity_free: 0,
            rover: [first / bucket_spans; 2],
            idle: [0; 2],
            idle_spans: [0; 2],
            owned: [0; 2],
            states: States::new(end)?,
        };
        pool.mark_all(first, end);
        for bucket in 0..pool.buckets.len() as u64 {
            let spans = pool.spans_of(bucket);
            let len = spans.end.saturating_sub(spans.start) as u32;
            pool.buckets[bucket as usize].store(len, Relaxed);
        }
        Ok(pool)
    }

    pub fn free_spans(&self) -> u64 {
        self.free_spans
    }

    /// The number of free spans that persistent memory may have. Capacity memory's buckets count
    /// when all of their spans are free.
    pub fn free_for_persistent(&self) -> u64 {
        self.free_spans - (self.capacity_free - self.idle_spans[Kind::Capacity as usize])
    }

    /// The number of spans in buckets of `kind`, and how many of these are free.
    pub fn owned_spans(&self, kind: Kind) -> (u64, u64) {
        let owned = (0..self.buckets.len() as u64).filter(|b| self.owner(*b) == Some(kind));
        owned.fold((0, 0), |(all, free), bucket| {
            let spans = self.spans_of(bucket);
            (all + spans.end - spans.start, free + self.free_in(bucket))
        })
    }

    /// Takes spans that are used when a heap is opened.
    pub fn claim(&mut self, kind: Kind, start: u64, spans: u64) {
        for bucket in start / self.bucket_spans..(start + spans).div_ceil(self.bucket_spans) {
            self.own(bucket, kind);
        }
        self.take_at(start, spans);
    }

    /// Takes `spans` contiguous spans for a kind, the first a multiple of `align`. Returns `None`
    /// if there are none, or if fewer than `keep` spans that persistent memory may have would be
    /// left.
    pub fn take(&mut self, kind: Kind, spans: u64, align: u64, keep: u64) -> Option<Taken> {
        let for_persistent = self.free_for_persistent();
        let new_buckets = spans.div_ceil(self.bucket_spans).checked_mul(self.bucket_spans)?;
        let may_grow = match kind {
            Kind::Persistent if for_persistent < spans.checked_add(keep)? => return None,
            Kind::Persistent => true,
            Kind::Capacity => for_persistent >= new_buckets.checked_add(keep)?,
        };
        if spans <= self.bucket_spans {
            let owned = self.find_owned(kind, spans, align);
            if let Some(start) = owned {
                self.take_at(start, spans);
                return Some(Taken { start, new_buckets: None });
            }
        } else if kind == Kind::Capacity
            && let Some(start) = self.find_idle(kind, spans, align)
        {
            // Buckets of the kind come first, because their memory is there.
            self.take_at(start, spans);
            return Some(Taken { start, new_buckets: None });
        }
        may_grow.then(|| self.take_buckets(kind, spans, align)).flatten()
    }

    /// Gives spans back. Returns the spans of buckets that serve no kind from now on, and whose
    /// memory should be given back, too.
    #[must_use]
    pub fn put(&mut self, start: u64, spans: u64) -> Option<std::ops::Range<u64>> {
        let mut left: Option<std::ops::Range<u64>> = None;
        for span in start..start + spans {
            assert!(!self.is_free(span), "span {span} is freed twice");
            self.mark(span, true);
            let bucket = span / self.bucket_spans;
            self.count(bucket, 1);
            let Some(kind) = self.owner(bucket) else { continue };
            let rover = &mut self.rover[kind as usize];
            *rover = (*rover).min(bucket);
            if self.free_in(bucket) == self.len_of(bucket) {
                self.enter_idle(kind, bucket);
                if self.idle[kind as usize] > self.idle_most(kind) {
                    self.disown(bucket);
                    let spans = self.spans_of(bucket);
                    // These buckets lie in a row: each is free only when its last span is, and once
                    // one is too many, all behind it are.
                    let start = left.map_or(spans.start, |left| left.start);
                    left = Some(start..spans.end);
                }
            }
        }
        self.free_spans += spans;
        left
    }

    /// Takes back the buckets that `taken` brought, because the backing refused. Returns their
    /// spans, for those that the backing did give.
    #[must_use]
    pub fn refuse(&mut self, taken: Taken, spans: u64) -> Option<std::ops::Range<u64>> {
        let left = self.put(taken.start, spans);
        let Some((first, len)) = taken.new_buckets else { return left };
        (first..first + len).for_each(|bucket| self.disown(bucket));
        // The spans that were taken lie in these buckets, and so do the spans that are left.
        Some(self.spans_of(first).start..self.spans_of(first + len - 1).end)
    }

    /// The number of spans of a bucket.
    pub fn bucket_spans(&self) -> u64 {
        self.bucket_spans
    }

    /// Takes room for the states of a run of `slots`.
    pub fn take_states(&mut self, slots: u32) -> u32 {
        self.states.take(slots)
    }

    /// Gives the room of a run's states back.
    pub fn put_states(&mut self, states: u32, slots: u32) {
        self.states.put(states, slots);
    }

    fn find_owned(&mut self, kind: Kind, spans: u64, align: u64) -> Option<u64> {
        let mut has_lower = false;
        for bucket in self.rover[kind as usize]..self.buckets.len() as u64 {
            if self.owner(bucket) != Some(kind) || self.free_in(bucket) == 0 {
                continue;
            }
            if !has_lower {
                self.rover[kind as usize] = bucket;
                has_lower = true;
            }
            if self.free_in(bucket) >= spans
                && let Some(start) = self.find_in(self.spans_of(bucket), spans, align)
            {
                return Some(start);
            }
        }
        if !has_lower {
            self.rover[kind as usize] = self.buckets.len() as u64;
        }
        None
    }

    /// The first of `spans` spans in idle buckets of a kind that lie in a row.
    fn find_idle(&self, kind: Kind, spans: u64, align: u64) -> Option<u64> {
        if u64::from(self.idle[kind as usize]) < spans.div_ceil(self.bucket_spans) {
            return None;
        }
        self.find_free(spans, align, |owner| owner == Some(kind))
    }

    /// The first of `spans` spans in a row that lie in entirely free buckets whose owners `fits`
    /// accepts.
    fn find_free(
        &self,
        spans: u64,
        align: u64,
        will_do: impl Fn(Option<Kind>) -> bool,
    ) -> Option<u64> {
        let mut at = self.first;
        loop {
            at = at.next_multiple_of(align.max(1));
            let end = at.checked_add(spans).filter(|end| *end <= self.end)?;
            let buckets = at / self.bucket_spans..end.div_ceil(self.bucket_spans);
            let taken = |b: &u64| self.free_in(*b) < self.len_of(*b) || !will_do(self.owner(*b));
            match buckets.rev().find(taken) {
                None => return Some(at),
                Some(bucket) => at = self.spans_of(bucket).end,
            }
        }
    }

    /// Takes whole free buckets, which serve no kind or are idle ones of any kind.
    fn take_buckets(&mut self, kind: Kind, spans: u64, align: u64) -> Option<Taken> {
        let nobodys = self.find_free(spans, align, |owner| owner.is_none());
        let start = nobodys.or_else(|| self.find_free(spans, align, |_| true))?;
        let buckets = start / self.bucket_spans..(start + spans).div_ceil(self.bucket_spans);
        for bucket in buckets.clone() {
            self.own(bucket, kind);
        }
        self.take_at(start, spans);
        Some(Taken { start, new_buckets: Some((buckets.start, buckets.end - buckets.start)) })
    }

    fn own(&mut self, bucket: u64, kind: Kind) {
        if self.owner(bucket).is_some_and(|owner| owner != kind)
            && self.free_in(bucket) == self.len_of(bucket)
        {
            self.disown(bucket);
        }
        if self.owner(bucket).is_some() {
            return;
        }
        if self.free_in(bucket) == self.len_of(bucket) {
            self.enter_idle(kind, bucket);
        }
        self.owned[kind as usize] += 1;
        let entry = &self.buckets[bucket as usize];
        entry.store((kind as u32 + 1) << OWNER_SHIFT | entry.load(Relaxed) & COUNT, Relaxed);
        if kind == Kind::Capacity {
            self.capacity_free += self.free_in(bucket);
        }
        let rover = &mut self.rover[kind as usize];
        *rover = (*rover).min(bucket);
    }

    fn disown(&mut self, bucket: u64) {
        let Some(kind) = self.owner(bucket) else { return };
        self.owned[kind as usize] -= 1;
        if self.free_in(bucket) == self.len_of(bucket) {
            self.leave_idle(kind, bucket);
        }
        if kind == Kind::Capacity {
            self.capacity_free -= self.free_in(bucket);
        }
        let entry = &self.buckets[bucket as usize];
        entry.store(entry.load(Relaxed) & COUNT, Relaxed);
    }

    /// Notes that all spans of a bucket are free.
    fn enter_idle(&mut self, kind: Kind, bucket: u64) {
        self.idle[kind as usize] += 1;
        self.idle_spans[kind as usize] += self.len_of(bucket);
    }

    fn leave_idle(&mut self, kind: Kind, bucket: u64) {
        self.idle[kind as usize] -= 1;
        self.idle_spans[kind as usize] -= self.len_of(bucket);
    }

    fn take_at(&mut self, start: u64, spans: u64) {
        for span in start..start + spans {
            assert!(self.is_free(span), "span {span} is taken twice");
            self.mark(span, false);
            let bucket = span / self.bucket_spans;
            if let Some(kind) = self.owner(bucket)
                && self.free_in(bucket) == self.len_of(bucket)
            {
                self.leave_idle(kind, bucket);
            }
            self.count(bucket, -1);
        }
        self.free_spans -= spans;
    }

    /// The first of `spans` free spans in a row within a range.
    fn find_in(&self, range: std::ops::Range<u64>, spans: u64, align: u64) -> Option<u64> {
        let mut run = 0;
        for span in range {
            let may_begin = run > 0 || span.is_multiple_of(align.max(1));
            run = if self.is_free(span) && may_begin { run + 1 } else { 0 };
            if run == spans {
                return Some(span + 1 - spans);
            }
        }
        None
    }

    /// The spans of buckets that serve no kind, as long ranges.
    pub fn unowned(&self) -> Vec<std::ops::Range<u64>> {
        let mut ranges: Vec<std::ops::Range<u64>> = Vec::new();
        for bucket in 0..self.buckets.len() as u64 {
            let spans = self.spans_of(bucket);
            if self.owner(bucket).is_some() || spans.is_empty() {
                continue;
            }
            match ranges.last_mut().filter(|last| last.end == spans.start) {
                Some(last) => last.end = spans.end,
                None => ranges.push(spans),
            }
        }
        ranges
    }

    /// The spans of a bucket that may be handed out.
    pub fn spans_of(&self, bucket: u64) -> std::ops::Range<u64> {
        let start = bucket * self.bucket_spans;
        start.max(self.first)..(start + self.bucket_spans).min(self.end)
    }

    fn len_of(&self, bucket: u64) -> u64 {
        let spans = self.spans_of(bucket);
        spans.end.saturating_sub(spans.start)
    }

    fn owner(&self, bucket: u64) -> Option<Kind> {
        match self.buckets[bucket as usize].load(Relaxed) >> OWNER_SHIFT {
            NOBODY => None,
            1 => Some(Kind::Persistent),
            _ => Some(Kind::Capacity),
        }
    }

    fn idle_most(&self, kind: Kind) -> u32 {
        let all = match kind {
            Kind::Persistent => self.buckets.len() as u32,
            Kind::Capacity => self.owned[kind as usize],
        };
        all / IDLE_PART + IDLE_KEPT
    }

    fn free_in(&self, bucket: u64) -> u64 {
        u64::from(self.buckets[bucket as usize].load(Relaxed) & COUNT)
    }

    fn count(&mut self, bucket: u64, change: i32) {
        if self.owner(bucket) == Some(Kind::Capacity) {
            self.capacity_free = self.capacity_free.wrapping_add_signed(i64::from(change));
        }
        let entry = &self.buckets[bucket as usize];
        entry.store(entry.load(Relaxed).wrapping_add_signed(change), Relaxed);
    }

    fn is_free(&self, span: u64) -> bool {
        self.free[(span / 64) as usize].load(Relaxed) & 1 << (span % 64) != 0
    }

    /// Marks a range of spans as free, a word at a time, because a large heap has millions of
    /// spans.
    fn mark_all(&self, first: u64, end: u64) {
        for word in first / 64..end.div_ceil(64) {
            let before = !0 << first.saturating_sub(word * 64).min(63);
            let after = !0 >> ((word + 1) * 64).saturating_sub(end).min(63);
            self.free[word as usize].store(before & after, Relaxed);
        }
    }

    /// The spans of a kind's buckets, bucket by bucket.
    pub fn owned(&self, kind: Kind) -> impl Iterator<Item = std::ops::Range<u64>> {
        let owned = (0..self.buckets.len() as u64).filter(move |b| self.owner(*b) == Some(kind));
        owned.map(|bucket| self.spans_of(bucket))
    }

    fn mark(&self, span: u64, is_free: bool) {
        let (word, bit) = (&self.free[(span / 64) as usize], 1 << (span % 64));
        let before = word.load(Relaxed);
        word.store(if is_free { before | bit } else { before & !bit }, Relaxed);
    }
}

/// Room for slot states, in pieces by powers of two.
#[derive(Debug)]
struct States {
    /// The first free piece of each size, plus one.
    heads: [u32; STATE_SIZES],
    /// The next free piece of the same size, plus one, by piece.
    next: Table<AtomicU32>,
    /// The first piece that was never handed out.
    fresh: u32,
}

impl States {
    fn new(spans: u64) -> Result<Self, Errno> {
        let pieces = spans as usize * (STATES_PER_SPAN as usize / STATES_PIECE);
        Ok(Self { heads: [0; STATE_SIZES], next: Table::new(pieces)?, fresh: 0 })
    }

    fn size_of(slots: u32) -> usize {
        let pieces = (slots as usize).div_ceil(STATES_PIECE).next_power_of_two();
        pieces.trailing_zeros() as usize
    }

    fn take(&mut self, slots: u32) -> u32 {
        let size = Self::size_of(slots);
        match self.heads[size] {
            0 => {
                let piece = self.fresh;
                self.fresh += 1 << size;
                piece
            }
            head => {
                self.heads[size] = self.next[head as usize - 1].load(Relaxed);
                head - 1
            }
        }
    }

    fn put(&mut self, piece: u32, slots: u32) {
        let size = Self::size_of(slots);
        self.next[piece as usize].store(self.heads[size], Relaxed);
        self.heads[size] = piece + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus as Random;
    use std::collections::BTreeMap;

    #[test]
    fn spans_are_handed_out_once_and_kinds_share_no_bucket() {
        for seed in 0..20 {
            let mut random = Random::seed_from_u64(seed);
            let (first, end, bucket_spans) = (5, 203, 8);
            let mut pool = Pool::new(first, end, bucket_spans).unwrap();
            let mut taken: BTreeMap<u64, (u64, Kind)> = BTreeMap::new();
            for _ in 0..2_000 {
                let kind = if random.random() { Kind::Persistent } else { Kind::Capacity };
                if random.random_bool(0.55) {
                    let spans =
                        if random.random_bool(0.1) { 11 } else { random.random_range(1..5) };
                    let align = 1 << random.random_range(0..3);
                    let Some(got) = pool.take(kind, spans, align, 2) else { continue };
                    assert!(
                        pool.free_spans - pool.capacity_free >= 2,
                        "seed {seed}: the log's share"
                    );
                    assert!(got.start >= first && got.start + spans <= end, "seed {seed}");
                    assert_eq!(got.start % align, 0, "seed {seed}");
                    for (start, (len, other)) in &taken {
                        let apart = got.start + spans <= *start || *start + len <= got.start;
                        assert!(apart, "seed {seed}: overlap");
                        let buckets =
                            |s: u64, l: u64| s / bucket_spans..=(s + l - 1) / bucket_spans;
                        let shared =
                            buckets(*start, *len).any(|b| buckets(got.start, spans).contains(&b));
                        assert!(!shared || *other == kind, "seed {seed}: kinds in one bucket");
                    }
                    taken.insert(got.start, (spans, kind));
                } else if let Some((&start, &(spans, _))) =
                    taken.iter().nth(random.random_range(0..taken.len().max(1)))
                {
                    taken.remove(&start);
                    let before = owners(&pool);
                    let left = pool.put(start, spans);
                    assert_eq!(disowned(&pool, &before), buckets_in(&pool, left), "seed {seed}");
                }
                let used: u64 = taken.values().map(|(spans, _)| spans).sum();
                assert_eq!(pool.free_spans(), end - first - used, "seed {seed}");
            }
        }
    }

    fn owners(pool: &Pool) -> Vec<Option<Kind>> {
        (0..pool.buckets.len() as u64).map(|bucket| pool.owner(bucket)).collect()
    }

    /// The buckets that had an owner and have none.
    fn disowned(pool: &Pool, before: &[Option<Kind>]) -> Vec<u64> {
        let now = owners(pool);
        let lost = |b: &u64| before[*b as usize].is_some() && now[*b as usize].is_none();
        (0..now.len() as u64).filter(lost).collect()
    }

    fn buckets_in(pool: &Pool, spans: Option<std::ops::Range<u64>>) -> Vec<u64> {
        let buckets = 0..pool.buckets.len() as u64;
        let inside =
            |b: &u64| spans.as_ref().is_some_and(|all| all.contains(&pool.spans_of(*b).start));
        buckets.filter(inside).collect()
    }

    #[test]
    fn all_buckets_of_a_large_object_are_given_back_but_those_kept() {
        let mut pool = Pool::new(0, 8_000, 8).unwrap();
        let taken = pool.take(Kind::Capacity, 4_003, 1, 0).unwrap();
        assert_eq!(taken.new_buckets, Some((0, 501)));
        let kept = u64::from(501 / IDLE_PART + IDLE_KEPT);
        assert_eq!(pool.put(taken.start, 4_003), Some(kept * 8..501 * 8));
        assert_eq!(pool.owned_spans(Kind::Capacity), (kept * 8, kept * 8));
        // What was kept is taken first, as it is.
        let again = pool.take(Kind::Capacity, 20, 1, 0).unwrap();
        assert_eq!((again.start, again.new_buckets), (0, None));
    }

    #[test]
    fn buckets_that_the_backing_refused_are_all_handed_back() {
        let mut pool = Pool::new(3, 8_000, 8).unwrap();
        for spans in [1, 8, 9, 4_003] {
            let taken = pool.take(Kind::Capacity, spans, 1, 0).unwrap();
            let (first, len) = taken.new_buckets.unwrap();
            let all = pool.spans_of(first).start..pool.spans_of(first + len - 1).end;
            assert_eq!(pool.refuse(taken, spans), Some(all));
            assert_eq!(pool.owned_spans(Kind::Capacity), (0, 0), "{spans} spans");
            assert_eq!((pool.idle, pool.owned, pool.capacity_free), ([0; 2], [0; 2], 0));
        }
    }

    #[test]
    fn room_for_states_is_used_again() {
        let mut states = States::new(4).unwrap();
        let (a, b) = (states.take(4096), states.take(1));
        assert_eq!((a, b), (0, 64));
        states.put(a, 4096);
        assert_eq!(states.take(2049), 0);
        assert_eq!(states.take(64), 65);
    }
}
