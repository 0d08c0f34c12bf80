//! One part of a benchmark on a model: its threads, their positions, and their work so far.

use std::ops::Range;
use std::sync::Arc;

use super::super::addresses::{ChainPlaces, Slots};
use super::super::chunks::Chunks;
use super::super::replay::Replay;
use super::super::run::{PartRun, ThreadRun, histogram};
use super::super::workload::{Config, CustomOp, ExecMode, Memory, Operation, Persist};
use super::Limits;

pub(super) struct Part<'a> {
    config: &'a Config,
    replay: Option<Arc<Replay>>,
    chunks: Chunks,
    threads: Vec<Thread>,
    /// Operations that may still be begun.
    left: u64,
    limits: Limits,
    /// Whether the workload asks for more than is simulated.
    wants_more: bool,
    latency_ns: hdrhistogram::Histogram<u64>,
}

/// A thread. Arrays have two entries: the medium, and DRAM.
struct Thread {
    number: u64,
    /// The thread's part of each memory: its beginning on the medium, and its bytes.
    parts: [(u64, u64); 2],
    slots: [Slots; 2],
    chains: Option<[ChainPlaces; 2]>,
    /// The thread's chunk: the next operation, and how many are left.
    chunk: (u64, u64),
    operations: u64,
    bytes: u64,
    /// The state of a chain: the next access, the last place in each memory, and the range that
    /// caches have.
    next: usize,
    at: [u64; 2],
    cached: [Range<u64>; 2],
    /// When the thread's operation began, and when the last one ended, picoseconds.
    began_ps: u64,
    ended_ps: u64,
    /// Operations that the thread has begun.
    taken: u64,
}

/// One access of a thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub is_dram: bool,
    pub is_read: bool,
    pub place: u64,
    pub bytes: u64,
    /// Bytes that the access touches, from the first on.
    pub touched_bytes: u64,
    pub persist: Persist,
    pub is_cached: bool,
    /// Whether the access is the first of an operation, and whether it is the last; a chain has
    /// others between.
    pub is_first: bool,
    pub is_last: bool,
}

const PS_PER_S: u64 = 1_000_000_000_000;

impl<'a> Part<'a> {
    /// A part whose memories begin at these places.
    pub fn new(
        config: &'a Config,
        replay: Option<Arc<Replay>>,
        base_bytes: [u64; 2],
        limits: Limits,
    ) -> Self {
        let accesses = replay.as_ref().map_or(0, |replay| replay.accesses().len() as u64);
        let chunks = Chunks::new(config, accesses);
        let chain = config.custom_operations.as_ref();
        let cap = limits.accesses_max / chain.map_or(1, |chain| chain.ops().len() as u64);
        let wanted = chunks.all_operations().unwrap_or(u64::MAX);
        Self {
            config,
            replay,
            threads: (0..config.number_threads)
                .map(|number| Thread::new(config, number, base_bytes))
                .collect(),
            chunks,
            left: wanted.min(cap),
            limits,
            wants_more: wanted > cap,
            latency_ns: histogram(),
        }
    }

    pub fn config(&self) -> &'a Config {
        self.config
    }

    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Whether the part would have gone on with more accesses than are simulated.
    pub fn is_cut(&self) -> bool {
        self.left == 0 && self.wants_more
    }

    /// A thread's next access. None: none is left, or the time is up, the part's or that of all.
    pub fn take(&mut self, thread: usize, now_ps: u64, end_ps: u64) -> Option<Wanted> {
        let config = self.config;
        let own = &mut self.threads[thread];
        let is_first = own.next == 0;
        if is_first {
            let own_end_ps = match config.run_time {
                0 => u64::MAX,
                seconds => seconds.saturating_mul(PS_PER_S),
            };
            if self.left == 0 || now_ps >= end_ps.min(own_end_ps) {
                return None;
            }
            if own.chunk.1 == 0 {
                own.chunk = self.chunks.take(own.number)?;
            }
            self.left -= 1;
            // The wait of an operation that was held up counts, as in a measurement.
            let due_ps = own.due_ps(config);
            own.began_ps = if config.rate_limit > 0 { due_ps.min(now_ps) } else { now_ps };
            own.taken += 1;
        }
        let wanted = match &config.custom_operations {
            Some(chain) => {
                let op = chain.ops()[own.next];
                own.next = (own.next + 1) % chain.ops().len();
                own.chained(op)
            }
            None => own.single(config, self.replay.as_deref(), self.chunks.operations()),
        };
        let is_last = own.next == 0;
        if is_last {
            own.chunk = (own.chunk.0 + 1, own.chunk.1 - 1);
        }
        own.bytes += wanted.bytes;
        let most = if wanted.is_read && config.custom_operations.is_some() {
            self.limits.chained_read_bytes_max
        } else {
            u64::MAX
        };
        let touched_bytes = wanted.bytes.min(most);
        Some(Wanted { touched_bytes, is_first, is_last, ..wanted })
    }

    /// When the operation began that a thread took last.
    pub fn began_ps(&self, thread: usize) -> u64 {
        self.threads[thread].began_ps
    }

    /// When a thread's next operation should begin at the earliest, if there is a rate.
    pub fn due_ps(&self, thread: usize) -> u64 {
        self.threads[thread].due_ps(self.config)
    }

    /// Notes that a thread's operation is done, and when it began.
    pub fn ended(&mut self, thread: usize, began_ps: u64, done_ps: u64) {
        let own = &mut self.threads[thread];
        own.ended_ps = own.ended_ps.max(done_ps);
        own.operations += 1;
        // Sampling takes no simulated time, so all operations are sampled.
        if self.config.latency_sample_frequency > 0 {
            self.latency_ns.saturating_record((done_ps.saturating_sub(began_ps) / 1000).max(1));
        }
    }

    pub fn run(self) -> PartRun {
        let ran = |thread: &Thread| ThreadRun {
            operations: thread.operations,
            bytes: thread.bytes,
            ns: (thread.ended_ps / 1000).max(1),
            cpu_ns: 0,
        };
        let threads: Vec<ThreadRun> = self.threads.iter().map(ran).collect();
        let ns = threads.iter().map(|thread| thread.ns).max().unwrap_or(1);
        PartRun { ns, threads, latency_ns: self.latency_ns }
    }
}

impl Thread {
    fn new(config: &Config, number: u64, base_bytes: [u64; 2]) -> Self {
        let partitions = config.partitions();
        let partition = number / (config.number_threads / partitions);
        let part = |base_bytes: u64, range_bytes: u64| {
            let bytes = range_bytes / partitions;
            (base_bytes + partition * bytes, bytes)
        };
        let parts = [
            part(base_bytes[0], config.memory_range),
            part(base_bytes[1], config.dram_memory_range),
        ];
        let slots = |which: usize| {
            Slots::new(config, parts[which].1 / config.access_size, number, which as u64)
        };
        let chains = config.custom_operations.as_ref().map(|chain| {
            let places = |memory, which: usize| {
                ChainPlaces::new(config, chain, memory, parts[which].1, number)
            };
            [places(Memory::Persistent, 0), places(Memory::Dram, 1)]
        });
        Self {
            number,
            slots: [slots(0), slots(1)],
            parts,
            chains,
            chunk: (0, 0),
            operations: 0,
            bytes: 0,
            next: 0,
            at: [0; 2],
            cached: [0..0, 0..0],
            began_ps: 0,
            ended_ps: 0,
            taken: 0,
        }
    }

    fn due_ps(&self, config: &Config) -> u64 {
        match config.rate_limit {
            0 => 0,
            rate => {
                let due = u128::from(self.taken * config.number_threads) * u128::from(PS_PER_S);
                (due / u128::from(rate)) as u64
            }
        }
    }

    fn chained(&mut self, op: CustomOp) -> Wanted {
        let is_dram = op.memory() == Memory::Dram;
        let which = usize::from(is_dram);
        let bytes = op.bytes();
        match op {
            CustomOp::Read { .. } => {
                let places = self.chains.as_mut().map(|chains| &mut chains[which]);
                let place = places.and_then(ChainPlaces::next_read).unwrap_or(0);
                let place = self.parts[which].0 + place;
                self.at[which] = place;
                self.cached[which] = place..place + bytes;
                let (persist, is_cached) = (Persist::None, false);
                Wanted {
                    is_dram,
                    is_read: true,
                    place,
                    bytes,
                    persist,
                    is_cached,
                    touched_bytes: bytes,
                    is_first: true,
                    is_last: true,
                }
            }
            CustomOp::Write { persist, offset_bytes, .. } => {
                let place = self.at[which].wrapping_add_signed(offset_bytes);
                let (range, cached) = (place..place + bytes, self.cached[which].clone());
                let is_cached = cached.start <= range.start && range.end <= cached.end;
                self.at[which] = place;
                self.cached[which] = match persist {
                    Persist::Cache | Persist::None if is_cached => cached,
                    Persist::Cache | Persist::None => range,
                    // The lines behind the written ones stay in the caches.
                    Persist::NoCache | Persist::CacheInv if is_cached => range.end..cached.end,
                    Persist::NoCache | Persist::CacheInv => 0..0,
                };
                Wanted {
                    is_dram,
                    is_read: false,
                    place,
                    bytes,
                    persist,
                    is_cached,
                    touched_bytes: bytes,
                    is_first: true,
                    is_last: true,
                }
            }
        }
    }

    /// The access at the chunk's position, of `operations` in the whole.
    fn single(&mut self, config: &Config, replay: Option<&Replay>, operations: u64) -> Wanted {
        let (persist, is_cached) = (config.persist_instruction, false);
        let (base, part_bytes) = self.parts[0];
        if let Some(replay) = replay {
            let access = replay.accesses()[self.chunk.0 as usize];
            let (offset, bytes) = access.within(part_bytes);
            let (place, is_read) = (base + offset, !access.is_write);
            return Wanted {
                is_dram: false,
                is_read,
                place,
                bytes,
                persist,
                is_cached,
                touched_bytes: bytes,
                is_first: true,
                is_last: true,
            };
        }
        let bytes = config.access_size;
        let (mut is_dram, mut is_read) = (false, config.operation == Operation::Read);
        let slot = match config.exec_mode {
            ExecMode::Sequential => self.chunk.0,
            ExecMode::SequentialDesc => operations - 1 - self.chunk.0,
            ExecMode::Random | ExecMode::Custom | ExecMode::Trace => {
                is_dram = self.slots[0].is_in(config.dram_operation_ratio);
                is_read ^= self.slots[0].is_in(config.mixed_operation_ratio);
                self.slots[usize::from(is_dram)].draw()
            }
        };
        let place = self.parts[usize::from(is_dram)].0 + slot * bytes;
        Wanted {
            is_dram,
            is_read,
            place,
            bytes,
            persist,
            is_cached,
            touched_bytes: bytes,
            is_first: true,
            is_last: true,
        }
    }
}
