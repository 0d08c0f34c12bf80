//! A trace in shards, for many machines. A shard is a range of pages of a volume, so that one huge
//! volume is split too.
//!
//! Requests are cut where ranges end. The pieces of a shard come together, in the order of time,
//! one shard after another. The first piece of a request counts as the record. The parts of all
//! shards merge to the parts of volumes, and these to the part of all volumes, exactly, in any
//! order and grouping.

use std::cmp::Ordering;

use crate::skew::{Analyzer, Options, Part, Piece, SkewError};
use crate::trace::Op;

/// Pages of a range: 1 GiB. Fewer would be more parts to merge, each with its counts per instant;
/// more would leave machines idle.
pub const RANGE_PAGES: u64 = 1 << 18;

/// The pages of a request that lie in one range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardPiece {
    /// The time of the request, nanoseconds.
    pub time_ns: u64,
    /// Whether the request reads or writes.
    pub op: Op,
    /// The first page.
    pub first_page: u64,
    /// The number of pages.
    pub pages: u64,
    /// Whether it is the first piece of its request.
    pub is_first: bool,
}

/// A shard that was counted.
#[derive(Debug)]
pub struct Shard {
    /// The name of the volume.
    pub volume: String,
    /// The number of the range, from 0.
    pub range: u64,
    /// The counts of the shard.
    pub part: Part,
}

/// Counts the shards of a stream, one after another.
pub struct Shards {
    options: Options,
    start_ns: u64,
    current: Option<(String, u64, Analyzer)>,
}

/// Why shards were not counted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShardError {
    /// A piece cannot be counted.
    #[error("volume {volume:?}: {cause}")]
    Piece {
        /// The name of the piece's volume.
        volume: String,
        /// The reason.
        cause: SkewError,
    },
    /// A shard came that does not lie behind the one before: it would be counted as two.
    #[error(
        "volume {volume:?}, range {range}, comes after volume {before:?}, range {before_range}: \
         sort by volume, range and time"
    )]
    Order {
        /// The name of the piece's volume.
        volume: String,
        /// The number of the piece's range.
        range: u64,
        /// The name of the volume before it.
        before: String,
        /// The number of the range before it.
        before_range: u64,
    },
    /// A piece leaves its range.
    #[error("volume {volume:?}, range {range}: pages {first_page} to {last_page} are not in it")]
    Range {
        /// The name of the piece's volume.
        volume: String,
        /// The number of the piece's range.
        range: u64,
        /// The first page of the piece.
        first_page: u64,
        /// The last page of the piece.
        last_page: u64,
    },
}

impl Shards {
    /// Shards of a trace whose first record is at `start_ns`.
    pub fn new(mut options: Options, start_ns: u64) -> Self {
        options.mergeable = true;
        Self { options, start_ns, current: None }
    }

    /// Counts a piece. Gives the shard before it, if that is now complete.
    ///
    /// # Errors
    /// After an error the counting cannot be continued.
    pub fn add(
        &mut self,
        volume: &str,
        range: u64,
        piece: &ShardPiece,
    ) -> Result<Option<Shard>, ShardError> {
        let last_page = piece.first_page.saturating_add(piece.pages).saturating_sub(1);
        if piece.first_page / RANGE_PAGES != range || last_page / RANGE_PAGES != range {
            let (volume, first_page) = (volume.to_owned(), piece.first_page);
            return Err(ShardError::Range { volume, range, first_page, last_page });
        }
        let done = match &self.current {
            Some((name, at, _)) if *at == range && name == volume => None,
            _ => self.begin(volume, range)?,
        };
        if let Some((name, _, analyzer)) = &mut self.current {
            let ShardPiece { time_ns, op, first_page, pages, is_first } = *piece;
            // Within a shard there is one volume.
            let counts_as_record = is_first;
            analyzer
                .add_piece(&Piece { time_ns, volume: 0, op, first_page, pages, counts_as_record })
                .map_err(|cause| ShardError::Piece { volume: name.clone(), cause })?;
        }
        Ok(done)
    }

    /// The last shard, if there is one.
    ///
    /// # Errors
    /// The errors of [`Shards::add`].
    pub fn finish(&mut self) -> Result<Option<Shard>, ShardError> {
        let Some((volume, range, analyzer)) = self.current.take() else { return Ok(None) };
        match analyzer.finish().and_then(|analysis| analysis.all()) {
            Ok(part) => Ok(Some(Shard { volume, range, part })),
            Err(cause) => Err(ShardError::Piece { volume, cause }),
        }
    }

    fn begin(&mut self, volume: &str, range: u64) -> Result<Option<Shard>, ShardError> {
        if let Some((before, before_range, _)) = &self.current
            && (before.as_str(), *before_range).cmp(&(volume, range)) != Ordering::Less
        {
            let (volume, before) = (volume.to_owned(), before.clone());
            return Err(ShardError::Order { volume, range, before, before_range: *before_range });
        }
        let done = self.finish()?;
        let analyzer = Analyzer::new(&self.options, self.start_ns)
            .map_err(|cause| ShardError::Piece { volume: volume.to_owned(), cause })?;
        self.current = Some((volume.to_owned(), range, analyzer));
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::trace::{PAGE_BYTES, Record};

    fn trace(seed: u64) -> Vec<Record> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut time_ns = 1_000_000;
        let records = (0..5000).map(|_| {
            time_ns += random.random_range(0..30_000_000_u64);
            let pages = if random.random_bool(0.02) { RANGE_PAGES * 2 } else { 20 };
            Record {
                time_ns,
                offset_bytes: random.random_range(0..RANGE_PAGES * 4 * PAGE_BYTES),
                len_bytes: random.random_range(1..pages * PAGE_BYTES),
                volume: random.random_range(0..3),
                op: if random.random_bool(0.7) { Op::Write } else { Op::Read },
            }
        });
        records.collect()
    }

    /// Cuts and sorts records as a cluster would.
    fn cut(records: &[Record]) -> BTreeMap<(String, u64), Vec<ShardPiece>> {
        let mut shards = BTreeMap::<_, Vec<ShardPiece>>::new();
        for record in records {
            let (first, count) = record.pages();
            for range in first / RANGE_PAGES..=(first + count - 1) / RANGE_PAGES {
                let from = first.max(range * RANGE_PAGES);
                let to = (first + count).min((range + 1) * RANGE_PAGES);
                let piece = ShardPiece {
                    time_ns: record.time_ns,
                    op: record.op,
                    first_page: from,
                    pages: to - from,
                    is_first: from == first,
                };
                shards.entry((format!("v{}", record.volume), range)).or_default().push(piece);
            }
        }
        shards
    }

    fn count(shards: &BTreeMap<(String, u64), Vec<ShardPiece>>, start_ns: u64) -> Vec<Shard> {
        let mut counter = Shards::new(options(), start_ns);
        let mut done = Vec::new();
        for ((volume, range), pieces) in shards {
            for piece in pieces {
                done.extend(counter.add(volume, *range, piece).unwrap());
            }
        }
        done.extend(counter.finish().unwrap());
        done
    }

    fn options() -> Options {
        Options::new(
            vec![1_000_000_000, 7_000_000_000],
            Options::default().shares_percent().to_vec(),
        )
        .unwrap()
    }

    #[test]
    fn shards_merge_to_what_one_pass_counts_in_any_grouping() {
        for seed in 0..3 {
            let records = trace(seed);
            let start_ns = records[0].time_ns;
            let shards = count(&cut(&records), start_ns);
            assert!(shards.len() >= 12, "one volume is several shards");
            let mut whole = Analyzer::new(&options(), start_ns).unwrap();
            whole.add(&records).unwrap();
            let whole = whole.finish().unwrap();
            let figures = |part: &Part| part.figures(&options()).unwrap();
            let mut volumes = Vec::new();
            for (number, part) in &whole.volumes {
                let own = shards.iter().filter(|shard| shard.volume == format!("v{number}"));
                // As they travel, and in groups.
                let bytes: Vec<_> = own.map(|shard| shard.part.to_bytes().unwrap()).collect();
                let parts: Vec<_> =
                    bytes.iter().map(|bytes| Part::from_bytes(bytes).unwrap()).collect();
                let groups: Vec<_> =
                    parts.chunks(2).map(|group| Part::merge(group).unwrap()).collect();
                let merged = Part::merge(&groups).unwrap();
                assert_eq!(figures(&merged), figures(part), "seed {seed}, volume {number}");
                volumes.push(merged);
            }
            let all = Part::merge(&volumes).unwrap();
            assert_eq!(figures(&all), figures(&whole.all().unwrap()), "seed {seed}");
        }
    }

    #[test]
    fn shards_out_of_order_and_pieces_out_of_range_are_refused() {
        let piece = |first_page| ShardPiece {
            time_ns: 5,
            op: Op::Write,
            first_page,
            pages: 2,
            is_first: true,
        };
        let mut shards = Shards::new(options(), 0);
        shards.add("b", 1, &piece(RANGE_PAGES)).unwrap();
        assert!(matches!(shards.add("b", 0, &piece(0)), Err(ShardError::Order { .. })));
        assert!(matches!(
            shards.add("a", 7, &piece(7 * RANGE_PAGES)),
            Err(ShardError::Order { .. })
        ));
        let outside = shards.add("b", 1, &piece(RANGE_PAGES * 2 - 1)).unwrap_err();
        assert!(outside.to_string().contains("pages 524287 to 524288 are not in it"), "{outside}");
        let early = Shards::new(options(), 6).add("b", 0, &piece(0)).unwrap_err();
        assert!(matches!(early, ShardError::Piece { .. }), "{early}");
    }
}
