//! The one loop of a process that holds memory: a holder, which has one region, or a guard, which
//! has many.
//!
//! - The loop never waits for one peer or one device: peers are polled, and flushes have threads.
//! - A broken link is noted before anything else that has happened meanwhile.
//! - Memory whose server is gone is flushed as soon as the power is low. Servers that are linked
//!   have heard the same warning, and save by themselves until the end.
//! - The loop never writes to a region's memory.

mod arrivals;
mod drill;

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use drill::Drill;
use perdura_media::Clock;
use perdura_region::holder::socket;
use perdura_region::holder::wire::{ImageFile, Message, receive, send_now};
use perdura_warning::{Reading, State as Power, Warnings};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::emergency::{Flushes, Outcome};
use crate::error::{HoldError, failed};
use crate::foreign::Closings;
use crate::held::{Held, State};
use crate::neighbours::Neighbours;
use crate::parent::ToParent;
use crate::readings;
use crate::tenancy::Tenancy;
use crate::visitor::Visitors;

/// Time between two looks at memory without a server: whether its wait is over, and whether the
/// image still has a name. A guard shows its parent as often that it is alive.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time between two looks at a server that is to flush, or at a visitor that has said nothing.
const WATCH_EVERY: Duration = Duration::from_millis(50);

/// The longest grace of a server that a guard without a battery believes.
const GRACE_MAX: Duration = Duration::from_secs(600);

/// What the process is for.
pub(crate) enum Role {
    /// It holds the region of one server, and ends when that is on the SSD.
    Holder,
    /// It holds the regions of all servers that ask, and ends when the power does.
    Guard {
        /// Most regions at a time.
        regions_max: usize,
        /// Most regions of one user at a time.
        regions_of_one_max: usize,
        /// The process that keeps the descriptors for the next guard.
        parent: ToParent,
        /// The battery that the servers share.
        tenancy: Option<Box<Tenancy>>,
    },
}

/// The event that woke the loop.
#[derive(Debug, Clone, Copy)]
enum Event {
    Link(ImageFile),
    FlushEnded,
    Warning,
    Visitor(u64),
    Listener,
    ParentGone,
}

/// A process that holds memory.
pub(crate) struct Holding {
    pub role: Role,
    /// Where servers and operators connect.
    pub listener: OwnedFd,
    /// Path of the listener, if it is to be removed at the end.
    pub socket: Option<PathBuf>,
    pub warnings: Warnings,
    /// What the sources said last.
    pub told: Option<Reading>,
    pub clock: Arc<dyn Clock>,
    pub flushes: Flushes,
    pub held: Vec<Held>,
    pub visitors: Visitors,
    pub neighbours: Neighbours,
    /// Descriptors that are being closed.
    pub closings: Closings,
    pub drill: Option<Drill>,
    /// What the process ends with, if memory was given up.
    pub given_up: Option<HoldError>,
}

impl Holding {
    /// Holds until there is nothing to hold any more.
    pub(crate) fn run(mut self) -> Result<(), HoldError> {
        self.heed_warnings();
        while !self.is_over() {
            self.turn()?;
        }
        self.remove_socket();
        self.given_up.map_or(Ok(()), Err)
    }

    fn remove_socket(&mut self) {
        if let Some(Err(error)) = self.socket.take().map(|path| socket::remove(&path)) {
            tracing::warn!(%error, "the socket stays");
        }
    }

    fn is_over(&self) -> bool {
        self.held.is_empty()
            && match self.role {
                Role::Holder => true,
                Role::Guard { .. } => self.power() == Power::Ending,
            }
    }

    /// Waits for events and handles them.
    pub(crate) fn turn(&mut self) -> Result<(), HoldError> {
        for event in self.wait()? {
            match event {
                Event::Link(name) => self.hear_server(name),
                Event::FlushEnded => self.end_flushes(),
                Event::Warning => self.heed_warnings(),
                Event::Visitor(number) => {
                    if let Some(visitor) = self.visitors.take(number) {
                        self.meet(visitor);
                    }
                }
                Event::Listener => self.admit(),
                Event::ParentGone => self.lose_parent(),
            }
        }
        self.look_after();
        Ok(())
    }

    /// The events that have happened, in order of importance.
    fn wait(&self) -> Result<Vec<Event>, HoldError> {
        let links = self
            .held
            .iter()
            .filter_map(|held| held.link().map(|link| (link.as_fd(), Event::Link(held.name))));
        let flushes = [(self.flushes.descriptor(), Event::FlushEnded)];
        let warnings = self.warnings.descriptors().map(|fd| (fd, Event::Warning));
        let visitors =
            self.visitors.sockets().map(|(fd, number)| (fd.as_fd(), Event::Visitor(number)));
        let listener = [(self.listener.as_fd(), Event::Listener)];
        let parent = match &self.role {
            Role::Guard { parent, .. } => parent.descriptor(),
            Role::Holder => None,
        };
        let parent = parent.map(|fd| (fd, Event::ParentGone));
        let watched: Vec<_> = links
            .chain(flushes)
            .chain(warnings)
            .chain(visitors)
            .chain(listener)
            .chain(parent)
            .collect();
        let readable = |(fd, _): &(_, _)| PollFd::from_borrowed_fd(*fd, PollFlags::IN);
        let mut fds: Vec<_> = watched.iter().map(readable).collect();
        let timeout = self.looks_in().map(|time| Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        match poll(&mut fds, timeout.as_ref()) {
            Err(Errno::INTR) => return Ok(Vec::new()),
            outcome => outcome.map_err(failed("poll"))?,
        };
        let events = fds.iter().zip(&watched).filter(|(fd, _)| !fd.revents().is_empty());
        Ok(events.map(|(_, (_, event))| *event).collect())
    }

    /// Time until the next look at what makes no event.
    fn looks_in(&self) -> Option<Duration> {
        if !self.visitors.are_none() || self.held.iter().any(Held::is_ending) {
            return Some(WATCH_EVERY);
        }
        if let Some(tenancy) = self.tenancy().filter(|_| !self.held.is_empty()) {
            return Some(tenancy.divide_every());
        }
        let is_guard = matches!(self.role, Role::Guard { .. });
        (is_guard || self.held.iter().any(Held::is_alone)).then_some(LOOK_EVERY)
    }

    /// Looks at what makes no event.
    fn look_after(&mut self) {
        let now_ns = self.clock.now_ns();
        self.visitors.expire(now_ns);
        let longest = self.longest_grace();
        for held in &mut self.held {
            held.lose_patience(longest, &*self.clock);
        }
        self.limit_drill(now_ns);
        self.drop_removed();
        let has_waited = |held: &mut Held| held.has_waited(now_ns).then_some(held.name);
        let waited: Vec<_> = self.held.iter_mut().filter_map(has_waited).collect();
        waited.into_iter().for_each(|name| self.flush(name, None));
        if self.power() >= Power::Low {
            self.flush_again(now_ns);
        }
        if let Role::Guard { parent, .. } = &mut self.role {
            parent.say_alive(now_ns);
        }
        self.divide();
        self.ask_for_short_queues(now_ns);
    }

    /// Asks regions for short queues while others on their device commit. With a warning only
    /// saving counts, so nobody is asked.
    fn ask_for_short_queues(&mut self, now_ns: u64) {
        let commits = |held: &Held| (held.name, held.attachment.group_commits());
        let regions: Vec<_> = self.held.iter().map(commits).collect();
        let asked = self.neighbours.look(&regions, now_ns);
        let is_steady = self.power() == Power::Steady;
        for held in &self.held {
            held.attachment.ask_for_short_queue(is_steady && asked.contains(&held.name));
        }
    }

    /// Flushes once more what could not be flushed a moment ago: the disk may have room by now.
    fn flush_again(&mut self, now_ns: u64) {
        let failed = self.held.iter().filter(|held| held.is_alone_for(LOOK_EVERY, now_ns));
        let names: Vec<_> = failed.map(|held| held.name).collect();
        names.into_iter().for_each(|name| self.flush(name, None));
    }

    fn tenancy(&self) -> Option<&Tenancy> {
        match &self.role {
            Role::Guard { tenancy, .. } => tenancy.as_deref(),
            Role::Holder => None,
        }
    }

    fn tenancy_mut(&mut self) -> Option<&mut Tenancy> {
        match &mut self.role {
            Role::Guard { tenancy, .. } => tenancy.as_deref_mut(),
            Role::Holder => None,
        }
    }

    /// The most time that a server's flush is believed to need at the end: what a tenant says of
    /// itself must not keep a guard from it.
    fn longest_grace(&self) -> Duration {
        match &self.role {
            Role::Holder => Duration::MAX,
            Role::Guard { tenancy, .. } => {
                tenancy.as_ref().map_or(GRACE_MAX, |tenancy| tenancy.grace())
            }
        }
    }

    /// What a region may have in force; without a battery, its own promise.
    fn share_us(&self, name: ImageFile) -> u64 {
        self.tenancy().map_or(u64::MAX, |tenancy| tenancy.granted_us(name))
    }

    /// Divides the battery anew, if it is time, and gives the orders.
    fn divide(&mut self) {
        let Role::Guard { tenancy: Some(tenancy), .. } = &mut self.role else { return };
        if let Some(told) = &self.told {
            tenancy.heed(told, self.clock.now_ns());
        }
        tenancy.follow(&*self.clock);
        for (name, order) in tenancy.divide(&self.held, &*self.clock) {
            // Before the server has more: the next guard must reckon with it.
            self.tell_parent(name);
            let link = self.find(name).and_then(|held| held.link());
            let share = Message::Share { serial: order.serial, share_us: order.share_us };
            if let Some(Err(error)) = link.map(|link| send_now(link, &share, &[])) {
                tracing::warn!(%error, "a server did not hear its share; it keeps the former one");
            }
        }
    }

    /// Lets go of memory without a server whose image was removed. A holder leaves its socket: a
    /// file with that name would be another's.
    fn drop_removed(&mut self) {
        let is_removed = |held: &Held| held.is_alone() && held.is_removed();
        let removed: Vec<_> =
            self.held.iter().filter(|held| is_removed(held)).map(|held| held.name).collect();
        for name in removed {
            if matches!(self.role, Role::Holder) {
                self.socket = None;
            }
            self.let_go(name);
        }
    }

    fn power(&self) -> Power {
        self.told.as_ref().map_or(Power::Steady, |told| told.state)
    }

    fn find(&mut self, name: ImageFile) -> Option<&mut Held> {
        self.held.iter_mut().find(|held| held.name == name)
    }

    /// Reads what a linked server says, or notes its end.
    fn hear_server(&mut self, name: ImageFile) {
        let Some(held) = self.find(name) else { return };
        let (owner, Some(said)) = (held.owner, held.link().map(receive)) else { return };
        let said = said.map(|said| {
            said.map(|(message, fds)| {
                let has_sent = !fds.is_empty();
                drop(self.closings.take(fds, owner));
                (message, has_sent)
            })
        });
        // A server that is linked has no descriptors to send.
        if matches!(said, Ok(Some((_, true)))) && !self.closings.are_few(owner) {
            return self.note_alone(name);
        }
        let said = said.map(|said| said.map(|(message, _)| message));
        match said {
            Ok(Some(Message::Goodbye)) => self.let_go(name),
            Ok(Some(Message::Kept { serial })) => {
                self.tenancy_mut().into_iter().for_each(|it| it.confirm(name, serial));
            }
            Ok(Some(said @ (Message::Drilled { .. } | Message::Failed { .. }))) => {
                self.note_drilled(name, said);
            }
            Ok(Some(Message::Claim { rate_bytes_per_s })) => {
                self.note_rate(name, rate_bytes_per_s);
            }
            Ok(Some(other)) => self.note_odd(name, &other),
            Ok(None) | Err(_) => self.note_alone(name),
        }
    }

    /// Notes what a server should not say. Once: it could fill the log.
    fn note_odd(&mut self, name: ImageFile, said: &Message) {
        let Some(held) = self.find(name) else { return };
        if !std::mem::replace(&mut held.is_odd, true) {
            tracing::warn!(pid = held.server.pid, ?said, "an unexpected message from a server");
        }
    }

    fn note_alone(&mut self, name: ImageFile) {
        let now_ns = self.clock.now_ns();
        if let Some(held) = self.find(name) {
            held.note_alone(now_ns);
        }
        if let Role::Guard { tenancy: Some(tenancy), .. } = &mut self.role {
            let held = self.held.iter().find(|held| held.name == name);
            held.into_iter().for_each(|held| tenancy.lose(held));
        }
        self.note_drilled(name, Message::Failed { why: "its server is gone".into() });
        self.tell_parent(name);
        if self.power() >= Power::Low {
            self.flush(name, None);
        }
    }

    /// Heeds what the sources of warnings say now, and passes it on.
    fn heed_warnings(&mut self) {
        let is_news = self.warnings.news().is_some();
        let reading = self.warnings.look().clone();
        let state = reading.state;
        if is_news || self.told.as_ref().is_some_and(|told| told.state != state) {
            tracing::warn!(state = state.word(), %reading, "a warning");
        }
        if self.told.as_ref() != Some(&reading) {
            let message = Message::Warning { reading: readings::encode(&reading) };
            self.told = Some(reading);
            if matches!(self.role, Role::Guard { .. }) {
                self.held.iter().for_each(|held| tell(held, &message));
            }
        } else if !is_news {
            return;
        }
        if state == Power::Ending {
            self.held.iter_mut().for_each(|held| held.expect_goodbye(&*self.clock));
        }
        if state >= Power::Low {
            let alone = self.held.iter().filter(|held| held.is_alone());
            let names: Vec<_> = alone.map(|held| held.name).collect();
            names.into_iter().for_each(|name| self.flush(name, None));
        }
    }

    /// Begins to flush memory without a server, which is let go when it is on the SSD.
    fn flush(&mut self, name: ImageFile, asked_by: Option<OwnedFd>) {
        let Some(at) = self.held.iter().position(|held| held.name == name && held.is_alone())
        else {
            return;
        };
        let is_ending = self.power() == Power::Ending;
        let held = &mut self.held[at];
        if is_ending && held.server.is_there() {
            // One that has closed its link, and would write beside the flush.
            held.server.end();
        }
        held.state = State::Flushing { asked_by };
        let (attachment, image) = (Arc::clone(&held.attachment), Arc::clone(&held.image));
        self.flushes.begin(name, held.server, attachment, image);
    }

    fn end_flushes(&mut self) {
        for (name, outcome) in self.flushes.take() {
            self.end_flush(name, outcome);
        }
    }

    fn end_flush(&mut self, name: ImageFile, outcome: Outcome) {
        let (now_ns, power) = (self.clock.now_ns(), self.power());
        let Some(held) = self.find(name) else { return };
        let State::Flushing { asked_by } = &mut held.state else { return };
        let visitor = asked_by.take();
        let answer = match outcome {
            Ok(flushed) => {
                self.let_go(name);
                flushed
            }
            Err(error) => {
                let is_end = power == Power::Ending;
                let error = match held.note_failure(&error, is_end, now_ns) {
                    false => error,
                    true => self.give_up(name, &error),
                };
                Message::Failed { why: error.to_string() }
            }
        };
        if let Some(visitor) = visitor {
            // One that has gone away gets no answer.
            let _ = send_now(&visitor, &answer, &[]);
        }
    }

    /// Gives memory up that nobody can flush. Returns the error to end with.
    fn give_up(&mut self, name: ImageFile, error: &HoldError) -> HoldError {
        let found = self.find(name).map(|held| (held.path(), held.attachment.used_bytes()));
        let (image, dirty_bytes) = found.unwrap_or_default();
        let given_up = || {
            let (image, why) = (image.clone(), error.to_string());
            HoldError::GivenUp { image, dirty_bytes, why }
        };
        tracing::error!("{}", given_up());
        if let Role::Guard { parent, .. } = &mut self.role {
            parent.send(&Message::Failed { why: given_up().to_string() }, &[]);
        }
        self.given_up = Some(given_up());
        self.let_go(name);
        given_up()
    }

    /// Lets memory go. Its link, if there is one, is closed last: that tells the server.
    fn let_go(&mut self, name: ImageFile) {
        let Some(at) = self.held.iter().position(|held| held.name == name) else { return };
        let held = self.held.swap_remove(at);
        if let Some(drill) = &mut self.drill {
            drill.awaited.retain(|awaited| *awaited != name);
        }
        self.end_drill();
        if let Role::Guard { parent, tenancy, .. } = &mut self.role {
            tracing::info!(image = %held.path(), "let go");
            tenancy.iter_mut().for_each(|tenancy| tenancy.leave(name));
            parent.send(&Message::Forget { image: name }, &[]);
        } else {
            // The server may start another holder as soon as the link is closed.
            self.remove_socket();
        }
        held.end();
    }

    /// Tells the parent what to keep of a region.
    fn tell_parent(&mut self, name: ImageFile) {
        let granted_us = self.share_us(name);
        let is_trusted = self.tenancy().is_none_or(|tenancy| tenancy.is_trusted(name));
        let Role::Guard { parent, .. } = &mut self.role else { return };
        let Some(held) = self.held.iter_mut().find(|held| held.name == name) else { return };
        let is_kept = std::mem::replace(&mut held.is_kept, true);
        let new = held.fds().into_iter().filter(|_| !is_kept);
        let fds: Vec<_> = new.chain(held.link().map(|link| link.as_fd())).collect();
        parent.send(&held.keep_message(granted_us, is_trusted), &fds);
    }

    fn lose_parent(&mut self) {
        let Role::Guard { parent, .. } = &mut self.role else { return };
        tracing::error!(
            "the guard's parent is gone: nothing is lost, but if this process ends, too, memory \
             that is not on the SSD is; restart the guard when you can"
        );
        parent.lose();
    }
}

/// Tells a linked server something, without waiting. A server that reads nothing hears nothing; at
/// the end it is ended.
fn tell(held: &Held, message: &Message) {
    let Some(link) = held.link() else { return };
    if let Err(error) = send_now(link, message, &[]) {
        tracing::warn!(%error, pid = held.server.pid, "the server did not hear a warning");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
mod tests;
