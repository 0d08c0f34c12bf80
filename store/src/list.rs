//! Reading a list, whichever way it is stored.
//!
//! A small list is one record, whose value is its entries (`listpack.rs`). A large one is a chain
//! of chunks (`list/chunk.rs`). The record has the first and the last chunk, where pushes and pops
//! happen, and the top of a tree of those between (`list/index.rs`):
//!
//! ```text
//! first chunk u64 | last chunk u64 | top u64 | elements below the top u64
//! ```
//! at the next multiple of 8 behind the key. Any of the three may be missing, which is 0; then the
//! next one has the end of the list. So a list may be a single chunk, which both ends change.

pub(crate) mod chunk;
pub(crate) mod index;
mod node;

use std::ops::{ControlFlow, Range};

use perdura_slots::{Lane, Marks};

use crate::entry::Entry;
use crate::error::{Damaged, OpenError};
use crate::listpack::{self, Item};
use crate::record::{Header, RecordKind};
use chunk::{Chunk, part, with_element};
use index::Path;
use node::Node;

/// Most bytes of the entries of a list in one record, whatever changes it.
pub(crate) const PACKED_BYTES_MAX: usize = 1024;
/// Most bytes of the entries in one record as long as the list only grows at its end, where entries
/// are written behind the others: that takes least memory.
pub(crate) const APPENDED_BYTES_MAX: usize = 8192;
/// Most elements of such a list with more than [`PACKED_BYTES_MAX`]: a push counts them.
pub(crate) const APPENDED_LEN_MAX: u64 = 128;
/// A large list whose entries are no more bytes than this is packed again.
pub(crate) const REPACKED_BYTES_MAX: usize = PACKED_BYTES_MAX / 4;
/// Bytes of a root.
pub(crate) const ROOT_BYTES: usize = 32;
/// Where the word of the elements below the top lies in a root.
const AT_MIDDLE: u64 = 24;

/// An end of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Where the first element is: the left end.
    Front,
    /// Where the last element is: the right end.
    Back,
}

impl End {
    /// Whether this is the front.
    pub fn is_front(self) -> bool {
        self == Self::Front
    }
}

/// The words of a large list in its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Root {
    /// Offset of the words themselves.
    pub at: u64,
    /// Offset of the first chunk; 0 if the tree or the last chunk begins the list.
    pub head: u64,
    /// Offset of the last chunk; 0 if the tree or the first chunk ends the list.
    pub tail: u64,
    /// Top of the tree of the chunks between, or 0.
    pub top: u64,
    /// Number of elements below the top.
    pub middle: u64,
}

impl Root {
    /// The words of the large list at `entry`.
    #[inline]
    pub fn of(entry: &Entry<'_>) -> Self {
        Self::load(entry.lane, (entry.at + entry.header.value_at()).next_multiple_of(8))
    }

    /// The words at an offset.
    #[inline]
    pub fn load(lane: &Lane<'_>, at: u64) -> Self {
        let words = lane.bytes(at, ROOT_BYTES).as_chunks::<8>().0;
        let word = |index: usize| u64::from_le_bytes(words[index]);
        Self { at, head: word(0), tail: word(1), top: word(2), middle: word(3) }
    }

    /// Offset of the chunk at an end of the list, outside of the tree; or 0.
    pub fn near(&self, is_front: bool) -> u64 {
        if is_front { self.head } else { self.tail }
    }

    /// The words as they are stored.
    pub fn encode(&self) -> [u8; ROOT_BYTES] {
        let mut bytes = [0; ROOT_BYTES];
        let words = [self.head, self.tail, self.top, self.middle];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Number of elements.
    pub fn len(&self, lane: &Lane<'_>) -> u64 {
        let ends = [self.head, self.tail].into_iter().filter(|at| *at != 0);
        ends.fold(self.middle, |sum, at| sum.saturating_add(Chunk::load(lane, at).count))
    }

    /// Bytes of the entries of all chunks, without the elements that have records of their own.
    pub fn entry_bytes(&self, lane: &Lane<'_>) -> u64 {
        let (mut bytes, mut next) = (0, Some(self.seek(lane, 0)));
        while let Some(spot) = next {
            bytes += spot.chunk.len() as u64;
            next = self.next(lane, &spot, false);
        }
        bytes
    }

    /// The element at this end of the list.
    fn end(&self, lane: &Lane<'_>, is_front: bool) -> Spot {
        let ends = [(Place::Head, self.head), (Place::Tail, self.tail)];
        let [near, far] = if is_front { ends } else { [ends[1], ends[0]] };
        let spot = match (near, self.top) {
            ((place, chunk), _) if chunk != 0 => Spot::at(lane, place, chunk),
            (_, 0) => Spot::at(lane, far.0, far.1),
            (_, top) => {
                let path = Path::to_end(lane, top, is_front);
                Spot::at(lane, Place::Middle(path), path.item(lane).child)
            }
        };
        let index = if is_front { 0 } else { spot.chunk.count.saturating_sub(1) };
        Spot { index, ..spot }
    }

    /// Finds the element at `index`, which the list must have.
    pub fn seek(&self, lane: &Lane<'_>, mut index: u64) -> Spot {
        if self.head != 0 {
            let spot = Spot::at(lane, Place::Head, self.head);
            if index < spot.chunk.count {
                return Spot { index, ..spot };
            }
            index -= spot.chunk.count;
        }
        if index < self.middle {
            let (path, index) = Path::to(lane, self.top, index);
            let spot = Spot::at(lane, Place::Middle(path), path.item(lane).child);
            return Spot { index, ..spot };
        }
        Spot { index: index - self.middle, ..Spot::at(lane, Place::Tail, self.tail) }
    }

    /// The next chunk or, if `down`, the one before, with the index of its nearest element.
    pub fn next(&self, lane: &Lane<'_>, spot: &Spot, down: bool) -> Option<Spot> {
        let beyond = if down { self.head } else { self.tail };
        let last = if down { Place::Head } else { Place::Tail };
        let path = match spot.place {
            Place::Middle(mut path) => path.step(lane, down).then_some(path),
            Place::Head if down => return None,
            Place::Tail if !down => return None,
            _ => (self.top != 0).then(|| Path::to_end(lane, self.top, !down)),
        };
        let next = match path {
            Some(path) => Spot::at(lane, Place::Middle(path), path.item(lane).child),
            None if beyond != 0 => Spot::at(lane, last, beyond),
            None => return None,
        };
        let index = if down { next.chunk.count.saturating_sub(1) } else { 0 };
        Some(Spot { index, ..next })
    }
}

/// Where a chunk hangs.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::large_enum_variant, reason = "lives on the stack, and moves once a chunk")]
pub(crate) enum Place {
    Head,
    Middle(Path),
    Tail,
}

/// An element of a large list: its chunk, and its index there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot {
    pub place: Place,
    pub chunk: Chunk,
    pub index: u64,
}

impl Spot {
    fn at(lane: &Lane<'_>, place: Place, chunk: u64) -> Self {
        Self { place, chunk: Chunk::load(lane, chunk), index: 0 }
    }
}

/// A list as it is found, valid while its shard is held. Elements have indices from 0 on.
#[derive(Clone, Copy)]
pub struct List<'a> {
    lane: &'a Lane<'a>,
    form: Form<'a>,
}

/// A list as it is stored.
#[derive(Clone, Copy)]
pub(crate) enum Form<'a> {
    Packed(&'a [u8]),
    Large(Root),
}

impl<'a> Entry<'a> {
    /// The value, if it is a list.
    pub fn list(&self) -> Option<List<'a>> {
        let form = match self.header.kind {
            RecordKind::PackedList => Form::Packed(self.value()),
            RecordKind::LargeList => Form::Large(Root::of(self)),
            _ => return None,
        };
        Some(List { lane: self.lane, form })
    }
}

/// The packed entries as if they were a chunk's.
fn count_packed(packed: &[u8]) -> u64 {
    let (mut rest, mut count) = (packed, 0);
    while let Some((_, len)) = listpack::first(rest) {
        rest = &rest[len..];
        count += 1;
    }
    count
}

impl<'a> List<'a> {
    /// How the list is stored.
    pub(crate) fn form(&self) -> Form<'a> {
        self.form
    }

    /// The number of elements.
    #[allow(clippy::len_without_is_empty, reason = "a key without elements is no key")]
    pub fn len(&self) -> u64 {
        match &self.form {
            Form::Packed(packed) => count_packed(packed),
            Form::Large(root) => root.len(self.lane),
        }
    }

    /// Calls `f` with the element at `index`; `None` if the list does not have as many.
    pub fn get<R>(&self, index: u64, f: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let (mut f, mut result) = (Some(f), None);
        self.walk(index..index.saturating_add(1), false, &mut |element| {
            result = f.take().map(|f| f(element));
            ControlFlow::Break(())
        });
        result
    }

    /// Calls `f` with the elements of these indices, as far as the list has as many; from the last
    /// to the first if `down`.
    pub fn for_each(&self, indices: Range<u64>, down: bool, f: &mut dyn FnMut(&[u8])) {
        self.walk(indices, down, &mut |element| {
            f(element);
            ControlFlow::Continue(())
        });
    }

    /// Calls `f` as [`List::for_each`] does, until it breaks.
    pub fn walk(
        &self,
        indices: Range<u64>,
        down: bool,
        f: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) {
        let lane = self.lane;
        self.walk_items(indices, down, &mut |item| with_element(lane, item, &mut *f));
    }

    /// Calls `f` with the elements from an end of the list on, until it breaks. The length of the
    /// list is not asked for.
    pub fn walk_from(&self, end: End, f: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) {
        let (lane, down) = (self.lane, end == End::Back);
        let mut each = |item: Item<'_>| with_element(lane, item, &mut *f);
        match self.form {
            Form::Packed(packed) => walk_packed(packed, 0..u64::MAX, down, &mut each),
            Form::Large(root) => {
                self.walk_on(&root, root.end(lane, !down), u64::MAX, down, &mut each);
            }
        }
    }

    fn walk_items(
        &self,
        indices: Range<u64>,
        down: bool,
        f: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
    ) {
        let root = match self.form {
            Form::Packed(packed) => return walk_packed(packed, indices, down, f),
            Form::Large(root) => root,
        };
        let end = indices.end.min(root.len(self.lane));
        if indices.start >= end {
            return;
        }
        let left = end - indices.start;
        let spot = root.seek(self.lane, if down { end - 1 } else { indices.start });
        if let Some(chunk) = self.walk_on(&root, spot, left, down, f) {
            // The counts say that there are more.
            chunk.damaged(self.lane).unwind();
        }
    }

    /// Calls `f` with up to `left` elements from a spot on, until it breaks. Returns the last chunk
    /// if the list has fewer elements.
    fn walk_on(
        &self,
        root: &Root,
        mut spot: Spot,
        mut left: u64,
        down: bool,
        f: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> Option<Chunk> {
        loop {
            let (chunk, entries) = (spot.chunk, spot.chunk.entries(self.lane));
            let here = if down { spot.index + 1 } else { chunk.count.saturating_sub(spot.index) };
            let from = chunk.offset_of(self.lane, spot.index + u64::from(down));
            let mut rest = if down { &entries[..from] } else { &entries[from..] };
            for _ in 0..here.min(left) {
                let item = if down {
                    let (item, len) = chunk.last(self.lane, rest);
                    rest = &rest[..rest.len() - len];
                    item
                } else {
                    let (item, len) = chunk.first(self.lane, rest);
                    rest = &rest[len..];
                    item
                };
                if f(item).is_break() {
                    return None;
                }
            }
            left -= here.min(left);
            if left == 0 {
                return None;
            }
            match root.next(self.lane, &spot, down) {
                Some(next) => spot = next,
                None => return Some(chunk),
            }
        }
    }

    /// Whether the list would be one listpack of at most `max` bytes in Redis.
    pub fn fits_listpack(&self, max: u64) -> bool {
        // Six bytes of head and one of end.
        let (mut bytes, lane) = (7u64, self.lane);
        let len_of = |item: Item<'_>| match item {
            Item::Part(at) => 1 + 4 + part(lane, at).len() as u64 + 2,
            other => other.len() as u64,
        };
        self.walk_items(0..u64::MAX, false, &mut |item| {
            bytes += len_of(item);
            if bytes > max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        bytes <= max
    }

    /// Checks every invariant of a list. Tests call this.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn assert_sound(&self) {
        let mut met = 0;
        self.for_each(0..u64::MAX, false, &mut |_| met += 1);
        assert_eq!(met, self.len(), "elements met");
        assert!(met > 0, "an empty list");
        let root = match self.form {
            Form::Packed(packed) => return assert!(packed.len() <= APPENDED_BYTES_MAX),
            Form::Large(root) => root,
        };
        assert_ne!(root.head | root.tail | root.top, 0, "a list without chunks");
        assert_eq!(root.top == 0, root.middle == 0, "elements of the tree");
        for at in [root.head, root.tail].into_iter().filter(|at| *at != 0) {
            self.assert_chunk(at);
        }
        if root.top != 0 {
            let node = Node::load(self.lane, root.top);
            assert!(node.level() == 0 || node.len() > 1, "a top of one entry");
            assert_eq!(self.assert_node(node), root.middle, "elements counted by the top");
        }
    }

    fn assert_chunk(&self, at: u64) -> u64 {
        let chunk = Chunk::load(self.lane, at);
        let counted = listpack::count(chunk.entries(self.lane));
        assert_eq!(counted, Some((chunk.count, chunk.parts)), "chunk {at:#x}");
        assert!(chunk.count > 0 && chunk.end as u64 <= self.lane.usable_bytes(at));
        chunk.count
    }

    fn assert_node(&self, node: Node) -> u64 {
        assert!(node.is_sound(self.lane), "node {:#x}", node.at());
        for item in node.items(self.lane) {
            let below = match node.level() {
                0 => self.assert_chunk(item.child),
                level => {
                    let child = Node::load(self.lane, item.child);
                    assert_eq!(child.level() + 1, level, "level of a child");
                    // As deep as there are levels, which fall by one each time.
                    self.assert_node(child)
                }
            };
            assert_eq!(below, item.count, "elements below");
        }
        node.elements(self.lane)
    }
}

fn walk_packed(
    packed: &[u8],
    indices: Range<u64>,
    down: bool,
    f: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
) {
    if !down {
        let (mut rest, mut index) = (packed, 0);
        while let Some((item, len)) = listpack::first(rest).filter(|_| index < indices.end) {
            rest = &rest[len..];
            if index >= indices.start && f(item).is_break() {
                return;
            }
            index += 1;
        }
        return;
    }
    let (mut rest, mut index) = (packed, count_packed(packed));
    while let Some((item, len)) = listpack::last(rest).filter(|_| index > indices.start) {
        rest = &rest[..rest.len() - len];
        index -= 1;
        if index < indices.end && f(item).is_break() {
            return;
        }
    }
}

/// Bytes of memory that a large list takes beside its record.
pub(crate) fn memory_bytes(lane: &Lane<'_>, root: &Root) -> u64 {
    let mut sum = 0;
    let mut add = |at: u64| {
        let chunk = Chunk::load(lane, at);
        let parts = chunk.parts_in(lane, chunk.entries(lane));
        sum += lane.usable_bytes(at);
        sum += parts.into_iter().map(|part| lane.usable_bytes(part)).sum::<u64>();
    };
    [root.head, root.tail].into_iter().filter(|at| *at != 0).for_each(&mut add);
    let mut nodes = Vec::from_iter((root.top != 0).then_some(root.top));
    let mut node_bytes = 0;
    while let Some(node) = nodes.pop() {
        node_bytes += lane.usable_bytes(node);
        match index::children(lane, node) {
            (true, chunks) => chunks.into_iter().for_each(&mut add),
            (false, below) => nodes.extend(below),
        }
    }
    sum + node_bytes
}

/// Marks all that the root of a large list leads to, and refuses what no store writes.
pub(crate) fn trace(lane: &Lane<'_>, marks: &mut Marks<'_>, root: &Root) -> Result<(), OpenError> {
    for at in [root.head, root.tail].into_iter().filter(|at| *at != 0) {
        trace_chunk(lane, marks, at)?;
    }
    // Each node with the level and the number of elements that it has to have.
    let top = (root.top != 0).then_some((root.top, None, root.middle));
    if top.is_none() && (root.middle != 0 || root.head | root.tail == 0) {
        let (offset, value) = (root.at + AT_MIDDLE, root.middle);
        return Err(Damaged { what: "elements of a list", offset, value }.into());
    }
    let mut left = Vec::from_iter(top);
    while let Some((at, level, count)) = left.pop() {
        marks.mark(at)?;
        let node = Node::load(lane, at);
        let fits = level.is_none_or(|level| level == node.level());
        if !fits || !node.is_sound(lane) || node.elements(lane) != count {
            return Err(node.damaged(lane).into());
        }
        for item in node.items(lane) {
            if node.level() > 0 {
                left.push((item.child, Some(node.level() - 1), item.count));
            } else if trace_chunk(lane, marks, item.child)? != item.count {
                return Err(node.damaged(lane).into());
            }
        }
    }
    Ok(())
}

fn trace_chunk(lane: &Lane<'_>, marks: &mut Marks<'_>, at: u64) -> Result<u64, OpenError> {
    marks.mark(at)?;
    let chunk = Chunk::try_load(lane, at)?;
    let is_inside = chunk.end as u64 <= lane.usable_bytes(at);
    let counted = is_inside.then(|| listpack::count(chunk.entries(lane))).flatten();
    if counted != Some((chunk.count, chunk.parts)) || chunk.count == 0 {
        return Err(chunk.damaged(lane).into());
    }
    for part in chunk.parts_in(lane, chunk.entries(lane)) {
        marks.mark(part)?;
        let header = Header::try_load(lane, part)?;
        let is_part = header.kind == RecordKind::ListPart && header.is_short;
        if !is_part || header.key_len != 0 || header.db != 0 {
            let (what, value) = ("record's kind", header.first_word());
            return Err(Damaged { what, offset: part, value }.into());
        }
        if header.len_bytes() > lane.usable_bytes(part) {
            let (what, value) = ("record length", header.len_bytes());
            return Err(Damaged { what, offset: part, value }.into());
        }
    }
    Ok(chunk.count)
}
