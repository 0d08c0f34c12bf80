//! One access, as every reader gives it.

use super::Fault;

/// Bytes of the pages that plans count in.
pub const PAGE_BYTES: u64 = 4096;

/// No access may end beyond this byte.
const END_MAX: u64 = 1 << 63;

/// No access has more bytes: more at once is a damaged number, and counting its pages would take
/// for ever.
pub const ACCESS_BYTES_MAX: u64 = 32 << 30;

/// What an access does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// It reads.
    Read,
    /// It writes.
    Write,
}

/// One access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds since the epoch of its source; within a source it never falls.
    pub time_ns: u64,
    /// First byte, in its volume.
    pub offset_bytes: u64,
    /// Bytes; not 0, and the last byte is below 2^63.
    pub len_bytes: u64,
    /// Which of the source's volumes.
    pub volume: u32,
    /// What it does.
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
    /// What is wrong with it.
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
