//! Streams of dumps: their entries, groups, consumers and pending entries.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use perdura_rdb as rdb;
use perdura_store::{Delivery, Expiry, Key, Stream, StreamId, StreamPart, Tx, TxError};

/// A stream as a dump has it.
pub(super) fn of_store(stream: &Stream<'_>) -> rdb::Stream {
    let mut entries = Vec::new();
    stream.walk(StreamId::MIN, StreamId::MAX, false, &mut |id, fields| {
        let mut strings = rdb::Strings::new();
        fields.for_each(&mut |name, value| {
            strings.push(name);
            strings.push(value);
        });
        entries.push(rdb::StreamEntry { id: dumped(id), fields: strings });
        ControlFlow::Continue(())
    });
    let mut groups = Vec::new();
    stream.groups(&mut |group| {
        let (mut consumers, mut places) = (Vec::new(), HashMap::new());
        group.consumers(&mut |consumer| {
            places.insert(consumer.name(), consumers.len());
            consumers.push(rdb::Consumer {
                name: consumer.name().to_vec(),
                seen_ms: consumer.seen_ms(),
                active_ms: consumer.active_ms(),
            });
            ControlFlow::Continue(())
        });
        let mut pending = Vec::new();
        group.pending_from(StreamId::MIN, &mut |entry| {
            if let Some(consumer) = places.get(entry.consumer) {
                pending.push(rdb::Pending {
                    id: dumped(entry.id),
                    delivered_ms: entry.delivered_ms,
                    deliveries: entry.deliveries,
                    consumer: *consumer,
                });
            }
            ControlFlow::Continue(())
        });
        groups.push(rdb::Group {
            name: group.name().to_vec(),
            last_id: dumped(group.last_id()),
            entries_read: group.entries_read(),
            pending,
            consumers,
        });
    });
    rdb::Stream {
        entries,
        last_id: dumped(stream.last_id()),
        max_deleted_id: dumped(stream.max_deleted()),
        entries_added: stream.entries_added(),
        groups,
    }
}

/// Makes a key a stream of a dump, whatever the key held.
pub(super) fn put(
    tx: &mut Tx<'_>,
    key: Key<'_>,
    stream: &rdb::Stream,
    expiry: Expiry,
) -> Result<(), TxError> {
    let mut parts: Vec<StreamPart> = Vec::with_capacity(stream.entries.len());
    parts.extend(stream.entries.iter().map(|entry| {
        let pairs = entry.fields.pairs().map(|(name, value)| (name.to_vec(), value.to_vec()));
        StreamPart::Entry(stored(entry.id), pairs.collect())
    }));
    let (last_id, max_deleted) = (stored(stream.last_id), stored(stream.max_deleted_id));
    parts.push(StreamPart::Ends { last_id, added: stream.entries_added, max_deleted });
    for group in &stream.groups {
        let name: Arc<[u8]> = group.name[..].into();
        parts.push(StreamPart::Group {
            name: name.clone(),
            last_id: stored(group.last_id),
            entries_read: group.entries_read,
        });
        let names: Vec<Arc<[u8]>> =
            group.consumers.iter().map(|consumer| consumer.name[..].into()).collect();
        parts.extend(group.consumers.iter().zip(&names).map(|(consumer, own)| {
            let (seen_ms, active_ms) = (consumer.seen_ms, consumer.active_ms);
            StreamPart::Consumer { group: name.clone(), name: own.clone(), seen_ms, active_ms }
        }));
        parts.extend(group.pending.iter().map(|entry| StreamPart::Pending {
            group: name.clone(),
            consumer: names[entry.consumer].clone(),
            delivery: Delivery {
                id: stored(entry.id),
                delivered_ms: entry.delivered_ms,
                deliveries: entry.deliveries,
            },
        }));
    }
    tx.stream_put(key, &parts, expiry)
}

fn dumped(StreamId { ms, seq }: StreamId) -> rdb::StreamId {
    rdb::StreamId { ms, seq }
}

fn stored(rdb::StreamId { ms, seq }: rdb::StreamId) -> StreamId {
    StreamId { ms, seq }
}
