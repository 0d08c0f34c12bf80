//! Requests to the kernel about the pages of measured memory.

use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

/// Size of a huge page.
pub const HUGE_BYTES: u64 = 2 << 20;

/// Asks for huge pages where they fit, or for none even where the kernel would give them by itself.
///
/// # Errors
/// The kernel knows no huge pages.
pub fn huge(base: *mut u8, bytes: u64, are_wanted: bool) -> Result<(), Errno> {
    let advice = if are_wanted { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
    advise(base, bytes, advice)
}

/// Bytes in huge pages of the mapping at this address; 0 where the kernel does not say.
pub fn huge_bytes(base: *mut u8) -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    huge_bytes_in(&text, base.addr() as u64)
}

fn huge_bytes_in(smaps: &str, address: u64) -> u64 {
    let mut is_ours = false;
    for line in smaps.lines() {
        let first = line.split(' ').next().unwrap_or_default();
        if let Some((from, to)) = first.split_once('-') {
            let bounds = [from, to].map(|word| u64::from_str_radix(word, 16).unwrap_or(0));
            is_ours = (bounds[0]..bounds[1]).contains(&address);
        } else if let (true, Some(rest)) = (is_ours, line.strip_prefix("AnonHugePages:")) {
            let kib = rest.trim().trim_end_matches(" kB").parse().unwrap_or(0u64);
            return kib << 10;
        }
    }
    0
}

/// How pages are brought in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Populate {
    /// As by a load.
    Read,
    /// As by a store.
    Write,
}

/// Brings in all pages now. `NOMEM`: there is too little memory.
pub fn populate(base: *mut u8, bytes: u64, how: Populate) -> Result<(), Errno> {
    const STEP_BYTES: u64 = 256 << 20;
    let advice = match how {
        Populate::Read => Advice::LinuxPopulateRead,
        Populate::Write => Advice::LinuxPopulateWrite,
    };
    let mut at = 0;
    while at < bytes {
        let step = STEP_BYTES.min(bytes - at);
        match advise(base.wrapping_add(at as usize), step, advice) {
            Ok(()) => at += step,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// The NUMA node of the page at an address; none where the kernel does not say.
pub fn node_of(address: *mut u8) -> Option<u32> {
    const MPOL_F_NODE: libc::c_ulong = 1;
    const MPOL_F_ADDR: libc::c_ulong = 2;
    let mut node: libc::c_int = -1;
    // SAFETY: the kernel writes one number; there is no mask, and the address is only looked up.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut node,
            std::ptr::null_mut::<libc::c_ulong>(),
            0 as libc::c_ulong,
            address,
            MPOL_F_NODE | MPOL_F_ADDR,
        )
    };
    if outcome == 0 { u32::try_from(node).ok() } else { None }
}

fn advise(base: *mut u8, bytes: u64, advice: Advice) -> Result<(), Errno> {
    // SAFETY: this advice changes no contents; a range that is not mapped is refused.
    unsafe { madvise(base.cast(), bytes as usize, advice) }
}

/// Makes pages that are brought into a range from now on lie on one NUMA node.
///
/// # Errors
/// The kernel does not know the node.
pub fn bind(base: *mut u8, bytes: u64, node: u32) -> Result<(), Errno> {
    const MPOL_BIND: libc::c_int = 2;
    const NODES_MAX: usize = 1024;
    let mut mask = [0u64; NODES_MAX / 64];
    *mask.get_mut(node as usize / 64).ok_or(Errno::INVAL)? |= 1 << (node % 64);
    // SAFETY: no contents change; the mask has the stated number of bits (the kernel counts one
    // less).
    let outcome = unsafe {
        libc::syscall(libc::SYS_mbind, base, bytes, MPOL_BIND, mask.as_ptr(), NODES_MAX + 1, 0)
    };
    if outcome == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_huge_pages_of_a_mapping_are_its_own() {
        let smaps = "1000-2000 rw-p 0 00:00 0\nAnonHugePages:      2048 kB\n2000-9000 rw-p 0 00:00 \
                     0 [heap]\nSize: 1 kB\nAnonHugePages:      4096 kB\n";
        assert_eq!(huge_bytes_in(smaps, 0x1000), 2 << 20);
        assert_eq!(huge_bytes_in(smaps, 0x8fff), 4 << 20);
        assert_eq!(huge_bytes_in(smaps, 0x9000), 0);
    }

    #[test]
    fn a_page_that_is_there_lies_on_a_node() {
        let here = 5u64;
        // A container may refuse to say.
        assert!(node_of((&raw const here).cast_mut().cast()).is_none_or(|node| node < 1024));
    }
}
