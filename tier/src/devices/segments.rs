//! The segments of one device: which may be written, and what still lies in the others.
//!
//! A segment is *free*, *open* (batches are appended), *sealed*, or *emptied*: no key has an
//! address in it any more, but a state of the store that a loss of power may lead back to could
//! have one. An emptied segment is free once a checkpoint that began later is durable.
//!
//! Live bytes are counted, and only a hint: a segment is emptied by looking up each of its records
//! in the store (`compact`), and it stays if that search and the count disagree.

use super::format::FIRST_SEGMENT_AT;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    /// Bytes appended so far.
    Open(u64),
    Sealed,
    Emptied,
    /// The search for its records and the count of its live bytes disagreed: it is never written
    /// again.
    Suspect,
}

#[derive(Debug, Clone, Copy)]
struct Segment {
    state: State,
    live_bytes: i64,
}

/// Where a batch may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// At this offset of the device.
    At(u64),
    /// Nowhere, until the device has this size.
    Grow(u64),
    /// Nowhere.
    Full,
}

/// Sums over the segments of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Bytes of segments that are not free.
    pub used_bytes: u64,
    /// Bytes of records whose addresses keys have.
    pub live_bytes: u64,
    pub free: u64,
    pub emptied: u64,
    pub suspect: u64,
}

#[derive(Debug)]
pub(crate) struct Segments {
    segment_bytes: u64,
    /// Most bytes that the device may grow to.
    limit_bytes: u64,
    list: Vec<Segment>,
    open: Option<usize>,
}

impl Segments {
    /// The segments of a device of this size. What they hold is not known yet, so each is taken for
    /// emptied: those that hold something are told of by [`Segments::found`].
    pub fn new(segment_bytes: u64, capacity_bytes: u64, limit_bytes: u64) -> Self {
        let count = capacity_bytes.saturating_sub(FIRST_SEGMENT_AT) / segment_bytes;
        let segment = Segment { state: State::Emptied, live_bytes: 0 };
        let list = vec![segment; count as usize];
        Self { segment_bytes, limit_bytes, list, open: None }
    }

    fn at(&self, index: usize) -> u64 {
        FIRST_SEGMENT_AT + index as u64 * self.segment_bytes
    }

    fn of(&mut self, offset: u64) -> Option<&mut Segment> {
        let index = offset.checked_sub(FIRST_SEGMENT_AT)? / self.segment_bytes;
        self.list.get_mut(index as usize)
    }

    /// Takes room for a batch of `bytes`, which are whole blocks and fit a segment. One segment is
    /// left to batches that empty others, for without it a full device could never be tidied up. It
    /// is there before the last but one is opened: a file system does not tell when it is full.
    pub fn reserve(&mut self, bytes: u64, empties: bool) -> Room {
        assert!(bytes <= self.segment_bytes, "a batch of {bytes} bytes");
        if let Some(index) = self.open
            && let State::Open(filled) = self.list[index].state
            && filled + bytes <= self.segment_bytes
        {
            self.list[index].state = State::Open(filled + bytes);
            return Room::At(self.at(index) + filled);
        }
        let left = u64::from(!empties);
        if self.to_be_opened() <= left {
            return Room::Full;
        }
        match self.list.iter().position(|segment| segment.state == State::Free) {
            Some(index) if self.free_count() > left => {
                self.seal();
                self.list[index].state = State::Open(bytes);
                self.open = Some(index);
                Room::At(self.at(index))
            }
            _ => Room::Grow(self.at(self.list.len() + 1)),
        }
    }

    fn free_count(&self) -> u64 {
        self.list.iter().filter(|segment| segment.state == State::Free).count() as u64
    }

    /// Segments that may still be opened: those that are free, and those by which the device may
    /// grow.
    fn to_be_opened(&self) -> u64 {
        let growth_bytes = self.limit_bytes.saturating_sub(self.at(self.list.len()));
        self.free_count().saturating_add(growth_bytes / self.segment_bytes)
    }

    /// Bytes of the longest batch for which there is room, if it empties a segment.
    pub fn room_bytes(&self) -> u64 {
        let open = self.open.map(|index| self.list[index].state);
        match open {
            _ if self.to_be_opened() > 0 => self.segment_bytes,
            Some(State::Open(filled)) => self.segment_bytes - filled,
            _ => 0,
        }
    }

    /// Bytes that are left of the open segment, whole blocks.
    pub fn open_rest_bytes(&self) -> u64 {
        match self.open.map(|index| self.list[index].state) {
            Some(State::Open(filled)) => self.segment_bytes - filled,
            _ => 0,
        }
    }

    /// Notes that the device cannot become larger than it is.
    pub fn stop_growing(&mut self) {
        self.limit_bytes = self.at(self.list.len());
    }

    /// Notes that the device has grown to `capacity_bytes`.
    pub fn grown(&mut self, capacity_bytes: u64) {
        while self.at(self.list.len() + 1) <= capacity_bytes {
            self.list.push(Segment { state: State::Free, live_bytes: 0 });
        }
    }

    /// Counts a record that keys may have the address of from now on.
    pub fn add_live(&mut self, offset: u64, bytes: u64) {
        if let Some(segment) = self.of(offset) {
            segment.live_bytes += bytes as i64;
        }
    }

    /// Counts a record whose address no key has any more.
    pub fn take_live(&mut self, offset: u64, bytes: u64) {
        if let Some(segment) = self.of(offset) {
            segment.live_bytes -= bytes as i64;
        }
    }

    /// Notes a record that a key had the address of when the store was opened. Returns whether
    /// there is such a place.
    pub fn found(&mut self, offset: u64, bytes: u64) -> bool {
        let Some(segment) = self.of(offset) else { return false };
        if segment.state == State::Emptied {
            segment.state = State::Sealed;
        }
        segment.live_bytes += bytes as i64;
        true
    }

    /// The sealed segment with the fewest live bytes, if these are at most `live_bytes_max`: its
    /// offset.
    pub fn sparsest(&self, live_bytes_max: u64) -> Option<u64> {
        let sealed = |segment: &&(usize, &Segment)| segment.1.state == State::Sealed;
        let sparsest = self.list.iter().enumerate().filter(|s| sealed(&s));
        let (index, segment) = sparsest.min_by_key(|(_, segment)| segment.live_bytes)?;
        (segment.live_bytes.max(0) as u64 <= live_bytes_max).then(|| self.at(index))
    }

    /// Whether live bytes are counted in the segment at `offset`.
    pub fn has_live(&mut self, offset: u64) -> bool {
        self.of(offset).is_some_and(|segment| segment.live_bytes != 0)
    }

    /// Ends the open segment, so that it can be emptied like the others.
    pub fn seal(&mut self) {
        if let Some(index) = self.open.take() {
            self.list[index].state = State::Sealed;
        }
    }

    /// Notes that each record of the segment at `offset` was looked up, and that no key has the
    /// address of one any more. Returns whether the count agrees.
    pub fn emptied(&mut self, offset: u64) -> bool {
        let Some(segment) = self.of(offset) else { return false };
        let agrees = segment.live_bytes == 0;
        segment.state = if agrees { State::Emptied } else { State::Suspect };
        agrees
    }

    /// The segments that are emptied now: to be handed to [`Segments::free`] after a checkpoint.
    pub fn emptied_now(&self) -> Vec<usize> {
        let is_emptied = |index: &usize| self.list[*index].state == State::Emptied;
        (0..self.list.len()).filter(is_emptied).collect()
    }

    /// Frees segments that were emptied before a checkpoint which is durable now.
    pub fn free(&mut self, emptied: &[usize]) {
        for &index in emptied {
            if self.list[index].state == State::Emptied {
                self.list[index].state = State::Free;
            }
        }
    }

    pub fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for segment in &self.list {
            match segment.state {
                State::Free => sums.free += 1,
                State::Emptied => sums.emptied += 1,
                State::Suspect => sums.suspect += 1,
                State::Open(_) | State::Sealed => {}
            }
            if segment.state != State::Free {
                sums.used_bytes += self.segment_bytes;
            }
            sums.live_bytes += segment.live_bytes.max(0) as u64;
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_segment_is_written_again_only_after_it_was_emptied_and_freed() {
        let mut segments = Segments::new(MIB, 4096, 4096 + 3 * MIB);
        assert_eq!(segments.reserve(MIB, true), Room::Grow(4096 + MIB));
        segments.grown(4096 + 2 * MIB);
        assert_eq!(segments.reserve(MIB / 2, true), Room::At(4096));
        assert_eq!(segments.reserve(MIB / 2, true), Room::At(4096 + MIB / 2));
        assert_eq!(segments.reserve(8192, true), Room::At(4096 + MIB));
        assert_eq!(segments.reserve(MIB, true), Room::Grow(4096 + 3 * MIB));
        segments.grown(4096 + 3 * MIB);
        assert_eq!(segments.reserve(MIB, true), Room::At(4096 + 2 * MIB));
        assert_eq!(segments.reserve(4096, true), Room::Full);
        segments.add_live(4096 + 16, 100);
        assert_eq!(segments.sparsest(0), Some(4096 + MIB));
        assert!(segments.emptied(4096 + MIB));
        assert_eq!(segments.reserve(4096, true), Room::Full, "no checkpoint yet");
        let emptied = segments.emptied_now();
        segments.free(&emptied);
        assert_eq!(segments.reserve(4096, false), Room::Full, "the last one is for emptying");
        assert_eq!(segments.reserve(4096, true), Room::At(4096 + MIB));
        assert_eq!(segments.reserve(4096, false), Room::At(4096 + MIB + 4096), "it is open now");
    }

    #[test]
    fn a_file_system_that_is_suddenly_full_leaves_a_segment_for_emptying() {
        let mut segments = Segments::new(MIB, 4096, u64::MAX);
        assert_eq!(segments.reserve(MIB, false), Room::Grow(4096 + MIB));
        segments.grown(4096 + MIB);
        assert_eq!(segments.reserve(MIB, false), Room::Grow(4096 + 2 * MIB));
        segments.grown(4096 + 2 * MIB);
        assert_eq!(segments.reserve(MIB, false), Room::At(4096));
        assert_eq!(segments.reserve(MIB, false), Room::Grow(4096 + 3 * MIB));
        segments.stop_growing();
        assert_eq!(segments.reserve(4096, false), Room::Full);
        assert_eq!(segments.room_bytes(), MIB);
        assert_eq!(segments.reserve(4096, true), Room::At(4096 + MIB));
    }

    #[test]
    fn a_segment_whose_count_and_search_disagree_is_never_written_again() {
        let mut segments = Segments::new(MIB, 4096 + MIB, 4096 + MIB);
        assert!(segments.found(4096 + 32, 64));
        assert!(!segments.found(4096 + MIB, 64), "beyond the device");
        assert_eq!(segments.sparsest(u64::MAX), Some(4096));
        assert_eq!(segments.sparsest(63), None);
        assert!(!segments.emptied(4096));
        segments.free(&segments.emptied_now());
        assert_eq!(segments.reserve(4096, true), Room::Full);
        assert_eq!(segments.sums().suspect, 1);
    }
}
