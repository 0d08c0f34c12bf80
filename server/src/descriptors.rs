//! The limit on descriptors, raised for as many clients as are allowed.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for everything but clients: image, memory, holder, queues, the files that INFO
/// reads.
const OTHERS: u64 = 64;

/// Raises the process's own limit on descriptors as far as `wanted` clients need and the system
/// allows; returns how many clients fit, at least one and at most `wanted`.
///
/// Most systems start a process with 1,024 descriptors, and let it raise the limit itself.
pub fn clients_that_fit(wanted: usize) -> usize {
    let needed = (wanted as u64).saturating_add(OTHERS);
    let limit = getrlimit(Resource::Nofile);
    let mut allowed = limit.current.unwrap_or(u64::MAX);
    if allowed < needed {
        let possible = needed.min(limit.maximum.unwrap_or(u64::MAX));
        let raised = Rlimit { current: Some(possible), ..limit };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            allowed = possible;
        }
    }
    usize::try_from(allowed.saturating_sub(OTHERS)).unwrap_or(usize::MAX).clamp(1, wanted.max(1))
}
