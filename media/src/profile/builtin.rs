//! The profiles and links that come with the program.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The names of all built-in profiles, media first.
#[must_use]
pub fn names() -> Vec<&'static str> {
    PROFILES.iter().map(|(name, _)| *name).collect()
}

/// The names of all built-in links.
#[must_use]
pub fn links() -> Vec<&'static str> {
    LINKS.iter().map(|(name, _)| *name).collect()
}

pub(super) fn text(name: &str) -> Option<&'static str> {
    PROFILES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

pub(super) fn link_text(name: &str) -> Option<&'static str> {
    LINKS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Text of a file; longer than [`TEXT_BYTES_MAX`] is an error.
pub(super) fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(TEXT_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > TEXT_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "more than 1 MiB: no profile"));
    }
    Ok(text)
}

const TEXT_BYTES_MAX: u64 = 1 << 20;

macro_rules! texts {
    ($folder:literal: $($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../profiles/", $folder, $name, ".toml")))),*]
    };
}

const PROFILES: &[(&str, &str)] = texts!["":
    "disk", "nand", "pcm", "sttm", "dram", "optane-100", "optane-200", "battery-dram", "aep",
    "disk-raid0", "flash-raid0", "pcie-flash", "ddr-pcm", "ddr-sttm", "pcie-pcm", "pcie-sttm",
    "apache-128", "apache-256", "apache-512", "barlow-256", "b-dram",
    "nvme-flash", "cxl-dram",
];

const LINKS: &[(&str, &str)] = texts!["links/":
    "ddr3x6", "pcie1x8", "pcie2x4", "sata2", "pcie5x4", "cxl2x8", "ddr4x6", "ddr4x8",
];
