//! Generated traces in every format, for tests, fuzzing and measuring. Reading a generated trace
//! must give the records from which it was written.
//!
//! Records are generated within the limits of their format (its units, its volumes), so that
//! reading them loses nothing. No reader's code is used: each format is written as its own
//! description says.

mod render;
mod sound;

pub use render::render;
pub use sound::read_soundly;

use super::{Format, Op, Record, TimeUnit};

/// Numbers that follow from a seed (SplitMix64).
#[derive(Debug, Clone)]
pub struct Seeded(u64);

impl Seeded {
    /// Starts at a seed.
    pub fn new(seed: u64) -> Seeded {
        Seeded(seed)
    }

    /// Draws the next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Draws a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end.max(1)
    }
}

/// The units in which a format counts, and the bounds of what is made up for it.
struct Grain {
    start_ns: u64,
    time_ns: u64,
    offset_bytes: u64,
    len_bytes: u64,
    volumes: u64,
    /// How far offsets go, counted in their unit.
    offsets: u64,
}

fn grain(format: Format) -> Grain {
    let fine = Grain {
        start_ns: 0,
        time_ns: 1,
        offset_bytes: 1,
        len_bytes: 1,
        volumes: 5,
        offsets: 1 << 40,
    };
    let sectors = Grain { offset_bytes: 512, len_bytes: 512, ..fine };
    match format {
        // 2007, as those traces are.
        Format::Msr => Grain { start_ns: 12_816_637_200_306_162_900, time_ns: 100, ..fine },
        Format::DiskSim => Grain { time_ns: 1_000, ..sectors },
        Format::Spc => Grain { offset_bytes: 512, ..fine },
        Format::Blkparse => sectors,
        Format::Fio | Format::Alibaba => Grain { time_ns: 1_000, ..fine },
        Format::Vscsi => Grain { time_ns: 1_000, offset_bytes: 512, volumes: 1, ..fine },
        Format::Srt => Grain { time_ns: 1_000, offset_bytes: 512, offsets: 1 << 32, ..fine },
        Format::Tencent => {
            Grain { start_ns: 1_538_323_200_000_000_000, time_ns: 1_000_000_000, ..sectors }
        }
        _ => fine,
    }
}

/// Makes up `count` records that the format can hold, by a seed.
pub fn records(format: Format, seed: u64, count: usize) -> Vec<Record> {
    let mut seeded = Seeded::new(seed);
    match format {
        Format::Ucsd | Format::Lackey => {
            memory(&mut seeded, count, if format == Format::Ucsd { 1 } else { 64 })
        }
        Format::LoadStore => {
            let mut made = memory(&mut seeded, count, 64);
            made.iter_mut().enumerate().for_each(|(n, record)| record.time_ns = n as u64);
            made
        }
        Format::Ramulator => behind_a_cache(&mut seeded, count),
        Format::Ycsb => operations(&mut seeded, count),
        _ => blocks(&mut seeded, count, &grain(format)),
    }
}

fn blocks(seeded: &mut Seeded, count: usize, grain: &Grain) -> Vec<Record> {
    let mut time_ns = grain.start_ns;
    let mut seen = Vec::new();
    let mut one = |_| {
        time_ns += seeded.below(1_000) * grain.time_ns;
        let number = seeded.below(grain.volumes);
        // Volumes are numbered in order of first sight.
        let volume = seen.iter().position(|&known| known == number).unwrap_or_else(|| {
            seen.push(number);
            seen.len() - 1
        });
        Record {
            time_ns,
            offset_bytes: seeded.below(grain.offsets) * grain.offset_bytes,
            len_bytes: (1 + seeded.below(1 << 12)) * grain.len_bytes,
            volume: volume as u32,
            op: op(seeded),
        }
    };
    (0..count).map(&mut one).collect()
}

fn op(seeded: &mut Seeded) -> Op {
    if seeded.below(3) == 0 { Op::Read } else { Op::Write }
}

fn memory(seeded: &mut Seeded, count: usize, len_max: u64) -> Vec<Record> {
    let mut time_ns = 0;
    let mut one = |_| {
        time_ns += seeded.below(8);
        let len_bytes = 1 + seeded.below(len_max);
        Record {
            time_ns,
            offset_bytes: seeded.below(1 << 47),
            len_bytes,
            volume: 0,
            op: op(seeded),
        }
    };
    (0..count).map(&mut one).collect()
}

fn behind_a_cache(seeded: &mut Seeded, count: usize) -> Vec<Record> {
    let mut made: Vec<Record> = Vec::new();
    let mut time_ns = 0;
    while made.len() < count {
        time_ns += seeded.below(100);
        let mut line = |op| {
            let offset_bytes = seeded.below(1 << 41) * 64;
            Record { time_ns, offset_bytes, len_bytes: 64, volume: 0, op }
        };
        made.push(line(Op::Read));
        if made.len() < count && line(Op::Read).offset_bytes % 128 == 0 {
            made.push(line(Op::Write));
        }
        time_ns += 1;
    }
    made
}

fn operations(seeded: &mut Seeded, count: usize) -> Vec<Record> {
    let mut keys = 0;
    let mut one = |n: usize| {
        let slot = seeded.below(keys + 1);
        keys = keys.max(slot + 1);
        let time_ns = n as u64 * 10_000;
        Record { time_ns, offset_bytes: slot * 1024, len_bytes: 1024, volume: 0, op: op(seeded) }
    };
    (0..count).map(&mut one).collect()
}

/// The unit that a made-up trace of a format must be read with, where the format leaves it open.
pub fn time_unit(format: Format) -> Option<TimeUnit> {
    (format == Format::DiskSim).then_some(TimeUnit::Micros)
}
