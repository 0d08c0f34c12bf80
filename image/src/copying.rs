//! Copying an image, frame by frame, while another program may be writing it.
//!
//! A commit says which bytes of which segments its state needs. They do not change while the commit
//! is the newest. Later a segment may be freed and used anew, so every frame is checked when it is
//! read: its checksums, and that its sequence number is one of the commit's.

use std::ops::Range;

pub use perdura_dirty::geometry::{BUFFERS, Geometry};
use perdura_dirty::sys::AlignedBytes;
use perdura_media::Device;
use zerocopy::{FromZeros, IntoBytes};

use crate::checks::is_whole;
use crate::cipher::Key;
use crate::error::{ImageError, OpenError};
use crate::format::{
    FRAME_HEADER_BYTES, Layout, SEGMENT_WRITTEN, SLOT_COPIES, SLOTS, SlotHeader, SlotSegment,
};
use crate::frame::{Frame, parse_header};
use crate::slots::{aligned, read_slots, sealed_slot};
use crate::superblock::{Head, check_geometry, prepare, write_head};

/// A committed state of an image: the contents of a commit slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Number of the commit.
    pub number: u64,
    /// Sequence number of the last frame that it covers.
    pub last_seq: u64,
    /// Number of the epoch that it closed.
    pub epoch: u64,
    /// Region size, bytes.
    pub region_bytes: u64,
    /// Segments of the log.
    pub segments: u32,
    /// Milliseconds since 1970: all writes that were acknowledged before are covered.
    pub unix_ms: u64,
    /// How often the image had been opened.
    pub incarnation: u32,
    /// What the state needs, by rising numbers of segments.
    pub parts: Vec<Part>,
}

/// The part of a segment that a commit needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Number of the segment.
    pub segment: u32,
    /// Sequence number of its first frame, which no later use of the segment has again.
    pub first_seq: u64,
    /// Bytes of frames.
    pub used_bytes: u32,
}

/// Reads the newest commit of an image. `key` is the image's, if it is encrypted.
///
/// # Errors
/// There is no valid one, or the device fails.
pub fn newest_commit(
    device: &dyn Device,
    geometry: &Geometry,
    image_id: u64,
    key: Option<&Key>,
) -> Result<Commit, OpenError> {
    let slot = read_slots(device, geometry, image_id, key)?;
    let parts = (0..).zip(&slot.segments).filter(|(_, named)| named.used_bytes.get() > 0);
    Ok(Commit {
        number: slot.header.commit.get(),
        last_seq: slot.header.last_seq.get(),
        epoch: slot.header.epoch.get(),
        region_bytes: slot.header.region_bytes.get(),
        segments: slot.header.segments.get(),
        unix_ms: slot.header.unix_ms.get(),
        incarnation: slot.header.incarnation.get(),
        parts: parts
            .map(|(segment, named)| Part {
                segment,
                first_seq: named.first_seq.get(),
                used_bytes: named.used_bytes.get(),
            })
            .collect(),
    })
}

/// Refuses sizes that no image has.
///
/// # Errors
/// The first size that is impossible.
pub fn check_sizes(geometry: &Geometry) -> Result<(), ImageError> {
    check_geometry(geometry)
}

/// A frame of which every checksum was found right.
#[derive(Debug, Clone, Copy)]
pub struct WholeFrame<'b> {
    /// Sequence number.
    pub seq: u64,
    /// Bytes from this frame to the next.
    pub total_bytes: u32,
    /// All bytes that were written of it. Its header, the first 64 of them, has checksums over all
    /// the others.
    pub bytes: &'b [u8],
}

impl WholeFrame<'_> {
    /// The frame's header, which differs between any two frames.
    pub fn header(&self) -> &[u8] {
        &self.bytes[..FRAME_HEADER_BYTES]
    }
}

/// Parses the frame at the beginning of `bytes`, which lies, or is to lie, at offset `at` of a
/// segment. `key` is the image's: without it only the tables of an encrypted frame are checked.
/// `None`: there is no frame, or it is not whole.
pub fn whole_frame<'b>(
    bytes: &'b [u8],
    geometry: &Geometry,
    image_id: u64,
    key: Option<&Key>,
    at: u64,
) -> Option<WholeFrame<'b>> {
    let frame = frame_at(bytes, geometry, image_id, at)?;
    let bytes = bytes.get(..frame.written())?;
    is_whole(&frame, bytes, key).then_some(WholeFrame {
        seq: frame.seq(),
        total_bytes: frame.total() as u32,
        bytes,
    })
}

fn frame_at(bytes: &[u8], geometry: &Geometry, image_id: u64, at: u64) -> Option<Frame> {
    let head = bytes.get(..FRAME_HEADER_BYTES)?;
    let header = parse_header(head, image_id, geometry.segment_bytes, at)?;
    Some(Frame { segment: 0, at, first_seq: header.seq.get(), header })
}

/// Reads the frames of a commit from an image.
pub struct Frames<'d> {
    device: &'d dyn Device,
    geometry: Geometry,
    layout: Layout,
    image_id: u64,
    key: Option<Key>,
    window: AlignedBytes,
    /// The range of the device that is in the window.
    held: Range<u64>,
}

impl<'d> Frames<'d> {
    /// A reader, which takes memory for the longest frame. `key` is the image's, if it is encrypted.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(device: &'d dyn Device, head: &Head, key: Option<Key>) -> Result<Self, OpenError> {
        let Head { geometry, image_id, .. } = *head;
        let window = aligned(geometry.frame_limit() as usize)?;
        let layout = Layout::of(&geometry);
        Ok(Self { device, geometry, layout, image_id, key, window, held: 0..0 })
    }

    /// Forgets what was read ahead, which a newer commit may have changed.
    pub fn forget(&mut self) {
        self.held = 0..0;
    }

    /// The whole frame at offset `at` of a part. `None`: the segment was used anew since.
    ///
    /// # Errors
    /// The device fails.
    pub fn whole(&mut self, part: &Part, at: u32) -> Result<Option<WholeFrame<'_>>, OpenError> {
        let Some(frame) = self.header(part, at, true)? else { return Ok(None) };
        let written = frame.written() as u64;
        let from = self.fill(part, at, written, true)?;
        let bytes = &self.window.as_slice()[from..from + written as usize];
        Ok(whole_frame(bytes, &self.geometry, self.image_id, self.key.as_ref(), at.into()))
    }

    /// The header of the frame at offset `at` of a part, and the bytes to the next frame. `None`:
    /// the segment was used anew since.
    ///
    /// # Errors
    /// The device fails.
    pub fn header_bytes(
        &mut self,
        part: &Part,
        at: u32,
    ) -> Result<Option<([u8; FRAME_HEADER_BYTES], u32)>, OpenError> {
        let found = self.header(part, at, false)?;
        let mut bytes = [0; FRAME_HEADER_BYTES];
        Ok(found.map(|frame| {
            bytes.copy_from_slice(frame.header.as_bytes());
            (bytes, frame.total() as u32)
        }))
    }

    fn header(&mut self, part: &Part, at: u32, ahead: bool) -> Result<Option<Frame>, OpenError> {
        if at + 4096 > part.used_bytes {
            return Ok(None);
        }
        let from = self.fill(part, at, 4096, ahead)?;
        let bytes = &self.window.as_slice()[from..];
        let frame = frame_at(bytes, &self.geometry, self.image_id, at.into());
        Ok(frame.filter(|frame| u64::from(at) + frame.total() <= part.used_bytes.into()))
    }

    /// Lets the window have `bytes` from offset `at` of a part on, or with `ahead` all of the part
    /// that fits. Returns where in the window they begin.
    fn fill(&mut self, part: &Part, at: u32, bytes: u64, ahead: bool) -> Result<usize, OpenError> {
        if bytes > self.window.as_slice().len() as u64 {
            self.forget();
            self.window = aligned(bytes as usize)?;
        }
        let start = self.layout.segment_at(part.segment) + u64::from(at);
        if start < self.held.start || start + bytes > self.held.end {
            let left = u64::from(part.used_bytes - at).min(self.window.as_slice().len() as u64);
            let len = if ahead { left.max(bytes) } else { bytes } as usize;
            self.held = 0..0;
            self.device.read_at(start, &mut self.window.as_mut()[..len])?;
            self.held = start..start + len as u64;
        }
        Ok((start - self.held.start) as usize)
    }
}

/// A copy of an image that is being made, on a device of its own.
pub struct Copy<'d> {
    device: &'d dyn Device,
    head: Head,
    /// The image's key, if it is encrypted.
    key: Option<Key>,
    layout: Layout,
    /// The frame that is written next, because devices take aligned memory only.
    frame: AlignedBytes,
}

impl<'d> Copy<'d> {
    /// Begins a copy on a device that may be empty: until [`Copy::finish`], it is no image. `key` is
    /// the image's, if it is encrypted.
    ///
    /// # Errors
    /// The device fails or has too little space.
    pub fn begin(
        device: &'d dyn Device,
        head: &Head,
        key: Option<Key>,
        segments: u32,
    ) -> Result<Self, OpenError> {
        device.grow(Layout::of(&head.geometry).segment_at(segments))?;
        prepare(device, &head.geometry)?;
        Self::go_on(device, head, key)
    }

    /// Goes on with a copy that was finished as of an earlier commit. Whoever calls this lets
    /// nobody take it for an image until it is finished again.
    ///
    /// # Errors
    /// There is no memory.
    pub fn go_on(device: &'d dyn Device, head: &Head, key: Option<Key>) -> Result<Self, OpenError> {
        let frame = aligned(head.geometry.frame_limit() as usize)?;
        Ok(Self { device, head: head.clone(), key, layout: Layout::of(&head.geometry), frame })
    }

    /// Writes a frame at its place; durable with the commit.
    ///
    /// # Errors
    /// The device fails.
    pub fn write(&mut self, segment: u32, at: u32, frame: &[u8]) -> Result<(), OpenError> {
        if frame.len() > self.frame.as_slice().len() {
            self.frame = aligned(frame.len())?;
        }
        let end = self.layout.segment_at(segment + 1);
        if end > self.device.capacity_bytes() {
            self.device.grow(end)?;
        }
        let bytes = &mut self.frame.as_mut()[..frame.len()];
        bytes.copy_from_slice(frame);
        let start = self.layout.segment_at(segment) + u64::from(at);
        Ok(self.device.write_at(start, bytes)?)
    }

    /// Writes the commit, all frames of which were written, as a final one: what else lies on the
    /// device does not count. From then on the copy is an image; durable on return.
    ///
    /// # Errors
    /// The device fails.
    pub fn finish(&mut self, commit: &Commit) -> Result<(), OpenError> {
        let mut entries = vec![SlotSegment::default(); commit.segments as usize];
        for part in &commit.parts {
            let impossible = ImageError::Impossible {
                what: "the number of a segment",
                value: part.segment.into(),
                offset_bytes: 0,
            };
            *entries.get_mut(part.segment as usize).ok_or(impossible)? = SlotSegment {
                first_seq: part.first_seq.into(),
                used_bytes: part.used_bytes.into(),
                flags: SEGMENT_WRITTEN.into(),
            };
        }
        // The log may have grown by segments that are not needed.
        self.device.grow(self.layout.segment_at(commit.segments))?;
        self.device.flush()?;
        // The slots have one number after the other, as those of a final commit do.
        for turn in 0..SLOTS {
            let header = SlotHeader {
                commit: (commit.number + turn).into(),
                last_seq: commit.last_seq.into(),
                epoch: commit.epoch.into(),
                region_bytes: commit.region_bytes.into(),
                is_final: 1.into(),
                unix_ms: commit.unix_ms.into(),
                incarnation: commit.incarnation.into(),
                ..SlotHeader::new_zeroed()
            };
            let bytes = sealed_slot(
                header,
                self.head.image_id,
                self.key.as_ref(),
                entries.iter().copied(),
            )?;
            for copy in 0..SLOT_COPIES {
                self.device.write_at(self.layout.slot_at(turn, copy), bytes.as_slice())?;
            }
        }
        self.device.flush()?;
        write_head(self.device, &self.head)
    }
}
