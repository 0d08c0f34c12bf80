//! A thread whose accesses do not depend on each other.
//!
//! The thread asks for the next lines as soon as one of its lines in flight is free. A streamed
//! store ends in a fence, for which the thread waits. A flushed store first fetches its lines;
//! where the processor fetches for the next store behind a fence, two stores are under way, each a
//! *strand*. Fences are passed one after the other. Stores without flush fetch their lines, wait
//! for nothing, and leave the caches some time later.

use perdura_media::profile::Server;

use super::super::super::workload::{Config, Operation, Persist};
use super::super::part::{Part, Wanted};
use super::lines::Lines;
use super::machine::Way;
use super::{Turn, What, ps};

/// State of such a thread.
#[derive(Debug, Default)]
pub(super) struct Plain {
    strands: Vec<Strand>,
    /// Strands that are idle.
    idle: Vec<usize>,
    /// When the next line can be asked for, ns.
    lines_free_ns: f64,
    /// When the last fence was passed, ns.
    fenced_ns: f64,
    /// Lines of the last access.
    last: Option<Lines>,
}

/// An access under way.
#[derive(Debug, Clone, Copy)]
struct Strand {
    wanted: Wanted,
    began_ps: u64,
    all: Lines,
    left: Lines,
    /// Whether the access lies behind the last one.
    is_stream: bool,
    /// The piece that is being fetched in order to be flushed.
    fetched: Option<Lines>,
}

impl Plain {
    /// Number of accesses that such a thread has under way at once.
    pub fn strands(&self, server: &Server, config: &Config) -> u64 {
        let flushes = matches!(config.persist_instruction, Persist::Cache | Persist::CacheInv);
        let writes = config.operation == Operation::Write || config.mixed_operation_ratio > 0.0;
        if flushes && writes { 1 + server.processor.fetches_ahead } else { 1 }
    }

    pub fn turn(&mut self, turn: &mut Turn<'_, '_>, part: &mut Part<'_>, what: What) {
        let which = match what {
            What::Begin(which) => which as usize,
            What::Next => match self.begin(turn, part) {
                Some(which) => which,
                None => return,
            },
        };
        let Strand { wanted, .. } = self.strands[which];
        match (wanted.is_read, wanted.persist) {
            (true, _) => self.read(turn, part, which),
            (false, Persist::None) => self.store(turn, part, which),
            (false, Persist::NoCache) => self.stream(turn, part, which),
            (false, Persist::Cache | Persist::CacheInv) => self.flush(turn, part, which),
        }
    }

    /// Takes the next access, if it is time.
    fn begin(&mut self, turn: &mut Turn<'_, '_>, part: &mut Part<'_>) -> Option<usize> {
        let due_ns = part.due_ps(turn.number) as f64 / 1e3;
        if due_ns > turn.now_ns + 1e-3 {
            turn.then(due_ns, What::Next);
            return None;
        }
        let wanted = part.take(turn.number, ps(turn.now_ns), ps(turn.end_ns))?;
        let all = Lines::under(wanted.place, wanted.bytes);
        let is_stream = self.last.is_some_and(|last| {
            let is_on = last.end() == all.first || last.end() == all.first + 1;
            is_on || all.end() == last.first
        });
        self.last = Some(all);
        let began_ps = part.began_ps(turn.number);
        let strand = Strand { wanted, began_ps, all, left: all, is_stream, fetched: None };
        match self.idle.pop() {
            Some(which) => {
                self.strands[which] = strand;
                Some(which)
            }
            None => {
                self.strands.push(strand);
                Some(self.strands.len() - 1)
            }
        }
    }

    /// The next piece of a strand, and its position relative to what was before.
    fn piece(&mut self, which: usize) -> (Lines, Way, bool) {
        let strand = &mut self.strands[which];
        let is_first = strand.left == strand.all;
        let piece = strand.left.take_piece();
        let way = match (strand.is_stream, is_first) {
            (true, _) => Way::Stream,
            (false, true) => Way::Apart,
            (false, false) => Way::Behind,
        };
        (piece, way, is_first)
    }

    fn read(&mut self, turn: &mut Turn<'_, '_>, part: &mut Part<'_>, which: usize) {
        let now_ns = turn.now_ns;
        let (piece, way, _) = self.piece(which);
        let Strand { wanted, all, left, is_stream, .. } = self.strands[which];
        let reading = turn.machine.read(now_ns, wanted.is_dram, piece, way);
        if left.count == 0 && !is_stream {
            turn.machine.overrun(now_ns, wanted.is_dram, piece, all.count);
        }
        let free_ns = reading.held_ns / turn.machine.lines_in_flight(turn.core);
        self.lines_free_ns = self.lines_free_ns.max(now_ns) + free_ns;
        self.go_on(turn, part, which, self.lines_free_ns, reading.done_ns);
    }

    fn store(&mut self, turn: &mut Turn<'_, '_>, part: &mut Part<'_>, which: usize) {
        let now_ns = turn.now_ns;
        let (piece, way, _) = self.piece(which);
        let Strand { wanted, is_stream, .. } = self.strands[which];
        let reading = turn.machine.read(now_ns, wanted.is_dram, piece, way);
        turn.machine.write_back(now_ns, wanted.is_dram, piece);
        let processor = turn.machine.processor();
        let prefetched = if is_stream { processor.stream_stores } else { 1.0 };
        let at_once = processor.stores_in_flight * prefetched * turn.core.share;
        let next_ns = now_ns + reading.held_ns / at_once;
        self.go_on(turn, part, which, next_ns, next_ns);
    }

    fn stream(&mut self, turn: &mut Turn<'_, '_>, part: &mut Part<'_>, which: usize) {
        let now_ns = turn.now_ns;
        let (piece, way, is_first) = self.piece(which);
        let Strand { wanted, left, is_stream, .. } = self.strands[which];
        let each = turn.machine.rule(wanted.is_dram).granule_lines;
        let is_begun = is_stream && piece.count < each && !piece.first.is_multiple_of(each);
        let follows = way != Way::Apart;
        let wait_ns = turn.machine.write(now_ns, wanted.is_dram, piece, follows, is_begun);
        let lines_ns = turn.machine.streamed_lines_ns(is_first, piece.count);
        let fence_ns = if left.count > 0 { 0.0 } else { turn.machine.processor().streamed_ns };
        let next_ns = now_ns + lines_ns + fence_ns + wait_ns;
        self.go_on(turn, part, which, next_ns, next_ns);
    }

    fn flush(&mut self, turn: &mut Turn<'_, '_>, part: &mut Part<'_>, which: usize) {
        let now_ns = turn.now_ns;
        let is_dram = self.strands[which].wanted.is_dram;
        let Some(piece) = self.strands[which].fetched.take() else {
            let (piece, way, _) = self.piece(which);
            let reading = turn.machine.read(now_ns, is_dram, piece, way);
            self.strands[which].fetched = Some(piece);
            turn.then(reading.done_ns, What::Begin(which as u64));
            return;
        };
        let wait_ns = turn.machine.write(now_ns, is_dram, piece, false, false);
        let flush_ns = turn.machine.flush_ns(is_dram, piece.count);
        self.fenced_ns = self.fenced_ns.max(now_ns) + flush_ns + wait_ns;
        self.go_on(turn, part, which, self.fenced_ns, self.fenced_ns);
    }

    /// The strand's next piece, or the thread's next access, begins then.
    fn go_on(
        &mut self,
        turn: &mut Turn<'_, '_>,
        part: &mut Part<'_>,
        which: usize,
        next_ns: f64,
        done_ns: f64,
    ) {
        let Strand { left, began_ps, .. } = self.strands[which];
        if left.count > 0 {
            turn.then(next_ns, What::Begin(which as u64));
            return;
        }
        part.ended(turn.number, began_ps, ps(done_ns));
        self.idle.push(which);
        turn.then(next_ns, What::Next);
    }
}
