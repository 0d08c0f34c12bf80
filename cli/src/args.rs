//! The command line as typed: words become plain values, and `settings` decides what they mean.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::connection::TlsOptions;
use crate::seccomp::SeccompArgs;
use crate::serve_args::{PlaceArgs, ServeArgs};
use crate::watch::LogArgs;

/// Durable memory for ordinary servers.
///
/// Data live in DRAM. The part that is not yet on the SSD is kept small enough to be flushed within
/// the warning that the machine gets. Sizes are like 512MiB or 2GiB, times like 30s or 500ms,
/// shares like 11%.
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
    /// Fill the budget with dirty data, flush it for real, and compare the time with the promise.
    /// Exits 0 if the promise was kept, 1 if it was not.
    Drill(Box<DrillArgs>),
    /// Ask a running store what it promises and whether the promise holds: dirty data, budget,
    /// proven rate, time to be safe, last checkpoint, holder. Exits 0 if the promise holds, 1 if it
    /// does not, 2 if the store could not be asked.
    Status(StatusArgs),
    /// Watch a guard's servers, or one server, live in the terminal: dirty data, time to be safe,
    /// shares, power.
    Top(TopArgs),
    /// Write to the SSD what a holder keeps after its server died, and end the holder. SIGTERM to
    /// the holder does the same.
    Flush(FlushArgs),
    /// Simulate losses of power and check every promise after them. The same seed repeats a run.
    Sim(SimArgs),
    /// Check that a heap file is sound, or the image in a directory and the heap in it. Nothing is
    /// changed. Exits 0 if it is sound, 1 if it is damaged, 2 if it could not be checked (in use,
    /// not readable, not there, not a heap).
    Check(CheckArgs),
    /// Measure throughput and latency with the workloads of YCSB.
    Bench(Box<crate::bench::BenchArgs>),
    /// Take over the data of a Redis or Valkey: from its dump, from its append-only files, or from
    /// the running server, whose changes are followed until everything is here.
    Import(crate::import::ImportArgs),
    /// Write all keys of a running server, as of one moment, to a dump that Redis loads.
    Export(crate::export::ExportArgs),
    /// Put a restore point of an image in a vault: a directory, an S3 bucket, or another machine.
    /// The server may be running, and is not stopped. Or list or verify what is there.
    Backup(crate::backup::BackupArgs),
    /// Make an image from a restore point.
    Restore(crate::backup::RestoreArgs),
    /// Find a budget, a battery or a memory for a load, from traces of it and from models.
    Plan(crate::plan::PlanArgs),
    /// Make the key of an encrypted image, or give an image another one.
    Key(crate::key::KeyCommandArgs),
    /// Run another program: with --dir, files that it maps are durable memory; without, its heap is
    /// in capacity memory, which is not durable.
    Run(RunArgs),
    /// Keep the memory of many servers, heed the warnings for all of them, and flush for those that
    /// died. Servers attach with `serve --guard`. SIGTERM: all are saved and end, then the guard.
    Guard(GuardArgs),
    /// Print what makes a shell complete the commands and options of `perdura`.
    Completions(crate::pages::CompletionsArgs),
    /// Write the manual pages, one for each command, into a directory.
    Man(crate::pages::ManArgs),
    /// Keep the memory of a server that dies. Started by `serve`, not by hand.
    #[command(hide = true)]
    Holder(HolderArgs),
    /// Start holders for a server that may start no program. Started by `serve`, not by hand.
    #[command(hide = true)]
    StartHolders(HolderArgs),
}

/// Options of `run`: the memory in which the mapped files, or the heap, of another program lie.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Directory whose files are durable memory where the program maps them shared: `msync` returns
    /// at once, and everything is safe within the warning. The files are complete when the program
    /// has ended; until then, what they held before and the data of the run are below DIR/.perdura.
    /// The heap stays where it is, unless --capacity, --numa-node or --report is given, too.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// With --dir, the warning: time from SIGTERM, or from another sign, to the loss of power
    /// [default: 30s]. A quarter of it is the program's, to end by itself.
    #[arg(long, value_name = "TIME", requires = "dir")]
    pub grace: Option<String>,
    /// With --dir, most data that may be dirty: a size, or a share of --size [default: as much as
    /// can be flushed within the warning].
    #[arg(long, value_name = "SIZE|PERCENT", requires = "dir")]
    pub budget: Option<String>,
    /// With --dir, the time between checkpoints, to the last of which a loss of power without a
    /// warning goes back; or `off` [default: 10s].
    #[arg(long, value_name = "TIME", requires = "dir")]
    pub checkpoint: Option<String>,
    /// With --dir, a source of warnings besides signals, as of `serve`.
    #[arg(long, value_name = "SOURCE", requires = "dir")]
    pub warning: Vec<String>,
    /// With --dir, socket of a guard that keeps the memory if this process dies, in the place of a
    /// holder, as of `serve`. If the guard is lost, stores wait until it is back.
    #[arg(long, value_name = "SOCKET", requires = "dir")]
    pub guard: Option<PathBuf>,
    /// With --dir, the time for which the power must be back before stores go on, or the whole
    /// budget may be used, again [default: 10s].
    #[arg(long, value_name = "TIME", requires = "dir")]
    pub power_settle: Option<String>,
    /// Directory on the medium whose memory the heap takes, such as a DAX file system or tmpfs. The
    /// memory is a file without a name in it. Or `anonymous`: private memory [default: anonymous].
    #[arg(long, value_name = "DIR")]
    pub capacity: Option<PathBuf>,
    /// Most memory that the program may have; memory that it does not allocate costs nothing
    /// [default: the machine's memory, or what is free on the NUMA node; at most 64GiB]. With
    /// --dir, the memory for all mapped files, which may grow to four times as much [default:
    /// 1GiB].
    #[arg(long, value_name = "SIZE")]
    pub size: Option<String>,
    /// NUMA node to take the memory from, such as one of CXL memory, or of persistent memory that
    /// is used as system RAM.
    #[arg(long, value_name = "N")]
    pub numa_node: Option<u32>,
    /// Print on standard error, at the end of each process, how much memory it used.
    #[arg(long)]
    pub report: bool,
    /// The program, which must be dynamically linked, and its arguments.
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
    /// Drill the store that runs at this address, instead of opening a stopped one: ADDRESS:PORT or
    /// a URL, such as `rediss://HOST:PORT`.
    #[arg(long, value_name = "ADDRESS")]
    pub connect: Option<String>,
    /// Drill all servers of the guard at this socket at the same time: together they must be safe
    /// within the warning that they share, or each within its own.
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["connect", "password_file", "tls"])]
    pub guard: Option<PathBuf>,
    /// File with the running store's password; or set PERDURA_PASSWORD.
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// Flush only what happens to be dirty, and do not fill the budget. Such a drill proves less,
    /// and does not end with PASS.
    #[arg(long)]
    pub no_fill: bool,
    #[command(flatten)]
    pub tls: TlsOptions,
}

/// Whom `status` and `top` ask.
#[derive(Debug, Args)]
pub struct AskedArgs {
    /// Address of the running store: ADDRESS:PORT or a URL, such as `rediss://HOST:PORT`.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6379")]
    pub connect: String,
    /// Ask the guard at this socket instead, about all the memory of this user that it keeps, or of
    /// all users if root asks.
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["connect", "password_file", "tls"])]
    pub guard: Option<PathBuf>,
    /// File with the store's password; or set PERDURA_PASSWORD.
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    #[command(flatten)]
    pub tls: TlsOptions,
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub asked: AskedArgs,
    /// Print the answer as JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct TopArgs {
    #[command(flatten)]
    pub asked: AskedArgs,
    /// Time between two looks [default: 1s].
    #[arg(long, value_name = "TIME")]
    pub every: Option<String>,
}

#[derive(Debug, Args)]
pub struct FlushArgs {
    /// Data directory of the server that died.
    #[arg(long, value_name = "DIR", default_value = "perdura-data")]
    pub dir: PathBuf,
    /// Socket of the guard that keeps the memory, if the server had one.
    #[arg(long, value_name = "SOCKET")]
    pub guard: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct GuardArgs {
    /// Path of the socket to which servers attach. FILE.lock beside it keeps other guards away.
    #[arg(long, value_name = "FILE")]
    pub socket: PathBuf,
    /// Permissions of the socket, octal: who may attach. Each user gets only memory of their own
    /// back; root gets all [default: 600].
    #[arg(long, value_name = "MODE")]
    pub socket_mode: Option<String>,
    /// A source of warnings besides signals, as of `serve`. The guard passes on to all servers what
    /// its sources say.
    #[arg(long, value_name = "SOURCE")]
    pub warning: Vec<String>,
    /// Time from a warning to the loss of power, such as 30s: all servers share it. Together they
    /// have no more dirty than can be flushed within it, and idle ones lend their part to busy
    /// ones. Without it, the promise of each server counts alone.
    #[arg(long, value_name = "TIME")]
    pub grace: Option<String>,
    /// A file that describes the battery, as of `serve`: the shared time follows its age, its
    /// temperature and the machine's load, and is never more than it lasts for at the start, nor
    /// than --grace, if that is given.
    #[arg(long, value_name = "FILE")]
    pub battery: Option<PathBuf>,
    /// What servers are entitled to, as TOML; see docs/guard.md.
    #[arg(long, value_name = "FILE")]
    pub tenants: Option<PathBuf>,
    /// Power that the machine draws, watts: for sources that say what energy is left.
    #[arg(long, value_name = "WATTS")]
    pub watts: Option<f64>,
    /// Most regions at a time; one user other than root may have half of them [default: 64].
    #[arg(long, value_name = "N")]
    pub regions_max: Option<usize>,
    /// Threads of a flush of one region [default: the machine's processors, at most 4].
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// The --memory-dir of servers: memory that they left there is held from the start, as after a
    /// reboot.
    #[arg(long, value_name = "DIR")]
    pub memory_dir: Option<PathBuf>,
    #[command(flatten)]
    pub log: LogArgs,
    /// Given to the guard by its parent.
    #[arg(long, hide = true)]
    pub is_child: bool,
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// A heap file, or a data directory, which holds image.perdura. No process may have it open.
    #[arg(value_name = "DIR|FILE")]
    pub place: PathBuf,
    #[command(flatten)]
    pub key: crate::key::KeyArgs,
    /// Repair a heap file: remove torn roots and roots of nothing, cut damaged logs, free spans
    /// without objects. Nothing is changed unless everything can be repaired. Not for directories.
    #[arg(long)]
    pub repair: bool,
    /// With --repair, also free objects that nothing reaches.
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
    /// Check the order of the heap's stores, flushes and fences: open the heap on every memory that
    /// a loss of power may leave.
    Order(OrderArgs),
}

#[derive(Debug, Args)]
pub struct CutArgs {
    /// Seed of all runs; the same seed makes the same runs and cuts. The default is 1, and with
    /// --seconds the number of days since 1970.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Number of cuts.
    #[arg(long, default_value_t = 1000)]
    pub cuts: u64,
    /// Make cuts for so many seconds of processor time, in the place of a number of cuts.
    #[arg(long, value_name = "N", conflicts_with_all = ["cuts", "only"])]
    pub seconds: Option<u64>,
    /// Make only this cut of the seed's run, to replay a failure.
    #[arg(long, value_name = "N")]
    pub only: Option<u64>,
    /// Threads that make cuts; the outcome does not depend on their number.
    #[arg(long, value_name = "N", default_value_t = std::num::NonZeroUsize::MIN)]
    pub threads: std::num::NonZeroUsize,
    /// Plant a bug that must be caught: skip-flush, drop-checksum, open-before-accounting,
    /// clean-at-copy, acknowledge-before-commit, free-before-commit, loaded-too-early,
    /// let-go-when-written, give-back-always, drop-neighbours, single-always, zero-untaken,
    /// keep-saved-count, reply-before-group, count-late-groups, reply-though-failed,
    /// skip-small-groups.
    #[arg(long, value_name = "BUG")]
    pub plant: Option<String>,
}

#[derive(Debug, Args)]
pub struct OrderArgs {
    /// Check only this operation; an unknown name lists all.
    #[arg(long, value_name = "NAME", default_value = "all")]
    pub operation: String,
    /// Seed that chooses the states to try where not all of them are tried.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Most states to try at one event.
    #[arg(long, value_name = "N", default_value_t = perdura_sim::order::STATES_MAX)]
    pub states_max: usize,
    /// Try only this state of the operation, to replay a failure.
    #[arg(long, value_name = "STATE")]
    pub only: Option<String>,
    /// Plant bugs that must be caught. `each`: forget each flush and each fence and swap stores,
    /// one after the other. Or a single bug: drop-flush:N, drop-fence:N, swap-stores:N,
    /// swap-bytes:N; or one of the heap: replay-into-reused, settle-unflushed, link-unnoted,
    /// free-before-commit, link-before-frees, clear-unmarked [default: none].
    #[arg(long, value_name = "BUG")]
    pub plant: Option<String>,
}

#[derive(Debug, Args)]
pub struct HolderArgs {
    /// The data directory; the descriptors of its memory arrive on standard input.
    #[arg(long)]
    pub dir: PathBuf,
    /// Threads of a flush.
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
    /// A source of warnings besides signals, as of `serve`.
    #[arg(long)]
    pub warning: Vec<String>,
    #[command(flatten)]
    pub seccomp: SeccompArgs,
    #[command(flatten)]
    pub log: LogArgs,
}
