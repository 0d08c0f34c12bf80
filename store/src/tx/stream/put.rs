//! Making a key a whole stream.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::api::{Expiry, Key};
use crate::building::{IN_TABLE_BYTES, Whole};
use crate::error::TxError;
use crate::stream::{Stream, StreamId};
use crate::tx::{Delivery, Tx};

/// A part of a stream. Each may need those before it.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamPart {
    /// An entry behind those so far, with its names and values.
    Entry(StreamId, Vec<(Vec<u8>, Vec<u8>)>),
    /// The facts about all entries that the stream ever got; they come behind the last entry.
    Ends {
        /// The last ID that was given.
        last_id: StreamId,
        /// Number of entries that the stream ever got.
        added: u64,
        /// The highest ID that was deleted.
        max_deleted: StreamId,
    },
    /// A group without consumers.
    Group {
        /// Its name.
        name: Arc<[u8]>,
        /// The ID up to which it has got entries.
        last_id: StreamId,
        /// How many these were, if that is known.
        entries_read: Option<u64>,
    },
    /// A consumer of a group.
    Consumer {
        /// Name of the group.
        group: Arc<[u8]>,
        /// Its own name.
        name: Arc<[u8]>,
        /// When it asked last, in milliseconds since 1970.
        seen_ms: u64,
        /// When it got something last; `None` for never.
        active_ms: Option<u64>,
    },
    /// An entry that a consumer has got and not acknowledged.
    Pending {
        /// Name of the group.
        group: Arc<[u8]>,
        /// Name of the consumer.
        consumer: Arc<[u8]>,
        /// The entry.
        delivery: Delivery,
    },
}

impl StreamPart {
    /// Bytes that the part takes in a stream, roughly.
    pub(crate) fn weight(&self) -> u64 {
        let own = match self {
            Self::Entry(_, fields) => {
                fields.iter().map(|(name, value)| (name.len() + value.len()) as u64 + 4).sum()
            }
            Self::Group { name, .. } | Self::Consumer { name, .. } => name.len() as u64,
            Self::Ends { .. } | Self::Pending { .. } => 0,
        };
        own + IN_TABLE_BYTES
    }

    /// All parts of a stream.
    fn of(stream: &Stream<'_>) -> Vec<Self> {
        let mut parts = Vec::new();
        stream.walk(StreamId::MIN, StreamId::MAX, false, &mut |id, fields| {
            let mut pairs = Vec::new();
            fields.for_each(&mut |name, value| pairs.push((name.to_vec(), value.to_vec())));
            parts.push(Self::Entry(id, pairs));
            ControlFlow::Continue(())
        });
        let (last_id, added) = (stream.last_id(), stream.entries_added());
        parts.push(Self::Ends { last_id, added, max_deleted: stream.max_deleted() });
        stream.groups(&mut |group| {
            let (name, last_id): (Arc<[u8]>, _) = (group.name().into(), group.last_id());
            let entries_read = group.entries_read();
            parts.push(Self::Group { name: name.clone(), last_id, entries_read });
            group.consumers(&mut |consumer| {
                let own: Arc<[u8]> = consumer.name().into();
                let (seen_ms, active_ms) = (consumer.seen_ms(), consumer.active_ms());
                let group_name = name.clone();
                parts.push(Self::Consumer {
                    group: name.clone(),
                    name: own.clone(),
                    seen_ms,
                    active_ms,
                });
                consumer.pending_from(StreamId::MIN, &mut |id| {
                    let pending = group.pending(id);
                    let (delivered_ms, deliveries) = pending
                        .map_or((0, 0), |pending| (pending.delivered_ms, pending.deliveries));
                    let delivery = Delivery { id, delivered_ms, deliveries };
                    let (group, consumer) = (group_name.clone(), own.clone());
                    parts.push(Self::Pending { group, consumer, delivery });
                    ControlFlow::Continue(())
                });
                ControlFlow::Continue(())
            });
        });
        parts
    }
}

impl Tx<'_> {
    /// Makes the key a stream of these parts, whatever the key held.
    ///
    /// # Errors
    /// An entry or a name is too long; the attempt is over.
    pub fn stream_put(
        &mut self,
        key: Key<'_>,
        parts: &[StreamPart],
        expiry: Expiry,
    ) -> Result<(), TxError> {
        let place = self.place(key);
        let weight = parts.iter().map(StreamPart::weight).sum();
        let whole = |_: &Self| Ok(Whole::Stream(parts.to_vec()));
        if self.put_built(&place, key, weight, whole, expiry)? {
            return Ok(());
        }
        self.delete(key)?;
        self.stream_add_parts(key, parts)?;
        if let Expiry::AtMs(at_ms) = expiry {
            self.set_expiry(key, Some(at_ms))?;
        }
        Ok(())
    }

    /// Copies a stream that is built where nobody sees it, if it is so large. Returns whether it
    /// is.
    pub(super) fn copy_built(
        &mut self,
        from: Key<'_>,
        to: Key<'_>,
        expiry: Expiry,
    ) -> Result<bool, TxError> {
        let Some(stream) = self.stream(from)? else { return Ok(false) };
        let mut weight = stream.root.chunks_bytes(stream.lane);
        stream.groups(&mut |group| weight += IN_TABLE_BYTES * (1 + group.pending_len()));
        let whole = |tx: &Self| match tx.stream(from)? {
            Some(stream) => Ok(Whole::Stream(StreamPart::of(&stream))),
            None => Err(TxError::Again),
        };
        self.put_built(&self.place(to), to, weight, whole, expiry)
    }

    /// Adds parts to a stream, which is made if it is not there.
    pub(crate) fn stream_add_parts(
        &mut self,
        key: Key<'_>,
        parts: &[StreamPart],
    ) -> Result<(), TxError> {
        self.stream_create(key)?;
        let limits = self.chunk_limits();
        for part in parts {
            match part {
                StreamPart::Entry(id, fields) => {
                    let pairs = fields.iter().map(|(name, value)| (&name[..], &value[..]));
                    self.stream_add(key, *id, &pairs.collect::<Vec<_>>(), limits)?;
                }
                StreamPart::Ends { last_id, added, max_deleted } => {
                    self.stream_set(key, *last_id, Some(*added), Some(*max_deleted))?;
                }
                StreamPart::Group { name, last_id, entries_read } => {
                    self.group_create(key, name, *last_id, *entries_read)?;
                }
                StreamPart::Consumer { group, name, seen_ms, active_ms } => {
                    self.consumer_create(key, group, name, *seen_ms)?;
                    if let Some(active_ms) = active_ms {
                        self.consumer_seen(key, group, name, *active_ms, true)?;
                        self.consumer_seen(key, group, name, *seen_ms, false)?;
                    }
                }
                StreamPart::Pending { group, consumer, delivery } => {
                    self.pending_assign(key, group, consumer, &[*delivery])?;
                }
            }
        }
        Ok(())
    }
}
