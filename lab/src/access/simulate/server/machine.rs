//! The modules, and DRAM on the same channels, as the processor's cores see them.

use perdura_media::System;
use perdura_media::model::{Channels, Modules};
use perdura_media::profile::{self, Processor, Server};

use super::Core;
use super::lines::Lines;

/// A server's memories and the channels to them.
pub(super) struct Machine<'s> {
    processor: &'s Processor,
    memory: Modules,
    /// The server's DRAM; none if the medium itself is DRAM.
    dram: Option<Modules>,
    channels: Channels,
}

/// Position of lines relative to those that the thread read before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Somewhere else.
    Apart,
    /// Behind the first lines of the same access.
    Behind,
    /// Behind the last access.
    Stream,
}

/// Duration of a read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    /// When all lines have arrived, ns.
    pub done_ns: f64,
    /// Sum of the times for which its lines occupy lines in flight, ns.
    pub held_ns: f64,
}

/// Time of a further line that fits the write-combining buffers, as a share of one that does not.
const COMBINED: f64 = 0.3;
/// Reads of this many lines at once start no prefetchers.
const UNNOTICED_LINES: u64 = 4;
/// Most lines that prefetchers read ahead: 20, and never beyond a page of 4 KiB.
const OVERRUN_LINES_MAX: f64 = 20.0;
const PAGE_LINES: u64 = 64;

impl<'s> Machine<'s> {
    pub fn new(system: &System, server: &'s Server) -> Self {
        Self {
            processor: &server.processor,
            memory: Modules::new(&server.memory, system.modules),
            dram: server.dram.as_ref().map(|dram| Modules::new(dram, system.modules)),
            channels: Channels::new(system.modules),
        }
    }

    pub fn processor(&self) -> &'s Processor {
        self.processor
    }

    /// The profile's rule of the modules.
    pub fn rule(&self, is_dram: bool) -> &profile::Modules {
        match &self.dram {
            Some(dram) if is_dram => dram.rule(),
            _ => self.memory.rule(),
        }
    }

    /// Reads the lines of one piece.
    pub fn read(&mut self, now_ns: f64, is_dram: bool, lines: Lines, way: Way) -> Reading {
        let follows = way != Way::Apart;
        let channel_ns = self.channel(now_ns, is_dram, lines);
        let modules = self.modules(is_dram);
        let wait_ns = modules.read(now_ns, lines.first, lines.count, follows).max(channel_ns);
        let (rule, count) = (modules.rule(), lines.count as f64);
        let (first_ns, held_ns) = match way {
            Way::Stream => (rule.stream_ns, count * rule.stream_ns),
            Way::Behind => (rule.read_ns, count * rule.behind_ns),
            Way::Apart => (rule.read_ns, rule.read_ns + (count - 1.0) * rule.behind_ns),
        };
        let further_ns = (count - 1.0) * rule.stream_ns / self.processor.lines_in_flight;
        Reading {
            done_ns: now_ns + first_ns + wait_ns + further_ns,
            held_ns: held_ns + count * wait_ns,
        }
    }

    /// Prefetchers take a random access, which ends there, for a stream.
    pub fn overrun(&mut self, now_ns: f64, is_dram: bool, last: Lines, lines: u64) {
        let to_page_end = (PAGE_LINES - last.end() % PAGE_LINES) % PAGE_LINES;
        let vain = self.overrun_lines(is_dram, lines).min(to_page_end as f64);
        if vain > 0.0 {
            self.modules(is_dram).overrun(now_ns, last.first, vain);
        }
    }

    /// Lines that prefetchers read in vain behind a random access of this many lines.
    pub fn overrun_lines(&self, is_dram: bool, lines: u64) -> f64 {
        let noticed = lines.saturating_sub(UNNOTICED_LINES) as f64;
        (noticed * self.rule(is_dram).overrun).min(OVERRUN_LINES_MAX)
    }

    /// Writes the lines of one piece; returns how long they wait until they are accepted.
    /// `is_begun`: their granule is already being written.
    pub fn write(
        &mut self,
        now_ns: f64,
        is_dram: bool,
        lines: Lines,
        follows: bool,
        is_begun: bool,
    ) -> f64 {
        let granules = match is_begun {
            true => 0.0,
            false => lines.count.div_ceil(self.rule(is_dram).granule_lines) as f64,
        };
        let wait_ns = self.modules(is_dram).write(now_ns, lines.first, granules, follows);
        if !is_begun {
            self.channel(now_ns, is_dram, lines);
        }
        wait_ns
    }

    /// Writes lines back that leave the caches one by one, some time later.
    pub fn write_back(&mut self, now_ns: f64, is_dram: bool, lines: Lines) {
        self.modules(is_dram).write_back(now_ns, lines.first, lines.count);
        self.channel(now_ns, is_dram, lines);
    }

    /// Time of a flush of lines with its fence when nothing holds it up, ns.
    pub fn flush_ns(&self, is_dram: bool, lines: u64) -> f64 {
        self.rule(is_dram).flush_ns + self.processor.flushed_line_ns * (lines - 1) as f64
    }

    /// Time that lines add to a streamed store, ns; the first ones fit the write-combining buffers.
    pub fn streamed_lines_ns(&self, is_first_piece: bool, lines: u64) -> f64 {
        let lines = match is_first_piece {
            true => COMBINED * (lines - 1) as f64,
            false => lines as f64,
        };
        self.processor.streamed_line_ns * lines
    }

    /// Lines that a thread reads at the same time.
    pub fn lines_in_flight(&self, core: Core) -> f64 {
        self.processor.lines_in_flight * core.share
    }

    /// Energy of the modules until then, joules. Work that had to wait draws the profile's `peak`
    /// power, work that found its module idle its `active` power.
    pub fn joules(&self, system: &System, until_ns: f64) -> f64 {
        let power = &system.power;
        let [alone_ns, behind_ns] = self.memory.worked_ns();
        let all_ns = until_ns * f64::from(system.modules);
        let idle_ns = (all_ns - alone_ns - behind_ns).max(0.0);
        (idle_ns * power.idle.0 + alone_ns * power.active.0 + behind_ns * power.peak.0) / 1e9
    }

    fn modules(&mut self, is_dram: bool) -> &mut Modules {
        match &mut self.dram {
            Some(dram) if is_dram => dram,
            _ => &mut self.memory,
        }
    }

    /// Time on a channel that both kinds of modules share; with one kind alone, the modules' own
    /// times include it.
    fn channel(&mut self, now_ns: f64, is_dram: bool, lines: Lines) -> f64 {
        if self.dram.is_none() {
            return 0.0;
        }
        let length_ns = self.rule(is_dram).channel_ns * lines.count as f64;
        self.channels.claim(now_ns, lines.first, length_ns)
    }
}
