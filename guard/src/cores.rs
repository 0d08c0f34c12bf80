//! Core files, which would have the keys of images in the clear: not only in the ledger but in
//! whatever a thread had on its stack.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Bytes that no core file is as short as. A program that the system pipes cores to gets one in
/// spite of a limit of 0, but not with this.
const LIMIT_BYTES: u64 = 1;

/// Lets the system write no core of this process, and of those that it starts from now on. It
/// cannot be taken back.
pub fn forbid_cores() {
    let limit = Rlimit { current: Some(LIMIT_BYTES), maximum: Some(LIMIT_BYTES) };
    if let Err(error) = setrlimit(Resource::Core, limit) {
        // Whoever starts with a limit of 0 may raise it only as root.
        let now = getrlimit(Resource::Core).current;
        if now.is_none_or(|bytes| bytes > LIMIT_BYTES) {
            tracing::warn!(%error, "a core file of this process would have the key: `ulimit -c 0`");
        }
    }
}
