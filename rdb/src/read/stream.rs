//! Streams: entries in listpacks, then what is remembered of entries that are gone, then groups.
//!
//! A listpack begins with its *master entry*: how many entries live and were deleted, the names of
//! fields that most entries have, and 0. Each entry has flags, its ID less that of the listpack,
//! its fields (values only, where the names are those of the master entry), and how many items
//! that makes.

use std::collections::{HashMap, HashSet};
use std::io::Read;

use super::packed::{self, Entry};
use super::value::Values;
use crate::error::RdbError;
use crate::strings::Strings;
use crate::value::{Consumer, Group, Pending, Stream, StreamEntry, StreamId};

/// Flag of an entry that was deleted.
const DELETED: i64 = 1;
/// Flag of an entry with the fields of the master entry.
const SAME_FIELDS: i64 = 2;
/// Memory that an entry, a pending entry or a consumer takes beside its strings.
const BYTES_PER_PART: u64 = 96;

/// Reads a stream of the form 1 (Redis 5), 2 (7.0) or 3 (7.2).
pub(super) fn read<R: Read>(values: &mut Values<R>, form: u8) -> Result<Stream, RdbError> {
    let mut stream = Stream::default();
    let nodes = values.len()?;
    for _ in 0..nodes {
        read_node(values, &mut stream.entries)?;
    }
    let len = values.len()?;
    if len != stream.entries.len() as u64 {
        return Err(values.corrupt("a stream that has not as many entries as it says"));
    }
    stream.last_id = id(values)?;
    stream.entries_added = len;
    if form >= 2 {
        // The first ID is that of the first entry, and is known from that.
        let _first_id = id(values)?;
        stream.max_deleted_id = id(values)?;
        stream.entries_added = values.len()?;
    }
    if stream.entries.last().is_some_and(|last| last.id > stream.last_id) {
        return Err(values.corrupt("a stream with an entry behind its last ID"));
    }
    if stream.entries_added < len {
        return Err(values.corrupt("a stream with more entries than were added"));
    }
    let groups = values.len()?;
    let mut names = HashSet::new();
    for _ in 0..groups {
        let mut group = read_group(values, form)?;
        if form < 2 {
            group.entries_read = entries_up_to(&stream, group.last_id);
        }
        if !names.insert(group.name.clone()) {
            return Err(values.corrupt("a stream with a group twice"));
        }
        stream.groups.push(group);
    }
    Ok(stream)
}

/// The number of entries of a stream up to an ID, where Redis tells it for a group of the form 1,
/// which has no such count.
fn entries_up_to(stream: &Stream, id: StreamId) -> Option<u64> {
    match &stream.entries[..] {
        _ if id > stream.last_id => None,
        [] => Some(0),
        _ if id == stream.last_id => Some(stream.entries_added),
        [first, ..] if id < first.id => Some(0),
        [first, ..] if id == first.id => Some(1),
        _ => None,
    }
}

fn id<R: Read>(values: &mut Values<R>) -> Result<StreamId, RdbError> {
    Ok(StreamId { ms: values.len()?, seq: values.len()? })
}

fn raw_id<R: Read>(values: &mut Values<R>) -> Result<StreamId, RdbError> {
    values.source.array("the ID of an entry").map(StreamId::from_bytes)
}

fn milliseconds<R: Read>(values: &mut Values<R>) -> Result<i64, RdbError> {
    values.source.array("a time").map(i64::from_le_bytes)
}

/// A time that was written with a sign.
fn time(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0)
}

fn read_node<R: Read>(
    values: &mut Values<R>,
    entries: &mut Vec<StreamEntry>,
) -> Result<(), RdbError> {
    let name = values.own_string()?;
    let base = <[u8; 16]>::try_from(&name[..]).ok().map(StreamId::from_bytes);
    let base = base.ok_or_else(|| values.corrupt("a piece of a stream without an ID"))?;
    values.with_packed(|values, packed| {
        let mut error = None;
        let mut node = Node { base, ..Node::default() };
        let mut items: Vec<Entry<'_>> = Vec::new();
        // Items are kept until their entry is whole.
        let walked = packed::listpack(packed, &mut |item| {
            if let Err(too_large) = values.charge(0) {
                error = Some(too_large);
                return None;
            }
            items.push(item);
            match node.whole(&items)? {
                Whole::No => Some(()),
                Whole::Yes(entry) => {
                    items.clear();
                    let Some(entry) = entry else { return Some(()) };
                    let bytes: usize = entry.fields.iter().map(<[u8]>::len).sum();
                    let strings = 32 * entry.fields.len() as u64;
                    let charged = values.charge(bytes as u64 + strings + BYTES_PER_PART);
                    if let Err(too_large) = charged {
                        error = Some(too_large);
                        return None;
                    }
                    // IDs rise from the lowest on, which none has; and each entry has a field.
                    let before = entries.last().map_or(StreamId::default(), |last| last.id);
                    if before >= entry.id || entry.fields.is_empty() {
                        return None;
                    }
                    entries.push(entry);
                    Some(())
                }
            }
        });
        match (walked, error) {
            (_, Some(error)) => Err(error),
            (Some(()), None) if items.is_empty() && node.is_complete() => Ok(()),
            _ => Err(values.corrupt("a piece of a stream")),
        }
    })
}

/// A listpack of entries as far as it was read.
#[derive(Default)]
struct Node<'a> {
    base: StreamId,
    /// The names of the master entry's fields; `None` before it was read.
    fields: Option<Vec<Entry<'a>>>,
    /// Entries that live, and that were deleted, by the master entry.
    stated: (i64, i64),
    /// The same as they were met.
    met: (i64, i64),
}

enum Whole {
    No,
    /// The items are whole: an entry, if it is not deleted.
    Yes(Option<StreamEntry>),
}

impl<'a> Node<'a> {
    fn is_complete(&self) -> bool {
        self.fields.is_some() && self.stated == self.met
    }

    /// Looks whether the items are whole; `None` if they make no sense.
    fn whole(&mut self, items: &[Entry<'a>]) -> Option<Whole> {
        let Some(fields) = &self.fields else {
            let [live, deleted, count, names @ ..] = items else { return Some(Whole::No) };
            let count = usize::try_from(count.int()?).ok()?;
            if names.len() <= count {
                return Some(Whole::No);
            }
            self.stated = (live.int()?, deleted.int()?);
            if names[count].int()? != 0 || self.stated.0 < 0 || self.stated.1 < 0 {
                return None;
            }
            self.fields = Some(names[..count].to_vec());
            return Some(Whole::Yes(None));
        };
        let [flags, ms, seq, rest @ ..] = items else { return Some(Whole::No) };
        let flags = flags.int()?;
        if flags & !(DELETED | SAME_FIELDS) != 0 {
            return None;
        }
        let is_same = flags & SAME_FIELDS != 0;
        let (strings, wanted) = match (is_same, rest) {
            (true, _) => (rest, fields.len()),
            (false, [count, strings @ ..]) => {
                (strings, usize::try_from(count.int()?).ok()?.checked_mul(2)?)
            }
            (false, []) => return Some(Whole::No),
        };
        if strings.len() <= wanted {
            return Some(Whole::No);
        }
        if usize::try_from(strings[wanted].int()?).ok()? != items.len() - 1 {
            return None;
        }
        if flags & DELETED != 0 {
            self.met.1 += 1;
            return Some(Whole::Yes(None));
        }
        self.met.0 += 1;
        let id = StreamId {
            ms: self.base.ms.wrapping_add_signed(ms.int()?),
            seq: self.base.seq.wrapping_add_signed(seq.int()?),
        };
        let mut all = Strings::new();
        let mut add = |item: &Entry<'_>| {
            all.push_with(|out| {
                item.put(out);
                Ok::<(), ()>(())
            })
            .ok()
        };
        for (place, value) in strings[..wanted].iter().enumerate() {
            if is_same {
                add(&fields[place])?;
            }
            add(value)?;
        }
        Some(Whole::Yes(Some(StreamEntry { id, fields: all })))
    }
}

fn read_group<R: Read>(values: &mut Values<R>, form: u8) -> Result<Group, RdbError> {
    let mut group = Group { name: values.own_string()?, ..Group::default() };
    group.last_id = id(values)?;
    values.charge(BYTES_PER_PART)?;
    if form >= 2 {
        // -1 says that it is not known.
        group.entries_read = Some(values.len()?).filter(|read| i64::try_from(*read).is_ok());
    }
    let count = values.len()?;
    // Where each pending entry stands; its consumer is named later.
    let mut places = HashMap::new();
    for place in 0..count {
        values.charge(BYTES_PER_PART)?;
        let id = raw_id(values)?;
        let delivered_ms = time(milliseconds(values)?);
        let deliveries = values.len()?;
        if group.pending.last().is_some_and(|last: &Pending| last.id >= id) {
            return Err(values.corrupt("pending entries that do not rise"));
        }
        group.pending.push(Pending { id, delivered_ms, deliveries, consumer: usize::MAX });
        places.insert(id, place as usize);
    }
    let consumers = values.len()?;
    let mut names = HashSet::new();
    for number in 0..consumers {
        values.charge(BYTES_PER_PART)?;
        let name = values.own_string()?;
        if !names.insert(name.clone()) {
            return Err(values.corrupt("a group with a consumer twice"));
        }
        let seen_ms = time(milliseconds(values)?);
        let active_ms = match form {
            3.. => u64::try_from(milliseconds(values)?).ok(),
            _ => Some(seen_ms),
        };
        group.consumers.push(Consumer { name, seen_ms, active_ms });
        let count = values.len()?;
        for _ in 0..count {
            let id = raw_id(values)?;
            let pending = places.get(&id).map(|place| &mut group.pending[*place]);
            match pending {
                Some(pending) if pending.consumer == usize::MAX => {
                    pending.consumer = number as usize;
                }
                _ => return Err(values.corrupt("a consumer's entry that is not the group's")),
            }
        }
    }
    if group.pending.iter().any(|pending| pending.consumer == usize::MAX) {
        return Err(values.corrupt("a pending entry without a consumer"));
    }
    Ok(group)
}
