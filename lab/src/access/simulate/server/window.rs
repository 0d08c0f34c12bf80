//! A thread whose accesses depend on each other: a chain of reads, each at a place that the read
//! before decides, and of writes to what was read.
//!
//! The core works on as many instructions as its window holds, in program order as far as they wait
//! for nothing. So a chain's first read begins while the chain before is under way, as soon as
//! everything more than a window before it has *retired*; instructions retire in order. A fence
//! retires when everything flushed or streamed before it is accepted.
//!
//! An *item* is an instruction, or several, that take time of their own. Items begin in the order
//! of their instants, by an event each; when an item begins is known once everything it waits for
//! has begun.

use std::collections::VecDeque;

use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::super::super::workload::Persist;
use super::super::part::{Part, Wanted};
use super::lines::{LINE_BYTES, Lines};
use super::machine::Way;
use super::{Turn, What, ps};

/// Items that such a thread has under way.
pub(super) struct Window {
    random: Xoshiro256PlusPlus,
    items: VecDeque<Item>,
    /// Number of the first of these items.
    first: u64,
    /// When the last item that is no longer kept retired, ns.
    retired_ns: f64,
    /// Instructions up to the next item.
    position: f64,
    /// When the next line can be asked for, ns.
    lines_free_ns: f64,
    /// When the operation that was taken last should begin at the earliest, ns.
    due_ns: f64,
    /// Whether there are no more accesses.
    is_over: bool,
    chain: Chain,
}

/// State of the chain whose items are being made.
#[derive(Debug, Default)]
struct Chain {
    /// Lines that the caches have, of the medium and of DRAM.
    cached: [Option<Lines>; 2],
    /// Lines that left the caches with a flush or a streamed store.
    gone: Option<Lines>,
    /// The granule that is being written.
    granule: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Item {
    position: f64,
    does: Does,
    is_dram: bool,
    lines: Lines,
    /// For an operation's first item: the instant from which its time counts, if there is a rate,
    /// ns.
    due_ns: f64,
    is_first: bool,
    is_last: bool,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Does {
    /// Reads; every read but a chain's first waits for the read before.
    Read { depends: bool },
    /// Fetches lines for a store; `again`: they have just left the caches.
    Fetch { again: bool },
    /// Flushes or streams lines, and waits at a fence.
    Fence { streams: bool, is_begun: bool },
    /// Stores without waiting.
    Store { is_cached: bool },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    /// The beginning is not known yet.
    Waiting,
    /// The item's event is queued.
    Called,
    /// The item has begun, and its end is known.
    Begun { began_ns: f64, done_ns: f64 },
    /// The item and all before it are done at `retired_ns`.
    Retired { began_ns: f64, done_ns: f64, retired_ns: f64 },
}

/// Items made ahead: more than any window holds.
const AHEAD: usize = 10;
/// Items kept, so that items in the window know when those a window before them retired.
const KEPT: usize = 24;
/// Instructions of a store without flush and stream, besides those of its lines.
const STORE_INSTRUCTIONS: f64 = 5.0;
/// Share by which an access's instructions vary, because a core's other work varies.
const VARIES: f64 = 0.25;

impl Window {
    pub fn new(number: u64) -> Self {
        Self {
            random: Xoshiro256PlusPlus::seed_from_u64(number),
            items: VecDeque::new(),
            first: 0,
            retired_ns: 0.0,
            position: 0.0,
            lines_free_ns: 0.0,
            due_ns: 0.0,
            is_over: false,
            chain: Chain::default(),
        }
    }

    pub fn turn(&mut self, turn: &mut Turn<'_, '_>, part: &mut Part<'_>, what: What) {
        if let What::Begin(number) = what {
            let index = (number - self.first) as usize;
            let done_ns = self.begin(turn, index);
            self.items[index].state = State::Begun { began_ns: turn.now_ns, done_ns };
            self.retire(turn.number, part, index);
        }
        while !self.is_over && self.waiting() < AHEAD {
            self.take(turn, part);
        }
        for index in 0..self.items.len() {
            if self.items[index].state == State::Waiting
                && let Some(start_ns) = self.start_ns(turn, index)
            {
                self.items[index].state = State::Called;
                turn.then(start_ns, What::Begin(self.first + index as u64));
            }
        }
        self.forget(turn);
    }

    fn waiting(&self) -> usize {
        let is_waiting = |item: &&Item| matches!(item.state, State::Waiting | State::Called);
        self.items.iter().filter(is_waiting).count()
    }

    /// Begins an item; returns when it is done, ns.
    fn begin(&mut self, turn: &mut Turn<'_, '_>, index: usize) -> f64 {
        let now_ns = turn.now_ns;
        let Item { does, is_dram, lines, .. } = self.items[index];
        match does {
            Does::Read { .. } => self.read(turn, is_dram, lines),
            Does::Fetch { again: true } => now_ns + turn.machine.processor().again_ns,
            Does::Fetch { again: false } => {
                turn.machine.read(now_ns, is_dram, lines, Way::Apart).done_ns
            }
            Does::Fence { streams, is_begun } => {
                let wait_ns = turn.machine.write(now_ns, is_dram, lines, is_begun, is_begun);
                let own_ns = match streams {
                    true => {
                        let lines_ns = turn.machine.streamed_lines_ns(true, lines.count);
                        turn.machine.processor().streamed_cached_ns + lines_ns
                    }
                    false => turn.machine.flush_ns(is_dram, lines.count),
                };
                now_ns + wait_ns + own_ns
            }
            Does::Store { is_cached } => {
                if !is_cached {
                    turn.machine.read(now_ns, is_dram, lines, Way::Apart);
                }
                turn.machine.write_back(now_ns, is_dram, lines);
                now_ns
            }
        }
    }

    fn read(&mut self, turn: &mut Turn<'_, '_>, is_dram: bool, lines: Lines) -> f64 {
        let (mut left, mut is_first) = (lines, true);
        let (mut done_ns, mut held_ns) = (turn.now_ns, 0.0);
        let mut last = lines;
        // Lines beyond a piece are asked for as lines in flight become free.
        while left.count > 0 {
            last = left.take_piece();
            let way = if is_first { Way::Apart } else { Way::Behind };
            let reading = turn.machine.read(turn.now_ns, is_dram, last, way);
            let behind_ns = held_ns / turn.machine.lines_in_flight(turn.core);
            done_ns = reading.done_ns + if is_first { 0.0 } else { behind_ns };
            held_ns += reading.held_ns;
            is_first = false;
        }
        turn.machine.overrun(turn.now_ns, is_dram, last, lines.count);
        let free_ns = held_ns / turn.machine.lines_in_flight(turn.core);
        self.lines_free_ns = self.lines_free_ns.max(turn.now_ns) + free_ns;
        done_ns
    }

    /// Retires items in order that are done together with all before them; an operation ends with
    /// its last item.
    fn retire(&mut self, number: usize, part: &mut Part<'_>, index: usize) {
        let Some(mut retired_ns) = self.retired_before(index) else { return };
        for index in index..self.items.len() {
            let State::Begun { began_ns, done_ns } = self.items[index].state else { return };
            retired_ns = done_ns.max(retired_ns);
            self.items[index].state = State::Retired { began_ns, done_ns, retired_ns };
            if self.items[index].is_last {
                part.ended(number, ps(self.operation_began_ns(index)), ps(retired_ns));
            }
        }
    }

    /// When the operation began whose last item this is, ns.
    fn operation_began_ns(&self, last: usize) -> f64 {
        let first = (0..=last).rev().find(|index| self.items[*index].is_first).unwrap_or(0);
        match self.items[first].state {
            State::Retired { began_ns, .. } | State::Begun { began_ns, .. } => {
                let due_ns = self.items[first].due_ns;
                if due_ns > 0.0 { due_ns.min(began_ns) } else { began_ns }
            }
            State::Waiting | State::Called => 0.0,
        }
    }

    fn retired_before(&self, index: usize) -> Option<f64> {
        match index.checked_sub(1).map(|before| self.items[before].state) {
            None => Some(self.retired_ns),
            Some(State::Retired { retired_ns, .. }) => Some(retired_ns),
            Some(_) => None,
        }
    }

    /// When an item begins, if that is known, ns.
    fn start_ns(&self, turn: &Turn<'_, '_>, index: usize) -> Option<f64> {
        let Item { position, does, due_ns, .. } = self.items[index];
        let window = turn.machine.processor().window * turn.core.share;
        let leaves = |before: &usize| self.items[*before].position <= position - window;
        let window_ns = match (0..index).rev().find(leaves).map(|before| self.items[before].state) {
            None => 0.0,
            Some(State::Retired { retired_ns, .. }) => retired_ns,
            Some(_) => return None,
        };
        let start_ns = turn.now_ns.max(window_ns).max(due_ns);
        let after_ns = match does {
            Does::Read { depends: false } => self.lines_free_ns,
            Does::Read { depends: true } => self.read_before(index)?.max(self.lines_free_ns),
            Does::Fetch { again: false } if turn.machine.processor().fetches_ahead > 0 => 0.0,
            Does::Fetch { .. } | Does::Fence { .. } | Does::Store { .. } => {
                self.retired_before(index)?
            }
        };
        Some(start_ns.max(after_ns))
    }

    /// When the read before an item is done, ns.
    fn read_before(&self, index: usize) -> Option<f64> {
        let is_read = |before: &usize| matches!(self.items[*before].does, Does::Read { .. });
        match (0..index).rev().find(is_read).map(|before| self.items[before].state) {
            None => Some(0.0),
            Some(State::Begun { done_ns, .. } | State::Retired { done_ns, .. }) => Some(done_ns),
            Some(State::Waiting | State::Called) => None,
        }
    }

    /// Makes the items of the thread's next access.
    fn take(&mut self, turn: &mut Turn<'_, '_>, part: &mut Part<'_>) {
        let due_ns = part.due_ps(turn.number) as f64 / 1e3;
        let Some(wanted) = part.take(turn.number, ps(turn.now_ns), ps(turn.end_ns)) else {
            self.is_over = true;
            return;
        };
        let processor = turn.machine.processor();
        if wanted.is_first {
            let samples = part.config().latency_sample_frequency > 0;
            let sampled = if samples { processor.sample_instructions } else { 0.0 };
            self.position += processor.chain_instructions + sampled;
            self.due_ns = due_ns;
            self.chain = Chain::default();
        }
        let lines = Lines::under(wanted.place, wanted.touched_bytes);
        let drawn = (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let varies = 1.0 - VARIES + 2.0 * VARIES * drawn;
        let all_lines = wanted.bytes.div_ceil(LINE_BYTES);
        let line_instructions = processor.line_instructions * all_lines as f64;
        match (wanted.is_read, wanted.persist) {
            (true, _) => {
                self.position += (processor.read_instructions + line_instructions) * varies;
                let behind = turn.machine.overrun_lines(false, lines.count).ceil() as u64;
                let behind = if wanted.is_dram { 0 } else { behind };
                self.chain.cached[usize::from(wanted.is_dram)] =
                    Some(Lines { first: lines.first, count: lines.count + behind });
                self.push(wanted, lines, Does::Read { depends: !wanted.is_first }, true);
            }
            (false, Persist::None) => {
                self.position += line_instructions + STORE_INSTRUCTIONS;
                let is_cached = self.is_cached(wanted, lines);
                self.chain.cached[usize::from(wanted.is_dram)].get_or_insert(lines);
                self.push(wanted, lines, Does::Store { is_cached }, true);
            }
            (false, persist) => {
                self.position += line_instructions + processor.write_instructions;
                let each = turn.machine.rule(wanted.is_dram).granule_lines;
                let keeps = persist == Persist::Cache && processor.keeps_flushed;
                self.fenced(wanted, lines, each, processor.keeps_flushed, keeps);
            }
        }
    }

    fn is_cached(&self, wanted: Wanted, lines: Lines) -> bool {
        let cached = self.chain.cached[usize::from(wanted.is_dram)];
        cached.is_some_and(|cached| cached.has(lines))
    }

    /// Makes the items of a write with its fence. `keeps`: its lines stay in the caches.
    fn fenced(
        &mut self,
        wanted: Wanted,
        lines: Lines,
        granule_lines: u64,
        keeps_flushed: bool,
        keeps: bool,
    ) {
        let streams = wanted.persist == Persist::NoCache;
        let is_cached = self.is_cached(wanted, lines);
        let again = self.chain.gone.is_some_and(|gone| gone.has(lines));
        if !is_cached && !streams || again && !keeps_flushed {
            self.push(wanted, lines, Does::Fetch { again }, false);
        }
        let granule = lines.first / granule_lines;
        let is_begun = self.chain.granule.replace(granule) == Some(granule);
        self.push(wanted, lines, Does::Fence { streams, is_begun }, true);
        let cached = &mut self.chain.cached[usize::from(wanted.is_dram)];
        if keeps {
            if !is_cached {
                *cached = Some(lines);
            }
            return;
        }
        self.chain.gone = Some(lines);
        if let Some(own) = cached.filter(|own| own.has(lines)) {
            // The lines before or the lines behind stay in the caches, whichever are more.
            let (before, behind) = (lines.first - own.first, own.end() - lines.end());
            *cached = Some(match before >= behind {
                true => Lines { first: own.first, count: before },
                false => Lines { first: lines.end(), count: behind },
            });
        }
    }

    /// Adds an item. `ends`: it is the last item of its access.
    fn push(&mut self, wanted: Wanted, lines: Lines, does: Does, ends: bool) {
        self.items.push_back(Item {
            position: self.position,
            does,
            is_dram: wanted.is_dram,
            lines,
            due_ns: self.due_ns,
            is_first: wanted.is_first,
            is_last: ends && wanted.is_last,
            state: State::Waiting,
        });
    }

    /// Drops items to which no window reaches back.
    fn forget(&mut self, turn: &Turn<'_, '_>) {
        let window = turn.machine.processor().window;
        while self.items.len() > KEPT
            && let (State::Retired { retired_ns, .. }, State::Retired { .. }) =
                (self.items[0].state, self.items[1].state)
            && self.items[1].position < self.items[self.items.len() - AHEAD].position - 2.0 * window
        {
            self.retired_ns = retired_ns;
            self.items.pop_front();
            self.first += 1;
        }
    }
}
