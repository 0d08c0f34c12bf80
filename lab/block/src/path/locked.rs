//! A queue under a lock, a device under another, and submitters that sleep until their interrupt.
//!
//! A request is a *ticket*; with an elevator it always passes through it, without one only where no
//! tag is free. Order of locks: queue, then driver. The interrupt handler takes the driver's lock
//! alone, completes what is due, lets go, and runs the queue. So a request that found no tag is
//! seen by whoever frees one: it went into the queue under the queue's lock, and tags are freed
//! before the queue is run under that lock.

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
    /// Somebody gave a ticket back.
    given: Condvar,
    expiry_ps: u64,
    planted: PlantedPath,
}

#[derive(Debug)]
struct Queue {
    free_tickets: Vec<usize>,
    waiting: Order,
    /// Who sleeps though no command has their request yet, by ticket.
    sleepers: Box<[Option<Thread>]>,
    /// Requests that wait for a ticket.
    without_ticket: usize,
}

/// In which order requests leave the queue.
#[derive(Debug)]
enum Order {
    Sweep(Elevator),
    Arrival(VecDeque<Waiting>),
}

/// What the device does.
#[derive(Debug)]
struct Device {
    /// A bit a tag.
    free: u64,
    /// A bit a tag.
    in_flight: u64,
    commands: Box<[InFlight]>,
}

#[derive(Debug, Default)]
struct InFlight {
    due_ps: u64,
    tickets: Vec<usize>,
}

/// What a submitter looks at while it waits.
#[derive(Debug, Default)]
struct Ticket {
    /// When the command with this request is due; [`QUEUED`]: there is none yet.
    due_ps: AtomicU64,
    is_done: AtomicBool,
}

/// No instant.
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

    /// A ticket for a request, which is in the queue or at the device when this returns.
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
            // Before the lock is let go: who issues it later finds whom to wake.
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

    /// Gives waiting requests to the device while it has tags.
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

    /// When the command with this request is due, once it has one.
    fn issued<H: Hardware>(&self, ticket: usize, hardware: &H, probe: &mut impl Probe) -> u64 {
        let due_ps = &self.tickets[ticket].due_ps;
        let mut found_ps = due_ps.load(Ordering::Acquire);
        if found_ps == QUEUED {
            while found_ps == QUEUED {
                // Also returns without a reason; and at once where it was woken before it slept.
                thread::park();
                found_ps = due_ps.load(Ordering::Acquire);
            }
            probe.mark(Part::Queue, hardware);
        }
        found_ps
    }

    /// The handler: completes all that is due, gives its tags to who waits for one.
    fn interrupt<H: Hardware>(&self, ticket: usize, hardware: &H) {
        if self.tickets[ticket].is_done.load(Ordering::Acquire) {
            // Another one's handler has been here.
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

    /// Gives the ticket back, and runs the queue for those whose tag has come free.
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
