//! The options of `perdura bench`, as typed.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub what: BenchCommand,
}

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Run YCSB's workloads A to F on the embedded store, on servers started for it, or on any
    /// server that speaks the Redis protocol.
    Ycsb(Box<YcsbArgs>),
    /// Warn servers under load and cut their power when the grace ends, on a disk as slow as clouds
    /// give, and count the acknowledged writes that they lose. Needs root: the disk is made for it.
    /// Exits 1 if Perdura loses a write or is late.
    Grace(Box<GraceArgs>),
    /// Model the energy of four memory modules of which some sleep (Sprint-AEP): all awake, few
    /// awake, few awake without prefetching or with one thread, and all asleep behind a
    /// battery-backed DRAM, under six workloads.
    Energy(Box<EnergyArgs>),
}

#[derive(Debug, Args)]
pub struct EnergyArgs {
    /// Sizes of the runs: tiny (6,250 records), small (50,000) or large (400,000) [default: small].
    #[arg(long, value_name = "NAME", conflicts_with = "motivation")]
    pub scale: Option<String>,
    /// All clients together keep the 50 us between requests of the workloads that have them, and
    /// not each client.
    #[arg(long, conflicts_with = "motivation")]
    pub global: bool,
    /// Distribution of the requests over the records, as of `bench ycsb`. The default is the
    /// zipfian of YCSB-C, which the paper used; `zipfian` is that of YCSB's Java version, which is
    /// flatter [default: plain-zipfian].
    #[arg(long, value_name = "NAME", conflicts_with = "motivation")]
    pub distribution: Option<String>,
    /// Part of the data, in percent, that the DRAM before all modules has room for, in the runs
    /// that have one [default: 10].
    #[arg(
        long,
        value_name = "PERCENT",
        value_parser = clap::value_parser!(u64).range(1..=100),
        conflicts_with = "motivation"
    )]
    pub dram: Option<u64>,
    /// Clock of the runs: `virtual` jumps to what comes next; `real` waits for it, so that the time
    /// of this machine and of the deciding code is in the results [default: virtual].
    #[arg(long, value_name = "NAME", conflicts_with = "motivation")]
    pub clock: Option<String>,
    /// One module alone, under requests with and without time between them: figures 1 to 8 of
    /// Sprint-AEP.
    #[arg(long)]
    pub motivation: bool,
    /// Profile of the modules, built in or a TOML file; an unknown name lists the built-in ones
    /// [default: aep].
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Write the result to this file as JSON; `-`: standard output.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a page with the table and pictures to this file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct GraceArgs {
    /// Servers, with commas: perdura, redis-rdb, redis-aof-everysec, redis-aof-always,
    /// redis-nothing, valkey-rdb, valkey-aof-everysec, valkey-aof-always [default: Perdura, and the
    /// three ways of Redis and of Valkey if they are installed].
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub servers: Vec<String>,
    /// Sizes of the data, with commas [default: 1GiB].
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    pub size: Vec<String>,
    /// Time from the warning to the kill [default: 10s].
    #[arg(long, value_name = "TIME")]
    pub grace: Option<String>,
    /// Time of writing before the warning [default: 3s].
    #[arg(long, value_name = "TIME")]
    pub load: Option<String>,
    /// Rate of the disk [default: 125MiB/s].
    #[arg(long, value_name = "RATE")]
    pub rate: Option<String>,
    /// Rate to which the disk falls in some rounds, as when a burst credit is used up [default:
    /// half of --rate].
    #[arg(long, value_name = "RATE")]
    pub low_rate: Option<String>,
    /// Rounds of each server and size [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: Option<u64>,
    /// Seed of the first round; each further one has the next. It decides values, depth, pauses,
    /// stuck clients, and when the disk's rate falls [default: 1].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Folder for the disks, which are files [default: ./perdura-bench].
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Write the result to this file as JSON; `-`: standard output.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a page with the table and pictures to this file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct YcsbArgs {
    /// Workload. a: half reads, half updates; b: reads, 5 % updates; c: reads; d: reads of the
    /// latest records, 5 % inserts; e: scans, 5 % inserts; f: half reads, half read-modify-writes
    /// [default: a].
    #[arg(long, value_name = "LETTER")]
    pub workload: Option<String>,
    /// Records to load first [default: 100000].
    #[arg(long, value_name = "N")]
    pub records: Option<u64>,
    /// Operations of each side [default: as many as records].
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    pub operations: Option<u64>,
    /// Time of each side, instead of a number of operations.
    #[arg(long, value_name = "TIME")]
    pub duration: Option<String>,
    /// Fields of a record [default: 10].
    #[arg(long, value_name = "N")]
    pub fields: Option<usize>,
    /// Length of a field's value [default: 100].
    #[arg(long, value_name = "SIZE")]
    pub field_length: Option<String>,
    /// Share of the values' bytes that repeat, so that compression finds them [default: 0%].
    #[arg(long, value_name = "PERCENT")]
    pub repeating: Option<String>,
    /// How a record is stored: `hash`, as YCSB's Redis binding does, or `string`, all fields
    /// together [default: hash].
    #[arg(long, value_name = "KIND")]
    pub record: Option<String>,
    /// Write all fields of a record in an update, not one.
    #[arg(long)]
    pub write_all_fields: bool,
    /// Distribution of the operations over the records: zipfian (YCSB's, hashed), plain-zipfian,
    /// latest, uniform, hotspot, exponential [default: latest for workload d, else zipfian].
    #[arg(long, value_name = "NAME")]
    pub distribution: Option<String>,
    /// Longest scan of workload e [default: 100].
    #[arg(long, value_name = "N")]
    pub scan_max: Option<usize>,
    /// Seed of all random choices [default: 1].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Threads; each has its own connection to a server [default: 1].
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Operations that a thread has on their way to a server at a time [default: 1].
    #[arg(long, value_name = "N")]
    pub pipeline: Option<usize>,
    /// Operations a second of all threads together; a latency then begins at the intended start of
    /// the operation [default: as many as possible].
    #[arg(long, value_name = "OPS")]
    pub rate: Option<f64>,
    /// Time that a thread computes before each operation, in the place of other work [default: 0s].
    #[arg(long, value_name = "TIME")]
    pub think: Option<String>,
    /// Most data that may be dirty: a size, or a share of the loaded records' bytes [default:
    /// 100%].
    #[arg(long, value_name = "SIZE|PERCENT")]
    pub budget: Option<String>,
    /// Also measure with this budget, in turns with the other, and print the ratio of throughputs.
    #[arg(long, value_name = "SIZE|PERCENT")]
    pub compare_budget: Option<String>,
    /// Also measure with this method instead of that of --compress, in turns, and print the ratio
    /// of throughputs.
    #[arg(long, value_name = "METHOD", conflicts_with = "server")]
    pub compare_compress: Option<String>,
    /// Also measure with an image that is encrypted, in turns, and print the ratio of throughputs.
    #[arg(long, conflicts_with = "server")]
    pub compare_encrypted: bool,
    /// Also measure with this time, or `off`, instead of that of --checkpoint, in turns, and print
    /// the ratio of throughputs.
    #[arg(long, value_name = "TIME", conflicts_with = "server")]
    pub compare_checkpoint: Option<String>,
    /// Number of turns of each side where two are compared, at least 10 [default: 10].
    #[arg(long, value_name = "N")]
    pub pairs: Option<usize>,
    /// Measure the server that runs at this address, Perdura or another; the records stay in it.
    #[arg(
        long,
        value_name = "HOST:PORT",
        conflicts_with_all = ["spawn", "budget", "compare_budget"]
    )]
    pub server: Option<String>,
    /// File with the server's password; or set PERDURA_PASSWORD.
    #[arg(long, value_name = "FILE", requires = "server")]
    pub password_file: Option<PathBuf>,
    /// Do not load the records, because the server has them already.
    #[arg(long, requires = "server")]
    pub skip_load: bool,
    /// Keep the records in an array in plain durable memory, without a store and its index.
    #[arg(long, conflicts_with_all = ["server", "spawn"])]
    pub array: bool,
    /// Also measure the first budget without the work that keeps track of which data were used
    /// last; needs --compare-budget.
    #[arg(long, requires = "compare_budget", conflicts_with = "spawn")]
    pub ablate_recency: bool,
    /// Measure `perdura serve`, started for it once for each budget, instead of the embedded store.
    #[arg(long)]
    pub spawn: bool,
    #[command(flatten)]
    pub setup: SetupArgs,
    /// Also write the whole result to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Measure many budgets, workloads (a, b, c, d, f, or those given with commas) and two sizes of
    /// data, as the evaluation of the Viyojit paper does, and write a page with its figures to this
    /// file.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["server", "spawn", "budget", "compare_budget"]
    )]
    pub html: Option<PathBuf>,
    /// Budgets to measure for the page, in percent of the data [default: 2,5,11,23,46,100].
    #[arg(long, value_name = "PERCENT,...", requires = "html")]
    pub budgets: Option<String>,
    /// Records of the larger size of data; 0: one size only [default: as many as two stores can
    /// have in the memory and on the disk that are free].
    #[arg(long, value_name = "N", requires = "html")]
    pub larger_records: Option<u64>,
    /// Draw the page from the file that an earlier run wrote with --json, and measure nothing.
    #[arg(long, value_name = "FILE", requires = "html", conflicts_with = "json")]
    pub from: Option<PathBuf>,
}

/// Options of the stores that are made for the measurement. A server that runs already has its own.
#[derive(Debug, Args)]
pub struct SetupArgs {
    /// Folder for images, on the file system to be measured; they are removed at the end [default:
    /// ./perdura-bench].
    #[arg(long, value_name = "DIR", conflicts_with = "server")]
    pub dir: Option<PathBuf>,
    /// Memory of each store [default: as much as the records need].
    #[arg(long, value_name = "SIZE", conflicts_with = "server")]
    pub memory: Option<String>,
    /// Time between checkpoints, or `off` [default: 1s].
    #[arg(long, value_name = "TIME", conflicts_with = "server")]
    pub checkpoint: Option<String>,
    /// How changes of memory are noticed. `barrier`: they are announced; `trap`: pages are
    /// write-protected, by the best means there is, or by `uffd-sigbus`, `uffd-thread`, `mprotect`
    /// [default: barrier].
    #[arg(long, value_name = "MODE", conflicts_with_all = ["server", "spawn"])]
    pub tracking: Option<String>,
    /// Which dirty data are cleaned first, as of `serve` [default: clock-pro].
    #[arg(long, value_name = "NAME", conflicts_with = "server")]
    pub policy: Option<String>,
    /// Compress what is written to the SSD, as of `serve`: `lz4` or `off` [default: off].
    #[arg(long, value_name = "METHOD", conflicts_with = "server")]
    pub compress: Option<String>,
    /// System calls that write the image: auto, uring or pwrite [default: auto].
    #[arg(long, value_name = "ENGINE", conflicts_with = "server")]
    pub io: Option<String>,
    /// Bypass the page cache: auto, on or off [default: auto].
    #[arg(long, value_name = "MODE", conflicts_with = "server")]
    pub direct: Option<String>,
    /// Threads of the final flush [default: the machine's processors, at most 4].
    #[arg(long, value_name = "N", conflicts_with = "server")]
    pub flush_threads: Option<usize>,
}
