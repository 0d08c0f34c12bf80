//! A queue under one lock, a device under another, and submitters that sleep until their interrupt.
//!
//! A request has a *ticket*. With an elevator it always passes through the queue; without one, only
//! if no tag is free. Order of locks: queue, then driver. The interrupt handler takes only the
//! driver's lock, completes the commands that are due, releases the lock, and runs the queue. So a
//! request that found no tag is seen by the thread that frees one: the request went into the queue
//! under the queue's lock, and the queue is run under that lock after tags are freed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};

use parking_lot::{Condvar, Mutex, MutexGuard};
use perdura_media::DeviceError;

use super::elevator::{Command, Elevator, Waiting};
use super::parts::{Part, Probe, Silent};
use super::{Hardware, PathSettings, PlantedPath, Transfer};

#[derive(Debug)]
pub(super) struct Locked {
    queue: Mutex<Queue>,
    driver: Mutex<Device>,
    tickets: Box<[Ticket]>,
    /// Signalled when a ticket is given back.
    given: Condvar,
    expiry_ps: u64,
    planted: PlantedPath,
}

#[derive(Debug)]
struct Queue {
    free_tickets: Vec<usize>,
    waiting: Order,
    /// Threads that sleep while no command has their request, by ticket.
    sleepers: Box<[Option<Thread>]>,
    /// Requests that wait for a ticket.
    without_ticket: usize,
}

/// The order in which requests leave the queue.
#[derive(Debug)]
enum Order {
    Sweep(Elevator),
    Arrival(VecDeque<Waiting>),
}

/// The tags and commands of the device.
#[derive(Debug)]
struct Device {
    /// Free tags, one bit each.
    free: u64,
    /// Tags of commands under way, one bit each.
    in_flight: u64,
    commands: Box<[InFlight]>,
}

#[derive(Debug, Default)]
struct InFlight {
    due_ps: u64,
    tickets: Vec<usize>,
}

/// The state that a submitter reads while it waits.
#[derive(Debug, Default)]
struct Ticket {
    /// Instant at which the request's command is due, or [`QUEUED`] while it has no command.
    due_ps: AtomicU64,
    is_done: AtomicBool,
}

/// Marks a request that has no command yet.
const QUEUED: u64 = u64::MAX;

impl Locked {
    pub(super) fn new(settings: &PathSettings, sweeps: bool) -> Self {
        let &PathSettings { tags, requests, merge_bytes_max, planted, .. } = settings;
        let waiting = match sweeps {
            true => Order::Sweep(Elevator::new(requests, merge_bytes_max, planted)),
            false => Order::Arrival(VecDeque::with_capacity(requests)),
        };
        let command = || InFlight { due_ps: 0, tickets: Vec::with_capacity(requests) };
        Self {
            queue: Mutex::new(Queue {
                free_tickets: (0..requests).rev().collect(),
                waiting,
                sleepers: (0..requests).map(|_| None).collect(),
                without_ticket: 0,
            }),
            driver: Mutex::new(Device {
                free: u64::MAX >> (u64::BITS as usize - tags),
                in_flight: 0,
                commands: (0..tags).map(|_| command()).collect(),
            }),
            tickets: (0..requests).map(|_| Ticket::default()).collect(),
            given: Condvar::new(),
            expiry_ps: settings.expiry.as_nanos().try_into().unwrap_or(u64::MAX / 4000) * 1000,
            planted,
        }
    }

    pub(super) fn submit<H: Hardware>(
        &self,
        hardware: &H,
        offset_bytes: u64,
        mut transfer: Transfer<'_>,
        probe: &mut impl Probe,
    ) -> Result<(), DeviceError> {
        let ticket = self.enter(hardware, offset_bytes, &transfer, probe);
        let due_ps = self.issued(ticket, hardware, probe);
        let copied = transfer.copy(hardware, offset_bytes);
        probe.mark_from(due_ps, Part::Copy, hardware);
        if self.planted != PlantedPath::ReturnWhenCopied {
            hardware.sleep_until(due_ps);
        }
        probe.mark_from(due_ps, Part::Wakeup, hardware);
        self.interrupt(ticket, hardware);
        probe.mark(Part::Completion, hardware);
        self.leave(ticket, hardware);
        copied
    }

    /// Takes a ticket for a request, and puts the request into the queue or issues it.
    fn enter<H: Hardware>(
        &self,
        hardware: &H,
        offset_bytes: u64,
        transfer: &Transfer<'_>,
        probe: &mut impl Probe,
    ) -> usize {
        probe.mark(Part::Entry, hardware);
        let mut queue = self.queue.lock();
        probe.mark(Part::Queue, hardware);
        let ticket = self.ticket(&mut queue);
        self.tickets[ticket].due_ps.store(QUEUED, Ordering::Relaxed);
        self.tickets[ticket].is_done.store(false, Ordering::Relaxed);
        let request = Waiting {
            access: transfer.access(),
            offset_bytes,
            len_bytes: transfer.len_bytes() as u64,
            expires_ps: 0,
            ticket,
        };
        probe.mark(Part::Entry, hardware);
        match &mut queue.waiting {
            Order::Sweep(elevator) => {
                let expires_ps = hardware.now_ps().saturating_add(self.expiry_ps);
                elevator.insert(Waiting { expires_ps, ..request });
                probe.mark(Part::Scheduler, hardware);
            }
            Order::Arrival(waiting) => waiting.push_back(request),
        }
        self.run(&mut queue, hardware, probe);
        if self.tickets[ticket].due_ps.load(Ordering::Relaxed) == QUEUED {
            // Entered before the lock is released, so that the thread which issues it later can
            // wake this one.
            queue.sleepers[ticket] = Some(thread::current());
        }
        drop(queue);
        probe.mark(Part::Queue, hardware);
        ticket
    }

    fn ticket(&self, queue: &mut MutexGuard<'_, Queue>) -> usize {
        loop {
            if let Some(ticket) = queue.free_tickets.pop() {
                return ticket;
            }
            queue.without_ticket += 1;
            self.given.wait(queue);
            queue.without_ticket -= 1;
        }
    }

    /// Issues waiting requests while the device has free tags.
    fn run<H: Hardware>(&self, queue: &mut Queue, hardware: &H, probe: &mut impl Probe) {
        while !queue.waiting.is_empty() {
            let mut device = self.driver.lock();
            probe.mark(Part::Queue, hardware);
            if device.free == 0 {
                return;
            }
            let tag = device.free.trailing_zeros() as usize;
            let bit = 1u64 << tag;
            let Device { free, in_flight, commands } = &mut *device;
            let InFlight { due_ps, tickets } = &mut commands[tag];
            let Some(command) = queue.waiting.take(hardware, tickets, probe) else { return };
            if self.planted != PlantedPath::FreeTagAtIssue {
                *free &= !bit;
            }
            *in_flight |= bit;
            let Command { access, offset_bytes, len_bytes } = command;
            *due_ps = hardware.issue(tag, access, offset_bytes, len_bytes);
            for ticket in tickets {
                self.tickets[*ticket].due_ps.store(*due_ps, Ordering::Release);
                if let Some(sleeper) = queue.sleepers[*ticket].take() {
                    sleeper.unpark();
                }
            }
            probe.mark(Part::Issue, hardware);
        }
    }

    /// Waits until the request has a command, and returns the instant at which that is due.
    fn issued<H: Hardware>(&self, ticket: usize, hardware: &H, probe: &mut impl Probe) -> u64 {
        let due_ps = &self.tickets[ticket].due_ps;
        let mut found_ps = due_ps.load(Ordering::Acquire);
        if found_ps == QUEUED {
            while found_ps == QUEUED {
                // Parking may end without a cause, and ends at once if the wake-up came before it.
                thread::park();
                found_ps = due_ps.load(Ordering::Acquire);
            }
            probe.mark(Part::Queue, hardware);
        }
        found_ps
    }

    /// The interrupt handler: completes all commands that are due, and gives their tags to waiting
    /// requests.
    fn interrupt<H: Hardware>(&self, ticket: usize, hardware: &H) {
        if self.tickets[ticket].is_done.load(Ordering::Acquire) {
            // Another thread's handler has completed this command.
            return;
        }
        let mut device = self.driver.lock();
        let now_ps = hardware.now_ps();
        let Device { free, in_flight, commands } = &mut *device;
        let mut left = *in_flight;
        while left != 0 {
            let tag = left.trailing_zeros() as usize;
            left &= left - 1;
            if commands[tag].due_ps > now_ps && self.planted != PlantedPath::ReturnWhenCopied {
                continue;
            }
            *in_flight &= !(1 << tag);
            *free |= 1 << tag;
            for ticket in &commands[tag].tickets {
                self.tickets[*ticket].is_done.store(true, Ordering::Release);
            }
        }
    }

    /// Gives the ticket back, and runs the queue for requests that can have the free tag.
    fn leave<H: Hardware>(&self, ticket: usize, hardware: &H) {
        let mut queue = self.queue.lock();
        queue.free_tickets.push(ticket);
        self.run(&mut queue, hardware, &mut Silent);
        if queue.without_ticket > 0 {
            self.given.notify_one();
        }
    }
}

impl Order {
    fn is_empty(&self) -> bool {
        match self {
            Self::Sweep(elevator) => elevator.is_empty(),
            Self::Arrival(waiting) => waiting.is_empty(),
        }
    }

    fn take<H: Hardware>(
        &mut self,
        hardware: &H,
        tickets: &mut Vec<usize>,
        probe: &mut impl Probe,
    ) -> Option<Command> {
        match self {
            Self::Sweep(elevator) => {
                let command = elevator.take(hardware.now_ps(), tickets);
                probe.mark(Part::Scheduler, hardware);
                command
            }
            Self::Arrival(waiting) => {
                let Waiting { access, offset_bytes, len_bytes, ticket, .. } =
                    waiting.pop_front()?;
                tickets.clear();
                tickets.push(ticket);
                Some(Command { access, offset_bytes, len_bytes })
            }
        }
    }
}
