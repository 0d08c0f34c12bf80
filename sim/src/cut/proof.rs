//! A proof of the budget from outside: the durable image must have every grain that the ledger does
//! not account for.

use std::fs::File;
use std::os::unix::fs::FileExt;

use perdura_image::inspect::{Believe, image_bytes};
use perdura_media::{BlockBuf, Device, SimDevice};
use perdura_region::Region;

use super::broken::Broken;

const GRAIN_BYTES: usize = 64;
/// Bytes that are copied at a time; pieces of zeros are left out.
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
    let durable = device.snapshot_durable();
    let copy = SimDevice::new(durable.len() as u64, 0);
    let mut aligned = BlockBuf::zeroed(PIECE_BYTES);
    for (number, piece) in durable.chunks(PIECE_BYTES).enumerate() {
        if piece.iter().any(|byte| *byte != 0) {
            aligned[..piece.len()].copy_from_slice(piece);
            copy.write_at((number * PIECE_BYTES) as u64, &aligned[..piece.len()])
                .map_err(|error| Broken::Device { when, error })?;
        }
    }
    let image =
        image_bytes(&copy, Believe::EveryFrame).map_err(|error| Broken::Open { when, error })?;
    let mut memory = vec![0; region.len_bytes() as usize];
    File::from(region.fds().0.try_clone_to_owned()?).read_exact_at(&mut memory, 0)?;
    let zeros = [0; GRAIN_BYTES];
    // The image is read up to the reserve, because the region may have grown since its last commit.
    let differs = |(number, grain): (usize, &[u8])| {
        let at = number * GRAIN_BYTES;
        grain != image.get(at..at + GRAIN_BYTES).unwrap_or(&zeros)
    };
    let grains = memory.chunks(GRAIN_BYTES).enumerate().filter(|grain| differs(*grain)).count();
    let (differing_bytes, used_bytes) = ((grains * GRAIN_BYTES) as u64, region.used_bytes());
    if differing_bytes > used_bytes + freed_bytes {
        return Err(Broken::Unaccounted { differing_bytes, used_bytes, freed_bytes });
    }
    Ok(())
}
