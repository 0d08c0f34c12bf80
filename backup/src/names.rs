//! Names of objects.
//!
//! ```text
//! image-IMAGE/points/TIME-COMMIT-RANDOM    restore points, which sort by time
//! image-IMAGE/packs/MS-RANDOM              pieces of segments
//! image-IMAGE/writers/GENERATION           the program that puts these
//! ```
//! IMAGE is the image's identity, 16 hexadecimal digits. No name of a point or pack is given twice.

use crate::time;

const IMAGE_PREFIX: &str = "image-";

/// The folder of an image.
pub(crate) fn image_folder(image_id: u64) -> String {
    format!("{IMAGE_PREFIX}{image_id:016x}")
}

/// The image of a folder in the vault itself.
pub(crate) fn image_of(folder: &str) -> Option<u64> {
    let digits = folder.strip_prefix(IMAGE_PREFIX).filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

pub(crate) fn points_folder(image_id: u64) -> String {
    image_folder(image_id) + "/points"
}

pub(crate) fn packs_folder(image_id: u64) -> String {
    image_folder(image_id) + "/packs"
}

pub(crate) fn writers_folder(image_id: u64) -> String {
    image_folder(image_id) + "/writers"
}

/// The name of a writer's record.
pub(crate) fn writer(image_id: u64, generation: u64) -> String {
    format!("{}/{generation:016x}", writers_folder(image_id))
}

/// The generation of a writer's record, from its name.
pub(crate) fn of_writer(name: &str) -> Option<u64> {
    let (_, digits) = name.rsplit_once('/')?;
    u64::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 16)
}

/// A new name for a point.
pub(crate) fn new_point(image_id: u64, unix_ms: u64, commit: u64) -> String {
    let folder = points_folder(image_id);
    format!("{folder}/{}-{commit:016x}-{:08x}", time::compact(unix_ms), rand::random::<u32>())
}

/// Time and number of commit of a point, from its name.
pub(crate) fn of_point(name: &str) -> Option<(u64, u64)> {
    let (_, last) = name.rsplit_once('/')?;
    let mut parts = last.split('-');
    let unix_ms = time::parse_compact(parts.next()?)?;
    let commit = parts.next().filter(|digits| digits.len() == 16)?;
    let random = parts.next().filter(|digits| digits.len() == 8)?;
    u32::from_str_radix(random, 16).ok()?;
    Some((unix_ms, u64::from_str_radix(commit, 16).ok()?)).filter(|_| parts.next().is_none())
}

/// The name of a pack, and when it was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PackId {
    pub(crate) unix_ms: u64,
    pub(crate) random: u64,
}

impl PackId {
    pub(crate) fn new(unix_ms: u64) -> Self {
        Self { unix_ms, random: rand::random() }
    }

    pub(crate) fn name(self, image_id: u64) -> String {
        format!("{}/{:011x}-{:016x}", packs_folder(image_id), self.unix_ms, self.random)
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (_, last) = name.rsplit_once('/')?;
        let (unix_ms, random) = last.split_once('-')?;
        let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
        let id = Self { unix_ms: hex(unix_ms)?, random: hex(random)? };
        (last == format!("{:011x}-{:016x}", id.unix_ms, id.random)).then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vault::is_name;

    #[test]
    fn names_are_read_back_and_others_are_not() {
        let point = new_point(7, 1_000_000_000_123, 42);
        assert!(is_name(&point), "{point}");
        assert_eq!(of_point(&point), Some((1_000_000_000_123, 42)));
        assert_eq!(of_point("image-7/points/x"), None);
        assert_eq!(of_point(&(point + "-1")), None);
        let id = PackId::new(1_000_000_000_123);
        assert!(is_name(&id.name(7)));
        assert_eq!(PackId::parse(&id.name(7)), Some(id));
        assert_eq!(PackId::parse("a/1-2"), None);
        assert_eq!(image_of(&image_folder(u64::MAX)), Some(u64::MAX));
        assert_eq!(image_of("image-1"), None);
        assert_eq!(of_writer(&writer(7, 42)), Some(42));
        assert_eq!(of_writer("image-7/writers/x"), None);
        let later = new_point(7, 1_000_000_000_124, 1);
        assert!(later > new_point(7, 1_000_000_000_123, 42), "points sort by time");
    }

    #[test]
    fn a_name_leads_nowhere_but_into_the_vault() {
        for name in ["", "/", "a/", "/a", "..", "a/../b", "a//b", "a b", ".a", "a/.b", "a\0b"] {
            assert!(!is_name(name), "{name:?}");
        }
        assert!(!is_name(&"a".repeat(201)));
    }
}
