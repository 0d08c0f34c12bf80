//! Giving the devices their roles: what `roles` decides, with what was measured.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::device::FarDevice;
use super::error::DevicesError;
use super::members::Devices;
use super::roles::{Candidate, Primaries, RolesStatus, Totals, primaries_least};

impl Devices {
    /// Asks for so many primaries; the roles change at once.
    ///
    /// # Errors
    /// There are not so many devices that work, or each primary would have too many idle ones
    /// behind it.
    pub fn set_primaries(&self, wish: Primaries) -> Result<(), DevicesError> {
        let members = self.members();
        let devices = members.iter().filter(|member| member.takes_values()).count() as u16;
        let least = primaries_least(devices);
        if let Primaries::Number(asked) = wish
            && !(least..=devices).contains(&asked)
        {
            return Err(DevicesError::Primaries { asked, devices, least });
        }
        let mut roles = self.roles.lock();
        roles.set_wish(wish, &self.candidates(&members));
        tell(&members, |number| roles.is_idle(number));
        Ok(())
    }

    /// How many primaries are asked for, and what trials have found.
    pub fn roles(&self) -> RolesStatus {
        self.roles.lock().status()
    }

    /// Notes how many reads and writes clients have made so far: by these rates it is judged
    /// whether one more primary, or one fewer, is worth it.
    pub fn count_requests(&self, reads: u64, writes: u64) {
        self.client_reads.store(reads, Relaxed);
        self.client_writes.store(writes, Relaxed);
    }

    /// Gives every device its role, so that another takes over from a primary that cannot take
    /// values any more.
    pub(crate) fn assign_roles(&self, members: &[Arc<FarDevice>]) {
        let mut roles = self.roles.lock();
        if roles.status().wish != Primaries::All {
            roles.assign(&self.candidates(members));
            tell(members, |number| roles.is_idle(number));
        }
    }

    /// Does the same, and looks whether the number of primaries is right.
    pub(crate) fn look_at_roles(&self, members: &[Arc<FarDevice>], now_ns: u64) {
        let mut roles = self.roles.lock();
        if roles.status().wish == Primaries::All {
            return;
        }
        let totals = Totals {
            now_ns,
            reads: self.client_reads.load(Relaxed),
            writes: self.client_writes.load(Relaxed),
            waiting_ns: self.waiting.total_ns(now_ns),
        };
        let candidates = self.candidates(members);
        roles.assign(&candidates);
        let before = roles.primaries().len();
        roles.observe(totals, &candidates);
        tell(members, |number| roles.is_idle(number));
        let (primaries, last_trial) = (roles.primaries(), roles.status().last_trial);
        if primaries.len() != before {
            tracing::info!(?primaries, ?last_trial, "the number of primaries changes");
        }
    }

    fn candidates(&self, members: &[Arc<FarDevice>]) -> Vec<Candidate> {
        let now_ns = self.clock.now_ns();
        let of = |member: &Arc<FarDevice>| Candidate {
            number: member.number(),
            is_full: member.is_full.load(Relaxed),
            busy_ns: member.busy.total_ns(now_ns),
        };
        members.iter().filter(|member| member.takes_values()).map(of).collect()
    }
}

/// Tells the devices their roles.
fn tell(members: &[Arc<FarDevice>], is_idle: impl Fn(u16) -> bool) {
    for member in members {
        member.is_idle.store(is_idle(member.number()), Relaxed);
    }
}

/// Whether a device can sleep: it is idle, and a primary has room, so that nothing is written to
/// it.
pub(crate) fn can_sleep(member: &FarDevice, members: &[Arc<FarDevice>]) -> bool {
    member.is_idle.load(Relaxed) && members.iter().any(|one| takes_batches(one))
}

/// Whether a device is a primary that has room.
pub(crate) fn takes_batches(member: &FarDevice) -> bool {
    member.takes_values() && !member.is_full.load(Relaxed) && !member.is_idle.load(Relaxed)
}
