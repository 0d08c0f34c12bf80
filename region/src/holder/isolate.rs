//! Keeping the holder alive, as far as the system allows it, when a service manager ends the
//! server.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::attachment::Attachment;

/// Leaves the server's session and cgroup, asks to be spared by the out-of-memory killer, and locks
/// the memory. Returns which of these the system granted, for the log: a holder works without any
/// of them, and survives more with each.
pub(super) fn isolate(attachment: &Attachment) -> String {
    let mut said = String::new();
    let mut note = |what: &str, outcome: Result<(), String>| {
        let _ = match outcome {
            Ok(()) => write!(said, "{what}: yes; "),
            Err(why) => write!(said, "{what}: no ({why}); "),
        };
    };
    note("own session", rustix::process::setsid().map(drop).map_err(|errno| errno.to_string()));
    note("own cgroup", own_cgroup());
    note(
        "spared when memory is short",
        fs::write("/proc/self/oom_score_adj", "-1000").map_err(|error| error.to_string()),
    );
    note("memory locked", attachment.lock_in_memory().map_err(|errno| errno.to_string()));
    said.truncate(said.len().saturating_sub(2));
    said
}

/// Moves this process to a cgroup beside the server's, so that a service manager that kills the
/// server's whole cgroup does not take the holder with it.
fn own_cgroup() -> Result<(), String> {
    let text = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
    let path =
        text.lines().find_map(|line| line.strip_prefix("0::")).ok_or("no version 2 cgroup")?;
    let root = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .map(Path::new)
        .into_iter()
        .find(|root| root.join("cgroup.procs").exists())
        .ok_or("no version 2 hierarchy is mounted")?;
    let here = root.join(path.trim_start_matches('/'));
    let beside: PathBuf = match path.trim_matches('/') {
        "" => root.join("perdura-holder"),
        _ => here.parent().ok_or("the cgroup has no parent")?.join("perdura-holder"),
    };
    fs::create_dir_all(&beside).map_err(|error| format!("{}: {error}", beside.display()))?;
    fs::write(beside.join("cgroup.procs"), std::process::id().to_string())
        .map_err(|error| format!("{}: {error}", beside.display()))
}
