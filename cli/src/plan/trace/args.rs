//! `plan trace` as typed.

use std::path::PathBuf;

use clap::Args;

use crate::plan::power::PowerArgs;

/// The options that have no effect where nothing is sized; they are refused there, for a user who
/// gives one expects an answer.
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
    /// Traces, packed (gzip, zstd, bzip2, xz) or not; their format is found out. `-` is standard
    /// input: sizing keeps it in a file without a name (in TMPDIR), for it reads a trace several
    /// times.
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
    /// How many threads to use for traces, replays, and the stages of one analysis [default: the
    /// machine's processors].
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
    /// Take all files as one trace: records in order of time, volumes of the same name being the
    /// same.
    #[arg(long)]
    pub together: bool,
    /// Read the files as this format, which is found out otherwise: see `perdura plan formats`.
    #[arg(long, value_name = "NAME")]
    pub format: Option<String>,
    /// Take times in this unit where the format leaves it open: s, ms, us, 100ns, ns.
    #[arg(long, value_name = "UNIT")]
    pub time_unit: Option<String>,
    /// Take sectors of this size where a trace counts in sectors and does not say their size
    /// (`srt`), or has others than 512 B (`disksim`, `spc`, `tencent`, `vscsi`).
    #[arg(long, value_name = "SIZE")]
    pub sector_size: Option<String>,
    /// Choose the columns of a table (`csv`, `parquet`): see `perdura plan formats`.
    #[arg(long, value_name = "LIST")]
    pub columns: Option<String>,
    /// Give each key of key operations (`ycsb`) a place of this size, in order of first sight
    /// [default: 1KiB].
    #[arg(long, value_name = "SIZE")]
    pub record_size: Option<String>,
    /// Let this many key operations be a second, for they have no clock [default: 100000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub operations_per_s: Option<u64>,
    /// Let this many instructions of memory traces be a second, for they have no other clock
    /// [default: 1000000000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub instructions_per_s: Option<u64>,
    /// Count this step of an access in the text of blkparse: Q (queued), D (issued), C
    /// (completed).
    #[arg(long, value_name = "LETTER", default_value_t = 'Q')]
    pub block_action: char,
    /// Pass over this many bad records, and count them.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub skip_bad: u64,
    /// Put records in their place that come late by no more than this; without it a time that goes
    /// back is an error.
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
    /// Find the fewest pages that take these shares of the page writes, in percent; 99 is always
    /// among them, for skew is judged by it.
    #[arg(long, value_name = "PERCENTS", value_delimiter = ',', default_value = "90,95,99")]
    pub shares: Vec<f64>,
    /// Take each volume to have this size; without it, what the trace touches of it.
    #[arg(long, value_name = "SIZE")]
    pub volume_size: Option<String>,
    /// Count a sample of the pages, within 64 MiB of memory, and give ranges (95 %); leaves sizing
    /// out, which needs every page.
    #[arg(long, conflicts_with_all = OF_SIZING)]
    pub approximate: bool,
}

/// The options of sizing a budget.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sizing")]
pub struct SizingArgs {
    /// Leave sizing out: the trace is read once.
    #[arg(long, conflicts_with_all = OF_SIZING)]
    pub no_sizing: bool,
    /// Replay these budgets: sizes (from 128KiB on; more than the memory is all of it) or shares of
    /// the memory [default: 1% to 100%].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub budgets: Vec<String>,
    /// Let at most this share of the page writes wait; the smallest budget that keeps to it is
    /// looked for.
    #[arg(long, value_name = "PERCENT", default_value = "0.1%")]
    pub stalls: String,
    /// Let writers wait for at most this share of the time; the budget keeps to both.
    #[arg(long, value_name = "PERCENT", default_value = "1%")]
    pub stalled_time: String,
    /// Clean dirty data by this policy [default: clock-pro].
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Time between checkpoints, or `off` [default: 1s].
    #[arg(long, value_name = "TIME")]
    pub checkpoint: Option<String>,
    /// Tell the SSD's rated endurance, such as 600TB, to see how many years it lasts.
    #[arg(long, value_name = "SIZE")]
    pub tbw: Option<String>,
    /// Measure the flush rate in this directory, as `perdura serve` proves it; takes 3 GiB of it
    /// for a moment.
    #[arg(long, value_name = "DIR", conflicts_with = "flush_rate")]
    pub measure: Option<PathBuf>,
}
