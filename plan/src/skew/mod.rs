//! The paper's analysis of a trace (Viyojit, section 3): how much is written in the worst interval,
//! and how skewed writes are.
//!
//! Definitions, which hold to the last digit: pages of 4096 B, keyed by volume; a request covers
//! the pages from its first to its last byte; t = 0 at the first record of the trace (the *origin*);
//! tumbling windows `[kT, (k+1)T)`, sliding windows `(t - T, t]` ending at a record; *adversarial*
//! = page writes in a window, *unique* = different pages written in it; skew = the fewest hottest
//! pages that receive at least p % of the page writes; *touched* = read or written.
//!
//! ```text
//! Analyzer   records or pieces of records in, in the order of time; one pass
//!   Pass       pages of all volumes           Sample   the same of a sample of pages, for --approximate
//!     PageTable  16 B a page
//!   Windows    of volumes and of all          Instants, Live   the longest window, in memory or a temporary file
//! Part       the result for a set of pages; merges with those of other pages; bytes for another machine
//! Figures    what is shown
//! ```

mod classes;
mod error;
mod estimate;
mod figures;
mod live;
mod options;
mod part;
mod pass;
mod queue;
mod sample;
mod series;
mod sys;
mod table;
mod tally;
mod varint;
mod zipf;

use crate::trace::{Op, Record};

pub use classes::{
    Assessment, Class, SKEW_SHARE_PERCENT, SKEWED_FRACTION, SMALL_BATTERY_FRACTION, SkewFraction,
    WRITTEN_FRACTION_HIGH, WindowFraction,
};
pub use error::SkewError;
pub use figures::{Figure, Figures, MostFigures, WorstFigures};
pub use options::{Options, Sampling, Share, WINDOWS_MAX, window_key};
pub use part::{Join, Part};
pub use zipf::{THETA, ZipfPoint, zipf_curve, zipf_point};

use pass::{Finished, Pass};

/// Pages of a request; more than 64 GiB at once is not an access but a damaged line.
pub const REQUEST_PAGES_MAX: u64 = 1 << 24;
/// Volumes of a trace.
pub const VOLUMES_MAX: u32 = 1 << 20;
/// Volumes with figures of their own in a trace that is sampled: their counters are part of the
/// fixed memory.
pub const SAMPLED_VOLUMES_MAX: usize = 6144;
/// The last time since the origin: with the length of a window, or with that of one beyond which
/// nothing is, it fits 64 bits.
const TIME_MAX_NS: u64 = (1 << 63) - 1;
/// Pages that can be numbered: offsets lie below 2^63.
const PAGES_MAX: u64 = 1 << 51;

/// A record, or those of its pages that lie in one range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// When; pieces come in the order of time.
    pub time_ns: u64,
    /// Whose pages.
    pub volume: u32,
    /// What it does.
    pub op: Op,
    /// The first page.
    pub first_page: u64,
    /// How many.
    pub pages: u64,
    /// Whether the record is counted here: of a record in several pieces, one.
    pub counts_as_record: bool,
}

impl Piece {
    #[inline]
    fn check(&self) -> Result<(), SkewError> {
        let end = self.first_page.saturating_add(self.pages);
        if self.pages.wrapping_sub(1) < REQUEST_PAGES_MAX && end <= PAGES_MAX {
            return Ok(());
        }
        let Self { volume, first_page, pages, .. } = *self;
        Err(SkewError::Request { volume, first_page, pages, max: REQUEST_PAGES_MAX })
    }
}

/// The analysis of a trace, in one pass.
pub struct Analyzer {
    options: Options,
    origin_ns: u64,
    pass: Pass,
}

impl Analyzer {
    /// An analysis of records that are not before `origin_ns`, from which windows are counted: the
    /// time of the first record of the trace, of all volumes and ranges of pages.
    pub fn new(options: &Options, origin_ns: u64) -> Result<Self, SkewError> {
        if options.mergeable && options.sampling.is_some() {
            return Err(SkewError::NotMergeable);
        }
        Ok(Self { options: options.clone(), origin_ns, pass: Pass::new(options, origin_ns)? })
    }

    /// Counts records, in the order of time. After an error the analysis is not to be gone on with.
    pub fn add(&mut self, records: &[Record]) -> Result<(), SkewError> {
        self.pass.add(records)
    }

    /// Counts a piece of a record, in the order of time.
    pub fn add_piece(&mut self, piece: &Piece) -> Result<(), SkewError> {
        self.pass.add_piece(piece)
    }

    /// Bytes of what grows with the pages: tables, or the sample.
    pub fn page_bytes(&self) -> u64 {
        self.pass.page_bytes()
    }

    /// Bytes of the temporary files, of which there are none for windows that fit memory.
    pub fn spilled_bytes(&self) -> u64 {
        self.pass.spilled_bytes()
    }

    /// The result.
    pub fn finish(self) -> Result<Analysis, SkewError> {
        let Finished { volumes, others, all } = self.pass.finish()?;
        Ok(Analysis { volumes, others, all, empty: Part::empty(&self.options, self.origin_ns) })
    }
}

/// Volumes that have one part together.
#[derive(Clone, Debug)]
pub struct Others {
    /// How many.
    pub volumes: u32,
    /// What they come to.
    pub part: Part,
}

/// The result of a trace.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// By the volume's number.
    pub volumes: Vec<(u32, Part)>,
    /// Of an approximate analysis: the volumes that were seen after the first
    /// [`SAMPLED_VOLUMES_MAX`].
    pub others: Option<Others>,
    /// Of two or more, if they were counted in the same pass.
    all: Option<Part>,
    empty: Part,
}

impl Analysis {
    /// All volumes as one.
    pub fn all(&self) -> Result<Part, SkewError> {
        match (&self.all, &self.volumes[..]) {
            (Some(all), _) => Ok(all.clone()),
            (None, []) => Ok(self.empty.clone()),
            (None, [(_, one)]) => Ok(one.clone()),
            (None, several) => Part::merge(several.iter().map(|(_, part)| part)),
        }
    }
}
