//! Takes the records that a format has parsed: checks them, puts them in order, and counts the bad
//! ones.
//!
//! The readers of all formats use this sink, so the promises of a [`Record`] (some bytes, below
//! 2^63, never back in time) are kept in one place.

use super::order::Order;
use super::volumes::Volumes;
use super::{Fault, Format, Looks, Op, Place, ReadOptions, Record, TraceError};

/// Records in a batch; a batch may have a few more, where one line is several records.
pub(crate) const BATCH_RECORDS: usize = 8192;

/// How many bad records are kept together with what was wrong with them.
const KEPT: usize = 5;

/// The bad records that were passed over.
#[derive(Debug, Clone, Default)]
pub struct Skipped {
    /// The number of records passed over.
    pub count: u64,
    /// The places of the first few, and what was wrong with them.
    pub first: Vec<(Place, Fault)>,
}

/// The result of parsing one line or one binary record.
pub(crate) type Seen = Result<(), Box<Fault>>;

#[derive(Debug)]
pub(crate) struct Sink {
    pub(crate) out: Vec<Record>,
    pub(crate) volumes: Volumes,
    /// How many records are no access: flushes, discards, instructions.
    pub(crate) ignored: u64,
    /// The looks that the trace was made by, if it says so.
    pub(crate) looks: Option<Looks>,
    file: String,
    format: Format,
    skip_bad: u64,
    skipped: Skipped,
    last_ns: u64,
    order: Option<Order>,
}

impl Sink {
    pub(crate) fn new(file: &str, format: Format, options: &ReadOptions) -> Sink {
        Sink {
            out: Vec::new(),
            volumes: Volumes::default(),
            ignored: 0,
            looks: None,
            file: file.to_owned(),
            format,
            skip_bad: options.skip_bad,
            skipped: Skipped::default(),
            last_ns: 0,
            order: (options.reorder_ns > 0).then(|| Order::new(options.reorder_ns)),
        }
    }

    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    pub(crate) fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// Whether the batch is full.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.out.len() >= BATCH_RECORDS
    }

    /// Checks an access and adds it to the batch, or holds it until its turn comes.
    #[inline]
    pub(crate) fn access(
        &mut self,
        time_ns: u64,
        volume: u32,
        op: Op,
        offset_bytes: u64,
        len_bytes: u64,
    ) -> Seen {
        let record = Record { time_ns, offset_bytes, len_bytes, volume, op };
        record.check(self.last_ns).map_err(Box::new)?;
        match &mut self.order {
            None => {
                self.last_ns = time_ns;
                self.out.push(record);
            }
            Some(order) => {
                let before = self.out.len();
                order.push(record, &mut self.out);
                if let Some(last) = self.out[before..].last() {
                    self.last_ns = last.time_ns;
                }
            }
        }
        Ok(())
    }

    /// Passes over a bad record, or gives the error if as many were passed over as may be.
    #[cold]
    pub(crate) fn bad(&mut self, place: Place, fault: Box<Fault>) -> Result<(), TraceError> {
        let (file, format) = (self.file.clone(), self.format);
        if self.skipped.count == self.skip_bad {
            return Err(match self.skipped.first.first().cloned() {
                None => TraceError::Record { file, place, format, fault },
                Some((first_place, first)) => {
                    let (skipped, first) = (self.skipped.count, Box::new(first));
                    TraceError::TooManyBad {
                        file,
                        place,
                        format,
                        fault,
                        skipped,
                        first_place,
                        first,
                    }
                }
            });
        }
        self.skipped.count += 1;
        if self.skipped.first.len() < KEPT {
            self.skipped.first.push((place, *fault));
        }
        Ok(())
    }

    /// Gives what was held back for the order, now that no more comes; false when there was
    /// nothing.
    pub(crate) fn drain(&mut self) -> bool {
        match &mut self.order {
            Some(order) if !order.is_empty() => {
                order.drain(BATCH_RECORDS, &mut self.out);
                true
            }
            _ => false,
        }
    }
}
