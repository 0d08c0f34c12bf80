//! The options of `serve`, as typed; `drill` has those about the data as well.
//!
//! In the help they stand in the order in which a newcomer needs them, experts' settings last.

use std::path::PathBuf;

use clap::Args;

const CLIENTS: &str = "Clients";
const REDIS: &str = "The same in Redis' words";
const DATA: &str = "Data";
const PROMISE: &str = "Promise";
const EXPERT: &str = "Experts' settings";

/// Options of `serve`; each can also stand in the file given with --config, under the same name.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// A redis.conf to start with. The command line wins. A line that cannot be kept to is named,
    /// and nothing is opened.
    #[arg(value_name = "REDIS_CONF")]
    pub redis_conf: Option<PathBuf>,
    /// TOML file with any of these options; the command line wins.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address to listen on; one that is not loopback needs a password [default: 127.0.0.1:6379].
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        overrides_with_all = ["port", "bind"],
        help_heading = CLIENTS
    )]
    pub listen: Option<String>,
    /// File whose first line is the password clients must give; or set PERDURA_PASSWORD.
    #[arg(long, value_name = "FILE", overrides_with = "requirepass", help_heading = CLIENTS)]
    pub password_file: Option<PathBuf>,
    /// Also listen on a Unix socket.
    #[arg(long, value_name = "PATH", help_heading = CLIENTS)]
    pub unix_socket: Option<PathBuf>,
    /// When a write is acknowledged: `warned` (in memory, covered by the warning), `fsync` (on the
    /// SSD), `none` (like warned, and no checkpoints) [default: warned].
    #[arg(long, value_name = "MODE", help_heading = CLIENTS)]
    pub durability: Option<String>,
    /// Clients at once [default: 10000].
    #[arg(long, value_name = "N", help_heading = CLIENTS)]
    pub max_clients: Option<usize>,
    /// Disconnect clients silent for so long; 0s: never [default: 0s].
    #[arg(long, value_name = "TIME", help_heading = CLIENTS)]
    pub client_timeout: Option<String>,
    /// Port to listen on; 0: on the Unix socket only.
    #[arg(long, value_name = "PORT", overrides_with = "listen", help_heading = REDIS)]
    pub port: Option<u16>,
    /// Addresses to listen on, with blanks between them; `*` is all, one with `-` before it may be
    /// missing.
    #[arg(
        long,
        value_name = "ADDRESSES",
        allow_hyphen_values = true,
        overrides_with = "listen",
        help_heading = REDIS
    )]
    pub bind: Option<String>,
    /// The password clients must give. Every user of the machine sees it in `ps`; with
    /// --password-file nobody does.
    #[arg(
        long,
        value_name = "PASSWORD",
        overrides_with = "password_file",
        help_heading = REDIS
    )]
    pub requirepass: Option<String>,
    /// Size of the memory.
    #[arg(long, value_name = "SIZE", overrides_with = "memory", help_heading = REDIS)]
    pub maxmemory: Option<String>,
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Heed this source of warnings besides signals; may be given several times. `file:PATH`: the
    /// creation of PATH is the warning, as a script of a UPS can make it.
    #[arg(long, value_name = "SOURCE", help_heading = PROMISE)]
    pub warning: Vec<String>,
    /// What the event loop waits on: `auto` (io_uring, or epoll where the system refuses it),
    /// `epoll`, `uring` [default: auto].
    #[arg(long, value_name = "QUEUE", help_heading = EXPERT)]
    pub events: Option<String>,
    /// Seconds after which a silent connection is probed; 0: never [default: 300].
    #[arg(long, value_name = "SECONDS", help_heading = EXPERT)]
    pub tcp_keepalive: Option<u64>,
    /// Microseconds from which a command is in SLOWLOG; -1: none is [default: 10000].
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = EXPERT)]
    pub slowlog_log_slower_than: Option<i64>,
    /// Entries that SLOWLOG keeps [default: 128].
    #[arg(long, value_name = "N", help_heading = EXPERT)]
    pub slowlog_max_len: Option<usize>,
    /// Do not start a holder: memory then dies with this process.
    #[arg(long, help_heading = EXPERT)]
    pub no_holder: bool,
}

/// Where the data are and what is promised for them.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// Directory of the image; created if missing [default: ./perdura-data].
    #[arg(long, value_name = "DIR", help_heading = DATA)]
    pub dir: Option<PathBuf>,
    /// Size of the memory; an existing image may only grow [default: 1GiB, or the image's].
    #[arg(long, value_name = "SIZE", help_heading = DATA)]
    pub memory: Option<String>,
    /// The warning: time from SIGTERM (or the holder's) to the cut [default: 30s].
    #[arg(long, value_name = "TIME", help_heading = PROMISE)]
    pub grace: Option<String>,
    /// The warning as energy, with --watts.
    #[arg(
        long,
        value_name = "JOULES",
        requires = "watts",
        conflicts_with = "grace",
        help_heading = PROMISE
    )]
    pub joules: Option<String>,
    /// Power the machine draws while it flushes.
    #[arg(long, value_name = "WATTS", requires = "joules", help_heading = PROMISE)]
    pub watts: Option<String>,
    /// What may be dirty: a size, or a share of the memory; by default as much as the warning
    /// allows.
    #[arg(long, value_name = "SIZE|PERCENT", help_heading = PROMISE)]
    pub budget: Option<String>,
    /// Time between checkpoints, or `off` [default: 1s].
    #[arg(long, value_name = "TIME", help_heading = PROMISE)]
    pub checkpoint: Option<String>,
    /// How long a holder whose server is gone waits for another, before it flushes and lets the
    /// memory go; `off`: without end [default: 10m].
    #[arg(long, value_name = "TIME", help_heading = PROMISE)]
    pub holder_wait: Option<String>,
    /// Most the memory may ever grow to; fixed when the image is made [default: 4 x memory].
    #[arg(long, value_name = "SIZE", help_heading = EXPERT)]
    pub reserve_memory: Option<String>,
    /// Space of the log as a share of the memory [default: 200%, less on a small disk].
    #[arg(long, value_name = "PERCENT", help_heading = EXPERT)]
    pub log: Option<String>,
    /// Compress what cleaning and checkpoints write to the SSD: `lz4` or `off`. What may be dirty
    /// stays the same, as if nothing shrank; the emergency flush compresses nothing [default: off].
    #[arg(long, value_name = "METHOD", help_heading = EXPERT)]
    pub compress: Option<String>,
    /// Part of the warning kept back for all but the writing [default: a tenth, 50ms to 2s].
    #[arg(long, value_name = "TIME", help_heading = EXPERT)]
    pub reserve: Option<String>,
    /// Which dirty data are cleaned first: clock-pro, fifo, segmented, least-recently-updated,
    /// random [default: clock-pro].
    #[arg(long, value_name = "NAME", help_heading = EXPERT)]
    pub policy: Option<String>,
    /// How the image is written: auto, uring or pwrite [default: auto].
    #[arg(long, value_name = "ENGINE", help_heading = EXPERT)]
    pub io: Option<String>,
    /// Bypass the page cache: auto, on or off [default: auto].
    #[arg(long, value_name = "MODE", help_heading = EXPERT)]
    pub direct: Option<String>,
    /// Threads of a flush [default: the machine's processors, at most 4].
    #[arg(long, value_name = "N", help_heading = EXPERT)]
    pub flush_threads: Option<usize>,
    /// Measure the flush rate again though one is on record.
    #[arg(long, help_heading = EXPERT)]
    pub prove_again: bool,
}
