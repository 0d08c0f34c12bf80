//! The NUMA node that memory lies on.

use rustix::io::Errno;

use super::mapping::Mapping;

/// Most nodes of any Linux.
const NODES_MAX: usize = 1024;
const MPOL_DEFAULT: libc::c_int = 0;
const MPOL_BIND: libc::c_int = 2;
/// Lets the call fail if pages lie elsewhere and cannot be moved.
const MPOL_MF_STRICT: libc::c_uint = 1;
const MPOL_MF_MOVE: libc::c_uint = 2;

/// Whether memory can be bound to a node.
///
/// # Errors
/// There is no such node, it has no memory, or this process may not use it.
pub fn check_node(node: u32) -> Result<(), Errno> {
    Mapping::anonymous(4096)?.bind(0, 4096, node)
}

impl Mapping {
    /// Binds a range of whole pages to one node, with the pages that it has already.
    ///
    /// # Errors
    /// The errors of [`check_node`].
    pub fn bind(&self, offset: u64, len: usize, node: u32) -> Result<(), Errno> {
        let mut mask = [0_u64; NODES_MAX / 64];
        *mask.get_mut(node as usize / 64).ok_or(Errno::INVAL)? |= 1 << (node % 64);
        self.mbind(offset, len, MPOL_BIND, Some(&mask), MPOL_MF_STRICT | MPOL_MF_MOVE)
    }

    /// Lets a range get memory wherever the system likes.
    ///
    /// # Errors
    /// The system refuses.
    pub fn unbind(&self, offset: u64, len: usize) -> Result<(), Errno> {
        self.mbind(offset, len, MPOL_DEFAULT, None, 0)
    }

    fn mbind(
        &self,
        offset: u64,
        len: usize,
        mode: libc::c_int,
        mask: Option<&[u64; NODES_MAX / 64]>,
        flags: libc::c_uint,
    ) -> Result<(), Errno> {
        assert!(offset + len as u64 <= self.len_bytes(), "{len} bytes at {offset} leave the heap");
        let start = self.base().wrapping_add(offset as usize);
        // The kernel uses one bit less than the number that it is given.
        let (mask, bits) = match mask {
            Some(mask) => (mask.as_ptr(), NODES_MAX + 1),
            None => (std::ptr::null(), 0),
        };
        // SAFETY: the range lies in this mapping and keeps its bytes; the mask has the bits it is
        // said to have.
        let outcome =
            unsafe { libc::syscall(libc::SYS_mbind, start, len, mode, mask, bits, flags) };
        if outcome == 0 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}
