//! The file that says after a stop how hot each block was. It is a hint: a lost, old or damaged
//! file makes the next start's order worse and nothing else, so nothing waits until it is durable.
//!
//! ```text
//! 0   [`MAGIC`]
//! 8   number of blocks
//! 16  XXH3 of the bytes that follow
//! 24  a byte for each block
//! ```
//! Numbers are little-endian.

use std::io::Read;
use std::path::Path;

use perdura_image::format::checksum;

use crate::region::Region;

/// Name of the file in its directory.
const HEAT_NAME: &str = "heat.perdura";
/// First bytes of the file; the last one is the version of the format.
const MAGIC: u64 = u64::from_le_bytes(*b"PRDHEAT\x01");
/// Most blocks that a file may have: those of 256 TiB.
const BLOCKS_MAX: u64 = 1 << 32;

/// Saves how hot each block of the region is, for the next start. A failure is logged.
pub(super) fn save(region: &Region, dir: &Path) {
    if let Err(error) = write(dir, &region.heat()) {
        let path = dir.join(HEAT_NAME);
        let path = path.display();
        tracing::warn!(%path, %error, "the next start will not begin with what is hot");
    }
}

fn write(dir: &Path, heat: &[u8]) -> std::io::Result<()> {
    let head = head(heat);
    let new = dir.join(format!("{HEAT_NAME}.new"));
    std::fs::write(&new, [head.as_flattened(), heat].concat())?;
    std::fs::rename(&new, dir.join(HEAT_NAME))
}

/// Reads what an earlier run saved; empty if there is nothing of use.
pub(super) fn read(dir: &Path) -> Vec<u8> {
    let path = dir.join(HEAT_NAME);
    let found = std::fs::File::open(&path).map_err(Flaw::Io).and_then(parse);
    match found {
        Ok(heat) => heat,
        Err(Flaw::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(flaw) => {
            let path = path.display();
            tracing::warn!(
                %path, %flaw,
                "what was hot before is not known: loading does not begin with it"
            );
            Vec::new()
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum Flaw {
    #[error("{0}")]
    Io(std::io::Error),
    #[error("the file was cut off or damaged")]
    Damaged,
}

fn parse(file: impl Read) -> Result<Vec<u8>, Flaw> {
    let mut file = file.take(BLOCKS_MAX);
    let mut found = [[0; 8]; 3];
    file.read_exact(found.as_flattened_mut()).map_err(|_| Flaw::Damaged)?;
    let mut heat = Vec::new();
    file.read_to_end(&mut heat).map_err(Flaw::Io)?;
    if found == head(&heat) { Ok(heat) } else { Err(Flaw::Damaged) }
}

fn head(heat: &[u8]) -> [[u8; 8]; 3] {
    [MAGIC, heat.len() as u64, checksum(heat)].map(u64::to_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_a_damaged_file_is_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(dir.path()).is_empty(), "there is no file");
        let heat: Vec<u8> = (0..1000u32).map(|at| (at % 251) as u8).collect();
        write(dir.path(), &heat).unwrap();
        assert_eq!(read(dir.path()), heat);
        let path = dir.path().join(HEAT_NAME);
        let whole = std::fs::read(&path).unwrap();
        for at in [0, 7, 8, 16, 23, 24, whole.len() - 1] {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, damaged).unwrap();
            assert!(read(dir.path()).is_empty(), "byte {at}");
        }
        for len in [0, 5, 24, whole.len() - 1] {
            std::fs::write(&path, &whole[..len]).unwrap();
            assert!(read(dir.path()).is_empty(), "{len} bytes");
        }
        let longer = [&whole[..], &[0]].concat();
        std::fs::write(&path, longer).unwrap();
        assert!(read(dir.path()).is_empty(), "a byte too many");
        write(dir.path(), &heat[..10]).unwrap();
        assert_eq!(read(dir.path()), heat[..10]);
    }
}
