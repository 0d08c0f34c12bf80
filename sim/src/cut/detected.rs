//! Which outcomes count as damage that was detected, after a bit of the image had flipped.
//!
//! Every byte that recovery and loading read from an image has a checksum, so the flipped bit must
//! be found by one: an error of the image, whichever room passes it on. Everything else is a
//! failure. A word that no program writes, in the image, the heap or the store, means that bytes
//! were used although their checksum was wrong. Another error (a mode of tracking refused, memory
//! that cannot be had, an image of another version) explains a flipped bit wrongly.

use perdura_region::{ImageError, OpenError, RegionError};
use perdura_store::{HeapError, Unreadable};

use super::broken::Broken;

/// Accepts that nothing was wrong, and damage that a checksum of the image has found.
///
/// # Errors
/// Something else was found.
pub(crate) fn accept(outcome: Result<Result<(), Broken>, Unreadable>) -> Result<(), Broken> {
    match outcome.unwrap_or_else(|error| Err(Broken::Unreadable { error })) {
        Err(broken) if !is_detection(&broken) => Err(broken),
        _ => Ok(()),
    }
}

fn is_detection(broken: &Broken) -> bool {
    use perdura_store::OpenError::{Heap, Unreadable as NotLoaded};
    match broken {
        Broken::Open { error, .. } => is_damage(error),
        Broken::OpenStore { error: Heap(HeapError::Unreadable(unreadable)), .. }
        | Broken::OpenStore { error: NotLoaded(unreadable), .. }
        | Broken::Unreadable { error: Unreadable::Memory(unreadable) } => {
            is_damage(&unreadable.source)
        }
        _ => false,
    }
}

fn is_damage(error: &OpenError) -> bool {
    use ImageError::*;
    // The superblock has two copies and each commit slot, too: one bit does not make the image
    // foreign, new, shorter or of another version. A frame whose header is damaged is not there.
    match error {
        OpenError::Image(Damaged { .. } | DamagedPage { .. } | LostFrame { .. }) => true,
        // Compaction met the damage while the image was opened: the failure latched, as a text.
        OpenError::Region(RegionError::Latched { cause }) => cause.contains("checksum expected"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perdura_store::Damaged;

    use super::*;

    const DAMAGED: Damaged = Damaged { what: "record length", offset: 64, value: 7 };

    fn damaged_page() -> OpenError {
        let (page, region_offset, segment, offset_bytes) = (1, 4096, 2, 8192);
        let (expected, found) = (3, 4);
        ImageError::DamagedPage { page, region_offset, segment, offset_bytes, expected, found }
            .into()
    }

    fn latched(cause: String) -> OpenError {
        OpenError::Region(RegionError::Latched { cause })
    }

    fn in_image(error: OpenError) -> perdura_region::Unreadable {
        perdura_region::Unreadable { source: Arc::new(error) }
    }

    fn open_store(error: impl Into<perdura_store::OpenError>) -> Broken {
        Broken::OpenStore { when: "after a bit flipped", error: error.into() }
    }

    #[test]
    fn damage_counts_whichever_room_reports_it() {
        let when = "after a bit flipped";
        for broken in [
            Broken::Open { when, error: damaged_page() },
            open_store(in_image(damaged_page())),
            open_store(HeapError::Unreadable(in_image(damaged_page()))),
            Broken::Open { when, error: latched(damaged_page().to_string()) },
        ] {
            assert!(accept(Ok(Err(broken))).is_ok());
        }
        assert!(accept(Err(in_image(damaged_page()).into())).is_ok());
        assert!(accept(Ok(Ok(()))).is_ok());
    }

    #[test]
    fn a_word_that_a_checksum_should_have_caught_is_no_detection() {
        let when = "after a bit flipped";
        let (what, offset, value) = ("span table", 8, 9);
        let impossible = || ImageError::Impossible { what, value, offset_bytes: offset };
        for broken in [
            Broken::Open { when, error: impossible().into() },
            open_store(in_image(impossible().into())),
            open_store(HeapError::Corrupt { what, offset, value }),
            open_store(HeapError::ReachedTwice { offset }),
            open_store(DAMAGED),
        ] {
            let told = broken.to_string();
            assert!(accept(Ok(Err(broken))).is_err(), "{told}");
        }
        assert!(accept(Err(DAMAGED.into())).is_err());
    }

    #[test]
    fn an_error_of_another_kind_is_no_detection() {
        let when = "after a bit flipped";
        let grain = || OpenError::Grain { image_bytes: 64, mode_bytes: 4096 };
        let version = || OpenError::Image(ImageError::Version { found: 9, supported: 1 });
        for broken in [
            Broken::Open { when, error: grain() },
            Broken::Open { when, error: version() },
            Broken::Open { when, error: latched("write failed".into()) },
            open_store(in_image(grain())),
            open_store(HeapError::Version { found: 2, supported: 1 }),
            Broken::Count { db: 0, found: 1, expected: 2 },
            Broken::NotFinal { when },
        ] {
            let told = broken.to_string();
            assert!(accept(Ok(Err(broken))).is_err(), "{told}");
        }
        assert!(accept(Err(in_image(version()).into())).is_err());
    }
}
