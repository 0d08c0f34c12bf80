//! Which outcomes count as damage that was detected, after a bit of the image had flipped.
//!
//! Each room reports damage in its own words: the image a checksum, the heap and the store a word
//! that no program writes. An error of another kind explains a flipped bit wrongly, and counts as a
//! failure: a mode of tracking refused, memory that cannot be had, an image of another version.

use perdura_region::{ImageError, OpenError};
use perdura_store::{HeapError, Unreadable};

use super::broken::Broken;

/// Accepts that nothing was wrong, and damage that a room has reported.
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
    match broken {
        Broken::Open { error, .. } => is_damage(error),
        Broken::OpenStore { error, .. } => match error {
            perdura_store::OpenError::Heap(error) => is_damage_of_heap(error),
            perdura_store::OpenError::Unreadable(unreadable) => is_damage(&unreadable.source),
            perdura_store::OpenError::Corrupt(_) => true,
            _ => false,
        },
        Broken::Unreadable { error: Unreadable::Memory(unreadable) } => {
            is_damage(&unreadable.source)
        }
        Broken::Unreadable { error: Unreadable::Damaged(_) } => true,
        _ => false,
    }
}

fn is_damage_of_heap(error: &HeapError) -> bool {
    match error {
        HeapError::Corrupt { .. } | HeapError::NoObject { .. } | HeapError::ReachedTwice { .. } => {
            true
        }
        HeapError::Unreadable(unreadable) => is_damage(&unreadable.source),
        _ => false,
    }
}

fn is_damage(error: &OpenError) -> bool {
    use ImageError::*;
    // The superblock has two copies and each commit slot, too: one bit does not make the image
    // foreign, new, shorter or of another version.
    matches!(
        error,
        OpenError::Image(
            Damaged { .. }
                | DamagedPage { .. }
                | DamagedChunk { .. }
                | LostFrame { .. }
                | Impossible { .. }
        )
    )
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

    fn in_image(error: OpenError) -> perdura_region::Unreadable {
        perdura_region::Unreadable { source: Arc::new(error) }
    }

    fn open_store(error: impl Into<perdura_store::OpenError>) -> Broken {
        Broken::OpenStore { when: "after a bit flipped", error: error.into() }
    }

    #[test]
    fn damage_counts_whichever_room_reports_it() {
        let when = "after a bit flipped";
        let (what, offset, value) = ("span table", 8, 9);
        for broken in [
            Broken::Open { when, error: damaged_page() },
            open_store(in_image(damaged_page())),
            open_store(HeapError::Corrupt { what, offset, value }),
            open_store(HeapError::Unreadable(in_image(damaged_page()))),
            open_store(DAMAGED),
        ] {
            assert!(accept(Ok(Err(broken))).is_ok());
        }
        assert!(accept(Err(in_image(damaged_page()).into())).is_ok());
        assert!(accept(Err(DAMAGED.into())).is_ok());
        assert!(accept(Ok(Ok(()))).is_ok());
    }

    #[test]
    fn an_error_of_another_kind_is_no_detection() {
        let when = "after a bit flipped";
        let grain = || OpenError::Grain { image_bytes: 64, mode_bytes: 4096 };
        let version = || OpenError::Image(ImageError::Version { found: 9, supported: 1 });
        for broken in [
            Broken::Open { when, error: grain() },
            Broken::Open { when, error: version() },
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
