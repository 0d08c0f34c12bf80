//! Simulates a benchmark on a server whose tables are known, with the limits of its processor and
//! its modules.
//!
//! Events happen in the order of their instants, so modules and channels take lines in the order of
//! arrival. A thread whose accesses are independent asks for the next ones as fast as its lines in
//! flight allow (`plain`); one whose accesses depend on each other goes as far ahead as the core's
//! window reaches (`window`). Threads that share a core have half of its limits each.
//!
//! Not simulated: NUMA, caches beyond the last access of a chain, address translation, and how
//! threads of a core disturb each other's caches.

mod lines;
mod machine;
mod plain;
mod window;

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use perdura_media::System;
use perdura_media::profile::Server;

use super::part::Part;
use machine::Machine;
use plain::Plain;
use window::Window;

/// An event of a thread at an instant.
#[derive(Debug, Clone, Copy)]
struct Event {
    at_ns: f64,
    thread: usize,
    what: What,
}

/// Kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// The thread may go on.
    Next,
    /// The item begins that the thread keeps under this number.
    Begin(u64),
}

/// Events to come, the earliest first.
#[derive(Default)]
struct Events(BinaryHeap<Reverse<Event>>);

/// One thread of any part.
struct Thread {
    part: usize,
    /// Number of the thread within its part.
    number: usize,
    core: Core,
    kind: Kind,
}

/// A thread's share of its core.
#[derive(Debug, Clone, Copy)]
struct Core {
    /// 1 for a thread alone on its core, 0.5 beside another.
    share: f64,
}

enum Kind {
    Plain(Plain),
    Window(Window),
}

/// Runs parts to their ends; returns the energy of the modules, joules.
pub(super) fn run(system: &System, server: &Server, parts: &mut [Part<'_>]) -> f64 {
    let mut machine = Machine::new(system, server);
    let mut events = Events::default();
    let mut threads = threads_of(server, parts);
    for (thread, own) in threads.iter().enumerate() {
        let strands = match &own.kind {
            Kind::Plain(plain) => plain.strands(server, parts[own.part].config()),
            Kind::Window(_) => 1,
        };
        // Threads begin a nanosecond apart, because real threads are never exactly in step.
        (0..strands).for_each(|_| events.push(own.number as f64, thread, What::Next));
    }
    // When one part is cut short, all end: figures of the others alone would not be those of
    // running together.
    let (mut end_ns, mut last_ns) = (f64::MAX, 0.0_f64);
    while let Some(Event { at_ns, thread, what }) = events.pop() {
        let Thread { part, number, core, kind } = &mut threads[thread];
        let own = &mut parts[*part];
        let mut turn = Turn {
            now_ns: at_ns,
            end_ns,
            thread,
            number: *number,
            core: *core,
            machine: &mut machine,
            events: &mut events,
        };
        match kind {
            Kind::Plain(plain) => plain.turn(&mut turn, own, what),
            Kind::Window(window) => window.turn(&mut turn, own, what),
        }
        last_ns = last_ns.max(at_ns);
        if own.is_cut() {
            end_ns = end_ns.min(at_ns);
        }
    }
    machine.joules(system, last_ns)
}

/// The state that a thread may use during its event.
struct Turn<'r, 's> {
    now_ns: f64,
    /// No operation begins after this instant.
    end_ns: f64,
    thread: usize,
    number: usize,
    core: Core,
    machine: &'r mut Machine<'s>,
    events: &'r mut Events,
}

impl Turn<'_, '_> {
    fn then(&mut self, at_ns: f64, what: What) {
        self.events.push(at_ns.max(self.now_ns), self.thread, what);
    }
}

fn threads_of(server: &Server, parts: &[Part<'_>]) -> Vec<Thread> {
    let all: u64 = parts.iter().map(|part| part.threads() as u64).sum();
    let cores = server.processor.cores;
    // At most two threads share a core: those beyond the number of cores, and as many that they
    // join.
    let sharing = (2 * all.saturating_sub(cores)).min(all);
    let mut threads = Vec::new();
    for (part, own) in parts.iter().enumerate() {
        for number in 0..own.threads() {
            // Spread evenly over all parts.
            let nth = threads.len() as u64;
            let shares = nth * sharing / all != (nth + 1) * sharing / all;
            let core = Core { share: if shares { 0.5 } else { 1.0 } };
            let kind = match own.config().custom_operations {
                Some(_) => Kind::Window(Window::new(nth)),
                None => Kind::Plain(Plain::default()),
            };
            threads.push(Thread { part, number, core, kind });
        }
    }
    threads
}

impl Events {
    fn push(&mut self, at_ns: f64, thread: usize, what: What) {
        self.0.push(Reverse(Event { at_ns, thread, what }));
    }

    fn pop(&mut self) -> Option<Event> {
        self.0.pop().map(|Reverse(event)| event)
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_time = self.at_ns.total_cmp(&other.at_ns);
        by_time.then((self.thread, self.what).cmp(&(other.thread, other.what)))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

/// Nanoseconds as picoseconds, the unit of a part's accounts.
fn ps(ns: f64) -> u64 {
    (ns * 1e3) as u64
}

#[cfg(test)]
mod tests;
