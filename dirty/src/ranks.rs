//! The order of locks, asserted in debug builds.
//!
//! A thread that holds a lock waits only for locks of higher rank. A try takes whatever it gets,
//! because it never waits. In a release there is neither code nor memory for ranks. Nothing is
//! allocated, so the heap's locks have ranks, too; the fault path takes no lock that has one.
//!
//! The order is the same everywhere: a room's locks come before those of the rooms below it,
//! because rooms call downward only.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::schedule::until;

/// A lock's place in the order, from the one that is taken first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// The shadow of the heap's logs while they are folded.
    Fold,
    /// Settling, in the heap.
    Settling,
    /// The heap's list of loggers.
    Loggers,
    /// The log of a thread, by the number of its logger.
    Logger(u16),
    /// The list of a class of the heap's engine, by kind and class.
    Class(u16),
    /// The pool of the heap's engine.
    Pool,
    /// The change of a region's budget, and a drill.
    BudgetChange,
    /// The cleaner.
    Cleaner,
    /// The segment being prezeroed.
    Prezeroing,
    /// A lane; a shard of the store is one, and the heap's own lane is the highest.
    Lane(u16),
    /// The table of keys that clients watch.
    Watches,
    /// The appender.
    Appender,
    /// The change of a block's kind.
    KindChange,
    /// A part of memory that is being loaded.
    Loading(u32),
    /// The buffers of those that load.
    LoadBuffers,
    /// The mappings of other processes.
    Guests,
}

/// A mutex with a rank.
#[derive(Debug)]
pub struct Ranked<T> {
    mutex: Mutex<T>,
    #[cfg(debug_assertions)]
    rank: Rank,
}

/// A held mutex with a rank.
pub type RankedGuard<'l, T> = Held<MutexGuard<'l, T>>;

impl<T> Ranked<T> {
    /// Makes a free mutex.
    #[cfg_attr(not(debug_assertions), expect(unused_variables))]
    pub fn new(rank: Rank, value: T) -> Self {
        Self {
            mutex: Mutex::new(value),
            #[cfg(debug_assertions)]
            rank,
        }
    }

    /// Takes the mutex.
    ///
    /// # Panics
    /// In debug builds: this thread holds a lock that comes later in the order.
    #[inline]
    pub fn lock(&self) -> RankedGuard<'_, T> {
        #[cfg(debug_assertions)]
        check(self.rank);
        let scheduled = until(|| self.mutex.try_lock());
        self.held(scheduled.unwrap_or_else(|| self.mutex.lock()))
    }

    /// Takes the mutex if nobody holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<RankedGuard<'_, T>> {
        self.mutex.try_lock().map(|guard| self.held(guard))
    }

    /// Takes the mutex, unless another thread holds it for as long as `longest`.
    ///
    /// # Panics
    /// As [`Ranked::lock`].
    pub fn try_lock_for(&self, longest: Duration) -> Option<RankedGuard<'_, T>> {
        #[cfg(debug_assertions)]
        check(self.rank);
        self.mutex.try_lock_for(longest).map(|guard| self.held(guard))
    }

    #[inline]
    fn held<'l>(&self, guard: MutexGuard<'l, T>) -> RankedGuard<'l, T> {
        Held {
            guard,
            #[cfg(debug_assertions)]
            _mark: Mark::of(self.rank),
        }
    }
}

/// A held lock, by its guard, and the note that this thread holds it.
#[derive(Debug)]
pub struct Held<G> {
    guard: G,
    #[cfg(debug_assertions)]
    _mark: Mark,
}

impl<G: Deref> Deref for Held<G> {
    type Target = G::Target;

    #[inline]
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Held<G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

/// Takes a lock of another kind by `take`, which waits for it.
///
/// # Panics
/// In debug builds: this thread holds a lock that comes later in the order.
#[inline]
pub fn taking<G>(rank: Rank, take: impl FnOnce() -> G) -> Held<G> {
    #[cfg(debug_assertions)]
    check(rank);
    taken(rank, take())
}

/// Notes a lock of another kind, which was taken without waiting.
#[inline]
#[cfg_attr(not(debug_assertions), expect(unused_variables))]
pub fn taken<G>(rank: Rank, guard: G) -> Held<G> {
    Held {
        guard,
        #[cfg(debug_assertions)]
        _mark: Mark::of(rank),
    }
}

// A release has no memory for ranks.
#[cfg(not(debug_assertions))]
const _: () = assert!(
    size_of::<Ranked<u64>>() == size_of::<Mutex<u64>>()
        && size_of::<RankedGuard<'_, u64>>() == size_of::<MutexGuard<'_, u64>>()
);

#[cfg(debug_assertions)]
use noted::{Mark, check};

/// What the calling thread holds.
#[cfg(debug_assertions)]
mod noted {
    use std::cell::RefCell;

    use super::Rank;

    /// Most locks that a thread holds at once: a cut holds all lanes.
    const HELD_MAX: usize = 1024;

    struct Locks {
        ranks: [Rank; HELD_MAX],
        len: usize,
    }

    thread_local! {
        static HELD: RefCell<Locks> =
            const { RefCell::new(Locks { ranks: [Rank::Fold; HELD_MAX], len: 0 }) };
    }

    /// The note that a thread holds a lock, for as long as it lives.
    #[derive(Debug)]
    pub(super) struct Mark(Rank);

    impl Mark {
        pub(super) fn of(rank: Rank) -> Self {
            HELD.with_borrow_mut(|held| {
                assert!(held.len < HELD_MAX, "a thread holds {HELD_MAX} locks");
                held.ranks[held.len] = rank;
                held.len += 1;
            });
            Self(rank)
        }
    }

    impl Drop for Mark {
        fn drop(&mut self) {
            HELD.with_borrow_mut(|held| {
                let ranks = &mut held.ranks[..held.len];
                if let Some(at) = ranks.iter().rposition(|rank| *rank == self.0) {
                    ranks.copy_within(at + 1.., at);
                    held.len -= 1;
                }
            });
        }
    }

    /// Panics unless `rank` comes after all that the thread holds.
    pub(super) fn check(rank: Rank) {
        let later = HELD.with_borrow(|held| {
            held.ranks[..held.len].iter().copied().find(|before| *before >= rank)
        });
        if let Some(later) = later {
            out_of_order(rank, later);
        }
    }

    #[cold]
    fn out_of_order(rank: Rank, later: Rank) -> ! {
        panic!("locks out of order: {rank:?} is waited for by a thread that holds {later:?}");
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_taken_in_the_order_only_and_in_any_order_by_a_try() {
        let (cleaner, lane) = (Ranked::new(Rank::Cleaner, ()), Ranked::new(Rank::Lane(3), ()));
        let (first, second) = (cleaner.lock(), lane.lock());
        // They may be released in any order.
        drop(first);
        assert!(cleaner.try_lock().is_some());
        drop(second);
        drop((cleaner.lock(), lane.lock()));
    }

    #[test]
    #[should_panic(expected = "Cleaner is waited for by a thread that holds Lane(3)")]
    fn a_lock_out_of_order_is_refused_with_both_names() {
        let (cleaner, lane) = (Ranked::new(Rank::Cleaner, ()), Ranked::new(Rank::Lane(3), ()));
        let _held = lane.lock();
        drop(cleaner.lock());
    }

    #[test]
    #[should_panic(expected = "Lane(2) is waited for by a thread that holds Lane(3)")]
    fn lanes_are_taken_ascending() {
        let lanes = crate::lanes::Lanes::new(4, 1);
        let _held = lanes.lock(crate::lanes::LaneId(3)).lock();
        drop(lanes.lock(crate::lanes::LaneId(2)).lock());
    }

    #[test]
    #[should_panic(expected = "Appender is waited for by a thread that holds Appender")]
    fn a_lock_is_not_waited_for_by_who_holds_it() {
        let appender = crate::Waited::new(Rank::Appender, ());
        let _held = appender.lock();
        drop(appender.lock());
    }
}
