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
    const WORTH_A_THREAD: usize = 64;
    let most = match core.config.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let threads = most.min(items.len() / WORTH_A_THREAD).max(1);
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
