//! A drill: all servers of a guard flush at the same time, for real.
//!
//! - A drill has a limit. At the limit the operator is told which servers have not answered, and
//!   waits no longer.
//! - Those servers still owe an answer then, so no other drill begins before they have given it or
//!   are gone: it would be taken for an answer to the other one.

use std::os::fd::OwnedFd;
use std::time::Duration;

use perdura_media::{Bytes, format_duration};
use perdura_region::holder::wire::{ImageFile, Message, send_now};
use perdura_warning::State as Power;

use super::Holding;
use crate::held::Held;
use crate::sys::own_user;
use crate::visitor::Visitor;

/// The shortest limit: a server that is slow to begin is not one that hangs.
const LIMIT_MIN: Duration = Duration::from_secs(10);
/// The longest limit. An operator listens for an hour.
const LIMIT_MAX: Duration = Duration::from_secs(55 * 60);

/// A drill that is under way.
pub(crate) struct Drill {
    /// The connection of the operator who asked for the drill; `None`: they were told at the limit
    /// how it ended.
    operator: Option<OwnedFd>,
    /// The regions whose servers have not answered yet.
    pub(super) awaited: Vec<ImageFile>,
    began_ns: u64,
    limit: Duration,
}

/// How long a drill of these regions may take: twice the longest promise, because a server may be
/// flushing for another reason when it hears of the drill; and the time to read all of each
/// region, because a drill loads what is not loaded yet. A device reads no slower than it flushes.
fn limit<'h>(drilled: impl Iterator<Item = &'h Held>) -> Duration {
    let (mut loading, mut promised) = (Duration::ZERO, Duration::ZERO);
    for held in drilled {
        let bytes = held.attachment.region_bytes();
        let load = held.attachment.flush_time(held.rate_bytes_per_s, bytes);
        loading = loading.saturating_add(load);
        promised = promised.max(held.times.grace);
    }
    loading.saturating_add(promised.saturating_mul(2)).clamp(LIMIT_MIN, LIMIT_MAX)
}

impl Holding {
    /// Lets all servers flush at the same time, for real.
    pub(super) fn begin_drill(&mut self, visitor: &Visitor, fills: bool) -> Result<(), String> {
        if !visitor.peer.may_use(own_user()) {
            return Err("a drill stops all servers for a moment: ask as the guard's user".into());
        }
        match &self.drill {
            Some(Drill { operator: Some(_), .. }) => return Err("a drill is under way".into()),
            Some(late) => return Err(self.late(late).join("; ")),
            None => {}
        }
        if self.power() != Power::Steady {
            return Err("the power is not steady, so nothing is drilled".into());
        }
        let operator = visitor.socket.try_clone().map_err(|error| error.to_string())?;
        let mut drilled = Vec::new();
        for held in &self.held {
            let Some(link) = held.link() else { continue };
            match send_now(link, &Message::Drill { fills }, &[]) {
                Ok(()) => drilled.push(held),
                Err(error) => {
                    let (image, pid) = (held.path(), held.server.pid);
                    let why = format!("{image}: its server, process {pid}, reads nothing: {error}");
                    let _ = send_now(&operator, &Message::NotDrilled { why }, &[]);
                }
            }
        }
        self.drill = Some(Drill {
            operator: Some(operator),
            awaited: drilled.iter().map(|held| held.name).collect(),
            began_ns: self.clock.now_ns(),
            limit: limit(drilled.into_iter()),
        });
        Ok(())
    }

    /// Ends the operator's wait for a drill that has reached its limit.
    pub(super) fn limit_drill(&mut self, now_ns: u64) {
        let is_over = |drill: &&mut Drill| {
            u128::from(now_ns.saturating_sub(drill.began_ns)) >= drill.limit.as_nanos()
        };
        let Some(drill) = self.drill.as_mut().filter(is_over) else { return };
        let Some(operator) = drill.operator.take() else { return };
        let late = self.drill.as_ref().map(|drill| self.late(drill));
        for why in late.into_iter().flatten() {
            tracing::error!(why, "a drill takes too long");
            let _ = send_now(&operator, &Message::NotDrilled { why }, &[]);
        }
        let _ = send_now(&operator, &Message::Ready, &[]);
    }

    /// What to say of each region whose server has not answered a drill within its limit.
    fn late(&self, drill: &Drill) -> Vec<String> {
        let is_late = |held: &&Held| drill.awaited.contains(&held.name);
        let say = |held: &Held| {
            format!(
                "{}: its server, process {pid}, has not flushed within {} of a drill, and {} of it \
                 may not be on the SSD; nothing is lost, as the guard keeps its memory; see \
                 whether its disk answers and what the server logs; if it hangs, end it (kill -9 \
                 {pid}) and start it again, then drill again",
                held.path(),
                format_duration(drill.limit),
                Bytes(held.attachment.used_bytes()),
                pid = held.server.pid,
            )
        };
        self.held.iter().filter(is_late).map(say).collect()
    }

    /// Passes on how a drill went in one server.
    pub(super) fn note_drilled(&mut self, name: ImageFile, said: Message) {
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
        if let Some(operator) = &drill.operator {
            // An operator that has gone away gets no answer.
            let _ = send_now(operator, &said, &[]);
        }
        self.end_drill();
    }

    /// Ends a drill that all servers have answered.
    pub(super) fn end_drill(&mut self) {
        let ended = self.drill.take_if(|drill| drill.awaited.is_empty());
        if let Some(operator) = ended.and_then(|drill| drill.operator) {
            let _ = send_now(&operator, &Message::Ready, &[]);
        }
    }
}
