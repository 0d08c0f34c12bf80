//! The options of `plan trace`, as typed.

use std::path::PathBuf;

use clap::Args;

use crate::plan::power::PowerArgs;

/// The options that have no effect where no budget is sized. They are refused there, because a user
/// who gives one expects an answer.
const OF_SIZING: [&str; 22] = [
    "budgets",
    "stalls",
    "stalled_time",
    "policy",
    "checkpoint",
    "tbw",
    "measure",
    "emit",
    "flush_rate",
    "load_rate",
    "watts",
    "reserve",
    "grace",
    "battery",
    "depth_of_discharge",
    "years",
    "fade",
    "temperature",
    "spare",
    "other_uses",
    "density",
    "usd_per_kwh",
];

/// Options of `plan trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// Traces, packed (gzip, zstd, bzip2, xz) or not, whose format is found by what they hold. `-`
    /// is standard input, which sizing keeps in an unnamed file in TMPDIR, because it reads a trace
    /// several times.
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub reading: ReadingArgs,
    #[command(flatten)]
    pub analysis: AnalysisArgs,
    #[command(flatten)]
    pub sizing: SizingArgs,
    #[command(flatten)]
    pub power: PowerArgs,
    /// Write all figures as JSON, to standard output with `-` (the table is left out then).
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    /// Write an HTML page with the figures of the Viyojit paper for these traces.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// Write the settings for `perdura serve --config` that follow from the trace; one trace only.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub emit: Option<PathBuf>,
    /// Threads for traces, replays, and the stages of one analysis [default: the machine's
    /// processors].
    #[arg(
        long,
        value_name = "N",
        help_heading = "Output",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub jobs: Option<u16>,
}

/// The options of reading files.
#[derive(Debug, Args)]
#[command(next_help_heading = "Reading")]
pub struct ReadingArgs {
    /// Take all files as one trace, with the records in order of time; volumes with the same name
    /// are one volume.
    #[arg(long)]
    pub together: bool,
    /// Read the files as this format instead of the one that is found; see `perdura plan formats`.
    #[arg(long, value_name = "NAME")]
    pub format: Option<String>,
    /// Take times in this unit where the format leaves it open: s, ms, us, 100ns, ns.
    #[arg(long, value_name = "UNIT")]
    pub time_unit: Option<String>,
    /// Take sectors to have this size, for traces that count in sectors and do not say their size
    /// (`srt`), or whose sectors are not of 512 B (`disksim`, `spc`, `tencent`, `vscsi`).
    #[arg(long, value_name = "SIZE")]
    pub sector_size: Option<String>,
    /// Choose the columns of a table (`csv`, `parquet`): see `perdura plan formats`.
    #[arg(long, value_name = "LIST")]
    pub columns: Option<String>,
    /// Give each key in a trace of key operations (`ycsb`) a place of this size, in the order in
    /// which the keys first appear [default: 1KiB].
    #[arg(long, value_name = "SIZE")]
    pub record_size: Option<String>,
    /// Take this many key operations (`ycsb`) for a second, because they have no times [default:
    /// 100000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub operations_per_s: Option<u64>,
    /// Take this many instructions of a memory trace for a second, because it has no times
    /// [default: 1000000000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub instructions_per_s: Option<u64>,
    /// In the text of blkparse, count an access at this step: Q (queued), D (issued), C
    /// (completed).
    #[arg(long, value_name = "LETTER", default_value_t = 'Q')]
    pub block_action: char,
    /// Pass over at most this many bad records, and count them.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub skip_bad: u64,
    /// Sort records that come late by at most this time; without this option a time that goes back
    /// is an error.
    #[arg(long, value_name = "TIME")]
    pub reorder: Option<String>,
}

/// The options of counting.
#[derive(Debug, Args)]
#[command(next_help_heading = "Analysis")]
pub struct AnalysisArgs {
    /// Find the worst interval of each of these lengths, separated by commas.
    #[arg(long, value_name = "TIMES", value_delimiter = ',', default_value = "1m,10m,1h")]
    pub windows: Vec<String>,
    /// Find the fewest pages that take these shares of the page writes, in percent. 99 is always
    /// among them, because skew is judged by it.
    #[arg(long, value_name = "PERCENTS", value_delimiter = ',', default_value = "90,95,99")]
    pub shares: Vec<f64>,
    /// Size of each volume [default: as much of it as the trace touches].
    #[arg(long, value_name = "SIZE")]
    pub volume_size: Option<String>,
    /// Count a sample of the pages, in at most 64 MiB of memory, and give 95 % ranges. Sizing,
    /// which needs every page, is left out.
    #[arg(long, conflicts_with_all = OF_SIZING)]
    pub approximate: bool,
}

/// The options of sizing a budget.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sizing")]
pub struct SizingArgs {
    /// Analyse the trace only, and size no budget; the trace is then read once.
    #[arg(long, conflicts_with_all = OF_SIZING)]
    pub no_sizing: bool,
    /// Replay these budgets: sizes of at least 128KiB, or shares of the memory [default: 1% to
    /// 100%].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub budgets: Vec<String>,
    /// Target: at most this share of the page writes may wait. The smallest budget that meets the
    /// targets is looked for.
    #[arg(long, value_name = "PERCENT", default_value = "0.1%")]
    pub stalls: String,
    /// Target: writers may wait for at most this share of the time.
    #[arg(long, value_name = "PERCENT", default_value = "1%")]
    pub stalled_time: String,
    /// Which dirty data are cleaned first, as of `serve` [default: clock-pro].
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Time between checkpoints, or `off` [default: 1s].
    #[arg(long, value_name = "TIME")]
    pub checkpoint: Option<String>,
    /// Rated endurance of the SSD, such as 600TB, to see how many years it lasts.
    #[arg(long, value_name = "SIZE")]
    pub tbw: Option<String>,
    /// Measure the flush rate in this directory, as `perdura serve` does; it takes 3 GiB there for
    /// a moment.
    #[arg(long, value_name = "DIR", conflicts_with = "flush_rate")]
    pub measure: Option<PathBuf>,
}
