//! The catalog: which files lie where in the region. It lies in the region's first bytes, so a
//! checkpoint has files and catalog as of the same moment.
//!
//! It is written to two places in turn, each with a number and a checksum. A process that is killed
//! in the middle leaves the other one.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::UNIX_EPOCH;

use perdura_region::TrappedMemory;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::MappedError;

/// Bytes of the region that the catalog takes.
pub const CATALOG_BYTES: u64 = 2 * PLACE_BYTES;
const PLACE_BYTES: u64 = 1 << 20;
/// The header: a mark, a number, the length, and the checksum of number, length and text.
const HEADER_BYTES: usize = 32;
const MARK: u64 = u64::from_le_bytes(*b"PERDMAP1");

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The bytes of its path below the directory; empty: it has none any more.
    pub path: Vec<u8>,
    /// The file that has, or had, this path.
    pub identity: Identity,
    /// Its length.
    pub len: u64,
    /// The pieces of the region that it consists of, in order: offsets and lengths.
    pub pieces: Vec<(u64, u64)>,
}

/// Which file this is, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The device that the file is on.
    pub device: u64,
    /// The file's inode.
    pub inode: u64,
    /// When it was made, nanoseconds since 1970, because inodes are used again; 0: its file system
    /// does not say.
    pub made_ns: u64,
}

impl Identity {
    /// The identity of a file.
    pub fn of(found: &Metadata) -> Self {
        let made = found.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let made_ns = made.map_or(0, |time| time.as_nanos() as u64);
        Self { device: found.dev(), inode: found.ino(), made_ns }
    }
}

/// All files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalog {
    /// The files.
    pub files: Vec<Entry>,
    /// Where the part of the region begins that no file has.
    pub free_from: u64,
    /// How often it was written.
    #[serde(skip)]
    number: u64,
}

impl Catalog {
    /// The catalog of a region; an empty one if the region is new.
    ///
    /// # Errors
    /// The region has something else.
    pub fn read(memory: &TrappedMemory<'_>) -> Result<Self, MappedError> {
        if memory.len_bytes() < CATALOG_BYTES {
            return Err(MappedError::NoCatalog);
        }
        let places = [0, PLACE_BYTES].map(|at| read_place(memory, at));
        let newest = places.into_iter().flatten().max_by_key(|catalog| catalog.number);
        if let Some(catalog) = newest {
            return Ok(catalog);
        }
        let mut first = [0; HEADER_BYTES];
        for at in [0, PLACE_BYTES] {
            memory.read(at, &mut first);
            if first != [0; HEADER_BYTES] {
                return Err(MappedError::NoCatalog);
            }
        }
        Ok(Self { free_from: CATALOG_BYTES, ..Self::default() })
    }

    /// Writes the catalog in the place of the older one.
    ///
    /// # Errors
    /// It is too long, or the region refuses writes.
    pub fn write(&mut self, memory: &TrappedMemory<'_>) -> Result<(), MappedError> {
        let text = serde_json::to_vec(self).map_err(|error| MappedError::System {
            what: "write the catalog",
            source: error.into(),
        })?;
        let most_bytes = PLACE_BYTES as usize - HEADER_BYTES;
        if text.len() > most_bytes {
            return Err(MappedError::CatalogFull { len_bytes: text.len(), most_bytes });
        }
        self.number += 1;
        let at = self.number % 2 * PLACE_BYTES;
        let mut bytes = vec![0; HEADER_BYTES];
        bytes.extend_from_slice(&text);
        let sum = sum(self.number, &text);
        for (place, word) in [MARK, self.number, text.len() as u64, sum].into_iter().enumerate() {
            bytes[place * 8..place * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        let prepared = memory.prepare_write(at..at + bytes.len() as u64)?;
        memory.write(at, &bytes);
        drop(prepared);
        Ok(())
    }
}

fn read_place(memory: &TrappedMemory<'_>, at: u64) -> Option<Catalog> {
    let mut header = [0; HEADER_BYTES];
    memory.read(at, &mut header);
    let word = |place: usize| {
        header[place * 8..place * 8 + 8].try_into().map(u64::from_le_bytes).unwrap_or_default()
    };
    let (number, len) = (word(1), usize::try_from(word(2)).ok()?);
    if word(0) != MARK || len > PLACE_BYTES as usize - HEADER_BYTES {
        return None;
    }
    let mut text = vec![0; len];
    memory.read(at + HEADER_BYTES as u64, &mut text);
    if word(3) != sum(number, &text) {
        return None;
    }
    let catalog: Catalog = serde_json::from_slice(&text).ok()?;
    Some(Catalog { number, ..catalog })
}

fn sum(number: u64, text: &[u8]) -> u64 {
    xxh3_64(text) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
mod tests {
    use perdura_media::sim::SimDevice;

    use super::*;
    use crate::testing::region_on;

    fn with_path(path: Vec<u8>) -> Catalog {
        let identity = Identity { device: 1, inode: 2, made_ns: 3 };
        let files = vec![Entry { path, identity, len: 4, pieces: vec![(5, 6)] }];
        Catalog { files, free_from: CATALOG_BYTES, number: 0 }
    }

    #[test]
    fn the_newest_whole_catalog_is_read_also_from_the_image() {
        let device = SimDevice::new(0, 0);
        let region = region_on(&device);
        let memory = region.trapped().unwrap();
        assert_eq!(Catalog::read(&memory).unwrap().files, []);
        let mut catalog = with_path(b"1".to_vec());
        for path in [b"2", b"3", b"4"] {
            catalog.write(&memory).unwrap();
            assert_eq!(Catalog::read(&memory).unwrap(), catalog);
            catalog.files[0].path = path.to_vec();
        }
        // Another digit in the place of the newest, as a kill in the middle of a write leaves it:
        // of the code of `3`, which is 51.
        let mut place = vec![0; PLACE_BYTES as usize];
        memory.read(PLACE_BYTES, &mut place);
        let text = b"{\"files\":[{\"path\":[";
        let at = place.windows(text.len()).position(|window| window == text).unwrap();
        assert_eq!(place[at + text.len()..at + text.len() + 2], *b"51");
        let torn = PLACE_BYTES + (at + text.len()) as u64;
        let prepared = memory.prepare_write(torn..torn + 1).unwrap();
        memory.write(torn, b"9");
        drop(prepared);
        let older = Catalog::read(&memory).unwrap();
        assert_eq!((&older.files[0].path[..], older.number), (&b"2"[..], 2));
        region.close(1).unwrap();
        let again = Catalog::read(&region_on(&device).trapped().unwrap()).unwrap();
        assert_eq!(again, older);
    }

    #[test]
    fn a_catalog_that_is_too_long_is_refused_and_the_longest_is_read_again() {
        let region = region_on(&SimDevice::new(0, 0));
        let memory = region.trapped().unwrap();
        let most = PLACE_BYTES as usize / 3;
        let (mut longest, mut refused) = (None, 0);
        for len in most - 100..most {
            let mut catalog = Catalog { number: 4, ..with_path(vec![b'a'; len]) };
            match catalog.write(&memory) {
                Ok(()) => longest = Some(catalog),
                Err(MappedError::CatalogFull { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(Catalog::read(&memory).unwrap(), longest.unwrap());
        assert!((20..100).contains(&refused), "{refused}");
    }
}
