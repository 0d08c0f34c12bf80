//! The whole device as one value: durable bytes, pending writes, and the planned power cut.

use std::collections::{BTreeMap, VecDeque};
use std::mem::take;
use std::sync::Arc;

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::blocks::Blocks;
use super::timing::Schedule;
use super::{SECTOR_BYTES, SimDevice};
use crate::device::DeviceError;

#[derive(Clone)]
pub(super) struct State {
    pub(super) capacity_bytes: u64,
    /// The capacity as of the last flush; a power cut may undo a later growth.
    durable_capacity_bytes: u64,
    pub(super) durable: Blocks,
    /// Bytes as reads see them: `durable` with every pending write on top.
    pub(super) current: Blocks,
    /// Unflushed writes by number, in order of submission.
    pending: BTreeMap<u64, Pending>,
    next_number: u64,
    /// The write whose bytes were put into `current` last.
    on_top: u64,
    pub(super) ops: u64,
    pub(super) written_bytes: u64,
    pub(super) cut_after: Option<u64>,
    /// Numbers of the durable operations before which a copy of the device is kept, ascending.
    pub(super) copies_at: VecDeque<u64>,
    /// The copies kept, each with the number of the operation.
    pub(super) copies: Vec<(u64, State)>,
    pub(super) energy_bytes: Option<u64>,
    pub(super) off: bool,
    pub(super) ignore_flushes: bool,
    pub(super) schedule: Option<Schedule>,
    pub(super) rng: Xoshiro256PlusPlus,
    pub(super) watch: Watch,
}

/// A caller that acts before durable operations. It belongs to one device, so a copy has none.
#[derive(Default)]
pub(super) struct Watch(pub Option<Watcher>);

/// A function that is called before durable operations.
pub(super) type Watcher = Arc<dyn Fn(&SimDevice) + Send + Sync>;

impl Clone for Watch {
    fn clone(&self) -> Self {
        Self(None)
    }
}

#[derive(Clone)]
struct Pending {
    offset_bytes: u64,
    bytes: Arc<Vec<u8>>,
    /// Number in the order of completion; `None` while in flight.
    completed: Option<u64>,
}

impl State {
    pub(super) fn new(capacity_bytes: u64, seed: u64) -> Self {
        Self {
            capacity_bytes,
            durable_capacity_bytes: capacity_bytes,
            durable: Blocks::default(),
            current: Blocks::default(),
            pending: BTreeMap::new(),
            next_number: 0,
            on_top: 0,
            ops: 0,
            written_bytes: 0,
            cut_after: None,
            copies_at: VecDeque::new(),
            copies: Vec::new(),
            energy_bytes: None,
            off: false,
            ignore_flushes: false,
            schedule: None,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            watch: Watch(None),
        }
    }

    pub(super) fn powered(&self) -> Result<(), DeviceError> {
        if self.off { Err(DeviceError::PowerLost) } else { Ok(()) }
    }

    /// Accepts a write in flight; returns its number.
    pub(super) fn submit(&mut self, offset_bytes: u64, bytes: Vec<u8>) -> u64 {
        self.current.write(offset_bytes, &bytes);
        let number = self.number();
        self.on_top = number;
        let bytes = Arc::new(bytes);
        self.pending.insert(number, Pending { offset_bytes, bytes, completed: None });
        number
    }

    /// The bytes of a write in flight, as they were at submission.
    pub(super) fn submitted_bytes(&self, number: u64) -> &[u8] {
        self.pending.get(&number).map_or(&[], |write| &write.bytes)
    }

    /// The durable operation in which the write `number` has reached the device's cache.
    pub(super) fn complete(&mut self, number: u64) -> Result<(), DeviceError> {
        self.start_op()?;
        let order = self.number();
        let Some(write) = self.pending.get_mut(&number) else { unreachable!("a write in flight") };
        let len_bytes = write.bytes.len() as u64;
        if let Some(left_bytes) = &mut self.energy_bytes {
            if len_bytes > *left_bytes {
                *left_bytes = 0;
                self.off = true;
                return Err(DeviceError::PowerLost);
            }
            *left_bytes -= len_bytes;
        }
        write.completed = Some(order);
        // Of two overlapping writes in flight the one that completes last wins.
        if self.on_top != number {
            self.current.write(write.offset_bytes, &write.bytes);
            self.on_top = number;
        }
        self.ops += 1;
        self.written_bytes += len_bytes;
        Ok(())
    }

    /// The durable operation after which all completed writes survive.
    pub(super) fn flush(&mut self) -> Result<(), DeviceError> {
        self.start_op()?;
        self.ops += 1;
        if !self.ignore_flushes {
            self.settle(0, u64::MAX);
            self.durable_capacity_bytes = self.capacity_bytes;
        }
        Ok(())
    }

    /// The durable operation after which the parts of completed writes in this range survive, and
    /// the capacity up to its end.
    pub(super) fn flush_range(&mut self, from: u64, len_bytes: u64) -> Result<(), DeviceError> {
        self.start_op()?;
        self.ops += 1;
        if !self.ignore_flushes {
            let to = from + len_bytes;
            self.settle(from, to);
            self.durable_capacity_bytes = self.durable_capacity_bytes.max(to);
        }
        Ok(())
    }

    /// Makes the parts of completed writes between two offsets durable; their other parts remain
    /// pending.
    fn settle(&mut self, from: u64, to: u64) {
        let is_meant = |write: &Pending| {
            let end = write.offset_bytes + write.bytes.len() as u64;
            write.offset_bytes < to && from < end
        };
        let mut completed = Vec::new();
        self.pending.retain(|_, write| match write.completed {
            Some(order) if is_meant(write) => {
                completed.push((order, write.offset_bytes, take(&mut write.bytes)));
                false
            }
            _ => true,
        });
        completed.sort_unstable_by_key(|(order, ..)| *order);
        for (order, start, bytes) in completed {
            let within = |offset: u64| (offset - start).min(bytes.len() as u64) as usize;
            let (first, last) = (within(from.max(start)), within(to));
            self.durable.write(start + first as u64, &bytes[first..last]);
            for rest in [0..first, last..bytes.len()] {
                if !rest.is_empty() {
                    let number = self.number();
                    let offset_bytes = start + rest.start as u64;
                    let bytes = Arc::new(bytes[rest].to_vec());
                    let part = Pending { offset_bytes, bytes, completed: Some(order) };
                    self.pending.insert(number, part);
                }
            }
        }
    }

    pub(super) fn unflushed_bytes(&self) -> u64 {
        self.pending.values().map(|write| write.bytes.len() as u64).sum()
    }

    pub(super) fn flip_bit(&mut self, offset_bytes: u64, bit: u8) {
        self.durable.flip_bit(offset_bytes, bit);
        self.current.flip_bit(offset_bytes, bit);
        for write in self.pending.values_mut() {
            let within = offset_bytes.checked_sub(write.offset_bytes);
            if let Some(within) = within.filter(|within| *within < write.bytes.len() as u64) {
                Arc::make_mut(&mut write.bytes)[within as usize] ^= 1 << bit;
            }
        }
    }

    /// The state after a power cut now, powered on again.
    pub(super) fn survivors(&self, seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let grown = rng.random_bool(0.5);
        let capacity_bytes = if grown { self.capacity_bytes } else { self.durable_capacity_bytes };
        let mut durable = self.durable.clone();
        let mut unflushed: Vec<&Pending> = self.pending.values().collect();
        unflushed.shuffle(&mut rng);
        let style = Style::draw(&mut rng);
        for write in unflushed {
            let fate = style.fate(&mut rng);
            land(&mut durable, capacity_bytes, write, fate, &mut rng);
        }
        Self {
            current: durable.clone(),
            durable,
            ignore_flushes: self.ignore_flushes,
            schedule: self.schedule.clone(),
            rng,
            ..Self::new(capacity_bytes, seed)
        }
    }

    /// A copy in which no write is in flight.
    pub(super) fn copy_when_killed(&mut self, seed: u64) -> Self {
        let mut copy = Self { off: self.off, ..self.copy_without_power() };
        copy.rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let is_in_flight = |(_, write): &(&u64, &Pending)| write.completed.is_none();
        let mut in_flight: Vec<u64> =
            copy.pending.iter().filter(is_in_flight).map(|(number, _)| *number).collect();
        in_flight.shuffle(&mut copy.rng);
        for number in in_flight {
            if copy.complete(number).is_err() {
                break;
            }
        }
        copy
    }

    /// The durable bytes alone, powered on, with the present capacity.
    pub(super) fn durable_copy(&self) -> Self {
        let (current, durable) = (self.durable.clone(), self.durable.clone());
        Self { current, durable, ..Self::new(self.capacity_bytes, 0) }
    }

    /// Cuts the power if this durable operation is the one planned for it, and keeps the copies
    /// planned for it.
    fn start_op(&mut self) -> Result<(), DeviceError> {
        while !self.off && self.copies_at.front().is_some_and(|at| *at <= self.ops) {
            self.copies_at.pop_front();
            let copy = self.copy_without_power();
            self.copies.push((self.ops, copy));
        }
        if self.cut_after.is_some_and(|ops| self.ops >= ops) {
            self.off = true;
        }
        self.powered()
    }

    /// The device as it is, with no copy planned or kept.
    fn copy_without_power(&mut self) -> Self {
        let (copies_at, copies) = (take(&mut self.copies_at), take(&mut self.copies));
        let copy = Self { off: true, ..self.clone() };
        (self.copies_at, self.copies) = (copies_at, copies);
        copy
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }
}

/// How many pending writes a power cut loses. With only independent fates among many writes,
/// practically none of the cuts would lose or keep all of them, and those are cases of their own.
#[derive(Clone, Copy)]
enum Style {
    AllLost,
    AllWhole,
    Mixed,
}

#[derive(Clone, Copy)]
enum Fate {
    Lost,
    Whole,
    /// The first sectors survive, a random number of them.
    TornPrefix,
    /// Each sector survives or is lost by itself.
    TornScattered,
}

impl Style {
    fn draw(rng: &mut impl Rng) -> Self {
        match rng.random_range(0..8) {
            0 => Style::AllLost,
            1 => Style::AllWhole,
            _ => Style::Mixed,
        }
    }

    fn fate(self, rng: &mut impl Rng) -> Fate {
        match (self, rng.random_range(0..6)) {
            (Style::AllLost, _) | (Style::Mixed, 0 | 1) => Fate::Lost,
            (Style::AllWhole, _) | (Style::Mixed, 2 | 3) => Fate::Whole,
            (Style::Mixed, 4) => Fate::TornPrefix,
            (Style::Mixed, _) => Fate::TornScattered,
        }
    }
}

fn land(
    durable: &mut Blocks,
    capacity_bytes: u64,
    write: &Pending,
    fate: Fate,
    rng: &mut impl Rng,
) {
    let sectors = write.bytes.len() / SECTOR_BYTES;
    let prefix = rng.random_range(0..=sectors);
    for (index, sector) in write.bytes.chunks(SECTOR_BYTES).enumerate() {
        let offset_bytes = write.offset_bytes + (index * SECTOR_BYTES) as u64;
        let landed = match fate {
            Fate::Lost => false,
            Fate::Whole => true,
            Fate::TornPrefix => index < prefix,
            Fate::TornScattered => rng.random_bool(0.5),
        };
        if landed && offset_bytes < capacity_bytes {
            durable.write(offset_bytes, sector);
        }
    }
}
