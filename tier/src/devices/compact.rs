//! Emptying segments of a device, so that their room can be written again.
//!
//! Each record of the segment is looked up in the store. One whose key still has its address is
//! moved on: to the same device, or away from a device that is leaving or can sleep. That no key
//! has an address in a segment is known by this search alone; the count of live bytes says which
//! segment to take, and must agree in the end.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use perdura_region::Planted;
use perdura_store::{FarAddress, Key, Store};

use super::assign::can_sleep;
use super::device::{DeviceState, FarDevice};
use super::error::MoveError;
use super::format;
use super::members::target;
use super::mover::{Moved, Mover};

/// Emptied segments of a device that are left until a checkpoint is worth it, while there are free
/// ones.
const EMPTIED_MAX: u64 = 8;

impl Mover {
    /// Empties at most one segment of each device that needs it, and frees emptied ones.
    pub(crate) fn compact(&mut self, store: &Store, moved: &mut Moved) -> Result<(), MoveError> {
        let members = self.devices.members();
        for member in &members {
            let sums = member.sums();
            let policy = &self.devices.policy;
            let segment_bytes = member.superblock.segment_bytes;
            let live_bytes_max = match member.state() {
                DeviceState::Leaving => {
                    member.segments.lock().seal();
                    u64::MAX
                }
                DeviceState::Online => {
                    let is_full = member.is_full.load(Relaxed);
                    let live_percent = policy.live_percent_wanted(
                        is_full,
                        can_sleep(member, &members),
                        member.is_tidied.load(Relaxed),
                    );
                    let is_sparse = sums.live_bytes < sums.used_bytes * live_percent / 100;
                    let is_due = is_sparse && sums.used_bytes > 4 * segment_bytes;
                    member.is_tidied.store(is_due, Relaxed);
                    if !is_due {
                        continue;
                    }
                    segment_bytes * live_percent / 100
                }
                DeviceState::Failed(_) => continue,
            };
            // What is still live must have room somewhere: to look and find none takes long.
            let room_bytes = |one: &Arc<FarDevice>| match one.state() {
                DeviceState::Online => one.segments.lock().room_bytes(),
                DeviceState::Leaving | DeviceState::Failed(_) => 0,
            };
            let moves_away = member.state() == DeviceState::Leaving || can_sleep(member, &members);
            let room_bytes = match moves_away {
                true => members.iter().map(room_bytes).max().unwrap_or(0),
                false => room_bytes(member),
            };
            let live_bytes_max = live_bytes_max.min(room_bytes);
            let sparsest = member.segments.lock().sparsest(live_bytes_max);
            if let Some(offset) = sparsest {
                self.empty(store, &members, member, offset, moved)?;
            }
        }
        self.free_emptied(store, &members)?;
        for member in members.iter().filter(|one| one.state() == DeviceState::Leaving) {
            let sums = member.sums();
            if sums.used_bytes == 0 && sums.live_bytes == 0 {
                let forgotten = self.devices.forget(store, member.number());
                if let Err(error) = forgotten {
                    tracing::warn!(%error, "a device that is taken away keeps its first block");
                }
            }
        }
        Ok(())
    }

    /// Moves what still lies in a segment, and notes that nothing does.
    fn empty(
        &mut self,
        store: &Store,
        members: &[Arc<FarDevice>],
        member: &Arc<FarDevice>,
        segment_at: u64,
        moved: &mut Moved,
    ) -> Result<(), MoveError> {
        let number = member.number();
        let segment = member.read_segment(segment_at).map_err(|source| {
            member.fail(&source);
            MoveError::Segment { number, offset: segment_at, source }
        })?;
        let mut live = Vec::new();
        let set = member.superblock.set;
        format::for_each(&segment, set, segment_at, |start, record, checksum| {
            let at = FarAddress {
                device: number,
                offset: segment_at + start as u64,
                record_bytes: record.len_bytes() as u32,
                value_bytes: record.value.len() as u32,
                checksum,
                kind: record.kind,
            };
            let key = Key { db: record.db, bytes: record.key };
            if store.far_address(key) == Some(at) {
                live.push((record, at));
            }
        });
        let moves_away = member.state() == DeviceState::Leaving || can_sleep(member, members);
        let own = members.iter().position(|one| one.number() == number);
        self.prepare(members);
        // What is moved fills up open segments first. Otherwise segments that are more than half
        // live would each become a new one, again and again.
        for (batch, member) in self.batches.iter_mut().zip(members) {
            batch.fill_up(member);
        }
        for (record, at) in live {
            let to = if moves_away { target(members, record.db, record.key) } else { own };
            let Some(to) = to else { return Ok(()) };
            if !self.batches[to].fits(record.key.len(), record.value.len()) {
                self.write_batches(store, members, false, moved)?;
            }
            self.batches[to].push(record, Some(at), 0);
        }
        self.write_batches(store, members, false, moved)?;
        // A batch that found no room has left its values here.
        let is_there = |start: usize, record: &format::Record<'_>| {
            let key = Key { db: record.db, bytes: record.key };
            let at = store.far_address(key);
            at.is_some_and(|at| at.device == number && at.offset == segment_at + start as u64)
        };
        let mut left = 0;
        format::for_each(&segment, set, segment_at, |start, record, _| {
            left += u64::from(is_there(start, &record));
        });
        if left > 0 {
            return Ok(());
        }
        if member.segments.lock().has_live(segment_at) && store.stats().detached > 0 {
            // Addresses in tables that were deleted are counted until these are freed.
            return Ok(());
        }
        if !member.segments.lock().emptied(segment_at) {
            tracing::error!(
                device = number,
                place = member.place,
                offset = segment_at,
                "a segment's records do not add up to its live bytes; it is not written again"
            );
        }
        moved.segments += 1;
        Ok(())
    }

    /// Frees emptied segments by a checkpoint, if a device needs them.
    fn free_emptied(&self, store: &Store, members: &[Arc<FarDevice>]) -> Result<(), MoveError> {
        let is_due = |member: &Arc<FarDevice>| {
            let sums = member.sums();
            // The last free one is for emptying, and the next batch would find no room.
            let needs = sums.free <= 1 || sums.emptied >= EMPTIED_MAX;
            sums.emptied > 0 && (needs || member.state() == DeviceState::Leaving)
        };
        if !members.iter().any(is_due) {
            return Ok(());
        }
        let emptied: Vec<_> =
            members.iter().map(|member| member.segments.lock().emptied_now()).collect();
        if !store.region().planted().is(Planted::FarReuseEmptied) {
            store.region().checkpoint()?;
        }
        for (member, emptied) in members.iter().zip(emptied) {
            member.segments.lock().free(&emptied);
            member.is_full.fetch_and(emptied.is_empty(), Relaxed);
        }
        Ok(())
    }
}
