//! The analysis of a trace as in the Viyojit paper (section 3): how much is written in the worst
//! interval, and how skewed writes are.
//!
//! The definitions are exact. A page has 4096 B and belongs to a volume. A request covers the pages
//! from its first to its last byte. The time is 0 at the first record of the trace (its *start*).
//! Tumbling windows are `[kT, (k+1)T)`; sliding windows are `(t - T, t]` and end at a record. The
//! page writes of a window are its *adversarial* pages, the different pages written in it its
//! *unique* pages. Skew is the smallest number of pages that receive at least p % of the page
//! writes. A page is *touched* if it was read or written.
//!
//! ```text
//! Analyzer   takes records, or pieces of records, in the order of time; one pass
//!   Pass       pages of all volumes           Sample   a sample of pages, for --approximate
//!     PageTable  16 B a page
//!   Windows    of volumes and of all          Instants, Live   the longest window, in a file
//! Part       the result for a set of pages; merges with others; bytes for another machine
//! Figures    the results as they are shown
//! ```

mod classes;
mod error;
mod estimate;
mod figures;
mod histogram;
mod live;
mod options;
mod part;
mod pass;
mod piece;
mod queue;
mod sample;
mod series;
mod sys;
mod table;
mod tally;
mod varint;
mod zipf;

use crate::trace::Record;

pub use classes::{
    Assessment, Class, SKEW_SHARE_PERCENT, SKEWED_FRACTION, SMALL_BATTERY_FRACTION, SkewFraction,
    WRITTEN_FRACTION_HIGH, WindowFraction,
};
pub use error::SkewError;
pub use figures::{Figure, Figures, MostFigures, WorstFigures};
pub use options::{Options, Sampling, Share, WINDOWS_MAX, window_key};
pub use part::{Join, Part};
pub use pass::Others;
pub use piece::{Piece, REQUEST_PAGES_MAX, SAMPLED_VOLUMES_MAX, VOLUMES_MAX};
pub use zipf::{THETA, ZipfPoint, zipf_curve, zipf_point};

use pass::{Finished, Pass};

/// The analysis of a trace, in one pass.
pub struct Analyzer {
    options: Options,
    start_ns: u64,
    pass: Pass,
}

impl Analyzer {
    /// An analysis of records that are not before `start_ns`, from which windows are counted: the
    /// time of the first record of the trace, of all volumes and ranges of pages.
    pub fn new(options: &Options, start_ns: u64) -> Result<Self, SkewError> {
        if options.mergeable && options.sampling.is_some() {
            return Err(SkewError::NotMergeable);
        }
        Ok(Self { options: options.clone(), start_ns, pass: Pass::new(options, start_ns)? })
    }

    /// Counts records, in the order of time. After an error the analysis is not to be gone on with.
    pub fn add(&mut self, records: &[Record]) -> Result<(), SkewError> {
        self.pass.add(records)
    }

    /// Counts a piece of a record, in the order of time.
    pub fn add_piece(&mut self, piece: &Piece) -> Result<(), SkewError> {
        self.pass.add_piece(piece)
    }

    /// The bytes of what grows with the pages: tables, or the sample.
    pub fn page_bytes(&self) -> u64 {
        self.pass.page_bytes()
    }

    /// Bytes of the temporary files, of which there are none for windows that fit memory.
    pub fn spilled_bytes(&self) -> u64 {
        self.pass.spilled_bytes()
    }

    /// Ends the analysis, and gives its result.
    pub fn finish(self) -> Result<Analysis, SkewError> {
        let Finished { volumes, others, all } = self.pass.finish()?;
        Ok(Analysis { volumes, others, all, empty: Part::empty(&self.options, self.start_ns) })
    }
}

/// The result of an analysis.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// The part of each volume, by the volume's number.
    pub volumes: Vec<(u32, Part)>,
    /// The volumes that an approximate analysis saw after the first [`SAMPLED_VOLUMES_MAX`].
    pub others: Option<Others>,
    /// The part of two or more volumes together, if they were counted in the same pass.
    all: Option<Part>,
    empty: Part,
}

impl Analysis {
    /// The part of all volumes together.
    pub fn all(&self) -> Result<Part, SkewError> {
        match (&self.all, &self.volumes[..]) {
            (Some(all), _) => Ok(all.clone()),
            (None, []) => Ok(self.empty.clone()),
            (None, [(_, one)]) => Ok(one.clone()),
            (None, several) => Part::merge(several.iter().map(|(_, part)| part)),
        }
    }
}
