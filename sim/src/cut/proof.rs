//! A proof of the budget from outside: the durable image must have every grain that the ledger does
//! not account for.

use std::fs::File;
use std::os::unix::fs::FileExt;

use perdura_image::inspect::{Believe, image_memory};
use perdura_media::SimDevice;
use perdura_region::Region;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::broken::Broken;

const GRAIN_BYTES: usize = 64;
/// Bytes that are compared at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Compares live memory grain by grain with the image as it is certain to survive. Dirty memory
/// that was freed is no longer accounted for: it may differ until it is used again.
pub(crate) fn prove(region: &Region, device: &SimDevice, freed_bytes: u64) -> Result<(), Broken> {
    let when = "proving the budget";
    // Memory that is not loaded yet differs, though the image has it.
    match region.load_all() {
        Ok(()) => {}
        // The image cannot be read any more, so nothing can be said.
        Err(_) if !device.is_powered() => return Ok(()),
        Err(error) => return Err(Broken::Region { step: when.into(), error: error.into() }),
    }
    // The image is read up to the reserve, because the region may have grown since its last commit.
    let (image, _) = image_memory(&device.durable_copy(), Believe::EveryFrame, None)
        .map_err(|error| Broken::Open { when, error })?;
    let mut image = Pieces::new(File::from(image.fd().try_clone_to_owned()?));
    let mut memory = Pieces::new(File::from(region.fds().0.try_clone_to_owned()?));
    let mut grains = 0;
    for from in (0..region.len_bytes()).step_by(PIECE_BYTES) {
        let len = PIECE_BYTES.min((region.len_bytes() - from) as usize);
        let (have, want) = (image.piece(from, len)?, memory.piece(from, len)?);
        if have != want {
            let (have, want) = (have.chunks(GRAIN_BYTES), want.chunks(GRAIN_BYTES));
            grains += have.zip(want).filter(|(have, want)| have != want).count();
        }
    }
    let (differing_bytes, used_bytes) = ((grains * GRAIN_BYTES) as u64, region.used_bytes());
    if differing_bytes > used_bytes + freed_bytes {
        return Err(Broken::Unaccounted { differing_bytes, used_bytes, freed_bytes });
    }
    Ok(())
}

/// A memory file that is read piece by piece, ascending. Holes are not read.
struct Pieces {
    file: File,
    /// Where the next bytes lie that are no hole.
    data: u64,
    bytes: Vec<u8>,
}

impl Pieces {
    fn new(file: File) -> Self {
        Self { file, data: 0, bytes: vec![0; PIECE_BYTES] }
    }

    fn piece(&mut self, from: u64, len: usize) -> Result<&[u8], Broken> {
        if self.data <= from {
            self.data = match seek(&self.file, SeekFrom::Data(from)) {
                Ok(at) => at,
                Err(Errno::NXIO) => u64::MAX,
                Err(errno) => return Err(std::io::Error::from(errno).into()),
            };
        }
        if self.data < from + len as u64 {
            self.file.read_exact_at(&mut self.bytes[..len], from)?;
        } else {
            self.bytes[..len].fill(0);
        }
        Ok(&self.bytes[..len])
    }
}
