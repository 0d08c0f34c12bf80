//! Those who come: servers that bring memory or want it back, operators that ask, and memory that
//! was left.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use perdura_region::directory::{LeftInFiles, left_in_files};
use perdura_region::holder::Times;
use perdura_region::holder::wire::{ImageFile, Message, receive, send_now};
use perdura_warning::State as Power;

use super::{Holding, Role, tell};
use crate::error::{HoldError, failed};
use crate::foreign::Foreign;
use crate::held::{Held, State};
use crate::parent::Inheritance;
use crate::sys::{Peer, Process, own_user};
use crate::visitor::Visitor;
use crate::{isolate, readings};

impl Holding {
    pub(super) fn admit(&mut self) {
        let is_guard = matches!(self.role, Role::Guard { .. });
        let own = own_user();
        // The mode of a guard's socket says who may connect to it.
        let closings = self.closings.clone();
        let is_welcome =
            |peer: Peer| closings.are_few(peer.user) && (is_guard || peer.may_use(own));
        self.visitors.admit(&self.listener, self.clock.now_ns(), is_welcome);
    }

    /// Answers a visitor.
    pub(super) fn meet(&mut self, visitor: Visitor) {
        let Ok(Some((message, fds))) = receive(&visitor.socket) else { return };
        let fds = self.closings.take(fds, visitor.peer.user);
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
            Message::TakeOver { times, image, layout } => {
                match self.check_use(image, visitor.peer) {
                    Err(answer) => answer,
                    Ok(()) if self.has_layout(image, layout) => {
                        return self.hand_over(image, visitor, times);
                    }
                    Ok(()) => {
                        self.flush(image, None);
                        self.find(image).map_or(Message::NotHeld, |held| held.wait_message())
                    }
                }
            }
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
    pub(super) fn check_use(&self, name: ImageFile, peer: Peer) -> Result<(), Message> {
        let Some(held) = self.held.iter().find(|held| held.name == name) else {
            return Err(self.not_held());
        };
        if !peer.may_use(held.owner) {
            let why = format!("this memory is another user's: of user id {}", held.owner);
            return Err(Message::Failed { why });
        }
        match &held.state {
            State::Linked { .. } => Err(Message::Busy { pid: held.server.pid }),
            State::Flushing { .. } => Err(held.wait_message()),
            // It has closed its link, and could write beside another server.
            State::Alone { .. } if held.server != peer.process && held.server.is_there() => {
                Err(Message::Busy { pid: held.server.pid })
            }
            State::Alone { .. } => Ok(()),
        }
    }

    /// Whether held memory has the layout that a server uses; otherwise only this program can
    /// flush it.
    fn has_layout(&self, name: ImageFile, wanted: u64) -> bool {
        let held = self.held.iter().find(|held| held.name == name);
        let found = held.map(|held| (held, held.attachment.layout()));
        let other = found.filter(|(_, found)| *found != wanted);
        if let Some((held, found)) = other {
            tracing::warn!(
                image = %held.path(),
                found,
                wanted,
                "another version of the program asks for memory: it is flushed, and the image read"
            );
        }
        other.is_none()
    }

    /// What to say of an image whose memory is not held. A server that runs keeps others out of its
    /// directory, even if its image was removed or replaced; only a holder knows the directory.
    fn not_held(&self) -> Message {
        match (&self.role, self.held.first()) {
            (Role::Holder, Some(held)) if held.link().is_some() => {
                Message::Busy { pid: held.server.pid }
            }
            _ => Message::NotHeld,
        }
    }

    /// Makes a visitor the server of memory that is held.
    fn hand_over(&mut self, name: ImageFile, visitor: Visitor, times: Times) {
        let Some(held) = self.find(name) else { return };
        let server = visitor.socket.try_clone();
        held.times = times;
        (held.server, held.is_open) = (visitor.peer.process, false);
        (held.failure, held.hopeless) = (None, 0);
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
        fds: Vec<Foreign>,
    ) -> Result<ImageFile, Message> {
        let failed = |why: String| Message::Failed { why };
        let Role::Guard { regions_max, regions_of_one_max, .. } = self.role else {
            return Err(failed("a holder has one region".into()));
        };
        if self.power() == Power::Ending {
            return Err(failed("the power is ending, so no more memory is held".into()));
        }
        let [memory, _, image] = &fds[..] else {
            return Err(failed(format!("{} descriptors came, expected 3", fds.len())));
        };
        let link = visitor.socket.try_clone().map_err(|error| failed(error.to_string()))?;
        let state = State::Linked { link, ending: None };
        let Peer { user, process } = visitor.peer;
        let pid = process.pid;
        let name = ImageFile::of(image).map_err(|error| failed(error.to_string()))?;
        if let Some(held) = self.find(name) {
            // Its own server comes back after it has lost the link.
            let may_use = visitor.peer.may_use(held.owner);
            if !(held.is_alone() && may_use && held.has_memory(memory)) {
                let pid = held.server.pid;
                return Err(failed(format!(
                    "other memory of this image is held, of process {pid}"
                )));
            }
            (held.times, held.rate_bytes_per_s) = terms;
            (held.server, held.is_open, held.state) = (process, true, state);
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
        let held = Held::new(fds, user, terms, process, state);
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
    pub(super) fn note_rate(&mut self, name: ImageFile, rate_bytes_per_s: u64) {
        let Some(held) = self.find(name) else { return };
        let before = std::mem::replace(&mut held.rate_bytes_per_s, rate_bytes_per_s);
        held.is_open = true;
        let held = self.held.iter().find(|held| held.name == name);
        let fits = held.zip(self.tenancy()).is_none_or(|(held, tenancy)| tenancy.fits(held));
        if let Some(held) = self.find(name).filter(|_| !fits) {
            tracing::error!(
                image = %held.path(),
                pid = held.server.pid,
                rate_bytes_per_s,
                "at this rate the server would need what others are entitled to; it is reckoned \
                 with at its former one"
            );
            held.rate_bytes_per_s = before;
        }
        self.settle(name);
        self.tell_parent(name);
    }

    /// Reckons with a region that has a server.
    pub(super) fn settle(&mut self, name: ImageFile) {
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

    /// Takes memory in files that no process has any more, as after a reboot.
    pub(crate) fn take_left(&mut self, memory_dir: &Path, times: Times) -> Result<(), HoldError> {
        let read = failed(format!("read {}", memory_dir.display()));
        for left in left_in_files(memory_dir).map_err(read)? {
            let LeftInFiles { memory, ledger, image, user, rate_bytes_per_s } = left;
            let state = State::Alone { since_ns: self.clock.now_ns() };
            let terms = (times, rate_bytes_per_s);
            let fds = self.closings.take(vec![memory, ledger, image], user);
            match Held::new(fds, user, terms, Process::of(0), state) {
                Ok(held) => {
                    let name = held.name;
                    tracing::warn!(
                        image = %held.path(),
                        dirty_bytes = held.attachment.used_bytes(),
                        "found memory in files that no server has; holding it"
                    );
                    self.resume(vec![Inheritance { held, granted_us: 0, is_trusted: true }]);
                    self.tell_parent(name);
                }
                Err(error) => tracing::error!(%error, user, "memory in files cannot be held"),
            }
        }
        Ok(())
    }

    /// Takes regions that a guard before this one held, and tells their servers.
    pub(crate) fn resume(&mut self, held: Vec<Inheritance>) {
        for Inheritance { held, granted_us, is_trusted } in held {
            let name = held.name;
            if let Some(tenancy) = self.tenancy_mut() {
                if !is_trusted {
                    tenancy.distrust(&held);
                }
                tenancy.settle(&held, granted_us);
            }
            self.held.push(held);
            if let Some(held) = self.find(name)
                && held.link().is_some()
            {
                let link = held.link().map(|link| send_now(link, &Message::Ready, &[]));
                match link {
                    // A server that has not read for long is there all the same.
                    Some(Err(error)) if error.kind() == ErrorKind::WouldBlock => {}
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
