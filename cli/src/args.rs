//! The command line as typed: words to plain values, nothing decided yet (see `settings`).

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::serve_args::{PlaceArgs, ServeArgs};

/// Durable memory for ordinary servers.
///
/// Data live in DRAM; what is not yet on the SSD is kept small enough to be flushed within the
/// warning the machine gets. Sizes are like 512MiB or 2GiB, times like 30s or 500ms, shares like
/// 11%.
#[derive(Debug, Parser)]
#[command(name = "perdura", version, max_term_width = 100, args_override_self = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a Redis-compatible store whose memory survives crashes and power cuts.
    Serve(Box<ServeArgs>),
    /// Flush for real with a full budget, and say whether the promise holds. Exits 1 if it does
    /// not.
    Drill(Box<DrillArgs>),
    /// Say what a running store promises and where it stands: dirty data, budget, proven rate, time
    /// to be safe, last checkpoint, holder. Exits 0: the promise holds, 1: it does not, 2: the store
    /// could not be asked.
    Status(StatusArgs),
    /// Flush what a holder keeps after its server died, then let it go. The same as sending it
    /// SIGTERM.
    Flush(FlushArgs),
    /// Explore failures by simulation, deterministically by seed.
    Sim(SimArgs),
    /// Verify a heap file, or the image in a directory and the heap in it, without changing
    /// anything. Exits 0: sound, 1: damaged, 2: it could not be checked (in use, not readable, not
    /// there).
    Check(CheckArgs),
    /// Measure: YCSB's workloads on the store, on servers, on an array in bare memory.
    Bench(Box<crate::bench::BenchArgs>),
    /// Plan: which memory to buy for a load.
    Plan(crate::plan::PlanArgs),
    /// Run another program with its heap in capacity memory.
    Run(RunArgs),
    /// Keep a server's memory (started by `serve`, not by hand).
    #[command(hide = true)]
    Holder(HolderArgs),
}

/// Where the heap of another program is to lie.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Directory on the medium to use (a DAX file system, tmpfs); memory is a file without a
    /// name in it [default: private memory].
    #[arg(long, value_name = "DIR")]
    pub capacity: Option<PathBuf>,
    /// Most memory it may have; what is not allocated costs nothing [default: the machine's memory,
    /// or what is free on the node; at most 64GiB].
    #[arg(long, value_name = "SIZE")]
    pub size: Option<String>,
    /// NUMA node to take it from (CXL memory, persistent memory as system RAM).
    #[arg(long, value_name = "N")]
    pub numa_node: Option<u32>,
    /// Say at the end of each process, on standard error, what was used.
    #[arg(long)]
    pub report: bool,
    /// The program and its arguments. It must be dynamically linked.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub program: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct DrillArgs {
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Drill the store that is running at this address, instead of opening a stopped one.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub connect: Option<String>,
    /// File with the running store's password; or set PERDURA_PASSWORD.
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// Flush only what happens to be dirty. Such a drill cannot PASS.
    #[arg(long)]
    pub no_fill: bool,
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Address of the running store.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:6379")]
    pub connect: String,
    /// File with the store's password; or set PERDURA_PASSWORD.
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// Print what was found as JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct FlushArgs {
    /// Directory whose holder is to flush.
    #[arg(long, value_name = "DIR", default_value = "perdura-data")]
    pub dir: PathBuf,
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// A heap file, or the directory of a server's image (DIR/image.perdura). Nothing may have it
    /// open.
    #[arg(value_name = "DIR|FILE")]
    pub place: PathBuf,
    /// Mend what can be, in a heap file: torn roots and roots of nothing are removed, damaged logs
    /// are cut, spans without objects are freed. Nothing is changed if something cannot be mended.
    /// Not for directories.
    #[arg(long)]
    pub repair: bool,
    /// With --repair: free objects that nothing reaches.
    #[arg(long, requires = "repair")]
    pub reclaim_leaks: bool,
    /// Print what was found as JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct SimArgs {
    #[command(subcommand)]
    pub what: SimCommand,
}

#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Cut the power after durable operations of seeded runs and check every promise afterwards.
    Cut(CutArgs),
    /// Check the order of the heap's stores, flushes and fences: reopen it on every memory that a
    /// loss may leave.
    Order(OrderArgs),
}

#[derive(Debug, Args)]
pub struct CutArgs {
    /// First seed.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Cuts to make.
    #[arg(long, default_value_t = 1000)]
    pub cuts: u64,
    /// Make only this cut of the seed's run: how a failure is replayed.
    #[arg(long, value_name = "N")]
    pub only: Option<u64>,
    /// Plant a bug that must be caught: skip-flush, drop-checksum, open-before-accounting,
    /// clean-at-copy, acknowledge-before-commit, free-before-commit, loaded-too-early,
    /// let-go-when-written, give-back-always, drop-neighbours, single-always, zero-untaken.
    #[arg(long, value_name = "BUG")]
    pub plant: Option<String>,
}

#[derive(Debug, Args)]
pub struct OrderArgs {
    /// Check only this operation (an unknown name lists them).
    #[arg(long, value_name = "NAME", default_value = "all")]
    pub operation: String,
    /// Seed of what is drawn where not all states are tried.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// States tried at one event; all of them if there are no more.
    #[arg(long, value_name = "N", default_value_t = perdura_sim::order::STATES_MAX)]
    pub states_max: usize,
    /// Try only this state of the operation: how a failure is replayed.
    #[arg(long, value_name = "STATE")]
    pub only: Option<String>,
    /// Plant bugs that must be caught: `each` flush and fence forgotten and stores swapped, one
    /// after the other; or one, as drop-flush:N, drop-fence:N, swap-stores:N, swap-bytes:N
    /// [default: none].
    #[arg(long, value_name = "BUG")]
    pub plant: Option<String>,
}

#[derive(Debug, Args)]
pub struct HolderArgs {
    /// The directory whose memory arrives on standard input.
    #[arg(long)]
    pub dir: PathBuf,
    /// Threads of a flush.
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
    /// Sources of warnings to heed besides signals.
    #[arg(long)]
    pub warning: Vec<String>,
}
