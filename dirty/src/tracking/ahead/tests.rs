use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::geometry::{GRAIN_SHIFT_TRAP, Geometry};
use crate::kind::KindBits;
use crate::memory::Memory;
use crate::policy::PolicyKind;
use crate::tracking::TrapKind;

const WORDS: u64 = 4;
const PAGES: u64 = WORDS * WORD_GRAINS;

/// Trackers of all ways of trapping, of `pages` pages, all of which may be dirty.
fn trackers(pages: u64, planted: Planted) -> Vec<PageTracker> {
    let of = |kind| {
        let geometry = Geometry::new(PAGES * PAGE_BYTES, GRAIN_SHIFT_TRAP, None, 4).unwrap();
        let mut memory = Memory::in_test(geometry, PolicyKind::default());
        memory.planted = planted;
        memory.ledger.region_bytes().store(pages * PAGE_BYTES, Relaxed);
        memory.ledger.budget_limit().store(pages * PAGE_BYTES, Relaxed);
        PageTracker::new(kind, Arc::new(memory), Duration::from_millis(1), false).unwrap()
    };
    [TrapKind::Auto, TrapKind::Mprotect].map(of).into()
}

impl PageTracker {
    /// Stores to pages in order as far as they are open, and lets the others trap. Returns the
    /// pages that trapped.
    fn go_through(&self, from: u64, to: u64) -> Vec<u64> {
        let is_closed = |page: &u64| {
            self.open_bits((page / WORD_GRAINS) as usize) & 1 << (page % WORD_GRAINS) == 0
        };
        let mut trapped = Vec::new();
        for page in from..to {
            if is_closed(&page) {
                self.open_page(page, None).unwrap();
                trapped.push(page);
            }
            self.memory.map.words(page * PAGE_BYTES, 1)[0].store(1, Relaxed);
        }
        trapped
    }

    fn dirty(&self, word: usize) -> u64 {
        self.memory.ledger.bitmap(self.memory.parity())[word].load(Relaxed)
    }

    fn used_pages(&self) -> u64 {
        self.memory.ledger.budget_used().load(Relaxed) / PAGE_BYTES
    }
}

#[test]
fn as_much_is_opened_ahead_as_a_stream_has_opened_and_a_quarter_where_budget_is_scarce() {
    for tracker in trackers(PAGES, Planted::None) {
        assert_eq!(tracker.go_through(0, PAGES), [0, 1, 3, 7, 15, 31, 63, 64, 128, 192]);
        assert_eq!(tracker.used_pages(), PAGES);
    }
    for tracker in trackers(PAGES, Planted::None) {
        tracker.memory.ledger.budget_limit().store((PAGES - 1) * PAGE_BYTES, Relaxed);
        let trapped = tracker.go_through(0, 2 * WORD_GRAINS);
        assert_eq!(trapped, [0, 1, 2, 3, 4, 6, 8, 11, 14, 18, 23, 29, 37, 47, 59, 64, 81, 102]);
        assert_eq!(tracker.used_pages(), 2 * WORD_GRAINS);
    }
}

#[test]
fn streams_that_take_turns_are_told_apart_and_stores_at_random_open_nothing_ahead() {
    for tracker in trackers(PAGES, Planted::None) {
        let streams = STREAMS as u64;
        for turn in 0..3 {
            for stream in 0..streams {
                tracker.go_through(stream * 16 + turn, stream * 16 + turn + 1);
            }
        }
        // Pages 0, 1 and 2 of each, and none behind them.
        assert_eq!(tracker.used_pages(), 3 * streams);
    }
    for tracker in trackers(PAGES, Planted::None) {
        (0..PAGES).step_by(2).for_each(|page| _ = tracker.go_through(page, page + 1));
        assert_eq!(tracker.used_pages(), PAGES / 2);
    }
}

/// What is wrong after a stream came to page 5 that is `what`: more is open or dirty than may be.
fn beyond(tracker: &PageTracker, what: &str) -> bool {
    let ledger = &tracker.memory.ledger;
    let (bit, current) = (1 << 5, tracker.memory.parity());
    match what {
        "dirty" => ledger.bitmap(current)[0].store(bit, Relaxed),
        "owed" => ledger.bitmap(current ^ 1)[0].store(bit, Relaxed),
        "locked" => assert_eq!(tracker.lock_pages(0, bit), bit),
        "beyond the budget" => {
            ledger.budget_limit().store((PAGES - 1) * PAGE_BYTES, Relaxed);
            ledger.budget_used().store((PAGES - 1 - 5) * PAGE_BYTES, Relaxed);
        }
        what => panic!("{what}"),
    }
    let (before, dirty_before) = (tracker.used_pages(), tracker.dirty(0));
    for page in 0..5 {
        if tracker.open_bits(0) & 1 << page == 0 {
            tracker.open_page(page, None).unwrap();
        }
    }
    assert_eq!(tracker.used_pages() - before, u64::from(tracker.open_bits(0).count_ones()));
    assert_eq!(tracker.dirty(0) & !dirty_before, tracker.open_bits(0), "{what}");
    assert!(tracker.are_locked(0, if what == "locked" { bit } else { 0 }), "{what}");
    assert_eq!(tracker.lock_pages(0, !bit), !bit, "{what}: a lock stayed behind");
    tracker.open_bits(0) != 0b1_1111
}

#[test]
fn a_page_that_anybody_needs_as_it_is_ends_what_is_opened_ahead() {
    for what in ["dirty", "owed", "locked", "beyond the budget"] {
        for tracker in trackers(PAGES, Planted::None) {
            assert!(!beyond(&tracker, what), "{what}: {:b}", tracker.open_bits(0));
        }
    }
    if Planted::CAN_PLANT {
        for tracker in trackers(PAGES, Planted::OpenOwedAhead) {
            assert!(beyond(&tracker, "owed"), "the bug was not seen");
        }
    }
}

#[test]
fn nothing_is_opened_ahead_in_capacity_memory_or_behind_the_end_of_the_region() {
    for tracker in trackers(PAGES, Planted::None) {
        tracker.memory.ledger.kinds()[1].store(KindBits::Capacity.to_byte(), Relaxed);
        tracker.set_protected(1, false).unwrap();
        tracker.go_through(0, 16);
        assert_eq!((tracker.open_bits(0), tracker.dirty(0)), (0xffff, 0xffff));
        assert_eq!(tracker.used_pages(), 16);
    }
    // The last word is half one: the rest of the reserved range is not the region's yet.
    let pages = PAGES - WORD_GRAINS / 2;
    for tracker in trackers(pages, Planted::None) {
        assert_eq!(tracker.go_through(0, pages).last(), Some(&192));
        let last = WORDS as usize - 1;
        assert_eq!(
            (tracker.open_bits(last), tracker.dirty(last)),
            (u64::MAX >> 32, u64::MAX >> 32)
        );
        assert_eq!(tracker.used_pages(), pages);
    }
}

#[test]
fn nothing_is_opened_ahead_while_somebody_waits_for_budget_or_the_table_of_mappings_is_full() {
    for tracker in trackers(PAGES, Planted::None) {
        let (budget, clock) = (&tracker.memory.budget, &*tracker.memory.clock);
        std::thread::scope(|scope| {
            let seen = budget.version();
            scope.spawn(move || budget.wait(clock, seen, Duration::from_secs(60)));
            while !budget.has_waiters() {
                std::thread::yield_now();
            }
            let trapped = tracker.go_through(0, 4);
            budget.notify();
            assert_eq!(trapped, [0, 1, 2, 3]);
        });
    }
    for mut tracker in trackers(PAGES, Planted::None) {
        tracker.open_pages_max = 6;
        assert_eq!(tracker.go_through(0, 5), [0, 1, 3, 4]);
    }
}
