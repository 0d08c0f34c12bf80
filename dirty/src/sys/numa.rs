//! Binding memory to a NUMA node.
//!
//! The policy of a memory file's pages belongs to the file, not to a mapping: it outlives the
//! process that set it.

use rustix::io::Errno;

use super::mapping::Mapping;

/// Most NUMA nodes that Linux supports.
pub const NODES_MAX: u32 = 1024;

const MPOL_DEFAULT: libc::c_int = 0;
const MPOL_BIND: libc::c_int = 2;
const MPOL_LOCAL: libc::c_int = 4;
/// Fails if pages of the range lie on another node; `MPOL_MF_MOVE` first moves those that can be
/// moved.
const MPOL_MF_STRICT: libc::c_uint = 1;
const MPOL_MF_MOVE: libc::c_uint = 2;

impl Mapping {
    /// Binds a range of whole pages to one node. Pages that have memory already are moved there.
    pub fn bind(&self, offset: u64, len: usize, node: u32) -> Result<(), Errno> {
        let mut mask = [0u64; NODES_MAX as usize / 64];
        *mask.get_mut(node as usize / 64).ok_or(Errno::INVAL)? |= 1 << (node % 64);
        self.mbind(offset, len, MPOL_BIND, Some(&mask), MPOL_MF_STRICT | MPOL_MF_MOVE)
    }

    /// Lets the system choose the node of a range again.
    pub fn unbind(&self, offset: u64, len: usize) -> Result<(), Errno> {
        // The file's policy is removed only if the call changes the mapping's policy, so another
        // one is set first.
        self.mbind(offset, len, MPOL_LOCAL, None, 0)?;
        self.mbind(offset, len, MPOL_DEFAULT, None, 0)
    }

    fn mbind(
        &self,
        offset: u64,
        len: usize,
        mode: libc::c_int,
        mask: Option<&[u64; NODES_MAX as usize / 64]>,
        flags: libc::c_uint,
    ) -> Result<(), Errno> {
        assert!(offset + len as u64 <= self.len_bytes(), "a range leaves its mapping");
        let start = self.base().wrapping_add(offset as usize);
        // The kernel uses one bit less than the number that it is given.
        let (mask, bits) = match mask {
            Some(mask) => (mask.as_ptr(), NODES_MAX as usize + 1),
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
