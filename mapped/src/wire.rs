//! The words between the library in a program and the host: requests of five numbers, and answers
//! of a few hundred at most, one to a packet of a Unix socket. Descriptors travel beside them. The
//! first number of an answer is 0, or the `errno` of a request that failed.
//!
//! The library has this file, too, and depends on nothing else of the host.

/// The variable that has the path of the host's socket.
pub const SOCKET_VARIABLE: &str = "PERDURA_MAPPED_SOCKET";
/// The variable that has the directory whose files are served.
pub const DIR_VARIABLE: &str = "PERDURA_MAPPED_DIR";

/// Numbers of a request.
pub const ASK_WORDS: usize = 5;
/// Most numbers of an answer.
#[allow(dead_code)] // the host makes answers as they come
pub const ANSWER_WORDS: usize = 1 + 2 * EXTENTS_MAX;
/// Most pieces of memory that a file consists of.
pub const EXTENTS_MAX: usize = 200;
/// Most files that are served at a time.
pub const FILES_MAX: usize = 4_000;
/// Bytes of the board: a count, the inodes that are served, and the length that the host knows of
/// each. Programs lock the byte whose offset is a file's inode while they use the file's length.
pub const BOARD_BYTES: usize = 8 * (1 + 2 * FILES_MAX);

/// What a program asks of the host. Offsets and lengths are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// The first request, with a userfaultfd. The answer brings the memory and the board.
    Hello,
    /// Serve a file, whose descriptor comes with it: the answer is its number.
    Serve,
    /// The pieces of memory of a file's first `len` bytes: offsets and lengths, in order.
    Pieces {
        /// The file's number.
        file: u64,
        /// How much of it.
        len: u64,
    },
    /// Track the mapping of memory at an address.
    Track {
        /// Where it is mapped.
        address: u64,
        /// Offset in the memory.
        offset: u64,
        /// Its length.
        len: u64,
    },
    /// The mappings in this range go next.
    Untrack {
        /// Where the range begins.
        address: u64,
        /// Its length.
        len: u64,
    },
    /// A file has this length now.
    Length {
        /// The file's number.
        file: u64,
        /// Its length.
        len: u64,
    },
    /// A file may have another length now, which the host finds out.
    Changed {
        /// The file's device.
        device: u64,
        /// The file's inode.
        inode: u64,
    },
    /// Files were renamed or removed.
    Renamed,
    /// Make a checkpoint.
    Checkpoint,
}

impl Ask {
    /// As numbers.
    #[allow(dead_code)] // the host only answers
    pub fn encode(self) -> [u64; ASK_WORDS] {
        match self {
            Self::Hello => [1, 0, 0, 0, 0],
            Self::Serve => [2, 0, 0, 0, 0],
            Self::Pieces { file, len } => [3, file, len, 0, 0],
            Self::Track { address, offset, len } => [4, address, offset, len, 0],
            Self::Untrack { address, len } => [5, address, len, 0, 0],
            Self::Length { file, len } => [6, file, len, 0, 0],
            Self::Renamed => [7, 0, 0, 0, 0],
            Self::Changed { device, inode } => [9, device, inode, 0, 0],
            Self::Checkpoint => [8, 0, 0, 0, 0],
        }
    }

    /// What these numbers ask; `None`: nothing that is known.
    #[allow(dead_code)] // the library only asks
    pub fn decode(words: &[u64]) -> Option<Self> {
        Some(match *words {
            [1, 0, 0, 0, 0] => Self::Hello,
            [2, 0, 0, 0, 0] => Self::Serve,
            [3, file, len, 0, 0] => Self::Pieces { file, len },
            [4, address, offset, len, 0] => Self::Track { address, offset, len },
            [5, address, len, 0, 0] => Self::Untrack { address, len },
            [6, file, len, 0, 0] => Self::Length { file, len },
            [7, 0, 0, 0, 0] => Self::Renamed,
            [8, 0, 0, 0, 0] => Self::Checkpoint,
            [9, device, inode, 0, 0] => Self::Changed { device, inode },
            _ => return None,
        })
    }
}
