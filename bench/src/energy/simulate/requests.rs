//! What a request asks of which module: a leaf of the tree, then the value, and after a write the
//! metadata in the leaf.

use perdura_media::model::Access;
use perdura_tier::{DeviceId, Request, Served};

use super::chains::{At, Place, Step, Then};
use super::works::{Stalled, Work};
use super::{Full, LEAF_BYTES, METADATA_BYTES, World};

/// The accesses of a request, and what follows it.
pub(super) struct Asked {
    pub(super) steps: Vec<Step>,
    pub(super) then: Vec<Then>,
}

/// A read of a leaf.
pub(super) fn leaf(at: At, key: u64) -> Step {
    Step { at, access: Access::Read, place: Place::Key(key), len_bytes: LEAF_BYTES }
}

/// The accesses to read a value.
pub(super) fn reads(at: At, key: u64, len_bytes: u32) -> [Step; 2] {
    let len_bytes = u64::from(len_bytes);
    [leaf(at, key), Step { at, access: Access::Read, place: Place::Key(key), len_bytes }]
}

/// The accesses to write a value, which is put at `place`.
pub(super) fn writes(at: At, key: u64, place: Place, len_bytes: u32) -> [Step; 3] {
    let (access, len_bytes) = (Access::Write, u64::from(len_bytes));
    let metadata = Step { at, access, place: Place::Key(key), len_bytes: METADATA_BYTES };
    [leaf(at, key), Step { at, access, place, len_bytes }, metadata]
}

impl World<'_> {
    /// Serves a client's request, which reaches the store.
    pub(super) fn serve(&mut self, client: usize, now_ps: u64) {
        let (_, request) = self.clients[client];
        let asked = match self.front.is_some() {
            true => self.ask_dram(request),
            false => self.ask(request),
        };
        match asked {
            Ok(Asked { steps, then }) => {
                self.chain(now_ps, &steps, [Then::Served(client)].into_iter().chain(then));
            }
            // It goes on when a sync, or a burst, has made room.
            Err(full) => self.stall(full, Stalled::Client(client), now_ps),
        }
    }

    /// Asks the tier where a request is served.
    pub(super) fn ask(&mut self, request: Request) -> Result<Asked, Full> {
        let Request { key, write_bytes } = request;
        let is_write = write_bytes.is_some();
        let value = |device: DeviceId, len_bytes: u32| match is_write {
            true => writes(At::Device(device), key, Place::Append, len_bytes).to_vec(),
            false => reads(At::Device(device), key, len_bytes).to_vec(),
        };
        Ok(match self.tier.serve(request) {
            Served::Full(primary) => return Err(Full::Buffer(primary)),
            Served::Local { device, len_bytes } => {
                self.count_read(device, is_write);
                Asked { steps: value(device, len_bytes), then: Vec::new() }
            }
            Served::Front { primary, len_bytes } => Asked {
                steps: value(primary, len_bytes),
                then: is_write.then_some(Then::Sync(primary)).into_iter().collect(),
            },
            Served::Idle { device, primary, len_bytes, fetch } => {
                self.count_read(device, is_write);
                // The primary is asked first, in vain.
                let mut steps = vec![leaf(At::Device(primary), key)];
                steps.extend(value(device, len_bytes));
                let then = vec![Then::Begin(Work::fetch(device, primary, fetch))];
                Asked { steps, then }
            }
            Served::Nowhere(device) => {
                Asked { steps: vec![leaf(At::Device(device), key)], then: Vec::new() }
            }
        })
    }

    fn count_read(&mut self, device: DeviceId, is_write: bool) {
        self.happened.reads_of[usize::from(device.0)] += u64::from(!is_write);
    }
}
