//! Operations on streams, drawn from a seed, and the oracle that runs them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use perdura_store::{
    ChunkLimits, Delivery, Key, Stream, StreamId, StreamTrim, TrimTo, Tx, TxError,
};
use rand::Rng;

use super::Random;

pub type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// What a stream should have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StreamModel {
    pub entries: BTreeMap<StreamId, Pairs>,
    pub last_id: StreamId,
    pub added: u64,
    pub max_deleted: StreamId,
    pub groups: BTreeMap<Vec<u8>, GroupModel>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupModel {
    pub last_id: StreamId,
    pub read: Option<u64>,
    /// When each was seen, and was active.
    pub consumers: BTreeMap<Vec<u8>, (u64, Option<u64>)>,
    /// Owner, time and number of deliveries.
    pub pending: BTreeMap<StreamId, (Vec<u8>, u64, u64)>,
}

/// A change of a stream. Places are thousandths of the last ID, or of the length.
#[derive(Debug, Clone)]
pub enum Change {
    Create,
    Add(Vec<(u64, Pairs)>, ChunkLimits),
    Delete(Vec<u64>),
    TrimLen(u64),
    TrimId(u64),
    Set(u64),
    GroupCreate(u8, u64),
    GroupSet(u8, u64),
    GroupDestroy(u8),
    ConsumerCreate(u8, u8),
    ConsumerDelete(u8, u8),
    Seen(u8, u8, bool),
    Assign(u8, u8, Vec<u64>),
    Drop(u8, Vec<u64>),
}

const SEEN_MS: u64 = 77;

fn value(random: &mut Random) -> Vec<u8> {
    let len = match random.random_range(0..200) {
        0..100 => return random.random_range(-70_000..70_000).to_string().into_bytes(),
        100..190 => random.random_range(0..120),
        190..199 => random.random_range(0..1_500),
        _ => random.random_range(0..9_000),
    };
    (0..len).map(|at| at as u8 ^ len as u8).collect()
}

fn pairs(random: &mut Random) -> Pairs {
    let names = match random.random_range(0..10) {
        0..7 => vec!["sensor", "temperature"],
        7..9 => vec!["sensor", "pressure", "17"],
        _ => vec!["other"],
    };
    names.into_iter().map(|name| (name.as_bytes().to_vec(), value(random))).collect()
}

fn places(random: &mut Random) -> Vec<u64> {
    let count = [1, 3, 60][random.random_range(0..3)];
    let from = random.random_range(0..1_000);
    if random.random_bool(0.5) {
        return (from..from + count).collect();
    }
    (0..count).map(|_| random.random_range(0..1_050)).collect()
}

pub fn draw_change(random: &mut Random) -> Change {
    let (group, consumer) = (random.random_range(0..3), random.random_range(0..4));
    let place = random.random_range(0..1_050);
    match random.random_range(0..100) {
        0..30 => {
            let count = [1, 1, 3, 150][random.random_range(0..4)];
            let entries = (0..count).map(|_| (random.random_range(0..3), pairs(random)));
            let entries = entries.collect();
            let limits = match random.random_range(0..4) {
                0 => ChunkLimits { entries: 7, bytes: 0 },
                1 => ChunkLimits { entries: 0, bytes: 0 },
                _ => ChunkLimits::default(),
            };
            Change::Add(entries, limits)
        }
        30..45 => Change::Delete(places(random)),
        45..49 => Change::TrimLen(place.max(500)),
        49..53 => Change::TrimId(place / 3),
        53..55 => Change::Set(place),
        55..60 => Change::GroupCreate(group, place),
        60..62 => Change::GroupSet(group, place),
        62..63 => Change::GroupDestroy(group),
        63..70 => Change::ConsumerCreate(group, consumer),
        70..73 => Change::ConsumerDelete(group, consumer),
        73..76 => Change::Seen(group, consumer, random.random_bool(0.5)),
        76..90 => Change::Assign(group, consumer, places(random)),
        90..99 => Change::Drop(group, places(random)),
        _ => Change::Create,
    }
}

/// The ID at a place.
fn at(last_id: StreamId, place: u64) -> StreamId {
    let number = u128::from(last_id.ms) * 3 + u128::from(last_id.seq.min(2));
    let number = (number * u128::from(place) / 1_000) as u64;
    StreamId { ms: number / 3, seq: number % 3 }
}

/// The ID behind the last one, so much later.
fn behind(last_id: StreamId, later_ms: u64) -> StreamId {
    match later_ms == 0 && last_id.seq < 2 {
        true => StreamId { seq: last_id.seq + 1, ..last_id },
        false => StreamId { ms: last_id.ms + later_ms.max(1), seq: 0 },
    }
}

fn group_name(group: u8) -> Vec<u8> {
    format!("group {group}").into_bytes()
}

fn consumer_name(consumer: u8) -> Vec<u8> {
    format!("consumer {consumer}").into_bytes()
}

fn delivery(id: StreamId, number: usize) -> Delivery {
    Delivery { id, delivered_ms: 1_000 + number as u64, deliveries: number as u64 % 5 }
}

/// Runs a change on the store.
pub fn apply_change(tx: &mut Tx<'_>, key: Key<'_>, change: &Change) -> Result<(), TxError> {
    let Some((last_id, len)) = tx.stream(key)?.map(|s| (s.last_id(), s.len())) else {
        match change {
            Change::Add(..) | Change::Create => tx.stream_create(key)?,
            _ => return Ok(()),
        }
        return apply_change(tx, key, change);
    };
    match change {
        Change::Create => {}
        Change::Add(entries, limits) => {
            let mut last_id = last_id;
            for (later_ms, pairs) in entries {
                last_id = behind(last_id, *later_ms);
                let pairs: Vec<_> = pairs.iter().map(|(n, v)| (&n[..], &v[..])).collect();
                tx.stream_add(key, last_id, &pairs, *limits)?;
            }
        }
        Change::Delete(places) => {
            let ids: Vec<_> = places.iter().map(|place| at(last_id, *place)).collect();
            tx.stream_delete(key, &ids)?;
        }
        Change::TrimLen(place) => {
            let to = TrimTo::Len(len * place / 1_000);
            tx.stream_trim(key, StreamTrim { to, is_rough: false, limit: 0 })?;
        }
        Change::TrimId(place) => {
            let to = TrimTo::Id(at(last_id, *place));
            tx.stream_trim(key, StreamTrim { to, is_rough: false, limit: 0 })?;
        }
        Change::Set(added) => {
            let last_id = StreamId { ms: last_id.ms + 1, seq: 0 };
            tx.stream_set(key, last_id, Some(*added), None)?;
        }
        Change::GroupCreate(group, place) => {
            let read = (place % 2 == 0).then_some(*place);
            tx.group_create(key, &group_name(*group), at(last_id, *place), read)?;
        }
        Change::GroupSet(group, place) => {
            tx.group_set(key, &group_name(*group), at(last_id, *place), None)?;
        }
        Change::GroupDestroy(group) => drop(tx.group_destroy(key, &group_name(*group))?),
        Change::ConsumerCreate(group, consumer) => {
            let (group, consumer) = (group_name(*group), consumer_name(*consumer));
            tx.consumer_create(key, &group, &consumer, SEEN_MS)?;
        }
        Change::ConsumerDelete(group, consumer) => {
            tx.consumer_delete(key, &group_name(*group), &consumer_name(*consumer))?;
        }
        Change::Seen(group, consumer, was_active) => {
            let (group, consumer) = (group_name(*group), consumer_name(*consumer));
            tx.consumer_seen(key, &group, &consumer, 2 * SEEN_MS, *was_active)?;
        }
        Change::Assign(group, consumer, places) => {
            let ids = places.iter().map(|place| at(last_id, *place)).enumerate();
            let all: Vec<_> = ids.map(|(number, id)| delivery(id, number)).collect();
            tx.pending_assign(key, &group_name(*group), &consumer_name(*consumer), &all)?;
        }
        Change::Drop(group, places) => {
            let ids: Vec<_> = places.iter().map(|place| at(last_id, *place)).collect();
            tx.pending_drop(key, &group_name(*group), &ids)?;
        }
    }
    Ok(())
}

impl StreamModel {
    /// Runs a change on the oracle.
    pub fn change(&mut self, change: &Change) {
        let last_id = self.last_id;
        match change {
            Change::Create => {}
            Change::Add(entries, _) => {
                for (later_ms, pairs) in entries {
                    self.last_id = behind(self.last_id, *later_ms);
                    self.entries.insert(self.last_id, pairs.clone());
                    self.added += 1;
                }
            }
            Change::Delete(places) => {
                for place in places {
                    let id = at(last_id, *place);
                    if self.entries.remove(&id).is_some() {
                        self.max_deleted = self.max_deleted.max(id);
                    }
                }
            }
            Change::TrimLen(place) => {
                let kept = self.entries.len() * *place as usize / 1_000;
                while self.entries.len() > kept {
                    self.entries.pop_first();
                }
            }
            Change::TrimId(place) => self.entries = self.entries.split_off(&at(last_id, *place)),
            Change::Set(added) => {
                self.last_id = StreamId { ms: last_id.ms + 1, seq: 0 };
                self.added = *added;
            }
            Change::GroupCreate(group, place) => {
                let read = (place % 2 == 0).then_some(*place);
                let model = GroupModel { last_id: at(last_id, *place), read, ..Default::default() };
                self.groups.entry(group_name(*group)).or_insert(model);
            }
            Change::GroupDestroy(group) => drop(self.groups.remove(&group_name(*group))),
            Change::GroupSet(group, place) => {
                if let Some(group) = self.groups.get_mut(&group_name(*group)) {
                    (group.last_id, group.read) = (at(last_id, *place), None);
                }
            }
            Change::ConsumerCreate(group, consumer) => {
                if let Some(group) = self.groups.get_mut(&group_name(*group)) {
                    group.consumers.entry(consumer_name(*consumer)).or_insert((SEEN_MS, None));
                }
            }
            Change::ConsumerDelete(group, consumer) => {
                let name = consumer_name(*consumer);
                if let Some(group) = self.groups.get_mut(&group_name(*group)) {
                    group.consumers.remove(&name);
                    group.pending.retain(|_, (owner, ..)| *owner != name);
                }
            }
            Change::Seen(group, consumer, was_active) => {
                let group = self.groups.get_mut(&group_name(*group));
                let seen = group.and_then(|g| g.consumers.get_mut(&consumer_name(*consumer)));
                if let Some((seen_ms, active_ms)) = seen {
                    *seen_ms = 2 * SEEN_MS;
                    *active_ms = if *was_active { Some(2 * SEEN_MS) } else { *active_ms };
                }
            }
            Change::Assign(group, consumer, places) => {
                let Some(group) = self.groups.get_mut(&group_name(*group)) else { return };
                let name = consumer_name(*consumer);
                if group.consumers.contains_key(&name) {
                    for (number, place) in places.iter().enumerate() {
                        let delivery = delivery(at(last_id, *place), number);
                        let Delivery { id, delivered_ms, deliveries } = delivery;
                        group.pending.insert(id, (name.clone(), delivered_ms, deliveries));
                    }
                }
            }
            Change::Drop(group, places) => {
                if let Some(group) = self.groups.get_mut(&group_name(*group)) {
                    places.iter().for_each(|p| drop(group.pending.remove(&at(last_id, *p))));
                }
            }
        }
    }
}

/// All that a stream has, by walking it in both directions.
pub fn model_of(stream: &Stream<'_>) -> StreamModel {
    stream.assert_sound();
    let mut model = StreamModel {
        last_id: stream.last_id(),
        added: stream.entries_added(),
        max_deleted: stream.max_deleted(),
        ..StreamModel::default()
    };
    let mut order = Vec::new();
    stream.walk(StreamId::MIN, StreamId::MAX, false, &mut |id, fields| {
        let mut pairs = Pairs::new();
        assert!(fields.for_each(&mut |name, value| pairs.push((name.to_vec(), value.to_vec()))));
        assert_eq!(fields.len(), pairs.len() as u64);
        assert!(model.entries.insert(id, pairs).is_none());
        order.push(id);
        ControlFlow::Continue(())
    });
    assert!(order.is_sorted());
    stream.walk(StreamId::MIN, StreamId::MAX, true, &mut |id, _| {
        assert_eq!(order.pop(), Some(id));
        ControlFlow::Continue(())
    });
    assert_eq!((order.len(), stream.len()), (0, model.entries.len() as u64));
    let ends = [model.entries.keys().next(), model.entries.keys().last()];
    let ends = ends.map(|id| id.copied().unwrap_or_default());
    assert_eq!([stream.first_id(), stream.last_valid_id()], ends);
    let mut names = Vec::new();
    stream.groups(&mut |group| {
        names.push(group.name().to_vec());
        let mut found = GroupModel {
            last_id: group.last_id(),
            read: group.entries_read(),
            ..GroupModel::default()
        };
        let mut owned = BTreeMap::new();
        group.consumers(&mut |consumer| {
            let times = (consumer.seen_ms(), consumer.active_ms());
            assert!(found.consumers.insert(consumer.name().to_vec(), times).is_none());
            let mut ids = 0;
            consumer.pending_from(StreamId::MIN, &mut |id| {
                assert!(owned.insert(id, consumer.name().to_vec()).is_none());
                ids += 1;
                ControlFlow::Continue(())
            });
            assert_eq!(ids, consumer.pending_len());
            assert!(group.consumer(consumer.name()).is_some());
            ControlFlow::Continue(())
        });
        assert_eq!(group.consumers_len(), found.consumers.len() as u64);
        group.pending_from(StreamId::MIN, &mut |pending| {
            assert_eq!(owned.remove(&pending.id).as_deref(), Some(pending.consumer));
            assert_eq!(group.pending(pending.id), Some(*pending));
            let of = (pending.consumer.to_vec(), pending.delivered_ms, pending.deliveries);
            assert!(found.pending.insert(pending.id, of).is_none());
            ControlFlow::Continue(())
        });
        assert_eq!((owned.len(), group.pending_len()), (0, found.pending.len() as u64));
        assert!(stream.group(group.name()).is_some());
        assert!(model.groups.insert(group.name().to_vec(), found).is_none());
    });
    assert!(names.is_sorted() && names.len() as u64 == stream.groups_len());
    model
}
