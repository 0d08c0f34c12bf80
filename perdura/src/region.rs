//! Durable bytes, changed by calls that announce what they change.

use std::path::Path;
use std::sync::Arc;

use perdura_region::{BLOCK_BYTES, LaneId, Need, Promise, RegionError, TrackingKind};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::closing::{Closing, Flushed};
use crate::commits::Commits;
use crate::error::{AccessError, CloseError, OpenError};
use crate::guarded;
use crate::options::{Durability, Options};

const WORD_BYTES: u64 = 8;
/// Bytes that a write may dirty beyond its own length: a part of a grain at each end.
const GRAINS_AT_ENDS_BYTES: u64 = 128;

/// Durable bytes, all zero at first: memory that is read and written by offset.
///
/// Any thread may use it by reference. A word ([`Region::store_word`]) is always whole after a
/// crash, but a write of several words may be half done. A program that needs more can change a
/// copy and then a word that says which copy counts, or use a [`Store`](crate::Store), whose
/// changes are whole or absent.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let dir = dir.path().join("data");
/// use perdura::{Options, Region};
///
/// let region = Region::open_with(&dir, &Options::new().memory_bytes(64 << 20))?;
/// region.write(4096, b"hello")?;
/// region.set(8192, &[1.5_f64, 2.5])?;
/// assert_eq!(region.get::<[f64; 2]>(8192)?, [1.5, 2.5]);
/// region.close()?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct Region {
    region: Arc<perdura_region::Region>,
    durability: Durability,
    commits: Commits,
    promise: Promise,
    closing: Arc<Closing>,
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Region")
            .field("len_bytes", &self.len_bytes())
            .field("durability", &self.durability)
            .field("promise", &self.promise)
            .finish_non_exhaustive()
    }
}

impl Region {
    /// Opens the bytes in a directory, or makes them, with the default [`Options`]: 256 MiB, and
    /// each change on the SSD before its call returns.
    ///
    /// # Errors
    /// The directory cannot be had, holds something else, or its promise cannot be kept.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(dir, &Options::default())
    }

    /// Opens the bytes in a directory, or makes them.
    ///
    /// # Errors
    /// The errors of [`Region::open`], or an option is refused.
    pub fn open_with(dir: impl AsRef<Path>, options: &Options) -> Result<Self, OpenError> {
        let opened = options.open(dir.as_ref(), TrackingKind::Barrier)?;
        let region = Arc::new(opened.region);
        // Neighbours belong to different lanes, so that threads at work on different blocks wait
        // for each other as little as can be.
        for block in 0..region.geometry().blocks() as u64 {
            region.assign_block(block, lane_of(&region, block));
        }
        guarded::follow(opened.following, &region, &opened.closing)?;
        Ok(Self {
            region,
            durability: options.chosen_durability(),
            commits: Commits::default(),
            promise: opened.promise,
            closing: opened.closing,
        })
    }

    /// Number of bytes.
    pub fn len_bytes(&self) -> u64 {
        self.region.len_bytes()
    }

    /// Enlarges the region, at most to [`Options::memory_bytes_max`].
    ///
    /// # Errors
    /// The new size is too large, or the SSD has no room for it.
    pub fn grow(&self, len_bytes: u64) -> Result<(), perdura_region::OpenError> {
        self.region.grow(len_bytes)
    }

    /// Copies bytes out. Of a range that a thread is changing, a block of 64 KiB is seen before or
    /// after that change.
    ///
    /// # Errors
    /// The range leaves the region.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), AccessError> {
        self.check(offset, out.len() as u64)?;
        let mut rest = out;
        for (offset, len) in blocks(offset, rest.len()) {
            let (here, behind) = rest.split_at_mut(len);
            let lane = self.region.lock(lane_of(&self.region, offset / BLOCK_BYTES));
            here.copy_from_slice(lane.bytes(offset, len));
            rest = behind;
        }
        Ok(())
    }

    /// Changes bytes, block of 64 KiB by block. Waits if the budget is used up.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = perdura::Options::new().memory_bytes(16 << 20);
    /// # let region = perdura::Region::open_with(dir.path().join("data"), &options)?;
    /// region.write(4090, b"across two pages")?;
    /// let mut found = [0; 16];
    /// region.read(4090, &mut found)?;
    /// assert_eq!(&found, b"across two pages");
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The range leaves the region, and nothing has changed; or the region refuses.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), AccessError> {
        self.check(offset, bytes.len() as u64)?;
        let mut rest = bytes;
        for (offset, len) in blocks(offset, bytes.len()) {
            let (here, behind) = rest.split_at(len);
            self.change(offset, len as u64, |lane| lane.write(offset, here))?;
            rest = behind;
        }
        self.commit_if_asked()
    }

    /// Reads a value from its bytes at `offset`.
    ///
    /// # Errors
    /// The value leaves the region.
    pub fn get<T: FromBytes + IntoBytes>(&self, offset: u64) -> Result<T, AccessError> {
        let mut value = T::new_zeroed();
        self.read(offset, value.as_mut_bytes())?;
        Ok(value)
    }

    /// Writes a value's bytes at `offset`; see [`Region::write`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = perdura::Options::new().memory_bytes(16 << 20);
    /// # let region = perdura::Region::open_with(dir.path().join("data"), &options)?;
    /// region.set(4096, &[1.5_f64, 2.5])?;
    /// assert_eq!(region.get::<[f64; 2]>(4096)?, [1.5, 2.5]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Region::write`].
    pub fn set<T: IntoBytes + Immutable>(&self, offset: u64, value: &T) -> Result<(), AccessError> {
        self.write(offset, value.as_bytes())
    }

    /// Reads the word at `offset`, which is a multiple of 8.
    ///
    /// # Errors
    /// The word leaves the region, or is misaligned.
    pub fn load_word(&self, offset: u64) -> Result<u64, AccessError> {
        self.check_word(offset)?;
        Ok(self.region.lock(lane_of(&self.region, offset / BLOCK_BYTES)).load(offset))
    }

    /// Changes the word at `offset`, which is a multiple of 8: whole or not at all, after any loss.
    ///
    /// # Errors
    /// The word leaves the region, or is misaligned; or the region refuses.
    pub fn store_word(&self, offset: u64, word: u64) -> Result<(), AccessError> {
        self.update_word(offset, |_| word).map(drop)
    }

    /// Changes the word at `offset`, which is a multiple of 8, to what `change` makes of it, and
    /// returns what it was before. No other thread changes the word in between. `change` may be
    /// called more than once and must not call the region.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = perdura::Options::new().memory_bytes(16 << 20);
    /// # let region = perdura::Region::open_with(dir.path().join("data"), &options)?;
    /// assert_eq!(region.update_word(0, |count| count + 1)?, 0); // the word before
    /// assert_eq!(region.load_word(0)?, 1);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Region::store_word`].
    pub fn update_word(
        &self,
        offset: u64,
        mut change: impl FnMut(u64) -> u64,
    ) -> Result<u64, AccessError> {
        self.check_word(offset)?;
        let before = self.change(offset, WORD_BYTES, |lane| {
            let before = lane.load(offset);
            lane.store(offset, change(before)).map(|()| before)
        })?;
        self.commit_if_asked()?;
        Ok(before)
    }

    /// Makes everything that was changed so far durable before it returns.
    ///
    /// # Errors
    /// The SSD has failed, or the region is closed.
    pub fn commit(&self) -> Result<(), RegionError> {
        self.commits.wait(&self.region)
    }

    /// Makes the state of this moment the one that an unwarned loss goes back to.
    ///
    /// # Errors
    /// The SSD has failed, or the region is closed.
    pub fn checkpoint(&self) -> Result<(), RegionError> {
        self.region.checkpoint()
    }

    /// The promise: the budget, and the time of its flush.
    pub fn promise(&self) -> Promise {
        self.promise
    }

    /// Stops writers for good, flushes within the warning, lets the holder go, and reports. The
    /// bytes can be read on. A change that another thread tries meanwhile is refused when the flush
    /// is over. A second call repeats the report.
    ///
    /// # Errors
    /// The flush failed, and the call may be repeated; or the holder did not end.
    pub fn close(&self) -> Result<Flushed, CloseError> {
        self.closing.close(&self.region)
    }

    /// The region below: budget, dirty bytes, counters.
    pub fn inner(&self) -> &Arc<perdura_region::Region> {
        &self.region
    }

    /// Changes a range of one block under its lane. Waits for budget are made with no lane held.
    fn change<R>(
        &self,
        offset: u64,
        len_bytes: u64,
        mut change: impl FnMut(&mut perdura_region::LaneGuard<'_>) -> Result<R, Need>,
    ) -> Result<R, AccessError> {
        let lane = lane_of(&self.region, offset / BLOCK_BYTES);
        let mut credit_bytes = 0;
        loop {
            let mut held = self.region.lock_with(lane, credit_bytes);
            let need = match change(&mut held) {
                Ok(done) => return Ok(done),
                // Room is asked for the whole range at once. With less, a part that is announced
                // could be clean again before the rest is.
                Err(Need::Room { .. }) => Need::Room { bytes: len_bytes + GRAINS_AT_ENDS_BYTES },
                Err(need) => need,
            };
            drop(held);
            credit_bytes = self.region.satisfy(need).inspect_err(|e| self.closing.await_end(e))?;
        }
    }

    fn commit_if_asked(&self) -> Result<(), AccessError> {
        match self.durability {
            Durability::Fsync => Ok(self.commit().inspect_err(|e| self.closing.await_end(e))?),
            Durability::Warned => Ok(()),
        }
    }

    fn check(&self, offset: u64, len_bytes: u64) -> Result<(), AccessError> {
        check_range(self.len_bytes(), offset, len_bytes)
    }

    fn check_word(&self, offset: u64) -> Result<(), AccessError> {
        match offset % WORD_BYTES {
            0 => self.check(offset, WORD_BYTES),
            _ => Err(AccessError::Misaligned { offset, align_bytes: WORD_BYTES }),
        }
    }
}

impl Drop for Region {
    /// Flushes as [`Region::close`] does, if that has not been done. A failure is logged only.
    fn drop(&mut self) {
        if self.closing.is_forked() {
            // Everything belongs to the parent, which a destructor here would disturb.
            std::mem::forget(Arc::clone(&self.region));
            return;
        }
        self.closing.close_at_drop(&self.region);
    }
}

pub(crate) fn check_range(
    region_bytes: u64,
    offset: u64,
    len_bytes: u64,
) -> Result<(), AccessError> {
    match offset.checked_add(len_bytes) {
        Some(end) if end <= region_bytes => Ok(()),
        _ => Err(AccessError::OutOfRange { offset, len_bytes, region_bytes }),
    }
}

fn lane_of(region: &perdura_region::Region, block: u64) -> LaneId {
    LaneId((block % u64::from(region.lanes())) as u16)
}

/// The pieces of a range that lie in one block each: offset and length.
fn blocks(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize)> {
    let end = offset + len as u64;
    let mut at = offset;
    std::iter::from_fn(move || {
        let next = end.min((at / BLOCK_BYTES + 1) * BLOCK_BYTES);
        let piece = (at, (next - at) as usize);
        at = next;
        (piece.1 > 0).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_of_a_range_are_its_bytes_block_by_block() {
        let pieces = |offset, len| blocks(offset, len).collect::<Vec<_>>();
        assert_eq!(pieces(10, 0), []);
        assert_eq!(pieces(10, 20), [(10, 20)]);
        assert_eq!(pieces(BLOCK_BYTES - 1, 2), [(BLOCK_BYTES - 1, 1), (BLOCK_BYTES, 1)]);
        let (block, all) =
            (BLOCK_BYTES as usize, pieces(BLOCK_BYTES, 2 * BLOCK_BYTES as usize + 5));
        let expected = [(1, block), (2, block), (3, 5)].map(|(at, len)| (at * BLOCK_BYTES, len));
        assert_eq!(all, expected);
    }

    #[test]
    fn a_range_must_end_within_the_region() {
        for (offset, len_bytes, is_within) in
            [(0, 100, true), (100, 0, true), (1, 100, false), (u64::MAX, 2, false)]
        {
            assert_eq!(check_range(100, offset, len_bytes).is_ok(), is_within, "{offset}");
        }
    }
}
