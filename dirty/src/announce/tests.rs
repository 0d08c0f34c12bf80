use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::*;
use crate::geometry::{GRAIN_SHIFT_BARRIER, Geometry};
use crate::kind::KindBits;
use crate::lanes::Lanes;
use crate::memory::Memory;
use crate::policy::PolicyKind;

/// A backing that records every call; it has buffers for `captures_max` captures.
struct Noting<'t> {
    tracked: &'t Tracked,
    captured: Mutex<Vec<(u64, usize, u64)>>,
    captures_max: usize,
    loaded: Mutex<Vec<u64>>,
}

impl Backing for Noting<'_> {
    fn capture(&self, parity: u64, word: usize, bits: u64) -> Result<(), Need> {
        let mut captured = self.captured.lock().unwrap();
        if captured.len() == self.captures_max {
            return Err(Need::Buffer);
        }
        captured.push((parity, word, bits));
        let owed = self.tracked.memory.ledger.dirty_word(parity, word);
        owed.fetch_and(!bits, AcqRel);
        Ok(())
    }

    fn load_or_unwind(&self, block: u64) {
        self.loaded.lock().unwrap().push(block);
        self.tracked.lanes.set_loaded(block);
    }
}

fn tracked() -> Tracked {
    let geometry = Geometry::new(4 * BLOCK_BYTES, GRAIN_SHIFT_BARRIER, None, 4).unwrap();
    let memory = Memory::in_test(geometry, PolicyKind::default());
    Tracked::new(Arc::new(memory), Lanes::new(2, 4), None)
}

fn noting(tracked: &Tracked, captures_max: usize) -> Noting<'_> {
    Noting { tracked, captured: Mutex::default(), captures_max, loaded: Mutex::default() }
}

#[test]
fn what_a_closing_epoch_owes_is_captured_once_before_it_changes() {
    let tracked = tracked();
    let backing = noting(&tracked, 1);
    LaneGuard::new(&tracked, &backing, LaneId(0)).store(64, 1).unwrap();
    // The epoch is cut.
    let ledger = &tracked.memory.ledger;
    ledger.closing().store(1, Release);
    ledger.epoch().fetch_add(1, AcqRel);
    let mut lane = LaneGuard::new(&tracked, &backing, LaneId(0));
    for value in 2..4 {
        lane.store(64, value).unwrap();
    }
    assert_eq!(*backing.captured.lock().unwrap(), [(0, 0, 0b10)]);
}

#[test]
fn what_is_overwritten_is_captured_and_kept_before_it_changes() {
    let tracked = tracked();
    let backing = noting(&tracked, 1);
    LaneGuard::new(&tracked, &backing, LaneId(0)).store(64, 1).unwrap();
    let ledger = &tracked.memory.ledger;
    ledger.closing().store(1, Release);
    ledger.epoch().fetch_add(1, AcqRel);
    let mut lane = LaneGuard::new(&tracked, &backing, LaneId(0));
    let mut undo = lane.undo();
    let old = lane.keep(&mut undo, 64, 128).unwrap().unwrap();
    assert_eq!((old[0], &backing.captured.lock().unwrap()[..]), (1, &[(0, 0, 0b10)][..]));
    old.fill(2);
    assert!(lane.is_dirty(64, 64) && lane.is_dirty(128, 64));
    let kept: Vec<_> = undo.entries().collect();
    assert_eq!(kept.len(), 1);
    let (offset, bytes) = kept[0];
    assert_eq!((offset, bytes.len(), bytes[0], bytes[127]), (64, 128, 1, 0));
    let mut other = lane.undo();
    assert!(lane.keep(&mut other, 512, 8).unwrap().is_none(), "the slot is in use");
    assert!(lane.keep_word(&mut other, 512).unwrap().is_none(), "the slot is in use");
    // The word was changed before: the last is put back first.
    lane.keep_word(&mut undo, 64).unwrap().unwrap().store(7, Release);
    assert_eq!(undo.entries().map(|(_, old)| old.len()).sum::<usize>(), 136);
    undo.put_back();
    assert_eq!((lane.load(64), lane.load(184), undo.is_empty()), (1, 0, true));
    // Death in the middle: whoever takes over puts the bytes back.
    lane.keep(&mut undo, 64, 128).unwrap().unwrap().fill(3);
    lane.keep_word(&mut undo, 184).unwrap().unwrap().store(7, Release);
    drop(lane);
    ledger.put_back(&tracked.memory.map, Planted::None).unwrap();
    let mut lane = LaneGuard::new(&tracked, &backing, LaneId(0));
    assert_eq!((lane.load(64), lane.load(184)), (1, 0));
    let mut undo = lane.undo();
    lane.keep(&mut undo, 64, 8).unwrap().unwrap().fill(4);
    undo.close();
    ledger.put_back(&tracked.memory.map, Planted::None).unwrap();
    assert_eq!(lane.bytes(64, 9), [4, 4, 4, 4, 4, 4, 4, 4, 0]);
    for (len, is_kept) in [(0, false), (1, true), (4096, true), (4097, false)] {
        let range = lane.keep(&mut undo, 0, len).unwrap();
        assert_eq!(range.map(|range| range.len()), is_kept.then_some(len));
        assert_eq!(undo.is_empty(), !is_kept, "{len} bytes");
        undo.close();
    }
    let full = (0..).find(|at| lane.keep_word(&mut undo, at * 8).unwrap().is_none());
    assert_eq!((full, undo.entries().count()), (Some(260), 260));
    undo.put_back();
}

#[test]
fn without_a_buffer_nothing_changes() {
    let tracked = tracked();
    let backing = noting(&tracked, 0);
    LaneGuard::new(&tracked, &backing, LaneId(0)).store(64, 1).unwrap();
    let ledger = &tracked.memory.ledger;
    ledger.closing().store(1, Release);
    ledger.epoch().fetch_add(1, AcqRel);
    let mut lane = LaneGuard::new(&tracked, &backing, LaneId(0));
    assert_eq!(lane.store(64, 2), Err(Need::Buffer));
    assert_eq!((lane.load(64), lane.is_dirty(64, 8)), (1, false));
}

#[test]
fn a_block_is_loaded_before_it_is_read() {
    let tracked = tracked();
    let backing = noting(&tracked, 0);
    tracked.lanes.set_unloaded(2);
    let lane = LaneGuard::new(&tracked, &backing, LaneId(0));
    assert_eq!((lane.load(0), lane.load(2 * BLOCK_BYTES), lane.load(2 * BLOCK_BYTES)), (0, 0, 0));
    assert_eq!(*backing.loaded.lock().unwrap(), [2]);
}

#[test]
fn every_block_of_a_range_is_loaded_and_belongs_to_the_lane() {
    let tracked = tracked();
    let backing = noting(&tracked, 0);
    tracked.lanes.set_unloaded(1);
    tracked.lanes.assign(3, LaneId(1));
    let mut lane = LaneGuard::new(&tracked, &backing, LaneId(0));
    lane.bytes(BLOCK_BYTES - 8, 16);
    assert!(!tracked.lanes.is_unloaded(1));
    let end = 3 * BLOCK_BYTES;
    lane.write(end - 8, &[1; 8]).unwrap();
    assert_eq!(lane.bytes(end - 8, 8), [1; 8]);
    for (offset, len) in [(end - 8, 9), (end, 8), (BLOCK_BYTES, 2 * BLOCK_BYTES + 1)] {
        let is_refused = |act: &mut dyn FnMut()| catch_unwind(AssertUnwindSafe(act)).is_err();
        assert!(is_refused(&mut || drop(lane.bytes(offset, len as usize).to_vec())));
        assert!(is_refused(&mut || lane.announce(offset, len).unwrap()));
        assert!(is_refused(&mut || lane.write(offset, &vec![2; len as usize]).unwrap()));
    }
    assert_eq!((lane.bytes(end - 8, 8), lane.is_dirty(2 * BLOCK_BYTES, 64)), (&[1; 8][..], false));
    assert!(!tracked.lanes.is_unloaded(3));
}

#[test]
fn a_word_that_was_announced_or_is_capacity_memory_is_stored_and_no_other() {
    let tracked = tracked();
    let backing = noting(&tracked, 0);
    tracked.memory.ledger.kinds()[2].store(KindBits::BoundCapacity.to_byte(), Relaxed);
    let (begin, end) = (2 * BLOCK_BYTES, 3 * BLOCK_BYTES);
    let mut lane = LaneGuard::new(&tracked, &backing, LaneId(0));
    for offset in [begin, begin + 8, end - 8] {
        lane.store_announced(offset, 1);
        assert_eq!((lane.load(offset), lane.is_dirty(offset, 8)), (1, false));
        let mut undo = lane.undo();
        assert_eq!(lane.keep(&mut undo, offset, 8), Ok(None));
        assert!(lane.keep_word(&mut undo, offset).unwrap().is_none());
    }
    lane.announce(64, 8).unwrap();
    lane.store_announced(120, 2);
    for offset in [56, 128, begin - 8, end] {
        let store = AssertUnwindSafe(|| lane.store_announced(offset, 3));
        assert!(catch_unwind(store).is_err(), "{offset}");
        assert_eq!(lane.load(offset), 0);
    }
    // Of a range that leaves capacity memory only the rest becomes dirty.
    lane.announce(end - 64, 65).unwrap();
    assert_eq!(
        [begin - 64, begin, end - 64, end, end + 64].map(|offset| lane.is_dirty(offset, 64)),
        [false, false, false, true, false]
    );
    assert_eq!(lane.dirtied_bytes, 2 * 64);
}

/// Announces and drops ranges, and compares the ledger with a set of grains.
#[test]
fn dirty_is_what_was_announced_and_each_byte_of_it_is_paid_for_once() {
    for (seed, limit) in [(1, 1 << 20), (2, 64 << 10), (3, 8 << 10), (4, 4096)] {
        let tracked = tracked();
        let memory = &*tracked.memory;
        memory.ledger.budget_limit().store(limit, Relaxed);
        let backing = noting(&tracked, 0);
        let mut random = Random::seed_from_u64(seed);
        let mut expected = vec![0u64; memory.ledger.geometry().words()];
        let bytes_of =
            |words: &[u64]| words.iter().map(|bits| u64::from(bits.count_ones()) * 64).sum::<u64>();
        let (mut dropped, mut refused) = (0, 0);
        for step in 0..200 {
            let case = format!("limit {limit}, step {step}");
            let mut lane = LaneGuard::new(&tracked, &backing, LaneId(0));
            let len = [1, 64, 300, 9000][random.random_range(0..4)];
            let (offset, len) = (random.random_range(0..4 * BLOCK_BYTES - len), len);
            let end = offset + len;
            let before = expected.clone();
            if random.random_ratio(1, 3) {
                lane.drop_dirty(offset, len);
                for grain in offset.div_ceil(64)..end / 64 {
                    expected[(grain / 64) as usize] &= !(1 << (grain % 64));
                }
                dropped += bytes_of(&before) - bytes_of(&expected);
            } else {
                for grain in offset / 64..end.div_ceil(64) {
                    expected[(grain / 64) as usize] |= 1 << (grain % 64);
                }
                let fits = bytes_of(&expected) <= limit;
                assert_eq!(lane.announce(offset, len).is_ok(), fits, "{case}");
                if !fits {
                    // Some words of the range may be entered, each of them whole.
                    refused += 1;
                    let found = memory.ledger.bitmap(0).iter().map(|bits| bits.load(Relaxed));
                    for (word, found) in found.enumerate() {
                        assert!([before[word], expected[word]].contains(&found), "{case}");
                        expected[word] = found;
                    }
                }
            }
            drop(lane);
            let dirty = bytes_of(&expected);
            let credit = tracked.lanes.lock(LaneId(0)).lock().credit_bytes;
            // All lanes together keep a small part of the budget.
            assert!(credit <= 4096.min(limit / 32 / 2), "{case}: {credit}");
            assert!(limit >= 16 << 10 || credit == 0, "{case}: {credit}");
            let used = memory.ledger.budget_used().load(Relaxed);
            assert!(used == dirty + credit && used <= limit, "{case}: {used}, {credit}");
            assert_eq!(tracked.dirtied_bytes() - dirty, dropped, "{case}");
            assert_eq!(tracked.net_dirtied_bytes(), dirty, "{case}");
            let mut found = vec![0; expected.len()];
            tracked.for_dirty_words(0, 0, expected.len(), |word, bits| {
                found[word] = bits;
                true
            });
            assert_eq!(found, expected, "{case}");
        }
        assert_eq!(refused > 0, limit < 1 << 20);
        let credit = tracked.lanes.lock(LaneId(0)).lock().credit_bytes;
        assert_eq!(tracked.reclaim_all_credit(), credit);
        assert_eq!(memory.ledger.budget_used().load(Relaxed), bytes_of(&expected));
    }
}

#[test]
fn bytes_that_were_taken_in_advance_go_from_lane_to_lane_and_those_beyond_a_share_go_back() {
    let tracked = tracked();
    let backing = noting(&tracked, 0);
    let ledger = &tracked.memory.ledger;
    let used = || ledger.budget_used().load(Relaxed);
    tracked.lanes.assign(3, LaneId(1));
    let mut first = LaneGuard::new(&tracked, &backing, LaneId(0));
    let mut second = LaneGuard::new(&tracked, &backing, LaneId(1));
    assert_eq!((first.withdraw(), used()), (0, 0));
    first.announce(0, 64).unwrap();
    assert_eq!(used(), CREDIT_CHUNK_BYTES);
    let taken = first.withdraw();
    assert_eq!((taken, first.withdraw()), (CREDIT_CHUNK_BYTES - 64, 0));
    second.deposit(taken);
    second.announce(3 * BLOCK_BYTES, taken).unwrap();
    assert_eq!((used(), second.withdraw()), (CREDIT_CHUNK_BYTES, 0));
    assert!(tracked.memory.budget.try_take(ledger, 10_000));
    second.deposit(10_000);
    drop((first, second));
    assert_eq!(used(), 2 * CREDIT_CHUNK_BYTES);
    // A lane that is held when the account is closed keeps nothing.
    let last = LaneGuard::new(&tracked, &backing, LaneId(1));
    drop(last);
    tracked.memory.budget.close();
    let mut last = LaneGuard::new(&tracked, &backing, LaneId(1));
    assert_eq!(last.announce(3 * BLOCK_BYTES + 9000, 8), Err(Need::Room { bytes: 8 }));
    drop(last);
    assert_eq!(tracked.lanes.lock(LaneId(1)).lock().credit_bytes, 0);
}
