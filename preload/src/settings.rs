//! Settings, from the environment (`perdura run` sets it).
//!
//! `PERDURA_CAPACITY`         `anonymous` (private memory, the default), or a directory on the medium to use: memory is
//!                            then a file without a name in it
//! `PERDURA_CAPACITY_BYTES`   most bytes of capacity memory; by default the machine's memory, or what is free on
//!                            `PERDURA_NUMA_NODE`, at most 64 GiB. What is not allocated costs nothing
//!                            (docs/heap.md).
//! `PERDURA_NUMA_NODE`        the NUMA node to take it from
//! `PERDURA_CAPACITY_REPORT`  `1`: say at the end what was used, on standard error

use std::ffi::{CStr, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use perdura_heap::HEAP_BYTES_MIN;

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

/// The environment as the loader hands it to a constructor: the C library may not know of it yet.
pub struct Environment(*const *const c_char);

impl Environment {
    /// # Safety
    /// It is what a constructor was given, or null, and nobody changes it.
    pub unsafe fn new(words: *const *const c_char) -> Self {
        Self(words)
    }

    fn get(&self, name: &str) -> Option<&OsStr> {
        let mut at = self.0;
        // SAFETY: a list of words that ends with null (the promise of `new`).
        while !at.is_null() && !unsafe { *at }.is_null() {
            // SAFETY: as above; each word ends with a zero byte.
            let word = unsafe { CStr::from_ptr(*at) }.to_bytes();
            if let Some([b'=', value @ ..]) = word.strip_prefix(name.as_bytes()) {
                return Some(OsStr::from_bytes(value));
            }
            at = at.wrapping_add(1);
        }
        None
    }

    fn number<T: std::str::FromStr>(
        &self,
        name: &'static str,
        expected: &'static str,
    ) -> Result<Option<T>, Wrong> {
        let Some(value) = self.get(name).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        match value.to_str().and_then(|text| text.trim().parse().ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(Wrong { name, value: value.to_owned(), expected }),
        }
    }
}

impl Settings {
    pub fn of(environment: &Environment) -> Result<Self, Wrong> {
        let dir = match environment.get("PERDURA_CAPACITY") {
            Some(word) if !word.is_empty() && word != "anonymous" => Some(PathBuf::from(word)),
            _ => None,
        };
        let bytes = environment.number("PERDURA_CAPACITY_BYTES", "a number of bytes")?;
        let numa_node = environment.number("PERDURA_NUMA_NODE", "the number of a NUMA node")?;
        let report = environment.get("PERDURA_CAPACITY_REPORT").is_some_and(|word| word == "1");
        Ok(Self { dir, bytes, numa_node, report })
    }
}

/// Bytes to try if none were asked for.
pub fn default_bytes(numa_node: Option<u32>) -> u64 {
    if let Some(bytes) = numa_node.and_then(free_bytes_of) {
        // The kernel ends a program that wants memory of a full node. What the heap has no room for comes from others.
        return (bytes / 16 * 15).clamp(HEAP_BYTES_MIN, BYTES_MOST);
    }
    // SAFETY: asks two numbers.
    let (pages, page_bytes) =
        unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    let all = u64::try_from(pages).unwrap_or(0) * u64::try_from(page_bytes).unwrap_or(0);
    all.clamp(1 << 30, BYTES_MOST)
}

/// What a node has to give, with the files that it holds in memory; `None`: the system does not say.
fn free_bytes_of(node: u32) -> Option<u64> {
    let path = format!("/sys/devices/system/node/node{node}/meminfo");
    let meminfo = std::fs::read_to_string(path).ok()?;
    let kib_of = |name: &str| {
        // `Node 1 MemFree:   393216 kB`
        let mut lines = meminfo.lines().filter_map(|line| line.split_once(name));
        lines.next()?.1.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    let kib = [" MemFree:", " Active(file):", " Inactive(file):"].into_iter().map(kib_of);
    kib.sum::<Option<u64>>()?.checked_mul(1024)
}
