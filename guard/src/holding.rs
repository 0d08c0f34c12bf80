//! The one loop of a process that holds memory: a holder, which has one region, or a guard, which
//! has many.
//!
//! - The loop never waits for one peer or one device: peers are polled, and flushes have threads.
//! - A broken link is noted before anything else that has happened meanwhile.
//! - Memory whose server is gone is flushed as soon as the power is low. Servers that are linked
//!   have heard the same warning, and save by themselves until the end.
//! - The loop never writes to a region's memory.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use perdura_media::Clock;
use perdura_region::directory::{LeftInFiles, left_in_files};
use perdura_region::holder::wire::{ImageFile, Message, receive, send_now};
use perdura_region::holder::{Times, socket};
use perdura_warning::{Reading, State as Power, Warnings};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::emergency::{Flushes, Outcome};
use crate::error::{HoldError, failed};
use crate::held::{Held, State};
use crate::isolate;
use crate::parent::ToParent;
use crate::readings;
use crate::sys::{Peer, own_user};
use crate::tenancy::Tenancy;
use crate::visitor::{Visitor, Visitors};

/// Time between two looks at memory without a server: whether its wait is over, and whether the
/// image still has a name. A guard shows its parent as often that it is alive.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time between two looks at a server that is to flush, or at a visitor that has said nothing.
const WATCH_EVERY: Duration = Duration::from_millis(50);

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
    pub drill: Option<Drill>,
}

/// A drill that is under way.
pub(crate) struct Drill {
    /// Who asked for it.
    operator: OwnedFd,
    /// The regions whose servers have not answered yet.
    awaited: Vec<ImageFile>,
}

impl Holding {
    /// Holds until there is nothing to hold any more.
    pub(crate) fn run(mut self) -> Result<(), HoldError> {
        self.heed_warnings();
        while !self.is_over() {
            self.turn()?;
        }
        self.remove_socket();
        Ok(())
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
        for held in &mut self.held {
            held.lose_patience(&*self.clock);
        }
        self.drop_removed();
        let has_waited = |held: &mut Held| held.has_waited(now_ns).then_some(held.name);
        let waited: Vec<_> = self.held.iter_mut().filter_map(has_waited).collect();
        waited.into_iter().for_each(|name| self.flush(name, None));
        if let Role::Guard { parent, .. } = &mut self.role {
            parent.say_alive(now_ns);
        }
        self.divide();
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
        let said = match self.find(name).and_then(|held| held.link().map(receive)) {
            None => return,
            Some(said) => said,
        };
        match said {
            Ok(Some((Message::Goodbye, _))) => self.let_go(name),
            Ok(Some((Message::Kept { serial }, _))) => {
                self.tenancy_mut().into_iter().for_each(|it| it.confirm(name, serial));
            }
            Ok(Some((said @ (Message::Drilled { .. } | Message::Failed { .. }), _))) => {
                self.note_drilled(name, said);
            }
            Ok(Some((Message::Claim { rate_bytes_per_s }, _))) => {
                self.note_rate(name, rate_bytes_per_s);
            }
            Ok(Some((other, _))) => tracing::warn!(?other, "unexpected message from the server"),
            Ok(None) | Err(_) => self.note_alone(name),
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

    fn admit(&mut self) {
        let is_guard = matches!(self.role, Role::Guard { .. });
        let own = own_user();
        // The mode of a guard's socket says who may connect to it.
        let is_welcome = |peer: Peer| is_guard || peer.may_use(own);
        self.visitors.admit(&self.listener, self.clock.now_ns(), is_welcome);
    }

    /// Answers a visitor.
    fn meet(&mut self, visitor: Visitor) {
        let Ok(Some((message, fds))) = receive(&visitor.socket) else { return };
        self.drop_removed();
        let answer = match message {
            Message::Hold { times, rate_bytes_per_s }
                if matches!(self.role, Role::Guard { .. }) =>
            {
                match self.hold(&visitor, (times, rate_bytes_per_s), fds) {
                    Ok(name) => return self.welcome(name),
                    Err(answer) => answer,
                }
            }
            Message::TakeOver { times, image } => match self.check_use(image, visitor.peer) {
                Err(answer) => answer,
                Ok(()) => return self.hand_over(image, visitor, times),
            },
            Message::Look if matches!(self.role, Role::Guard { .. }) => {
                return self.describe(&visitor);
            }
            Message::Drill { fills } if matches!(self.role, Role::Guard { .. }) => {
                match self.begin_drill(&visitor, fills) {
                    Ok(()) => return self.end_drill(),
                    Err(why) => Message::Failed { why },
                }
            }
            Message::Flush { image } => match self.check_use(image, visitor.peer) {
                Err(answer) => answer,
                Ok(()) => return self.flush(image, Some(visitor.socket)),
            },
            other => Message::Failed { why: format!("not for one who holds memory: {other:?}") },
        };
        let _ = send_now(&visitor.socket, &answer, &[]);
    }

    /// Lets all servers flush at the same time, for real.
    fn begin_drill(&mut self, visitor: &Visitor, fills: bool) -> Result<(), String> {
        if !visitor.peer.may_use(own_user()) {
            return Err("a drill stops all servers for a moment: ask as the guard's user".into());
        }
        if self.drill.is_some() {
            return Err("a drill is under way".into());
        }
        if self.power() != Power::Steady {
            return Err("the power is not steady, so nothing is drilled".into());
        }
        let operator = visitor.socket.try_clone().map_err(|error| error.to_string())?;
        let hears = |held: &&Held| {
            held.link().is_some_and(|link| send_now(link, &Message::Drill { fills }, &[]).is_ok())
        };
        let awaited = self.held.iter().filter(hears).map(|held| held.name).collect();
        self.drill = Some(Drill { operator, awaited });
        Ok(())
    }

    /// Passes on how a drill went in one server.
    fn note_drilled(&mut self, name: ImageFile, said: Message) {
        let image = self.find(name).map(|held| held.path()).unwrap_or_default();
        let Some(drill) = &mut self.drill else { return };
        let Some(at) = drill.awaited.iter().position(|awaited| *awaited == name) else { return };
        drill.awaited.swap_remove(at);
        let said = match said {
            Message::Drilled { used_bytes, budget_bytes, device_bytes, elapsed_ns, .. } => {
                Message::Drilled { used_bytes, budget_bytes, device_bytes, elapsed_ns, image }
            }
            Message::Failed { why } => Message::NotDrilled { why: format!("{image}: {why}") },
            other => other,
        };
        // An operator that has gone away gets no answer.
        let _ = send_now(&drill.operator, &said, &[]);
        self.end_drill();
    }

    /// Ends a drill that all servers have answered.
    fn end_drill(&mut self) {
        if let Some(drill) = self.drill.take_if(|drill| drill.awaited.is_empty()) {
            let _ = send_now(&drill.operator, &Message::Ready, &[]);
        }
    }

    /// Tells a visitor what is held of its user, all to root, and what the power is like.
    fn describe(&self, visitor: &Visitor) {
        let seen = self.held.iter().filter(|held| visitor.peer.may_use(held.owner));
        let power =
            self.told.iter().map(|told| Message::Warning { reading: readings::encode(told) });
        let battery = self.tenancy().map(|tenancy| tenancy.describe(&self.held));
        let seen = seen.map(|held| held.describe(self.share_us(held.name)));
        for message in power.chain(battery).chain(seen).chain([Message::Ready]) {
            if send_now(&visitor.socket, &message, &[]).is_err() {
                return;
            }
        }
    }

    /// Why a peer may not have the memory of an image now, if it may not.
    fn check_use(&self, name: ImageFile, peer: Peer) -> Result<(), Message> {
        let Some(held) = self.held.iter().find(|held| held.name == name) else {
            return Err(self.not_held());
        };
        if !peer.may_use(held.owner) {
            let why = format!("this memory is another user's: of user id {}", held.owner);
            return Err(Message::Failed { why });
        }
        match &held.state {
            State::Linked { .. } => Err(Message::Busy { pid: held.pid }),
            State::Flushing { .. } => Err(held.wait_message()),
            State::Alone { .. } => Ok(()),
        }
    }

    /// What to say of an image whose memory is not held. A server that runs keeps others out of its
    /// directory, even if its image was removed or replaced; only a holder knows the directory.
    fn not_held(&self) -> Message {
        match (&self.role, self.held.first()) {
            (Role::Holder, Some(held)) if held.link().is_some() => Message::Busy { pid: held.pid },
            _ => Message::NotHeld,
        }
    }

    /// Makes a visitor the server of memory that is held.
    fn hand_over(&mut self, name: ImageFile, visitor: Visitor, times: Times) {
        let Some(held) = self.find(name) else { return };
        let server = visitor.socket.try_clone();
        held.times = times;
        (held.pid, held.is_open) = (visitor.peer.pid, false);
        held.state = State::Linked { link: visitor.socket, ending: None };
        self.settle(name);
        // Before the server can write: the next guard must know that the memory has a server.
        self.tell_parent(name);
        let Some(held) = self.find(name) else { return };
        let answer = Message::Held { used_bytes: held.attachment.used_bytes() };
        let sent = server.and_then(|server| send_now(&server, &answer, &held.fds()));
        match sent {
            Ok(()) => {
                self.tell_power(name);
                self.tell_promise(name);
            }
            Err(_) => self.note_alone(name),
        }
    }

    /// Takes memory from a visitor, which is linked from then on.
    fn hold(
        &mut self,
        visitor: &Visitor,
        terms: (Times, u64),
        fds: Vec<OwnedFd>,
    ) -> Result<ImageFile, Message> {
        let failed = |why: String| Message::Failed { why };
        let Role::Guard { regions_max, regions_of_one_max, .. } = self.role else {
            return Err(failed("a holder has one region".into()));
        };
        if self.power() == Power::Ending {
            return Err(failed("the power is ending, so no more memory is held".into()));
        }
        let fds = <[OwnedFd; 3]>::try_from(fds)
            .map_err(|fds| failed(format!("{} descriptors came, expected 3", fds.len())))?;
        let link = visitor.socket.try_clone().map_err(|error| failed(error.to_string()))?;
        let state = State::Linked { link, ending: None };
        let Peer { user, pid } = visitor.peer;
        let name = ImageFile::of(&fds[2]).map_err(|error| failed(error.to_string()))?;
        if let Some(held) = self.find(name) {
            // Its own server comes back after it has lost the link.
            if !(held.is_alone() && held.owner == user && held.has_memory(&fds[0])) {
                let pid = held.pid;
                return Err(failed(format!(
                    "other memory of this image is held, of process {pid}"
                )));
            }
            (held.times, held.rate_bytes_per_s) = terms;
            (held.pid, held.is_open, held.state) = (pid, true, state);
            self.settle(name);
            return Ok(name);
        }
        let of_one = self.held.iter().filter(|held| held.owner == user).count();
        if self.held.len() >= regions_max || (user != 0 && of_one >= regions_of_one_max) {
            return Err(failed(format!(
                "{} regions are held, {of_one} of them of user id {user}; at most {regions_max} \
                 are, and {regions_of_one_max} of one user",
                self.held.len()
            )));
        }
        let held = Held::new(fds, user, terms, pid, state);
        let held = held.map_err(|error| failed(error.to_string()))?;
        if let Some(tenancy) = self.tenancy_mut() {
            tenancy.admit(&held)?;
        }
        tracing::info!(
            image = %held.path(),
            pid,
            user,
            locked = %isolate::lock(&held.attachment),
            "holding memory"
        );
        self.held.push(held);
        Ok(name)
    }

    /// Notes the flush rate that a server has proven for the region that it took over.
    fn note_rate(&mut self, name: ImageFile, rate_bytes_per_s: u64) {
        if let Some(held) = self.find(name) {
            (held.rate_bytes_per_s, held.is_open) = (rate_bytes_per_s, true);
        }
        self.settle(name);
        self.tell_parent(name);
    }

    /// Reckons with a region that has a server.
    fn settle(&mut self, name: ImageFile) {
        if let Role::Guard { tenancy: Some(tenancy), .. } = &mut self.role {
            let held = self.held.iter().find(|held| held.name == name);
            held.into_iter().for_each(|held| tenancy.settle(held, 0));
        }
    }

    /// Tells a server that its own promise counts, where no battery is shared.
    fn tell_promise(&mut self, name: ImageFile) {
        if self.tenancy().is_none()
            && let Some(held) = self.find(name)
        {
            tell(held, &Message::Share { serial: 0, share_us: u64::MAX });
        }
    }

    /// Tells a server that its memory is held, after the parent knows it.
    fn welcome(&mut self, name: ImageFile) {
        self.tell_parent(name);
        let Some(held) = self.find(name) else { return };
        let sent = held.link().map(|link| send_now(link, &Message::Ready, &[]));
        match sent {
            Some(Ok(())) => {
                self.tell_power(name);
                self.tell_promise(name);
            }
            _ => self.note_alone(name),
        }
    }

    /// Tells a server what the sources of warnings say, unless they say nothing.
    fn tell_power(&mut self, name: ImageFile) {
        let Role::Guard { .. } = self.role else { return };
        let Some(reading) = self.told.clone() else { return };
        let is_ending = reading.state == Power::Ending;
        let clock = Arc::clone(&self.clock);
        if let Some(held) = self.find(name) {
            tell(held, &Message::Warning { reading: readings::encode(&reading) });
            if is_ending {
                held.expect_goodbye(&*clock);
            }
        }
    }

    /// Begins to flush memory without a server, which is let go when it is on the SSD.
    fn flush(&mut self, name: ImageFile, asked_by: Option<OwnedFd>) {
        let Some(at) = self.held.iter().position(|held| held.name == name && held.is_alone())
        else {
            return;
        };
        let held = &mut self.held[at];
        held.state = State::Flushing { asked_by };
        let begun = self.flushes.begin(name, Arc::clone(&held.attachment), &held.image);
        if let Err(error) = begun {
            self.end_flush(name, Err(error));
        }
    }

    fn end_flushes(&mut self) {
        for (name, outcome) in self.flushes.take() {
            self.end_flush(name, outcome);
        }
    }

    fn end_flush(&mut self, name: ImageFile, outcome: Outcome) {
        let now_ns = self.clock.now_ns();
        let Some(held) = self.find(name) else { return };
        let State::Flushing { asked_by } = &mut held.state else { return };
        let visitor = asked_by.take();
        let answer = match outcome {
            Ok(flushed) => flushed,
            Err(error) => {
                tracing::error!(image = %held.path(), %error, "still holding");
                held.state = State::Alone { since_ns: now_ns };
                Message::Failed { why: error.to_string() }
            }
        };
        if matches!(answer, Message::Flushed { .. }) {
            self.let_go(name);
        }
        if let Some(visitor) = visitor {
            // One that has gone away gets no answer.
            let _ = send_now(&visitor, &answer, &[]);
        }
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
    }

    /// Tells the parent what to keep of a region.
    fn tell_parent(&mut self, name: ImageFile) {
        let granted_us = self.share_us(name);
        let Role::Guard { parent, .. } = &mut self.role else { return };
        let Some(held) = self.held.iter().find(|held| held.name == name) else { return };
        let fds: Vec<_> =
            held.fds().into_iter().chain(held.link().map(|link| link.as_fd())).collect();
        parent.send(&held.keep_message(granted_us), &fds);
    }

    fn lose_parent(&mut self) {
        let Role::Guard { parent, .. } = &mut self.role else { return };
        tracing::error!(
            "the guard's parent is gone: nothing is lost, but if this process ends, too, memory \
             that is not on the SSD is; restart the guard when you can"
        );
        parent.lose();
    }

    /// Takes memory in files that no process has any more, as after a reboot.
    pub(crate) fn take_left(&mut self, memory_dir: &Path, times: Times) -> Result<(), HoldError> {
        let read = failed(format!("read {}", memory_dir.display()));
        for left in left_in_files(memory_dir).map_err(read)? {
            let LeftInFiles { memory, ledger, image, user, rate_bytes_per_s } = left;
            let state = State::Alone { since_ns: self.clock.now_ns() };
            let terms = (times, rate_bytes_per_s);
            match Held::new([memory, ledger, image], user, terms, 0, state) {
                Ok(held) => {
                    let name = held.name;
                    tracing::warn!(
                        image = %held.path(),
                        dirty_bytes = held.attachment.used_bytes(),
                        "found memory in files that no server has; holding it"
                    );
                    self.resume(vec![(held, 0)]);
                    self.tell_parent(name);
                }
                Err(error) => tracing::error!(%error, user, "memory in files cannot be held"),
            }
        }
        Ok(())
    }

    /// Takes regions that a guard before this one held, and tells their servers.
    pub(crate) fn resume(&mut self, held: Vec<(Held, u64)>) {
        for (held, granted_us) in held {
            let name = held.name;
            if let Some(tenancy) = self.tenancy_mut() {
                tenancy.settle(&held, granted_us);
            }
            self.held.push(held);
            if let Some(held) = self.find(name)
                && held.link().is_some()
            {
                let link = held.link().map(|link| send_now(link, &Message::Ready, &[]));
                match link {
                    Some(Ok(())) => {
                        self.tell_power(name);
                        self.tell_promise(name);
                    }
                    _ => self.note_alone(name),
                }
            }
        }
    }
}

/// Tells a linked server something, without waiting. A server that reads nothing hears nothing; at
/// the end it is ended.
fn tell(held: &Held, message: &Message) {
    let Some(link) = held.link() else { return };
    if let Err(error) = send_now(link, message, &[]) {
        tracing::warn!(%error, pid = held.pid, "the server did not hear a warning");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
mod tests;
