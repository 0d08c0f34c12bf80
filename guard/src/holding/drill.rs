//! A drill: all servers of a guard flush at the same time, for real.

use std::os::fd::OwnedFd;

use perdura_region::holder::wire::{ImageFile, Message, send_now};
use perdura_warning::State as Power;

use super::Holding;
use crate::held::Held;
use crate::sys::own_user;
use crate::visitor::Visitor;

/// A drill that is under way.
pub(crate) struct Drill {
    /// Who asked for it.
    operator: OwnedFd,
    /// The regions whose servers have not answered yet.
    pub(super) awaited: Vec<ImageFile>,
}

impl Holding {
    /// Lets all servers flush at the same time, for real.
    pub(super) fn begin_drill(&mut self, visitor: &Visitor, fills: bool) -> Result<(), String> {
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
        // An operator that has gone away gets no answer.
        let _ = send_now(&drill.operator, &said, &[]);
        self.end_drill();
    }

    /// Ends a drill that all servers have answered.
    pub(super) fn end_drill(&mut self) {
        if let Some(drill) = self.drill.take_if(|drill| drill.awaited.is_empty()) {
            let _ = send_now(&drill.operator, &Message::Ready, &[]);
        }
    }
}
