//! A benchmark on a medium that is not here: the same places in the same order, in the time of its model.
//!
//! Threads take turns by who is earliest. The medium says how long an access of some bytes takes, its lines overlapping as its profile has it
//! (`perdura_media::Model`); `waits` says what of it the thread waits for. What a processor adds (address arithmetic, caches that hold
//! more than the last access) is not in the figures. Modelled, not measured.

mod waits;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

use perdura_media::{Model, System};

use super::addresses::Slots;
use super::replay::Replay;
use super::run::{PartRun, ThreadRun, histogram};
use super::workload::{Config, CustomOp, ExecMode, Memory, Operation, Persist};
use waits::Waited;

/// Accesses simulated at most: more change the figures by less than is told of them.
pub const ACCESSES_MAX: u64 = 400_000;
/// The memory beside a medium, for what goes to DRAM.
const BESIDE: &str = "dram";

/// Runs parts together on one medium; beside each its trace, if it replays one. And the joules that the medium draws meanwhile.
///
/// # Panics
/// Without the profile of DRAM, which is built in.
pub fn simulate(
    system: &System,
    configs: &[(&Config, Option<Arc<Replay>>)],
) -> (Vec<PartRun>, f64) {
    let memory_bytes = configs.iter().map(|(config, _)| config.memory_range).sum::<u64>();
    let model = Model::new(system, system.capacity().0.max(memory_bytes));
    let Ok(beside) = System::find(BESIDE) else { unreachable!("a profile that is built in") };
    let dram_bytes = configs.iter().map(|(config, _)| config.dram_memory_range).sum::<u64>();
    let dram = Model::new(&beside, beside.capacity().0.max(dram_bytes));
    let mut parts: Vec<Part<'_>> = Vec::new();
    let (mut base_bytes, mut dram_base_bytes) = (0, 0);
    for (config, replay) in configs {
        parts.push(Part::new(config, replay.clone(), base_bytes, dram_base_bytes));
        base_bytes += config.memory_range;
        dram_base_bytes += config.dram_memory_range;
    }
    let mut turns: BinaryHeap<Reverse<(u64, usize, usize)>> = BinaryHeap::new();
    for (part, own) in parts.iter().enumerate() {
        turns.extend((0..own.threads.len()).map(|thread| Reverse((0, part, thread))));
    }
    // Where one part is cut short, all end: what the others did alone after that is not what they do together.
    let mut end_ps = u64::MAX;
    while let Some(Reverse((now_ps, part, thread))) = turns.pop() {
        match parts[part].step(thread, now_ps, end_ps, &model, &dram) {
            Some(next_ps) => turns.push(Reverse((next_ps, part, thread))),
            None if parts[part].is_cut() => end_ps = end_ps.min(now_ps),
            None => {}
        }
    }
    let joules = model.energy(0).execution.0;
    (parts.into_iter().map(Part::run).collect(), joules)
}

struct Part<'a> {
    config: &'a Config,
    replay: Option<Arc<Replay>>,
    base_bytes: u64,
    dram_base_bytes: u64,
    threads: Vec<Thread>,
    /// Operations that may still be begun.
    left: u64,
    /// The workload asks for more than are simulated.
    wants_more: bool,
    /// By partition: operations of a sequence that were begun.
    begun: Vec<u64>,
    latency_ns: hdrhistogram::Histogram<u64>,
}

struct Thread {
    memory: Slots,
    dram: Slots,
    partition: u64,
    operations: u64,
    bytes: u64,
    until_sample: u64,
    /// Of a chain: which access is next, where the last one was in each memory, what of it the caches have, and when the first began.
    next: usize,
    at: [u64; 2],
    cached: [Range<u64>; 2],
    began_ps: u64,
    ended_ps: u64,
}

const PS_PER_S: u64 = 1_000_000_000_000;

impl<'a> Part<'a> {
    fn new(
        config: &'a Config,
        replay: Option<Arc<Replay>>,
        base_bytes: u64,
        dram_base_bytes: u64,
    ) -> Self {
        let partitions = config.partitions();
        let chain = config.custom_operations.as_ref();
        let per_operation = chain.map_or(1, |chain| chain.ops().len() as u64);
        let wanted = match config.exec_mode {
            ExecMode::Sequential | ExecMode::SequentialDesc => {
                config.memory_range / config.access_size
            }
            ExecMode::Random | ExecMode::Custom => config.number_operations,
            ExecMode::Trace => replay.as_ref().map_or(0, |replay| replay.accesses().len() as u64),
        };
        let wanted = if config.run_time > 0 { u64::MAX } else { wanted };
        let slots = |bytes: u64| (bytes / partitions / config.access_size).max(1);
        let threads = (0..config.number_threads).map(|number| Thread {
            memory: Slots::new(config, slots(config.memory_range), number, 0),
            dram: Slots::new(config, slots(config.dram_memory_range), number, 1),
            partition: number / (config.number_threads / partitions),
            operations: 0,
            bytes: 0,
            until_sample: config.latency_sample_frequency.saturating_sub(1),
            next: 0,
            at: [0; 2],
            cached: [0..0, 0..0],
            began_ps: 0,
            ended_ps: 0,
        });
        Self {
            config,
            replay,
            base_bytes,
            dram_base_bytes,
            threads: threads.collect(),
            left: wanted.min(ACCESSES_MAX / per_operation),
            wants_more: wanted > ACCESSES_MAX / per_operation,
            begun: vec![0; partitions as usize],
            latency_ns: histogram(),
        }
    }

    /// Whether it would have gone on with more accesses than are simulated.
    fn is_cut(&self) -> bool {
        self.left == 0 && self.wants_more
    }

    /// One access of a thread; when its next may come. None: there is none left, or the time is up, its own or that of all.
    ///
    /// One at a time, chains too: the medium takes requests in the order in which they arrive.
    fn step(
        &mut self,
        thread: usize,
        now_ps: u64,
        end_ps: u64,
        model: &Model,
        dram: &Model,
    ) -> Option<u64> {
        let config = self.config;
        let is_first = self.threads[thread].next == 0;
        let own_end_ps = match config.run_time {
            0 => u64::MAX,
            seconds => seconds.saturating_mul(PS_PER_S),
        };
        let is_up = now_ps >= end_ps.min(own_end_ps);
        if is_first {
            if self.left == 0 || is_up {
                return None;
            }
            self.left -= 1;
            self.threads[thread].began_ps = now_ps;
        }
        let Waited { done_ps, next_ps } = match &config.custom_operations {
            Some(chain) => {
                let op = chain.ops()[self.threads[thread].next];
                self.threads[thread].next = (self.threads[thread].next + 1) % chain.ops().len();
                self.chained(thread, op, now_ps, model, dram)
            }
            None => self.single(thread, now_ps, model, dram),
        };
        let own = &mut self.threads[thread];
        own.ended_ps = own.ended_ps.max(done_ps);
        if own.next > 0 {
            return Some(next_ps);
        }
        own.operations += 1;
        if config.latency_sample_frequency > 0 {
            if own.until_sample == 0 {
                self.latency_ns.saturating_record(((done_ps - own.began_ps) / 1000).max(1));
                own.until_sample = config.latency_sample_frequency;
            }
            own.until_sample -= 1;
        }
        match config.rate_limit {
            0 => Some(next_ps),
            rate => {
                let due = u128::from(own.operations * config.number_threads) * u128::from(PS_PER_S);
                Some(next_ps.max((due / u128::from(rate)) as u64))
            }
        }
    }

    /// Where a thread's part of each memory begins, and its bytes.
    fn parts(&self, thread: usize) -> [(u64, u64); 2] {
        let config = self.config;
        let part = |base: u64, range: u64| {
            let bytes = range / config.partitions();
            (base + self.threads[thread].partition * bytes, bytes)
        };
        [
            part(self.base_bytes, config.memory_range),
            part(self.dram_base_bytes, config.dram_memory_range),
        ]
    }

    fn chained(
        &mut self,
        thread: usize,
        op: CustomOp,
        now_ps: u64,
        model: &Model,
        dram: &Model,
    ) -> Waited {
        let (medium, which) = match op.memory() {
            Memory::Persistent => (model, 0),
            Memory::Dram => (dram, 1),
        };
        let (base, part_bytes) = self.parts(thread)[which];
        let own = &mut self.threads[thread];
        own.bytes += op.bytes();
        match op {
            CustomOp::Read { bytes, .. } => {
                let slot = own.memory.draw() % (part_bytes / bytes).max(1);
                let place = base + slot * bytes;
                own.at[which] = place;
                own.cached[which] = place..place + bytes;
                // The next place depends on what is read.
                let read = waits::read(medium, now_ps, place, bytes);
                Waited { next_ps: read.done_ps, ..read }
            }
            CustomOp::Write { bytes, persist, offset_bytes, .. } => {
                let place = own.at[which].saturating_add_signed(offset_bytes);
                let (range, cached) = (place..place + bytes, own.cached[which].clone());
                let is_cached = cached.start <= range.start && range.end <= cached.end;
                own.at[which] = place;
                own.cached[which] = match persist {
                    Persist::Cache | Persist::None if is_cached => cached,
                    Persist::Cache | Persist::None => range,
                    // What lies behind stays.
                    Persist::NoCache | Persist::CacheInv if is_cached => range.end..cached.end,
                    Persist::NoCache | Persist::CacheInv => 0..0,
                };
                waits::write(medium, now_ps, place, bytes, persist, is_cached)
            }
        }
    }

    fn single(&mut self, thread: usize, now_ps: u64, model: &Model, dram: &Model) -> Waited {
        let config = self.config;
        let [(base, part_bytes), (dram_base, _)] = self.parts(thread);
        let step = config.access_size;
        let own = &mut self.threads[thread];
        let book = |medium: &Model, is_read: bool, place: u64, bytes: u64| match is_read {
            true => waits::read(medium, now_ps, place, bytes),
            false => waits::write(medium, now_ps, place, bytes, config.persist_instruction, false),
        };
        if let Some(replay) = &self.replay {
            let begun = &mut self.begun[own.partition as usize];
            let accesses = replay.accesses();
            let access = accesses[*begun as usize % accesses.len()];
            *begun += 1;
            let (offset, bytes) = access.within(part_bytes);
            own.bytes += bytes;
            return book(model, !access.is_write, base + offset, bytes);
        }
        own.bytes += step;
        let is_read =
            (config.operation == Operation::Read) != own.memory.is_in(config.mixed_operation_ratio);
        let slots = part_bytes / step;
        match config.exec_mode {
            ExecMode::Sequential | ExecMode::SequentialDesc => {
                let begun = &mut self.begun[own.partition as usize];
                let slot = *begun % slots;
                *begun += 1;
                let is_ascending = config.exec_mode == ExecMode::Sequential;
                let slot = if is_ascending { slot } else { slots - 1 - slot };
                book(model, is_read, base + slot * step, step)
            }
            _ if own.memory.is_in(config.dram_operation_ratio) => {
                book(dram, is_read, dram_base + own.dram.draw() * step, step)
            }
            _ => book(model, is_read, base + own.memory.draw() * step, step),
        }
    }

    fn run(self) -> PartRun {
        let threads: Vec<ThreadRun> = self
            .threads
            .iter()
            .map(|thread| ThreadRun {
                operations: thread.operations,
                bytes: thread.bytes,
                ns: (thread.ended_ps / 1000).max(1),
                cpu_ns: 0,
            })
            .collect();
        let ns = threads.iter().map(|thread| thread.ns).max().unwrap_or(1);
        PartRun { ns, threads, latency_ns: self.latency_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::parse;
    use super::*;

    #[test]
    fn parts_that_run_together_end_together_where_one_is_cut_short() {
        let text = "b:\n  parallel_benchmark:\n    fast:\n      args: {memory_range: 1G, access_size: 64, number_threads: 8, run_time: 1}\n    \
                    slow:\n      args: {memory_range: 1G, access_size: 16K, run_time: 1}\n";
        let benchmark = parse("w.yaml", text).unwrap().remove(0);
        let system = System::find("apache-256").unwrap();
        let run = benchmark.runs().next().unwrap();
        let configs: Vec<_> = run.iter().map(|cell| (&cell.config, None)).collect();
        let (runs, _) = simulate(&system, &configs);
        assert_eq!(runs[0].operations(), ACCESSES_MAX);
        assert!(runs[1].operations() < ACCESSES_MAX / 2, "{}", runs[1].operations());
        let apart_ns = runs[0].ns.abs_diff(runs[1].ns);
        assert!(apart_ns < runs[0].ns / 100, "{} and {} ns", runs[0].ns, runs[1].ns);
    }
}
