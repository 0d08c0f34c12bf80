//! Detects from its first bytes how a file is packed.

use std::fmt;

/// The ways in which a file can be packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// Packed by gzip.
    Gzip,
    /// Packed by zstd.
    Zstd,
    /// Packed by bzip2.
    Bzip2,
    /// Packed by xz.
    Xz,
}

impl fmt::Display for Packing {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Packing::Gzip => "gzip",
            Packing::Zstd => "zstd",
            Packing::Bzip2 => "bzip2",
            Packing::Xz => "xz",
        })
    }
}

impl Packing {
    /// All ways in which a file can be packed.
    pub const ALL: &[Packing] = &[Packing::Gzip, Packing::Zstd, Packing::Bzip2, Packing::Xz];

    /// Whether this build can unpack files, which needs the feature `formats`.
    pub const fn are_in_this_build() -> bool {
        cfg!(feature = "formats")
    }

    /// The packing that the first bytes of a file tell.
    pub(crate) fn of(start: &[u8]) -> Option<Packing> {
        match start {
            [0x1f, 0x8b, ..] => Some(Packing::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Packing::Zstd),
            [b'B', b'Z', b'h', b'1'..=b'9', b'1', b'A', ..] => Some(Packing::Bzip2),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Packing::Xz),
            _ => None,
        }
    }
}
