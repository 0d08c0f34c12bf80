//! Reading an image's contents, committed or not, without opening it.

use perdura_media::Device;

use crate::cipher::Key;
use crate::error::{ImageError, OpenError};
use crate::load::Target;
use crate::recover::{Tail, recover};
use crate::superblock::read_superblock;
use perdura_dirty::planted::Planted;
use perdura_dirty::sys::SharedMemory;
use perdura_dirty::{Ledger, SetupError};

/// The frames that count as part of the contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Believe {
    /// The frames that recovery would use: the last commit and later group commits.
    Committed,
    /// Every whole frame, whether or not a commit covers it: the state that a final flush could
    /// complete.
    EveryFrame,
}

/// Reads the region's bytes from an image. This needs as much memory as the result has bytes: the
/// bytes in use at the last commit or, with [`Believe::EveryFrame`], the whole reserve. `key` is
/// the user's, for an encrypted image.
pub fn image_bytes(
    device: &dyn Device,
    believe: Believe,
    key: Option<&Key>,
) -> Result<Vec<u8>, OpenError> {
    let (memory, len_bytes) = image_memory(device, believe, key)?;
    let mut bytes = vec![0; len_bytes as usize];
    let refused = |source| SetupError::Memory { what: "image's contents", len_bytes, source };
    memory.read_at(0, &mut bytes).map_err(refused)?;
    Ok(bytes)
}

/// Reads the region's bytes from an image into a memory file of the size of the reserve, in which
/// bytes that the image has not are holes. Returns the file, and how many bytes
/// [`image_bytes`] would have.
pub fn image_memory(
    device: &dyn Device,
    believe: Believe,
    key: Option<&Key>,
) -> Result<(SharedMemory, u64), OpenError> {
    let Some(head) = read_superblock(device)? else {
        return Err(ImageError::NotAnImage { found: 0 }.into());
    };
    let (geometry, image_id) = (head.geometry, head.image_id);
    let image_key = head.image_key(key)?;
    let len_bytes = geometry.reserved_bytes;
    let refused = |source| SetupError::Memory { what: "image's contents", len_bytes, source };
    let ledger = Ledger::create(geometry, image_id, 0)?;
    if let Some(image_key) = image_key {
        ledger.set_key_words(image_key.words());
    }
    let memory = SharedMemory::create("perdura-inspect", len_bytes).map_err(refused)?;
    let map = memory.map().map_err(refused)?;
    let tail = match believe {
        Believe::Committed => Tail::Committed,
        Believe::EveryFrame => Tail::EveryWholeFrame,
    };
    let (found, loading) = recover(device, &geometry, image_id, &ledger, tail, Planted::None)?;
    loading.load_all(
        &Target { device, ledger: &ledger, map: &map, loaded: &|_| {}, huge_pages: None },
        1,
    )?;
    let len_bytes = match believe {
        Believe::Committed => found.slot.header.region_bytes.get(),
        Believe::EveryFrame => len_bytes,
    };
    Ok((memory, len_bytes))
}
