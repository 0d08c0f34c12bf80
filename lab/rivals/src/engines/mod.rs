//! The engines, each with the modes of durability that a user would choose between.
//!
//! All can keep the whole data set in memory, as Perdura does: caches are sized for it. No engine
//! compresses. Other settings are the engine's defaults.

mod fjall;
mod lmdb;
mod map;
mod redb;
mod rocks;

use std::fmt::Display;
use std::path::Path;

use perdura_bench::target::TargetError;

use crate::engine::{Engine, Survives};

/// An engine, or why it could not be opened.
pub type Opened = Result<Box<dyn Engine>, TargetError>;

/// An engine in one of its modes.
#[derive(Debug, Clone, Copy)]
pub struct Rival {
    /// The engine's name on the command line.
    pub engine: &'static str,
    /// The mode of durability, in the engine's own words.
    pub mode: &'static str,
    /// The losses that acknowledged writes survive.
    pub survives: Survives,
    /// Other settings, for people.
    pub about: &'static str,
    /// Whether the engine can scan in key order.
    pub scans: bool,
    /// Opens the engine in an existing folder, with room for so many bytes of data.
    pub open: fn(&Path, u64) -> Opened,
}

impl Rival {
    /// Name of the engine and its mode.
    pub fn name(&self) -> String {
        format!("{} {}", self.engine, self.mode)
    }
}

/// All engines in all their modes.
pub const RIVALS: [Rival; 9] = [
    Rival {
        engine: "map",
        mode: "256 mutexes",
        survives: Survives::Nothing,
        about: "hashbrown in DRAM; records overwritten in place",
        scans: false,
        open: map::open,
    },
    Rival {
        engine: "lmdb",
        mode: "sync",
        survives: Survives::PowerLoss,
        about: "heed; a transaction an operation",
        scans: true,
        open: lmdb::open_sync,
    },
    Rival {
        engine: "lmdb",
        mode: "NOSYNC",
        survives: Survives::ProcessCrash,
        about: "heed; a transaction an operation; loss of power may leave it corrupt",
        scans: true,
        open: lmdb::open_no_sync,
    },
    Rival {
        engine: "rocksdb",
        mode: "WAL sync",
        survives: Survives::PowerLoss,
        about: "block cache for all data, Bloom filters of 10 bits",
        scans: true,
        open: rocks::open_sync,
    },
    Rival {
        engine: "rocksdb",
        mode: "WAL",
        survives: Survives::ProcessCrash,
        about: "block cache for all data, Bloom filters of 10 bits",
        scans: true,
        open: rocks::open_no_sync,
    },
    Rival {
        engine: "redb",
        mode: "Immediate",
        survives: Survives::PowerLoss,
        about: "cache for all data; a transaction an operation",
        scans: true,
        open: redb::open_immediate,
    },
    Rival {
        engine: "redb",
        mode: "None",
        survives: Survives::CleanClose,
        about: "cache for all data; a transaction an operation; \
                no durable commit while it is measured",
        scans: true,
        open: redb::open_none,
    },
    Rival {
        engine: "fjall",
        mode: "SyncData",
        survives: Survives::PowerLoss,
        about: "block cache for all data",
        scans: true,
        open: fjall::open_sync,
    },
    Rival {
        engine: "fjall",
        mode: "default",
        survives: Survives::ProcessCrash,
        about: "block cache for all data",
        scans: true,
        open: fjall::open_default,
    },
];

/// Adds the engine's name to an error.
fn failed<E: Display>(engine: &'static str) -> impl Fn(E) -> TargetError {
    move |error| TargetError::Engine { engine, message: error.to_string() }
}

/// Size of a cache for all data with the engine's overhead.
fn cache_bytes(data_bytes: u64) -> u64 {
    (data_bytes * 3 / 2).max(CACHE_BYTES_MIN)
}

const CACHE_BYTES_MIN: u64 = 256 << 20;
