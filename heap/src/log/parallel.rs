//! Work on many chunks by several threads.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::core::Core;
use crate::error::HeapError;

/// Runs `f` on all items, by several threads if there are many items.
pub(super) fn in_parallel<T: Sync>(
    core: &Core,
    items: &[T],
    f: impl Fn(&T) -> Result<(), HeapError> + Sync,
) -> Result<(), HeapError> {
    let threads = threads_for(core, items.len());
    if threads == 1 {
        return items.iter().try_for_each(f);
    }
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let from = next.fetch_add(16, Relaxed);
            let Some(some) = items.get(from..(from + 16).min(items.len())) else { break };
            if some.is_empty() {
                break;
            }
            some.iter().try_for_each(&f)?;
        }
        // The fences of the thread that waits do not cover lines that this thread has written back.
        core.memory.fence();
        Ok(())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mine = work();
        others.into_iter().fold(mine, |so_far, other| {
            so_far.and(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    })
}

/// Threads that are worth starting for so many items.
fn threads_for(core: &Core, items: usize) -> usize {
    const WORTH_A_THREAD: usize = 64;
    let most = match core.config.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    most.min(items / WORTH_A_THREAD).max(1)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::config::Config;
    use crate::heap::Heap;
    use crate::memory::{Durability, Memory};

    #[test]
    fn every_item_has_its_turn_once_and_an_error_is_returned() -> Result<(), HeapError> {
        for threads in [1, 2, 5] {
            let config = Config { threads, ..Config::default() };
            let heap = Heap::open(Memory::anonymous(1 << 20, Durability::Flushed)?, config)?;
            for len in [0, 1, 15, 16, 17, 127, 128, 129, 333] {
                let items: Vec<AtomicU64> = (0..len).map(|_| AtomicU64::new(0)).collect();
                let count = |item: &AtomicU64| {
                    item.fetch_add(1, Relaxed);
                    Ok(())
                };
                in_parallel(&heap.core, &items, count)?;
                let turns: Vec<_> = items.iter().map(|item| item.load(Relaxed)).collect();
                assert_eq!(turns, vec![1; len], "{threads} threads");
                for bad in [0, len / 2, len.saturating_sub(1)] {
                    let fails = |item: &AtomicU64| match std::ptr::eq(item, &items[bad]) {
                        true => Err(HeapError::Busy),
                        false => Ok(()),
                    };
                    let outcome = in_parallel(&heap.core, &items, fails);
                    assert_eq!(outcome.is_err(), len > 0, "{threads} threads, item {bad} of {len}");
                }
            }
        }
        Ok(())
    }
}
