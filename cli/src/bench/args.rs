//! The words of `perdura bench`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub what: BenchCommand,
}

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Memory access as workload files describe it (the published format of PerMA-Bench):
    /// bandwidth, operations and latency, of DRAM, files, persistent memory, a region, or the model
    /// of a medium.
    Run(Box<super::access::RunArgs>),
    /// Two result files of `bench run` side by side: the ratio of each cell, and whether it is more
    /// than chance.
    Compare(super::compare::CompareArgs),
    /// The workloads that `bench run --suite` runs: their names, or the files.
    Suite(super::access::SuiteArgs),
    /// What the eight insights of PerMA-Bench are on this machine: each in a sentence with figures,
    /// beside the published systems; and euro per GB and per GB/s.
    Insights(super::insights::InsightsArgs),
    /// YCSB's workloads A to F on the embedded store, on servers started for it, or on any server
    /// that speaks the Redis protocol.
    Ycsb(Box<YcsbArgs>),
    /// Bare memory under stores of one size: each way of tracking, each victim policy, and how far
    /// they are from the least that any policy could write.
    Memory(Box<MemoryArgs>),
    /// What `plan trace` predicts of budgets beside a region that is fed the same writes: on a
    /// modelled device, and on this one.
    Plan(Box<super::plan::PlanCheckArgs>),
    /// A modelled medium beside its own model: latency and bandwidth; and what the software on the
    /// way to it takes, by the steps of HASTE, beside today's ways to a file.
    Media(Box<MediaArgs>),
    /// The heap beside libpmemobj, jemalloc, mimalloc and the C library's malloc: allocations and
    /// frees under churn, transactions, lines flushed, memory taken.
    Heap(Box<HeapArgs>),
    /// Hold a contestant's objects (started by `heap`, not by hand).
    #[command(hide = true)]
    HeapWorker,
    /// The embedded store beside LMDB, RocksDB, redb, fjall and a hash map; by a program that is
    /// built apart.
    Rivals(RivalsArgs),
    /// What persistent and capacity memory in one heap cost each other in the cache they share,
    /// step by step as in the pMem paper: page frames measured, a last-level cache modelled.
    HeapCaches(Box<CachesArgs>),
    /// What fast memories do to I/O-intensive work (HASTE): raw requests, with a file system,
    /// databases, matrix multiply and kernels; media modelled, software and computing measured.
    Haste(Box<super::haste::HasteArgs>),
}

#[derive(Debug, Args)]
pub struct MediaArgs {
    /// The medium: a built-in profile or the path of a TOML file; a wrong name lists those there
    /// are.
    #[arg(long, value_name = "PROFILE", default_value = "pcm")]
    pub profile: String,
    /// Put it behind this link, or `none` [default: the profile's own].
    #[arg(long, value_name = "LINK")]
    pub link: Option<String>,
    /// Steps of the I/O path to compare, separated by commas: base, unscheduled, atomic, spin.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "base,unscheduled,atomic,spin"
    )]
    pub steps: Vec<String>,
    /// What the emulator holds, in DRAM [default: 4GiB].
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub size: Option<String>,
    /// The files that today's ways lead to [default: 1GiB, at most the medium's size].
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub file_size: Option<String>,
    /// How long to measure, about; filling comes on top [default: 24].
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    pub seconds: Option<f64>,
    /// Folder for the file on the disk that is measured; it is removed at the end [default: .].
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Seed of all places [default: 1].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Also write everything found to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also draw it: one page, no script.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct CachesArgs {
    /// Counts of hash operations [default: 600000,800000,1000000,1500000].
    #[arg(long, value_name = "N,...")]
    pub operations: Option<String>,
    /// Size of the modelled cache [default: 1MiB].
    #[arg(long, value_name = "SIZE")]
    pub cache: Option<String>,
    /// Its ways [default: 8].
    #[arg(long, value_name = "N")]
    pub ways: Option<u64>,
    /// Its lines [default: 64].
    #[arg(long, value_name = "SIZE")]
    pub line: Option<String>,
    /// What a flush does to a line in it: drops (clflush) or keeps (clwb) [default: drops].
    #[arg(long, value_name = "WHAT")]
    pub flush: Option<String>,
    /// Records of the base's log: words or objects [default: words].
    #[arg(long, value_name = "KIND")]
    pub base_log: Option<String>,
    /// Bucket of the steps that have buckets [default: 2MiB].
    #[arg(long, value_name = "SIZE")]
    pub bucket: Option<String>,
    /// Buckets that are compared [default: 64KiB,256KiB,1MiB,2MiB,4MiB,16MiB].
    #[arg(long, value_name = "SIZE,...")]
    pub buckets: Option<String>,
    /// Memory of the heap [default: 1GiB].
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// The capacity work's table, which is used all the time [default: 512KiB].
    #[arg(long, value_name = "SIZE")]
    pub hot: Option<String>,
    /// Records that the capacity work keeps [default: 32MiB].
    #[arg(long, value_name = "SIZE")]
    pub kept: Option<String>,
    /// Steps of capacity work for each hash operation [default: 1].
    #[arg(long, value_name = "N")]
    pub capacity_steps: Option<u64>,
    /// Modelled run times: an access that hits, nanoseconds [default: 5].
    #[arg(long, value_name = "NS")]
    pub hit_ns: Option<f64>,
    /// Modelled run times: a miss that reads, nanoseconds [default: 80].
    #[arg(long, value_name = "NS")]
    pub read_ns: Option<f64>,
    /// Modelled run times: how many times longer a miss takes that writes [default: 4,10].
    #[arg(long, value_name = "N,...")]
    pub write_factors: Option<String>,
    /// Do not time the work on the machine.
    #[arg(long)]
    pub modelled_only: bool,
    /// Do not look at page frames: assume them in the order of the first touch.
    #[arg(long)]
    pub assume_frames: bool,
    /// Seed of all streams [default: 1].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Also write everything found to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also draw it: one page, no script.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct RivalsArgs {
    /// Options of perdura-rivals; --help shows them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION")]
    pub words: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct MemoryArgs {
    /// Memory [default: 64MiB].
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Stores of each combination [default: 200000].
    #[arg(long, value_name = "N")]
    pub stores: Option<u64>,
    /// Sizes of a store: powers of two from 8 to 4KiB [default: 8,64,1KiB,4KiB].
    #[arg(long, value_name = "SIZE,...")]
    pub sizes: Option<String>,
    /// Which places, names as of `bench ycsb` [default: uniform,plain-zipfian].
    #[arg(long, value_name = "NAME,...")]
    pub distributions: Option<String>,
    /// How stores are noticed: barrier, trap, uffd-sigbus, uffd-thread, mprotect [default:
    /// barrier,trap].
    #[arg(long, value_name = "MODE,...")]
    pub tracking: Option<String>,
    /// Victim policies [default: all].
    #[arg(long, value_name = "NAME,...")]
    pub policies: Option<String>,
    /// Budgets, percent of the memory [default: 2,11,46].
    #[arg(long, value_name = "PERCENT,...")]
    pub budgets: Option<String>,
    /// Times each combination is measured, in turn with the others; medians are shown [default: 3].
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,
    /// Seed of all streams [default: 1].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Folder for images, which are removed at the end [default: ./perdura-bench].
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Time between checkpoints, or `off`; the bounds know none [default: off].
    #[arg(long, value_name = "TIME")]
    pub checkpoint: Option<String>,
    /// How the image is written: auto, uring or pwrite [default: auto].
    #[arg(long, value_name = "ENGINE")]
    pub io: Option<String>,
    /// Bypass the page cache: auto, on or off [default: auto].
    #[arg(long, value_name = "MODE")]
    pub direct: Option<String>,
    /// Also write everything found to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct HeapArgs {
    /// Live objects of all threads [default: 1000000].
    #[arg(long, value_name = "N")]
    pub objects: Option<u64>,
    /// Smallest and largest object, evenly distributed between [default: 16-1024].
    #[arg(long, value_name = "MIN-MAX")]
    pub sizes: Option<String>,
    /// What is written into a new object: `first` eight bytes, or `all` [default: first].
    #[arg(long, value_name = "PART")]
    pub touch: Option<String>,
    /// Numbers of threads, one after the other [default: 1,2].
    #[arg(long, value_name = "N,...")]
    pub threads: Option<String>,
    /// Rounds of each contestant, in turn with the others; medians are shown [default: 25].
    #[arg(long, value_name = "N")]
    pub rounds: Option<u64>,
    /// Time of a round [default: 100ms].
    #[arg(long, value_name = "TIME")]
    pub round: Option<String>,
    /// Objects replaced by each contestant before the first round [default: as many as there are].
    #[arg(long, value_name = "N")]
    pub warm: Option<u64>,
    /// Seed of all streams [default: 1].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Folder for heaps, in memory or on persistent memory [default: /dev/shm].
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Where rivals' libraries are looked for [default: where the dynamic linker does].
    #[arg(long, value_name = "DIR,...")]
    pub library_path: Option<String>,
    /// Also write everything found to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct YcsbArgs {
    /// a: half reads, half updates; b: 5 % updates; c: reads; d: reads of the latest, 5 % inserts;
    /// e: scans, 5 % inserts; f: half reads, half read-modify-writes [default: a].
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
    /// Share of the values' bytes that repeat, for compression to find [default: 0%].
    #[arg(long, value_name = "PERCENT")]
    pub repeating: Option<String>,
    /// How a record is stored: `hash`, as YCSB's Redis binding does, or `string`, all fields
    /// together [default: hash].
    #[arg(long, value_name = "KIND")]
    pub record: Option<String>,
    /// Updates write all fields, not one.
    #[arg(long)]
    pub write_all_fields: bool,
    /// Which records: zipfian (YCSB's, hashed), plain-zipfian, latest, uniform, hotspot,
    /// exponential [default: the workload's: latest for d, else zipfian].
    #[arg(long, value_name = "NAME")]
    pub distribution: Option<String>,
    /// Longest scan of workload e [default: 100].
    #[arg(long, value_name = "N")]
    pub scan_max: Option<usize>,
    /// Seed of all streams [default: 1].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Threads, each with its connection [default: 1].
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Operations a thread has on their way to a server at a time [default: 1].
    #[arg(long, value_name = "N")]
    pub pipeline: Option<usize>,
    /// Operations a second of all threads; latencies then run from the intended start [default: as
    /// many as can be].
    #[arg(long, value_name = "OPS")]
    pub rate: Option<f64>,
    /// Other work of each operation: time a thread spins before it [default: 0s].
    #[arg(long, value_name = "TIME")]
    pub think: Option<String>,
    /// What may be dirty: a size, or a share of the loaded records' bytes [default: 100%].
    #[arg(long, value_name = "SIZE|PERCENT")]
    pub budget: Option<String>,
    /// Also measure with this budget, in turn with the other, and give the ratio of throughputs.
    #[arg(long, value_name = "SIZE|PERCENT")]
    pub compare_budget: Option<String>,
    /// Also measure with this instead of --compress, in turn, and give the ratio of throughputs.
    #[arg(long, value_name = "METHOD", conflicts_with = "server")]
    pub compare_compress: Option<String>,
    /// Also measure with this time, or `off`, instead of --checkpoint, in turn, and give the ratio
    /// of throughputs.
    #[arg(long, value_name = "TIME", conflicts_with = "server")]
    pub compare_checkpoint: Option<String>,
    /// Slices of each side where two are compared, at least 10 [default: 10].
    #[arg(long, value_name = "N")]
    pub pairs: Option<usize>,
    /// Measure the server that runs at this address, perdura's or another; the records stay in it.
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["spawn", "budget", "compare_budget"])]
    pub server: Option<String>,
    /// File with the server's password; or set PERDURA_PASSWORD.
    #[arg(long, value_name = "FILE", requires = "server")]
    pub password_file: Option<PathBuf>,
    /// The records are in the server already.
    #[arg(long, requires = "server")]
    pub skip_load: bool,
    /// Keep the records in an array in bare memory instead: code that only stores, without a
    /// store's index.
    #[arg(long, conflicts_with_all = ["server", "spawn"])]
    pub array: bool,
    /// Also measure the first budget without the upkeep of recency; needs --compare-budget.
    #[arg(long, requires = "compare_budget", conflicts_with = "spawn")]
    pub ablate_recency: bool,
    /// Start `perdura serve` and measure that, one for each budget, instead of the embedded store.
    #[arg(long)]
    pub spawn: bool,
    #[command(flatten)]
    pub setup: SetupArgs,
    /// Also write everything found to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Sweep budgets, workloads (a, b, c, d, f, or those given with commas) and two sizes of data
    /// as the paper's evaluation does, and write a page with its figures; it needs no network to be
    /// looked at.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["server", "spawn", "budget", "compare_budget"])]
    pub html: Option<PathBuf>,
    /// Budgets of the sweep, percent of the data [default: 2,5,11,23,46,100].
    #[arg(long, value_name = "PERCENT,...", requires = "html")]
    pub budgets: Option<String>,
    /// Records of the sweep's larger size; 0: one size only [default: what two stores can have of
    /// the memory and the disk space that are free].
    #[arg(long, value_name = "N", requires = "html")]
    pub larger_records: Option<u64>,
    /// Draw the page from what an earlier sweep wrote with --json, and measure nothing.
    #[arg(long, value_name = "FILE", requires = "html", conflicts_with = "json")]
    pub from: Option<PathBuf>,
}

/// How stores are set up; a server that runs already is set up otherwise.
#[derive(Debug, Args)]
pub struct SetupArgs {
    /// Folder for images, which are removed at the end; on the file system to be measured
    /// [default: ./perdura-bench].
    #[arg(long, value_name = "DIR", conflicts_with = "server")]
    pub dir: Option<PathBuf>,
    /// Memory of each store [default: what the records need].
    #[arg(long, value_name = "SIZE", conflicts_with = "server")]
    pub memory: Option<String>,
    /// Time between checkpoints, or `off` [default: 1s].
    #[arg(long, value_name = "TIME", conflicts_with = "server")]
    pub checkpoint: Option<String>,
    /// How writes are noticed: `barrier`, announced; `trap`, trapped by the best means there is; or
    /// a certain one: `uffd-sigbus`, `uffd-thread`, `mprotect` [default: barrier].
    #[arg(long, value_name = "MODE", conflicts_with_all = ["server", "spawn"])]
    pub tracking: Option<String>,
    /// Victim policy, as of `serve` [default: clock-pro].
    #[arg(long, value_name = "NAME", conflicts_with = "server")]
    pub policy: Option<String>,
    /// Compress what is written to the SSD, as of `serve`: `lz4` or `off` [default: off].
    #[arg(long, value_name = "METHOD", conflicts_with = "server")]
    pub compress: Option<String>,
    /// How the image is written: auto, uring or pwrite [default: auto].
    #[arg(long, value_name = "ENGINE", conflicts_with = "server")]
    pub io: Option<String>,
    /// Bypass the page cache: auto, on or off [default: auto].
    #[arg(long, value_name = "MODE", conflicts_with = "server")]
    pub direct: Option<String>,
    /// Threads of the final flush [default: the machine's processors, at most 4].
    #[arg(long, value_name = "N", conflicts_with = "server")]
    pub flush_threads: Option<usize>,
}
