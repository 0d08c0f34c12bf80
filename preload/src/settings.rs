//! Settings, from the environment (`perdura run` sets it).
//!
//! `PERDURA_CAPACITY`         `anonymous` (private memory, the default), or a directory on the medium to use: memory is
//!                            then a file without a name in it
//! `PERDURA_CAPACITY_BYTES`   most bytes of capacity memory; by default the machine's memory, at most 64 GiB. What
//!                            is not used costs nothing.
//! `PERDURA_NUMA_NODE`        the NUMA node to take it from
//! `PERDURA_CAPACITY_REPORT`  `1`: say at the end what was used, on standard error

use std::ffi::OsString;
use std::path::PathBuf;

const BYTES_MOST: u64 = 64 << 30;

/// What to open.
pub struct Settings {
    /// The directory; `None`: private memory.
    pub dir: Option<PathBuf>,
    /// Bytes; `None`: as many as there are and can be had.
    pub bytes: Option<u64>,
    pub numa_node: Option<u32>,
    pub report: bool,
}

/// A setting that cannot be.
#[derive(Debug)]
pub struct Wrong {
    pub name: &'static str,
    pub value: OsString,
    pub expected: &'static str,
}

impl Settings {
    pub fn of_environment() -> Result<Self, Wrong> {
        let dir = match std::env::var_os("PERDURA_CAPACITY") {
            Some(word) if !word.is_empty() && word != "anonymous" => Some(PathBuf::from(word)),
            _ => None,
        };
        let bytes = number("PERDURA_CAPACITY_BYTES", "a number of bytes")?;
        let numa_node = number("PERDURA_NUMA_NODE", "the number of a NUMA node")?;
        let report = std::env::var_os("PERDURA_CAPACITY_REPORT").is_some_and(|word| word == "1");
        Ok(Self { dir, bytes, numa_node, report })
    }
}

/// Bytes to try if none were asked for.
pub fn default_bytes() -> u64 {
    // SAFETY: asks two numbers.
    let (pages, page_bytes) =
        unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    let all = u64::try_from(pages).unwrap_or(0) * u64::try_from(page_bytes).unwrap_or(0);
    all.clamp(1 << 30, BYTES_MOST)
}

fn number<T: std::str::FromStr>(
    name: &'static str,
    expected: &'static str,
) -> Result<Option<T>, Wrong> {
    let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    match value.to_str().and_then(|text| text.trim().parse().ok()) {
        Some(number) => Ok(Some(number)),
        None => Err(Wrong { name, value, expected }),
    }
}
