//! Streams of dumps: their entries, groups, consumers and pending entries.

use std::collections::HashMap;
use std::ops::ControlFlow;

use perdura_rdb as rdb;
use perdura_store::{Delivery, Expiry, Key, Stream, StreamId, Tx, TxError};

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
    tx.delete(key)?;
    tx.stream_create(key)?;
    let limits = tx.chunk_limits();
    for entry in &stream.entries {
        let pairs: Vec<_> = entry.fields.pairs().collect();
        tx.stream_add(key, stored(entry.id), &pairs, limits)?;
    }
    let (last_id, max_deleted) = (stored(stream.last_id), stored(stream.max_deleted_id));
    tx.stream_set(key, last_id, Some(stream.entries_added), Some(max_deleted))?;
    for group in &stream.groups {
        tx.group_create(key, &group.name, stored(group.last_id), group.entries_read)?;
        let mut of_consumers = vec![Vec::new(); group.consumers.len()];
        for entry in &group.pending {
            of_consumers[entry.consumer].push(Delivery {
                id: stored(entry.id),
                delivered_ms: entry.delivered_ms,
                deliveries: entry.deliveries,
            });
        }
        for (consumer, deliveries) in group.consumers.iter().zip(of_consumers) {
            tx.consumer_create(key, &group.name, &consumer.name, consumer.seen_ms)?;
            if let Some(active_ms) = consumer.active_ms {
                tx.consumer_seen(key, &group.name, &consumer.name, active_ms, true)?;
                tx.consumer_seen(key, &group.name, &consumer.name, consumer.seen_ms, false)?;
            }
            tx.pending_assign(key, &group.name, &consumer.name, &deliveries)?;
        }
    }
    if let Expiry::AtMs(at_ms) = expiry {
        tx.set_expiry(key, Some(at_ms))?;
    }
    Ok(())
}

fn dumped(StreamId { ms, seq }: StreamId) -> rdb::StreamId {
    rdb::StreamId { ms, seq }
}

fn stored(rdb::StreamId { ms, seq }: rdb::StreamId) -> StreamId {
    StreamId { ms, seq }
}
