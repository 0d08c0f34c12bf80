//! The instants of the longest window, oldest first: time, volume, and number of page writes, in 16
//! B.
//!
//! They are appended at one end, read in order by one cursor for each window, and never changed. So
//! instants that do not fit in memory lie in a temporary file, in chunks that are written once and
//! read once by each cursor. When the last cursor has left a chunk, its place in the file is used
//! again. So the file is at most as long as the longest window was.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::SkewError;
use super::table::FIRST_INSTANT;

/// The instants of a chunk, which takes 64 KiB.
const CHUNK: usize = 4096;
/// The bytes of a chunk.
const CHUNK_BYTES: usize = CHUNK * size_of::<Instant>();

/// The page writes of one volume at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instant {
    /// The time since the start of the trace, nanoseconds.
    pub time_ns: u64,
    pub written: u32,
    /// The place of the volume among those seen.
    pub volume: u32,
}

type Chunk = Arc<[Instant]>;

/// The place of a full chunk: in memory or in a file.
enum Kept {
    Memory(Chunk),
    /// The chunk lies at this place of the file.
    File(u64),
}

/// The queue of instants that windows may still need.
pub struct Instants {
    full: VecDeque<Kept>,
    /// The number of the first chunk in `full`.
    first_chunk: u64,
    /// The chunk that is being filled, which follows those in `full`.
    head: Vec<Instant>,
    /// The number and the content of the chunk that each cursor has loaded.
    loaded: Vec<Option<(u64, Chunk)>>,
    spill: Spill,
    in_memory: usize,
    in_memory_max: usize,
}

impl Instants {
    /// Read by so many cursors, of which the last is the one that is furthest behind.
    pub fn new(cursors: usize, bytes_max: u64, dir: PathBuf) -> Self {
        Self {
            full: VecDeque::new(),
            first_chunk: 0,
            head: Vec::with_capacity(CHUNK),
            loaded: (0..cursors).map(|_| None).collect(),
            spill: Spill { file: None, places: 0, free: Vec::new(), dir },
            in_memory: 0,
            in_memory_max: (bytes_max / CHUNK_BYTES as u64) as usize,
        }
    }

    /// Appends an instant; instants are numbered from [`FIRST_INSTANT`] in this order.
    #[inline]
    pub fn push(&mut self, instant: Instant) -> Result<(), SkewError> {
        self.head.push(instant);
        if self.head.len() == CHUNK { self.keep_head() } else { Ok(()) }
    }

    /// Appends all of these instants.
    pub fn extend(&mut self, mut instants: &[Instant]) -> Result<(), SkewError> {
        while !instants.is_empty() {
            let (now, later) = instants.split_at(instants.len().min(CHUNK - self.head.len()));
            self.head.extend_from_slice(now);
            if self.head.len() == CHUNK {
                self.keep_head()?;
            }
            instants = later;
        }
        Ok(())
    }

    fn keep_head(&mut self) -> Result<(), SkewError> {
        let kept = if self.in_memory < self.in_memory_max {
            self.in_memory += 1;
            let next = Vec::with_capacity(CHUNK);
            Kept::Memory(std::mem::replace(&mut self.head, next).into())
        } else {
            let place = self.spill.write(&self.head)?;
            self.head.clear();
            Kept::File(place)
        };
        self.full.push_back(kept);
        Ok(())
    }

    /// The instants from this number on that lie together, for this cursor: at least one, if there
    /// is one; not those that the last cursor has left behind.
    pub fn from(&mut self, cursor: usize, number: u64) -> Result<&[Instant], SkewError> {
        let index = number - FIRST_INSTANT;
        let (chunk, at) = (index / CHUNK as u64, index as usize % CHUNK);
        let Some(kept) = self.full.get((chunk - self.first_chunk) as usize) else {
            return Ok(&self.head[at..]);
        };
        let loaded = &mut self.loaded[cursor];
        if !matches!(loaded, Some((known, _)) if *known == chunk) {
            let instants = match kept {
                Kept::Memory(instants) => Arc::clone(instants),
                Kept::File(place) => self.spill.read(*place)?,
            };
            *loaded = Some((chunk, instants));
        }
        Ok(loaded.as_ref().map_or(&[], |(_, instants)| &instants[at..]))
    }

    /// Forgets what is before `number`, which the last cursor has left.
    #[inline]
    pub fn forget_before(&mut self, number: u64) {
        let chunk = (number - FIRST_INSTANT) / CHUNK as u64;
        while self.first_chunk < chunk {
            match self.full.pop_front() {
                Some(Kept::Memory(_)) => self.in_memory -= 1,
                Some(Kept::File(place)) => self.spill.free.push(place),
                None => break,
            }
            self.first_chunk += 1;
        }
    }

    /// The bytes of the temporary file.
    pub fn spilled_bytes(&self) -> u64 {
        self.spill.places * CHUNK_BYTES as u64
    }
}

/// The temporary file.
struct Spill {
    file: Option<File>,
    places: u64,
    free: Vec<u64>,
    dir: PathBuf,
}

impl Spill {
    fn write(&mut self, instants: &[Instant]) -> Result<u64, SkewError> {
        let mut bytes = Vec::with_capacity(CHUNK_BYTES);
        for instant in instants {
            bytes.extend_from_slice(&instant.time_ns.to_le_bytes());
            bytes.extend_from_slice(&instant.written.to_le_bytes());
            bytes.extend_from_slice(&instant.volume.to_le_bytes());
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.places += 1;
            self.places - 1
        });
        self.file()
            .and_then(|file| file.write_all_at(&bytes, place * CHUNK_BYTES as u64))
            .map_err(|error| SkewError::spill(&self.dir, error))?;
        Ok(place)
    }

    fn file(&mut self) -> std::io::Result<&File> {
        let file = match self.file.take() {
            Some(file) => file,
            None => tempfile::tempfile_in(&self.dir)?,
        };
        Ok(self.file.insert(file))
    }

    fn read(&mut self, place: u64) -> Result<Chunk, SkewError> {
        let mut bytes = vec![0; CHUNK_BYTES];
        self.file()
            .and_then(|file| file.read_exact_at(&mut bytes, place * CHUNK_BYTES as u64))
            .map_err(|error| SkewError::spill(&self.dir, error))?;
        let (instants, _) = bytes.as_chunks::<{ size_of::<Instant>() }>();
        Ok(instants.iter().map(Instant::from_bytes).collect())
    }
}

impl Instant {
    fn from_bytes(bytes: &[u8; size_of::<Self>()]) -> Self {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let time_ns = u64::from(word(4)) << 32 | u64::from(word(0));
        Self { time_ns, written: word(8), volume: word(12) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_appended_is_read_in_order_wherever_it_lies() {
        for bytes_max in [0, 3 * CHUNK_BYTES as u64, 1 << 30] {
            let mut queue = Instants::new(2, bytes_max, std::env::temp_dir());
            let instant = |number: u64| Instant {
                time_ns: number * 7 + (number << 40),
                written: number as u32,
                volume: (number % 5) as u32,
            };
            let mut behind = FIRST_INSTANT;
            for number in FIRST_INSTANT..200_000 {
                queue.push(instant(number)).unwrap();
                let recent = number.saturating_sub(3000).max(FIRST_INSTANT);
                assert_eq!(queue.from(0, recent).unwrap()[0], instant(recent));
                // The other is up to 60,000 behind, and goes on in steps.
                while behind + 60_000 < number {
                    assert_eq!(queue.from(1, behind).unwrap()[0], instant(behind));
                    behind += 1;
                    queue.forget_before(behind);
                }
            }
            let chunks_max = 60_000 / CHUNK as u64 + 2;
            assert!(queue.spilled_bytes() <= chunks_max * CHUNK_BYTES as u64);
            assert_eq!(queue.spilled_bytes() == 0, bytes_max == 1 << 30);
        }
    }
}
