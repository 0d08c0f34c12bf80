//! On which NUMA node memory lies.
//!
//! The policy of a memory file's pages belongs to the file, not to a mapping: it outlives the
//! process that set it.

use rustix::io::Errno;

use super::mapping::Mapping;

/// No Linux has more.
pub const NODES_MAX: u32 = 1024;

const MPOL_DEFAULT: libc::c_int = 0;
const MPOL_BIND: libc::c_int = 2;
const MPOL_LOCAL: libc::c_int = 4;
/// Fail if pages there lie elsewhere; but move those first that can be moved.
const MPOL_MF_STRICT: libc::c_uint = 1;
const MPOL_MF_MOVE: libc::c_uint = 2;

impl Mapping {
    /// From now on a range of whole pages has its memory on one node only, what is there already
    /// included.
    pub fn bind(&self, offset: u64, len: usize, node: u32) -> Result<(), Errno> {
        let mut mask = [0u64; NODES_MAX as usize / 64];
        *mask.get_mut(node as usize / 64).ok_or(Errno::INVAL)? |= 1 << (node % 64);
        self.mbind(offset, len, MPOL_BIND, Some(&mask), MPOL_MF_STRICT | MPOL_MF_MOVE)
    }

    /// From now on a range gets memory wherever the system likes.
    pub fn unbind(&self, offset: u64, len: usize) -> Result<(), Errno> {
        // A mapping that knows of no policy has the file's taken away only if that is a change to
        // the mapping.
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
        // The kernel counts one bit less than it is told of.
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
