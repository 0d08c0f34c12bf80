//! The formats of traces, with their names on the command line and a description of each.

use std::fmt;

/// The formats of traces that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// The binary traces that this project writes.
    Ptrace,
    /// A Parquet file with a column for each part of a record.
    Parquet,
    /// A table in text with a column for each part of a record.
    Csv,
    /// The CSV of the MSR Cambridge collection.
    Msr,
    /// The ASCII traces of DiskSim and SSDSim.
    DiskSim,
    /// The ASCII traces of SNIA and the Storage Performance Council.
    Spc,
    /// The text that `blkparse` prints.
    Blkparse,
    /// A log of fio (`write_iolog`), version 2 or 3.
    Fio,
    /// The traces of VMware's virtual SCSI disks, version 1 or 2.
    Vscsi,
    /// The block traces that Alibaba published.
    Alibaba,
    /// The block traces that Tencent published.
    Tencent,
    /// The storage research traces that HP published.
    Srt,
    /// Loads and stores with the instructions between them.
    Ucsd,
    /// The text that valgrind's tool lackey prints.
    Lackey,
    /// Ramulator's traces of a processor behind a cache.
    Ramulator,
    /// Loads and stores, or reads and writes, with addresses.
    LoadStore,
    /// Operations on keys, as YCSB prints them.
    Ycsb,
}

use Format::*;

impl Format {
    /// All formats, in the order in which they are shown.
    pub const ALL: &[Format] = &[
        Ptrace, Parquet, Csv, Msr, DiskSim, Spc, Blkparse, Fio, Vscsi, Alibaba, Tencent, Srt, Ucsd,
        Lackey, Ramulator, LoadStore, Ycsb,
    ];

    /// The format's name, as `--format` takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Ptrace => "ptrace",
            Parquet => "parquet",
            Csv => "csv",
            Msr => "msr",
            DiskSim => "disksim",
            Spc => "spc",
            Blkparse => "blkparse",
            Fio => "fio",
            Vscsi => "vscsi",
            Alibaba => "alibaba",
            Tencent => "tencent",
            Srt => "srt",
            Ucsd => "ucsd",
            Lackey => "lackey",
            Ramulator => "ramulator",
            LoadStore => "load-store",
            Ycsb => "ycsb",
        }
    }

    /// The format that has this name.
    pub fn parse(name: &str) -> Option<Format> {
        Format::ALL.iter().copied().find(|format| format.name() == name)
    }

    /// The format in a line of words.
    pub const fn describe(self) -> &'static str {
        match self {
            Ptrace => "binary, as perdura plan record writes it",
            Parquet => "a Parquet file, its columns named by --columns",
            Csv => "a table in text, its columns named by --columns",
            Msr => {
                "MSR Cambridge: time (Windows, 100 ns), host, disk, Read|Write, offset, bytes, \
                 response time"
            }
            DiskSim => {
                "DiskSim, SSDSim: time (--time-unit), device, 512 B sector, sectors, 0 = write or \
                 1 = read"
            }
            Spc => "SNIA, SPC: unit, 512 B block, bytes, r|w, seconds",
            Blkparse => "text of blkparse, one step of each access (Q unless chosen)",
            Fio => "fio's write_iolog, version 2 or 3",
            Vscsi => "VMware's vscsi traces, binary, version 1 or 2",
            Alibaba => "Alibaba's block traces: device, R|W, offset, bytes, time (us)",
            Tencent => {
                "Tencent's block traces: seconds, sector, sectors, 0 = read or 1 = write, volume"
            }
            Srt => {
                "HP's storage research traces (SRT), binary, versions 1 to 4, sector size in the \
                 header"
            }
            Ucsd => "loads and stores: l|s, address, instructions since the last",
            Lackey => "valgrind --tool=lackey --trace-mem=yes: I|L|S|M address,size",
            Ramulator => {
                "Ramulator, cache-filtered: instructions between, line read, line written back if \
                 any"
            }
            LoadStore => "R|W or load|store and an address, bytes if they are there",
            Ycsb => "operations on keys: INSERT|READ|UPDATE|SCAN|DELETE table key",
        }
    }

    /// Whether this build can read the format. Parquet needs the feature `formats`.
    pub const fn is_in_this_build(self) -> bool {
        cfg!(feature = "formats") || !matches!(self, Parquet)
    }

    /// The names of all formats, for messages.
    pub(crate) fn names() -> String {
        Format::ALL.iter().map(|format| format.name()).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Format {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.name())
    }
}
