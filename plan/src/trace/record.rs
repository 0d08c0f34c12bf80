//! One access, as every reader gives it.

use super::Fault;

/// The bytes of a page, in which plans count.
pub const PAGE_BYTES: u64 = 4096;

/// The first byte that no access may reach.
const END_MAX: u64 = 1 << 63;

/// The most bytes of an access. A larger number is damaged, and counting its pages would take for
/// ever.
pub const ACCESS_BYTES_MAX: u64 = 32 << 30;

/// Whether an access reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// The access reads.
    Read,
    /// The access writes.
    Write,
}

/// An access to a volume, the same whatever the format it was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The time since the clock's zero in the trace, nanoseconds; it never falls within a trace.
    pub time_ns: u64,
    /// The first byte in the volume.
    pub offset_bytes: u64,
    /// The number of bytes, which is not 0; the last of them is below 2^63.
    pub len_bytes: u64,
    /// The number of the volume in the trace.
    pub volume: u32,
    /// Whether it reads or writes.
    pub op: Op,
}

impl Record {
    /// The first page it touches, and how many: from the one of its first byte to the one of its
    /// last.
    #[inline]
    pub fn pages(&self) -> (u64, u64) {
        let first = self.offset_bytes / PAGE_BYTES;
        let last = (self.offset_bytes + self.len_bytes - 1) / PAGE_BYTES;
        (first, last - first + 1)
    }

    /// Whether it is one that readers may give after time `last_ns`.
    ///
    /// # Errors
    /// The mistake in the record.
    #[inline]
    pub fn check(&self, last_ns: u64) -> Result<(), Fault> {
        let fits = self.offset_bytes < END_MAX && self.len_bytes <= END_MAX - self.offset_bytes;
        let fits = fits && self.len_bytes <= ACCESS_BYTES_MAX;
        if self.len_bytes == 0 || !fits || self.time_ns < last_ns {
            return Err(self.fault(last_ns));
        }
        Ok(())
    }

    #[cold]
    fn fault(&self, last_ns: u64) -> Fault {
        let Record { time_ns, offset_bytes, len_bytes, .. } = *self;
        if len_bytes == 0 {
            Fault::NoBytes { offset_bytes }
        } else if time_ns < last_ns {
            Fault::Backwards { time_ns, last_ns }
        } else if len_bytes > ACCESS_BYTES_MAX {
            Fault::TooLong { len_bytes, limit_bytes: ACCESS_BYTES_MAX }
        } else {
            Fault::Beyond { offset_bytes, len_bytes }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_of_more_than_a_machine_does_at_once_is_a_fault() {
        let at = |offset_bytes, len_bytes| {
            Record { time_ns: 0, offset_bytes, len_bytes, volume: 0, op: Op::Write }.check(0)
        };
        assert_eq!(at(1, ACCESS_BYTES_MAX), Ok(()));
        let len_bytes = ACCESS_BYTES_MAX + 1;
        let limit_bytes = ACCESS_BYTES_MAX;
        assert_eq!(at(1, len_bytes), Err(Fault::TooLong { len_bytes, limit_bytes }));
    }

    #[test]
    fn a_request_covers_the_pages_of_its_first_and_last_byte() {
        let at = |offset_bytes, len_bytes| {
            Record { time_ns: 0, offset_bytes, len_bytes, volume: 0, op: Op::Write }.pages()
        };
        assert_eq!(at(0, 1), (0, 1));
        assert_eq!(at(4095, 2), (0, 2));
        assert_eq!(at(4096, 4096), (1, 1));
        assert_eq!(at((1 << 63) - 4096, 4096), ((1 << 51) - 1, 1));
    }
}
