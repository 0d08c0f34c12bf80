//! The numbers that a whole server adds to a medium: its processor's limits, its memory modules as
//! published tables show them, and the DRAM on the same channels.
//!
//! A profile has such a table only where measurements of that very server were published. Most of
//! its numbers are fitted to them; the profile says so beside each table.

use serde::Deserialize;

use super::ProfileError;

/// A server whose measurements were published.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// The processor of the socket whose memory is used.
    pub processor: Processor,
    /// The modules of the medium, one on each channel.
    pub memory: Modules,
    /// The DRAM modules on the same channels; none if the medium itself is that DRAM.
    pub dram: Option<Modules>,
}

/// Limits on the rate at which threads can access memory.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processor {
    /// Cores of one socket. With more threads than cores, two threads share a core and its limits.
    pub cores: u64,
    /// Instructions that a core may have under way: the entries of its reorder buffer.
    pub window: f64,
    /// Fences behind which the line of the next store is already being fetched: 0 or 1.
    pub fetches_ahead: u64,
    /// Whether a line stays in the caches when it is flushed without being invalidated.
    pub keeps_flushed: bool,
    /// Instructions of a chain of dependent accesses, without the accesses themselves.
    pub chain_instructions: f64,
    /// Instructions that draw the place of a read in a chain.
    pub read_instructions: f64,
    /// Instructions of each line that a chain reads or writes.
    pub line_instructions: f64,
    /// Instructions of a flushed or streamed write in a chain, with its fence.
    pub write_instructions: f64,
    /// Instructions that take the time of a chain, where latencies are sampled.
    pub sample_instructions: f64,
    /// Lines that a core reads at the same time.
    pub lines_in_flight: f64,
    /// Lines that a core fetches at the same time because it stores to them.
    pub stores_in_flight: f64,
    /// Factor on `stores_in_flight`, by prefetching, where stores follow each other.
    pub stream_stores: f64,
    /// Time of a streamed (non-temporal) store of a line with its fence, ns.
    pub streamed_ns: f64,
    /// Time of each further streamed line once the write-combining buffers are full, ns.
    pub streamed_line_ns: f64,
    /// Time of a streamed store with its fence to a line that is in the caches, ns.
    pub streamed_cached_ns: f64,
    /// Time that each further line adds to a flush with its fence, ns.
    pub flushed_line_ns: f64,
    /// Time until a line that was just flushed out of the caches can be stored to again, ns.
    pub again_ns: f64,
}

/// Modules of one kind, one on each channel.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Modules {
    /// Lines that a module reads or writes as one.
    pub granule_lines: u64,
    /// Time until the first line of a random read is there, ns.
    pub read_ns: f64,
    /// Time that each further line of the same access occupies one of the lines in flight, ns.
    pub behind_ns: f64,
    /// Time that each line of a stream, which the prefetchers have asked for, occupies one of the
    /// lines in flight, ns.
    pub stream_ns: f64,
    /// Time for which reading a granule keeps a module busy, ns.
    pub read_cycle_ns: f64,
    /// Time added to `read_cycle_ns` for a granule that does not follow the last one, ns.
    pub read_apart_ns: f64,
    /// Time taken off `read_cycle_ns` for each line of the granule that was not asked for, ns.
    pub unread_line_ns: f64,
    /// Time for which writing a granule keeps a module busy, ns.
    pub write_cycle_ns: f64,
    /// Time added to `write_cycle_ns` for a granule that does not follow the last one, ns.
    pub write_apart_ns: f64,
    /// Time until a flushed line is accepted, with its fence, ns.
    pub flush_ns: f64,
    /// Share of the lines leaving the caches one by one that join others of their granule.
    pub merged: f64,
    /// Granules of a module's write buffer; in DRAM, lines that are written in one batch.
    pub write_buffer: f64,
    /// Whether reads wait while all buffered writes are done in one batch, as in DRAM.
    pub writes_in_batches: bool,
    /// Time for buffered writes during reads, as a multiple of the reads' time.
    pub write_share: f64,
    /// Relative growth of a write's time when a whole buffer of other writes waits.
    pub crowding: f64,
    /// Lines fetched by prefetchers in vain, for each line after the fourth of a random access.
    pub overrun: f64,
    /// Time for which a line keeps the channel, which both kinds of modules share, busy, ns.
    pub channel_ns: f64,
}

impl Server {
    /// Refuses numbers that no server can have.
    pub(super) fn sound(&self, name: &str) -> Result<(), ProfileError> {
        let modules = |key: &str, of: &Modules| {
            let above = [
                ("granule_lines", of.granule_lines as f64),
                ("read_ns", of.read_ns),
                ("stream_ns", of.stream_ns),
                ("read_cycle_ns", of.read_cycle_ns),
                ("write_cycle_ns", of.write_cycle_ns),
                ("write_buffer", of.write_buffer),
            ];
            let not_below = [
                ("behind_ns", of.behind_ns),
                ("read_apart_ns", of.read_apart_ns),
                ("unread_line_ns", of.unread_line_ns),
                ("write_apart_ns", of.write_apart_ns),
                ("flush_ns", of.flush_ns),
                ("merged", of.merged),
                ("write_share", of.write_share),
                ("crowding", of.crowding),
                ("overrun", of.overrun),
                ("channel_ns", of.channel_ns),
            ];
            check(name, key, &above, &not_below)
        };
        modules("memory", &self.memory)?;
        self.dram.as_ref().map_or(Ok(()), |dram| modules("dram", dram))?;
        let of = &self.processor;
        let above = [
            ("cores", of.cores as f64),
            ("window", of.window),
            ("read_instructions", of.read_instructions),
            ("lines_in_flight", of.lines_in_flight),
            ("stores_in_flight", of.stores_in_flight),
            ("stream_stores", of.stream_stores),
            ("streamed_ns", of.streamed_ns),
        ];
        let not_below = [
            ("chain_instructions", of.chain_instructions),
            ("line_instructions", of.line_instructions),
            ("write_instructions", of.write_instructions),
            ("sample_instructions", of.sample_instructions),
            ("streamed_line_ns", of.streamed_line_ns),
            ("streamed_cached_ns", of.streamed_cached_ns),
            ("flushed_line_ns", of.flushed_line_ns),
            ("again_ns", of.again_ns),
        ];
        check(name, "processor", &above, &not_below)
    }
}

/// A number and its key.
type Named = (&'static str, f64);

fn check(
    name: &str,
    table: &str,
    above: &[Named],
    not_below: &[Named],
) -> Result<(), ProfileError> {
    let wrong = |(key, value): &Named, expected: &str| ProfileError::Value {
        name: name.to_owned(),
        key: format!("server.{table}.{key}"),
        value: value.to_string(),
        expected: format!("{expected}, at most {MOST}"),
    };
    let is_too_much = |value: f64| !value.is_finite() || value > MOST;
    if let Some(found) = above.iter().find(|(_, value)| *value <= 0.0 || is_too_much(*value)) {
        return Err(wrong(found, "above zero"));
    }
    match not_below.iter().find(|(_, value)| *value < 0.0 || is_too_much(*value)) {
        Some(found) => Err(wrong(found, "zero or more")),
        None => Ok(()),
    }
}

/// Upper limit of every number: no count and no time of a memory access comes near a million.
const MOST: f64 = 1e6;
