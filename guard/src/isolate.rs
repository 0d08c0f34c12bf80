//! Keeping a process that holds memory alive, as far as the system allows it.

use std::fs;
use std::path::{Path, PathBuf};

use perdura_region::Attachment;
use rustix::process::{Resource, getrlimit, setrlimit};

/// Leaves the session and the cgroup of the server that started this holder, so that a service
/// manager that ends the server spares it. Returns what the system granted, for the log: a holder
/// works without any of it, and survives more with each.
pub(crate) fn leave_server() -> String {
    let session = rustix::process::setsid().map(drop).map_err(|errno| errno.to_string());
    [said("own session", session), said("own cgroup", own_cgroup())].join("; ")
}

/// Asks to be spared by the out-of-memory killer, which takes the largest process first. Returns
/// whether that was granted, for the log.
pub(crate) fn ask_to_be_spared() -> String {
    let asked = fs::write("/proc/self/oom_score_adj", "-1000").map_err(|error| error.to_string());
    said("spared when memory is short", asked)
}

/// Lets this process open as many files as the system lets it: each region takes several.
pub fn open_many_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open files stays, and may limit what is held");
    }
}

/// Keeps held memory from being swapped out. Returns whether that was granted, for the log.
pub(crate) fn lock(attachment: &Attachment) -> String {
    said("memory locked", attachment.lock_in_memory().map_err(|errno| errno.to_string()))
}

fn said(what: &str, outcome: Result<(), String>) -> String {
    match outcome {
        Ok(()) => format!("{what}: yes"),
        Err(why) => format!("{what}: no ({why})"),
    }
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
