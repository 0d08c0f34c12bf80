//! A small number for each thread of the process, by which a thread finds memory of its own in
//! tables that many threads share.

use std::sync::atomic::{AtomicU64, Ordering::*};

/// Numbers that are given at the same time: a bit of [`GIVEN`] each.
pub(crate) const THREAD_NUMBERS: u32 = u64::BITS;

/// The numbers that living threads have. A thread takes over the number of one that has ended, and
/// what that one left under it, so the bit is given back with release and taken with acquire.
static GIVEN: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static NUMBER: Number = Number::take();
}

/// The calling thread's number, below 64; `None` for a thread that found all of them given, and
/// while a thread ends.
#[inline]
pub(crate) fn thread_number() -> Option<u64> {
    NUMBER.try_with(|number| number.0.map(u64::from)).ok().flatten()
}

/// A thread's number, given back when the thread ends.
struct Number(Option<u32>);

impl Number {
    fn take() -> Self {
        let lowest = |given: u64| given.trailing_ones();
        let with_one = |given| (given != u64::MAX).then(|| given | 1 << lowest(given));
        let before = GIVEN.fetch_update(AcqRel, Acquire, with_one);
        Self(before.ok().map(lowest).inspect(|number| debug_assert!(*number < THREAD_NUMBERS)))
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        if let Some(number) = self.0 {
            GIVEN.fetch_and(!(1 << number), Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn no_two_living_threads_have_one_number_and_a_thread_beyond_the_last_has_none() {
        let count = THREAD_NUMBERS as usize + 6;
        let all_have_one = Barrier::new(count);
        let numbers: Vec<Option<u64>> = std::thread::scope(|scope| {
            let take = || {
                let number = thread_number();
                all_have_one.wait();
                assert_eq!(thread_number(), number);
                number
            };
            let threads: Vec<_> = (0..count).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let mut given: Vec<u64> = numbers.iter().flatten().copied().collect();
        given.sort_unstable();
        assert!(given.is_sorted_by(|a, b| a < b), "{given:?}");
        // Other threads of the test program have numbers, too.
        assert!((32..=64).contains(&given.len()), "{given:?}");
    }
}
