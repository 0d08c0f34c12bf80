//! Shipping the commits of an image: what the vault does not have yet, then a restore point.
//!
//! A pass takes the newest commit, reads the frames that were not shipped, checks each, gathers
//! them in packs and puts these. When all are there, it puts the point, which names them. If a
//! segment was used anew meanwhile, the pass goes on with the next commit and keeps what is still
//! needed: each round has less to ship, as long as the image changes more slowly than the vault
//! takes.

use std::collections::{HashMap, HashSet};

use perdura_image::Key;
use perdura_image::copying::{Commit, Frames, Part, WholeFrame, newest_commit};
use perdura_image::superblock::{Head, read_superblock};
use perdura_media::{Clock, Device};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::error::BackupError;
use crate::names::{self, PackId};
use crate::object::Seal;
use crate::point::{self, Piece, Point, Shipped};
use crate::vault::Vault;
use crate::writer::{Owner, Writer};

/// Bytes from which a pack is full.
const PACK_BYTES: usize = 4 << 20;
/// Pieces of a segment that is not being filled any more above which it is shipped again, as one.
const PIECES_MAX: usize = 16;
/// Commits that a pass tries one after another before it gives up for now.
const ROUNDS_MAX: u32 = 100;

/// The image whose commits are shipped. Another program may be writing it.
pub struct Source<'d> {
    device: &'d dyn Device,
    head: Head,
    /// The image's key, if it is encrypted.
    key: Option<Key>,
}

impl<'d> Source<'d> {
    /// The image on a device. `key` is the user's, if the image is encrypted.
    ///
    /// # Errors
    /// There is none, or the key is not the image's.
    pub fn new(device: &'d dyn Device, key: Option<&Key>) -> Result<Self, BackupError> {
        match read_superblock(device)? {
            Some(head) => {
                let key = head.image_key(key).map_err(perdura_image::OpenError::from)?;
                Ok(Self { device, head, key })
            }
            None => Err(BackupError::Refused("there is no image yet".into())),
        }
    }

    fn newest_commit(&self) -> Result<Commit, BackupError> {
        let Head { geometry, image_id, .. } = &self.head;
        Ok(newest_commit(self.device, geometry, *image_id, self.key.as_ref())?)
    }

    /// The image's identity.
    pub fn image_id(&self) -> u64 {
        self.head.image_id
    }
}

/// The work that one pass has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pass {
    /// Bytes of objects that were put.
    pub bytes: u64,
    /// Objects that were put.
    pub objects: u64,
    /// Commits that were begun; more than one: segments were used anew meanwhile.
    pub rounds: u32,
}

/// The newest restore point, as far as others need to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Newest {
    /// All writes that were acknowledged before are in it, milliseconds since 1970.
    pub unix_ms: u64,
    /// Number of its commit.
    pub commit: u64,
}

/// Ships the commits of one image to a vault.
pub struct Shipper<'v> {
    vault: &'v dyn Vault,
    seal: Seal,
    writer: Writer<'v>,
    /// The pieces of each segment that the vault has.
    have: HashMap<u32, Shipped>,
    packs: HashMap<PackId, u32>,
    newest: Option<Newest>,
    /// Name of the newest point.
    newest_name: Option<String>,
    planted: Planted,
    pack_bytes: usize,
    /// Packs that a planted bug puts after their point.
    late: Vec<(String, Vec<u8>)>,
}

/// Bugs that tests plant to prove that they would be caught.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Planted {
    /// None.
    #[default]
    None,
    /// The point is put before the pieces that it names.
    PointFirst,
    /// Bytes are taken whatever they are of.
    TakeAnyFrame,
    /// Retention deletes packs that a point needs.
    DeleteNeeded,
}

/// The outcome of reading what is missing of a part.
enum Read {
    Done,
    /// The pack is full.
    Full,
    /// The segment was used anew.
    Gone,
}

impl<'v> Shipper<'v> {
    /// Begins to ship the image that `writer` has claimed, or goes on after an earlier run: what
    /// the newest point has, and the image still holds, is not shipped again.
    ///
    /// # Errors
    /// The vault or the image fails.
    pub fn new(
        vault: &'v dyn Vault,
        seal: Seal,
        source: &Source<'_>,
        writer: Writer<'v>,
        planted: Planted,
    ) -> Result<Self, BackupError> {
        let (have, packs) = (HashMap::new(), HashMap::new());
        let mut shipper = Self {
            vault,
            seal,
            writer,
            have,
            packs,
            newest: None,
            newest_name: None,
            planted,
            pack_bytes: PACK_BYTES,
            late: Vec::new(),
        };
        let image_id = source.head.image_id;
        for folder in [names::packs_folder(image_id), names::points_folder(image_id)] {
            if let Err(error) = vault.tidy(&folder) {
                tracing::warn!(%error, "what a killed program left there was not removed");
            }
        }
        let listed = vault.list(&names::points_folder(image_id))?.objects;
        let Some(last) = listed.last() else { return Ok(shipper) };
        match point::get(vault, &shipper.seal, &last.name) {
            Ok(point) => shipper.resume(source, point, &last.name)?,
            // A backup that cannot be read is not a reason to make no other one.
            Err(BackupError::Object { name, why }) => {
                tracing::error!(name, why, "the newest restore point is of no use; shipping all");
            }
            Err(error) => return Err(error),
        }
        Ok(shipper)
    }

    /// Gives the image up, so that any program may ship it.
    ///
    /// # Errors
    /// The vault fails.
    pub fn release(self, owner: &mut Owner) -> Result<(), BackupError> {
        self.writer.release(owner)
    }

    /// Checks that no other program has taken over.
    ///
    /// # Errors
    /// Another program has taken over, or the vault fails.
    pub(crate) fn check_writer(&self) -> Result<(), BackupError> {
        self.writer.check()
    }

    /// Makes packs of this size, for tests with a small image.
    #[doc(hidden)]
    pub fn set_pack_bytes(&mut self, bytes: usize) {
        self.pack_bytes = bytes;
    }

    /// The newest restore point in the vault.
    pub fn newest(&self) -> Option<Newest> {
        self.newest
    }

    /// Takes over from a point what the image still holds: each segment whose frames have the same
    /// headers. An image that was restored from an older point has other frames by the same
    /// numbers.
    fn resume(&mut self, source: &Source<'_>, point: Point, name: &str) -> Result<(), BackupError> {
        let commit = source.newest_commit()?;
        if point.geometry != source.head.geometry {
            return Ok(());
        }
        let mut frames = Frames::new(source.device, &source.head, source.key.clone())?;
        let parts: HashMap<u32, &Part> =
            commit.parts.iter().map(|part| (part.segment, part)).collect();
        for shipped in &point.shipped {
            if let Some(part) = parts.get(&shipped.part.segment)
                && part.first_seq == shipped.part.first_seq
                && part.used_bytes >= shipped.part.used_bytes
                && has_frames(&mut frames, part, &shipped.pieces)?
            {
                self.have.insert(shipped.part.segment, shipped.clone());
            }
        }
        if point.commit == commit && self.have.len() == commit.parts.len() {
            self.newest = Some(Newest { unix_ms: commit.unix_ms, commit: commit.number });
            self.newest_name = Some(name.to_owned());
        }
        self.packs = point.packs;
        Ok(())
    }

    /// Ships the newest commit, or a newer one if the image changes meanwhile. `None`: the newest
    /// was shipped before.
    ///
    /// # Errors
    /// The vault or the image fails. What was shipped until then counts in the next pass.
    pub fn pass(
        &mut self,
        source: &Source<'_>,
        clock: &dyn Clock,
    ) -> Result<Option<Pass>, BackupError> {
        let mut pass = Pass::default();
        let mut frames = Frames::new(source.device, &source.head, source.key.clone())?;
        let mut before: Option<u64> = None;
        loop {
            let commit = source.newest_commit()?;
            if before.is_none() && self.is_newest(&commit) {
                return Ok(None);
            }
            pass.rounds += 1;
            frames.forget();
            self.forget_others(&commit);
            match self.ship_parts(source, &commit, &mut frames, clock, &mut pass)? {
                None => {
                    self.put_point(source, commit, &mut pass)?;
                    return Ok(Some(pass));
                }
                Some((segment, seq)) if before == Some(commit.number) => {
                    let commit = commit.number;
                    return Err(BackupError::Damaged { segment, seq, commit });
                }
                Some(_) if pass.rounds >= ROUNDS_MAX => {
                    return Err(BackupError::Refused(format!(
                        "the image changes faster than the backup follows: {ROUNDS_MAX} commits \
                         were begun and none was complete"
                    )));
                }
                // A segment is used anew only after a newer commit.
                Some(_) => before = Some(commit.number),
            }
        }
    }

    fn is_newest(&self, commit: &Commit) -> bool {
        self.newest == Some(Newest { unix_ms: commit.unix_ms, commit: commit.number })
    }

    /// Forgets what was shipped of segments that the commit does not need, or that were used anew.
    fn forget_others(&mut self, commit: &Commit) {
        let parts: HashMap<u32, &Part> =
            commit.parts.iter().map(|part| (part.segment, part)).collect();
        self.have.retain(|segment, shipped| {
            parts.get(segment).is_some_and(|part| {
                part.first_seq == shipped.part.first_seq
                    && part.used_bytes >= shipped.part.used_bytes
            })
        });
        self.forget_many_pieces(commit);
        let named: HashSet<PackId> = self
            .have
            .values()
            .flat_map(|shipped| &shipped.pieces)
            .map(|piece| piece.pack)
            .collect();
        self.packs.retain(|id, _| named.contains(id));
    }

    /// Forgets finished segments that lie in many pieces, or in packs of which little is needed:
    /// they are shipped again, and the vault has fewer and fuller objects.
    fn forget_many_pieces(&mut self, commit: &Commit) {
        self.have.retain(|_, shipped| {
            let last = shipped.pieces.last().map_or(0, |piece| piece.last_seq);
            let is_finished = last < commit.last_seq;
            !(is_finished && shipped.pieces.len() > PIECES_MAX)
        });
        let mut needed: HashMap<PackId, u64> = HashMap::new();
        for piece in self.have.values().flat_map(|shipped| &shipped.pieces) {
            *needed.entry(piece.pack).or_default() += u64::from(piece.bytes);
        }
        let is_sparse = |id: &PackId| {
            let bytes = u64::from(self.packs.get(id).copied().unwrap_or(0));
            needed.get(id).is_some_and(|needed| needed * 4 < bytes)
        };
        self.have.retain(|_, shipped| !shipped.pieces.iter().any(|piece| is_sparse(&piece.pack)));
    }

    /// Ships what is missing of a commit. Returns a segment that was used anew, if there is one,
    /// and the sequence number up to which it was read.
    fn ship_parts(
        &mut self,
        source: &Source<'_>,
        commit: &Commit,
        frames: &mut Frames<'_>,
        clock: &dyn Clock,
        pass: &mut Pass,
    ) -> Result<Option<(u32, u64)>, BackupError> {
        let mut gone = None;
        let mut pack = Pack::new(clock, self.pack_bytes);
        for part in &commit.parts {
            let mut reach = Reach::of(part, self.have.get(&part.segment));
            loop {
                match read_some(part, commit, frames, &mut reach, &mut pack, self.planted)? {
                    Read::Full => self.put_pack(source, &mut pack, clock, pass)?,
                    Read::Done => break,
                    Read::Gone => {
                        gone = gone.or(Some((part.segment, reach.last_seq)));
                        break;
                    }
                }
            }
        }
        self.put_pack(source, &mut pack, clock, pass)?;
        Ok(gone)
    }

    /// Puts a pack, if it has any pieces. From then on they count as shipped.
    fn put_pack(
        &mut self,
        source: &Source<'_>,
        pack: &mut Pack,
        clock: &dyn Clock,
        pass: &mut Pass,
    ) -> Result<(), BackupError> {
        let next = Pack::new(clock, self.pack_bytes);
        let Pack { id, body, pieces, .. } = std::mem::replace(pack, next);
        if pieces.is_empty() {
            return Ok(());
        }
        let name = id.name(source.head.image_id);
        self.packs.insert(id, body.len() as u32);
        match self.planted {
            Planted::PointFirst => self.late.push((name, body)),
            _ => self.put(&name, &body, pass)?,
        }
        for (part, piece) in pieces {
            let new = Shipped { part: Part { used_bytes: 0, ..part }, pieces: Vec::new() };
            let shipped = self.have.entry(part.segment).or_insert(new);
            shipped.part.used_bytes = piece.end;
            shipped.pieces.push(piece);
        }
        Ok(())
    }

    fn put(&self, name: &str, body: &[u8], pass: &mut Pass) -> Result<(), BackupError> {
        let object = self.seal.seal(name, body);
        self.vault.put(name, &object)?;
        pass.bytes += object.len() as u64;
        pass.objects += 1;
        Ok(())
    }

    fn put_point(
        &mut self,
        source: &Source<'_>,
        commit: Commit,
        pass: &mut Pass,
    ) -> Result<(), BackupError> {
        let mut shipped: Vec<_> = self.have.values().cloned().collect();
        shipped.sort_unstable_by_key(|shipped| shipped.part.segment);
        let newest = Newest { unix_ms: commit.unix_ms, commit: commit.number };
        let name = names::new_point(source.head.image_id, newest.unix_ms, newest.commit);
        let Head { geometry, image_id, .. } = source.head;
        let (sealed_key, packs) = (source.head.sealed_key(), self.packs.clone());
        let point = Point { geometry, image_id, sealed_key, commit, shipped, packs };
        self.check_writer()?;
        self.put(&name, &point.body(), pass)?;
        for (name, body) in std::mem::take(&mut self.late) {
            self.put(&name, &body, pass)?;
        }
        (self.newest, self.newest_name) = (Some(newest), Some(name));
        Ok(())
    }

    /// Name of the newest point.
    pub(crate) fn newest_name(&self) -> Option<&str> {
        self.newest_name.as_deref()
    }

    /// Packs that the newest point names, and the next may name.
    pub(crate) fn packs(&self) -> &HashMap<PackId, u32> {
        &self.packs
    }
}

/// Pieces that are gathered for one object.
struct Pack {
    id: PackId,
    body: Vec<u8>,
    pieces: Vec<(Part, Piece)>,
    full_bytes: usize,
}

impl Pack {
    fn new(clock: &dyn Clock, full_bytes: usize) -> Self {
        let id = PackId::new(clock.unix_ms());
        Self { id, body: Vec::new(), pieces: Vec::new(), full_bytes }
    }
}

/// How far a segment is shipped.
struct Reach {
    at: u32,
    /// Sequence number of the last frame before `at`; 0: there is none.
    last_seq: u64,
}

impl Reach {
    fn of(part: &Part, shipped: Option<&Shipped>) -> Self {
        match shipped.and_then(|shipped| shipped.pieces.last()) {
            Some(piece) => Self { at: piece.end, last_seq: piece.last_seq },
            None => Self { at: 0, last_seq: part.first_seq.saturating_sub(1) },
        }
    }
}

/// Reads frames that are missing of a part into a pack.
fn read_some(
    part: &Part,
    commit: &Commit,
    frames: &mut Frames<'_>,
    reach: &mut Reach,
    pack: &mut Pack,
    planted: Planted,
) -> Result<Read, BackupError> {
    let (offset, mut chain) = (pack.body.len(), Xxh3::new());
    let mut outcome = Read::Done;
    while reach.at < part.used_bytes {
        if pack.body.len() >= pack.full_bytes {
            outcome = Read::Full;
            break;
        }
        let found = frames.whole(part, reach.at)?;
        let Some(frame) = found.filter(|frame| continues(frame, part, commit, reach)) else {
            if planted != Planted::TakeAnyFrame {
                outcome = Read::Gone;
                break;
            }
            // Some bytes that are not the commit's.
            pack.body.resize(pack.body.len() + (part.used_bytes - reach.at) as usize, 0);
            reach.at = part.used_bytes;
            break;
        };
        pack.body.extend_from_slice(frame.bytes);
        chain.update(frame.header());
        reach.at += frame.total_bytes;
        reach.last_seq = frame.seq;
    }
    if pack.body.len() > offset {
        let piece = Piece {
            pack: pack.id,
            offset: offset as u32,
            bytes: (pack.body.len() - offset) as u32,
            end: reach.at,
            last_seq: reach.last_seq,
            sum: xxh3_64(&pack.body[offset..]),
            chain: chain.digest(),
        };
        pack.pieces.push((*part, piece));
    }
    Ok(outcome)
}

/// Whether a frame is the next one of a commit's part, and not one that was written there later.
fn continues(frame: &WholeFrame<'_>, part: &Part, commit: &Commit, reach: &Reach) -> bool {
    let follows = match reach.at {
        0 => frame.seq == part.first_seq,
        _ => frame.seq > reach.last_seq,
    };
    follows && frame.seq <= commit.last_seq
}

/// Whether a segment begins with the frames of these pieces, as their headers say.
fn has_frames(frames: &mut Frames<'_>, part: &Part, pieces: &[Piece]) -> Result<bool, BackupError> {
    let mut at = 0;
    for piece in pieces {
        let mut chain = Xxh3::new();
        while at < piece.end {
            let Some((header, total_bytes)) = frames.header_bytes(part, at)? else {
                return Ok(false);
            };
            chain.update(&header);
            at += total_bytes;
        }
        if at != piece.end || chain.digest() != piece.chain {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_was_written_later_or_before_is_none_of_the_commits() {
        let part = Part { segment: 0, first_seq: 10, used_bytes: 1 << 16 };
        let commit = Commit {
            number: 1,
            last_seq: 20,
            epoch: 1,
            region_bytes: 0,
            segments: 1,
            unix_ms: 0,
            incarnation: 1,
            parts: vec![part],
        };
        let is_next = |seq, at, last_seq| {
            let frame = WholeFrame { seq, total_bytes: 4096, bytes: &[] };
            continues(&frame, &part, &commit, &Reach { at, last_seq })
        };
        assert!(is_next(10, 0, 9) && is_next(11, 4096, 10) && is_next(20, 4096, 10));
        assert!(!is_next(9, 0, 8) && !is_next(11, 0, 9), "another first frame");
        assert!(!is_next(10, 4096, 10) && !is_next(9, 4096, 10), "an older use of the segment");
        assert!(!is_next(21, 4096, 10), "a newer use of the segment");
    }
}
