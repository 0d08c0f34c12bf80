//! A recording: it looks, at regular times, at the processes that are recorded at that time.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use perdura_media::Clock;

use super::attach::{Event, Started, attach, start};
use super::error::RecordError;
use super::processes::{children_of, is_alive, name_of};
use super::space::{Look, Space};
use super::volumes::Volumes;
use super::{RecordOptions, Recorded, Sink, Target};
use crate::trace::{Looks, Op, PAGE_BYTES, Record};

/// The longest time for which `stop` may go unnoticed.
const NOTICE: Duration = Duration::from_millis(100);
/// A longer run is several records: no access is as long as a fresh heap may be.
const RECORD_BYTES: u64 = 1 << 30;
/// The time between searches for children that are only counted, nanoseconds.
const CHILDREN_EVERY_NS: u64 = 1_000_000_000;

pub struct Session<'a, 'b> {
    options: &'a RecordOptions,
    clock: &'a dyn Clock,
    sink: &'a mut Sink<'b>,
    volumes: Volumes,
    spaces: Vec<Space>,
    /// The children that were ever seen.
    children: HashSet<i32>,
    children_sought_ns: Option<u64>,
    /// The process that was started, whose end is told and need not be searched for.
    followed: Option<i32>,
    /// Whether the process has not ended.
    is_running: bool,
    /// The time at which the next look is due, nanoseconds.
    due_ns: u64,
    began_ns: u64,
    last_look_ns: u64,
    records: Vec<Record>,
    recorded: Recorded,
}

impl<'a, 'b> Session<'a, 'b> {
    pub fn new(options: &'a RecordOptions, clock: &'a dyn Clock, sink: &'a mut Sink<'b>) -> Self {
        Self {
            options,
            clock,
            sink,
            volumes: Volumes::default(),
            spaces: Vec::new(),
            children: HashSet::new(),
            children_sought_ns: None,
            followed: None,
            is_running: false,
            due_ns: u64::MAX,
            began_ns: clock.now_ns(),
            last_look_ns: clock.now_ns(),
            records: Vec::new(),
            recorded: Recorded::default(),
        }
    }

    pub fn run(mut self, target: &Target, stop: &AtomicBool) -> Result<Recorded, RecordError> {
        let started = match target {
            Target::Program(words) => start(words)?,
            Target::Processes(pids) => {
                for pid in pids {
                    let space = attach(*pid)?;
                    if pids.len() > 1 || self.options.children {
                        self.volumes.name_process(*pid, name_of(*pid));
                    }
                    self.add(space, First::Baseline)?;
                }
                Started::nothing()
            }
        };
        self.until_the_end(&started, matches!(target, Target::Program(_)), stop)?;
        self.recorded.duration_ns = self.clock.now_ns() - self.began_ns;
        for space in &self.spaces {
            self.recorded.refused_mappings += space.refused() as u64;
        }
        Ok(self.recorded)
    }

    fn until_the_end(
        &mut self,
        started: &Started,
        is_ours: bool,
        stop: &AtomicBool,
    ) -> Result<(), RecordError> {
        let every_ns = every_ns(self.options);
        self.is_running = is_ours;
        // To start a program may take longer than the time between looks, and until then there is
        // nothing to look at.
        self.due_ns = if is_ours { u64::MAX } else { self.began_ns.saturating_add(every_ns) };
        while !stop.load(Ordering::Relaxed) && self.clock.now_ns() < self.end_ns() {
            let next_ns = self.due_ns.min(self.end_ns());
            let left = Duration::from_nanos(next_ns.saturating_sub(self.clock.now_ns()));
            // Otherwise the time is over.
            if let Ok(event) = started.events.recv_timeout(left.min(NOTICE)) {
                self.hear(event, started)?;
            }
            let has_ended = || self.spaces.iter().all(|space| !is_alive(space.pid));
            if is_ours && !self.is_running && has_ended() {
                return Ok(());
            }
            if self.clock.now_ns() >= self.due_ns {
                self.look()?;
                self.find_children(self.options.children)?;
                if !is_ours && self.spaces.is_empty() {
                    return Ok(());
                }
                let missed = self.clock.now_ns().saturating_sub(self.due_ns) / every_ns;
                self.recorded.late_looks += missed;
                self.due_ns = self.due_ns.saturating_add((missed + 1).saturating_mul(every_ns));
            }
        }
        // The program goes on. What it wrote since the last look belongs to the recording still.
        self.look()
    }

    /// Handles an event of the started program; the program then goes on.
    fn hear(&mut self, event: Event, started: &Started) -> Result<(), RecordError> {
        match event {
            Event::Began(space) => {
                if self.followed.is_some() {
                    self.recorded.execs += 1;
                } else {
                    self.begin(space.pid);
                }
                // Its first pages, the stack with its words, are written by now.
                let added = self.add(space, First::Counts);
                started.go_on();
                added
            }
            Event::Ending => {
                // It stands still. Once it has gone on its children are those of another process,
                // and cannot be found any more: all that a daemon does is done by such a child.
                let found = self.find_children(true);
                let looked = self.look();
                started.go_on();
                found.and(looked)
            }
            Event::Ended(exit) => {
                self.recorded.exit = Some(exit);
                self.is_running = false;
                Ok(())
            }
            Event::Failed(error) => Err(error),
        }
    }

    /// Begins the recording with the program that was started.
    fn begin(&mut self, pid: i32) {
        self.followed = Some(pid);
        self.began_ns = self.clock.now_ns();
        self.last_look_ns = self.began_ns;
        self.due_ns = self.began_ns.saturating_add(every_ns(self.options));
        if self.options.children {
            self.volumes.name_process(pid, name_of(pid));
        }
    }

    /// The time at which to end at the latest, nanoseconds.
    fn end_ns(&self) -> u64 {
        let length = self.options.length.map(|length| length.as_nanos());
        let length_ns = length.and_then(|ns| u64::try_from(ns).ok()).unwrap_or(u64::MAX);
        self.began_ns.saturating_add(length_ns)
    }

    /// Begins to record a program's memory.
    fn add(&mut self, mut space: Space, first: First) -> Result<(), RecordError> {
        if first == First::Baseline {
            space.look(&mut |_, _| {})?;
            self.recorded.looks += 1;
            self.spaces.push(space);
            return Ok(());
        }
        // What this process was before is gone.
        self.spaces.retain(|old| old.pid != space.pid);
        self.spaces.push(space);
        self.look()
    }

    /// Looks at all that is recorded, at one time.
    fn look(&mut self) -> Result<(), RecordError> {
        let began_ns = self.clock.now_ns();
        let time_ns = began_ns - self.began_ns;
        self.records.clear();
        let Self { volumes, records, recorded, .. } = self;
        let mut gone = Vec::new();
        let mut refused = 0;
        let mut failed = None;
        self.spaces.retain_mut(|space| {
            let pid = space.pid;
            let looked = space.look(&mut |area, run| {
                let (volume, shift) = volumes.place(pid, area);
                let len_bytes = run.end - run.start;
                for from in (run.start..run.end).step_by(RECORD_BYTES as usize) {
                    let len_bytes = RECORD_BYTES.min(run.end - from);
                    let (offset_bytes, op) = (from.wrapping_add(shift), Op::Write);
                    records.push(Record { time_ns, offset_bytes, len_bytes, volume, op });
                }
                recorded.page_writes += len_bytes / PAGE_BYTES;
                if run.is_huge() {
                    recorded.huge_page_writes += len_bytes / PAGE_BYTES;
                }
            });
            match looked {
                Ok(Look::There) => return true,
                Ok(Look::Gone) => {}
                Err(error) => failed = Some(error),
            }
            refused += space.refused() as u64;
            gone.push(pid);
            false
        });
        recorded.refused_mappings += refused;
        if let Some(error) = failed {
            return Err(error);
        }
        recorded.looks += 1;
        recorded.records += records.len() as u64;
        let since_ns = began_ns - self.last_look_ns;
        self.last_look_ns = began_ns;
        recorded.longest_ns = recorded.longest_ns.max(since_ns);
        let unseen = gone.iter().filter(|pid| Some(**pid) != self.followed).count() as u64;
        recorded.unseen_ends += unseen;
        recorded.unseen_ns = recorded.unseen_ns.max(if unseen > 0 { since_ns } else { 0 });
        let every_ns = every_ns(self.options);
        let looks = Looks { every_ns, longest_ns: recorded.longest_ns };
        (self.sink)(volumes.names(), records, looks).map_err(RecordError::Sink)?;
        recorded.looking_ns += self.clock.now_ns() - began_ns;
        self.follow_execs(&gone)
    }

    /// Processes whose memory is gone and that live on have become another program.
    fn follow_execs(&mut self, pids: &[i32]) -> Result<(), RecordError> {
        for pid in pids.iter().filter(|pid| is_alive(**pid)) {
            // One that we started says itself what it becomes, and cannot be traced twice.
            match attach(*pid) {
                Ok(space) => {
                    self.recorded.execs += 1;
                    // Pages of a new program are there because it wrote them.
                    self.add(space, First::Counts)?;
                }
                Err(RecordError::NoProcess { .. } | RecordError::Refused { .. }) => {}
                Err(error) if self.spaces.is_empty() => return Err(error),
                Err(_) => self.recorded.children_failed += 1,
            }
        }
        Ok(())
    }

    /// Finds children, now or where the last search is long enough ago.
    fn find_children(&mut self, now: bool) -> Result<(), RecordError> {
        let now_ns = self.clock.now_ns();
        let is_due =
            now || self.children_sought_ns.is_none_or(|last| now_ns - last >= CHILDREN_EVERY_NS);
        if !is_due {
            return Ok(());
        }
        self.children_sought_ns = Some(now_ns);
        let mut found: Vec<i32> =
            self.spaces.iter().flat_map(|space| children_of(space.pid)).collect();
        // Also those of a child that was found just now.
        while let Some(pid) = found.pop() {
            if !self.children.insert(pid) || self.spaces.iter().any(|space| space.pid == pid) {
                continue;
            }
            if !self.options.children {
                self.recorded.children_left_out += 1;
                continue;
            }
            match attach(pid) {
                Ok(space) => {
                    self.volumes.name_process(pid, name_of(pid));
                    // It has its parent's pages, which it did not write.
                    self.add(space, First::Baseline)?;
                    found.extend(children_of(pid));
                }
                Err(RecordError::NoProcess { .. }) => {}
                Err(_) => self.recorded.children_failed += 1,
            }
        }
        Ok(())
    }
}

/// The time between looks that was asked for, nanoseconds.
fn every_ns(options: &RecordOptions) -> u64 {
    u64::try_from(options.every.as_nanos()).unwrap_or(u64::MAX).max(1)
}

/// The meaning of the pages that have memory at the first look at a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    /// The pages were written before the recording and are left out.
    Baseline,
    /// The pages were written by the program, which has only begun.
    Counts,
}
