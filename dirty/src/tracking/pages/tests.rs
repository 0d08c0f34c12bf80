use super::*;
use crate::geometry::{GRAIN_SHIFT_TRAP, Geometry};
use crate::kind::KindBits;
use crate::policy::PolicyKind;
use crate::tracking::fault::Blocked;

/// Words for two words of the summary, and one more.
const WORDS: usize = 65;

fn trackers() -> Vec<PageTracker> {
    let of = |kind| {
        let bytes = WORDS as u64 * WORD_GRAINS * PAGE_BYTES;
        let geometry = Geometry::new(bytes, GRAIN_SHIFT_TRAP, None, 4).unwrap();
        let memory = Arc::new(Memory::in_test(geometry, PolicyKind::default()));
        memory.ledger.budget_limit().store(bytes, Relaxed);
        PageTracker::new(kind, memory, Duration::from_millis(1), false).unwrap()
    };
    [TrapKind::Auto, TrapKind::Mprotect].map(of).into()
}

impl PageTracker {
    /// Whether a store to the page would not trap. The kernel's own store fails instead.
    fn is_writable(&self, page: u64) -> bool {
        let zero = std::fs::File::open("/dev/zero").unwrap();
        let at = self.memory.map.base().wrapping_add((page * PAGE_BYTES) as usize);
        let fd = std::os::fd::AsRawFd::as_raw_fd(&zero);
        // SAFETY: the page is mapped, all zeros, and nobody else's.
        unsafe { libc::read(fd, at.cast(), 1) == 1 }
    }

    fn writable(&self, word: usize) -> u64 {
        let first = word as u64 * WORD_GRAINS;
        (0..WORD_GRAINS).fold(0, |bits, at| bits | u64::from(self.is_writable(first + at)) << at)
    }

    fn set_dirty(&self, parity: u64, word: usize, bits: u64) {
        self.memory.ledger.bitmap(parity)[word].store(bits, Relaxed);
        self.memory.summary(parity).mark(word);
    }

    /// Makes pages dirty and opens them.
    fn make_open(&self, word: usize, bits: u64) {
        self.set_dirty(self.memory.parity(), word, bits);
        assert_eq!(self.close(word, bits), bits);
        self.release(word, bits, bits);
    }

    /// Asserts which pages of a word are open and which are locked, and that the counts agree.
    fn expect(&self, word: usize, open: u64, locked: u64) {
        assert_eq!(self.open()[word].load(Relaxed), open);
        assert_eq!(self.locks()[word].load(Relaxed), locked);
        let pages = self.open().iter().map(|bits| u64::from(bits.load(Relaxed).count_ones()));
        assert_eq!(self.open_pages.load(Relaxed), pages.sum::<u64>());
        for (word, open) in self.open()[..WORDS].iter().enumerate() {
            let marked = self.open_summary[word / 64].load(Relaxed) >> (word % 64) & 1 == 1;
            assert!(marked || open.load(Relaxed) == 0, "word {word} is not in the summary");
        }
    }
}

#[test]
fn only_pages_that_nobody_uses_are_locked_as_idle_and_no_lock_stays_behind() {
    for tracker in trackers() {
        let (word, bits) = (64, 0xff0);
        for (what, dirty, open, locked) in [
            ("of the current epoch", [0x010, 0], 0, 0),
            ("of the closing epoch", [0, 0x800], 0, 0),
            ("of both epochs", [0x010, 0x010], 0, 0),
            ("of other pages", [0x00f, 0x1000], 0x1000, 0x00f),
            ("open", [0, 0], 0x100, 0),
            ("locked", [0, 0], 0, 0x010),
            ("all locked", [0, 0], 0, 0xff0),
        ] {
            (0..2).for_each(|parity| tracker.set_dirty(parity, word, dirty[parity as usize]));
            tracker.open()[word].store(open, Relaxed);
            assert_eq!(tracker.lock_pages(word, locked), locked);
            let inside = tracker.lock_idle(word, bits);
            let is_idle = what == "of other pages";
            assert_eq!(inside.is_some(), is_idle, "{what}");
            assert_eq!(tracker.gate.is_empty(), !is_idle, "{what}");
            let held = if is_idle { locked | bits } else { locked };
            assert_eq!(tracker.locks()[word].load(Relaxed), held, "{what}");
            assert_eq!(tracker.are_locked(word, bits), held & bits == bits, "{what}");
            tracker.unlock_pages(word, u64::MAX);
        }
        tracker.gate.begin_shut();
        assert!(tracker.lock_idle(0, 1).is_none(), "a cut is being made");
        tracker.expect(0, 0, 0);
    }
}

#[test]
fn a_page_is_closed_by_who_locks_it_and_opened_again_while_it_is_dirty_and_not_owed() {
    for (tracker, epoch) in trackers().into_iter().chain(trackers()).zip([0, 0, 1, 1]) {
        tracker.memory.ledger.epoch().store(epoch, Relaxed);
        let (word, first) = (64, 64 * WORD_GRAINS);
        tracker.make_open(word, 0b1111_0110);
        tracker.expect(word, 0b1111_0110, 0);
        assert_eq!(tracker.writable(word), 0b1111_0110);
        // Another thread has two of these pages.
        assert_eq!(tracker.lock_pages(word, 0b1000_0001), 0b1000_0001);
        assert_eq!(tracker.close(word, 0b1110_1111), 0b0110_1110);
        tracker.expect(word, 0b1001_0000, 0b1110_1111);
        assert_eq!(tracker.writable(word), 0b1001_0000);
        assert_eq!(tracker.close_all(word, 0b1_0001_0000), Some(()));
        tracker.expect(word, 0b1000_0000, 0b1_1111_1111);
        // Two were cleaned meanwhile, one is owed.
        tracker.set_dirty(epoch, word, 0b1101_0010);
        tracker.set_dirty(epoch ^ 1, word, 0b0100_0000);
        let seen = tracker.unblocked.version();
        tracker.release(word, 0b0111_1110, 0b0111_1100);
        tracker.expect(word, 0b1001_0000, 0b1_1000_0001);
        assert_ne!(tracker.unblocked.version(), seen, "whoever waits was not told");
        tracker.release(word, 0, u64::MAX);
        tracker.release(word, 0b1_0000_0000, u64::MAX);
        tracker.expect(word, 0b1001_0000, 0b1000_0001);
        assert!(tracker.is_writable(first + 4) && !tracker.is_writable(first + 1));
        tracker.unlock_pages(word, u64::MAX);
        assert_eq!(tracker.close(word, u64::MAX), u64::MAX);
        tracker.expect(word, 0, u64::MAX);
        assert_eq!(tracker.open_summary[1].load(Relaxed), 0);
    }
}

#[test]
fn as_many_pages_are_open_as_the_mapping_table_admits() {
    for mut tracker in trackers() {
        tracker.open_pages_max = 3;
        tracker.make_open(0, 0b10_1011);
        tracker.expect(0, 0b1011, 0);
        assert_eq!(tracker.writable(0), 0b1011);
        tracker.set_dirty(0, 1, 0);
        assert_eq!(tracker.open_page(64, None), Err(Blocked::Crowded));
        tracker.ask(64, Blocked::Crowded);
        tracker.relieve();
        tracker.expect(0, 0, 0);
        assert_eq!(tracker.memory.ledger.bitmap(0)[0].load(Relaxed), 0b10_1011, "not dirty");
        assert_eq!(tracker.open_page(64, None), Ok(()));
        tracker.expect(1, 1, 0);
        tracker.count_runs(3);
        assert!(tracker.admits_runs(0) && !tracker.admits_runs(1));
        tracker.count_runs(-1);
        assert!(tracker.admits_runs(1) && !tracker.admits_runs(2) && tracker.admits_runs(-9));
    }
}

#[test]
fn no_page_is_open_at_the_instant_of_a_cut_whatever_lies_between_them() {
    for tracker in trackers() {
        // Neighbours, pages with gaps as long as are bridged and longer, the last of a word and
        // the first of the next, and the last word.
        let open = [(0, 1 | 1 << 13 | 1 << 27 | 1 << 63), (1, 1), (3, 1 << 40), (64, 3 << 62)];
        for (word, bits) in open {
            tracker.make_open(word, bits);
            assert_eq!(tracker.writable(word), bits);
        }
        assert_eq!(tracker.lock_pages(2, 1), 1);
        // A capacity block right between two open pages.
        let ledger = &tracker.memory.ledger;
        ledger.kinds()[9].store(KindBits::Capacity.to_byte(), Relaxed);
        tracker.set_protected(9, false).unwrap();
        tracker.make_open(2, 1 << 15 | 1 << 32);
        let are_closed = || open.iter().all(|(word, _)| tracker.writable(*word) == 0);
        let mut flipped = false;
        tracker.prepared.begin_shut();
        tracker
            .cut(|| {
                assert!(are_closed() && tracker.gate.enter().is_none());
                flipped = true;
            })
            .unwrap();
        assert!(flipped && tracker.gate.enter().is_some() && tracker.prepared.enter().is_some());
        tracker.expect(2, 0, 1);
        assert_eq!(tracker.writable(2), 0xffff << 16);
        assert_eq!(tracker.open_pages.load(Relaxed), 0);
        assert!(tracker.open_summary.iter().all(|words| words.load(Relaxed) == 0));
        // The sum of the pages closed by `make_open` (none was open) and by the cut.
        assert_eq!(tracker.memory.stats.read().reprotections, 10);
        tracker.make_open(64, 1);
        tracker.shut().unwrap();
        assert!(tracker.gate.enter().is_none() && !tracker.is_writable(64 * WORD_GRAINS));
    }
}

#[test]
fn open_words_are_found_from_any_word_on_until_it_is_enough() {
    let tracker = &trackers()[0];
    let open = [0, 1, 5, 63, 64];
    open.iter().for_each(|word| tracker.make_open(*word, 1 << (word % 64)));
    for from in 0..=WORDS {
        for most in 1..=open.len() {
            let mut found = Vec::new();
            tracker.for_open_words(from, |word, bits| {
                assert_eq!(bits, 1 << (word % 64));
                found.push(word);
                found.len() < most
            });
            let expected = open.iter().copied().filter(|word| *word >= from).take(most);
            assert_eq!(found, Vec::from_iter(expected), "from {from}, at most {most}");
        }
    }
}

#[test]
fn a_page_is_entered_and_paid_for_once_before_it_is_open_or_says_what_it_waits_for() {
    for tracker in trackers() {
        let (ledger, word, page) = (&tracker.memory.ledger, 64, 64 * WORD_GRAINS + 9);
        let (bit, used) = (1 << 9, || ledger.budget_used().load(Relaxed));
        let is_dirty = |parity| ledger.bitmap(parity)[word].load(Relaxed) & bit != 0;
        ledger.budget_limit().store(PAGE_BYTES - 1, Relaxed);
        assert_eq!(tracker.open_page(page, None), Err(Blocked::Room));
        ledger.budget_limit().store(2 * PAGE_BYTES, Relaxed);
        tracker.gate.begin_shut();
        assert_eq!(tracker.open_page(page, None), Err(Blocked::Cut));
        tracker.gate.reopen();
        tracker.set_dirty(1, word, bit);
        assert_eq!(tracker.open_page(page, None), Err(Blocked::Owed));
        tracker.set_dirty(1, word, !bit);
        assert_eq!(tracker.lock_pages(word, bit), bit);
        assert_eq!(tracker.open_page(page, None), Err(Blocked::Locked));
        tracker.unlock_pages(word, bit);
        assert!(!is_dirty(0) && used() == 0 && !tracker.is_writable(page));
        for _ in 0..2 {
            assert_eq!(tracker.open_page(page, None), Ok(()));
            tracker.expect(word, bit, 0);
            assert!(is_dirty(0) && used() == PAGE_BYTES && tracker.is_writable(page));
        }
        // Closed and still dirty: nothing is paid again.
        tracker.release(word, tracker.close(word, bit), 0);
        assert!(!tracker.is_writable(page));
        assert_eq!(tracker.open_page(page, None), Ok(()));
        assert_eq!((used(), tracker.touches.load(Relaxed)), (PAGE_BYTES, 1));
        // A prepared write pays from its credit, and keeps the lock.
        for (page, credit, left, paid) in
            [(1, PAGE_BYTES, 0, 0), (2, PAGE_BYTES - 1, PAGE_BYTES - 1, PAGE_BYTES)]
        {
            let (mut credit, before) = (credit, used());
            assert_eq!(tracker.open_page(page, Some(&mut credit)), Ok(()));
            assert_eq!((credit, used() - before), (left, paid));
            assert!(tracker.are_locked(0, 1 << page));
            assert_eq!(tracker.open_page(page, None), Err(Blocked::Locked));
        }
        let mut credit = 0;
        assert_eq!(tracker.open_page(3, Some(&mut credit)), Err(Blocked::Room));
        assert!(!tracker.are_locked(0, 1 << 3));
        // Capacity memory is open and has no bit.
        ledger.kinds()[1].store(KindBits::Capacity.to_byte(), Relaxed);
        assert_eq!(tracker.open_page(16, None), Ok(()));
        assert!(tracker.is_writable(16) && ledger.bitmap(0)[0].load(Relaxed) == 0b110);
        assert!(tracker.gate.is_empty());
    }
}
