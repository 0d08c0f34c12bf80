//! The options of `serve`, as typed. `drill` has the options about data and promise as well.
//!
//! The help shows them in the order in which a newcomer needs them, experts' settings last.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

use crate::seccomp::SeccompArgs;
use crate::tls_args::TlsArgs;
use crate::watch::{LogArgs, WatchArgs};

const CLIENTS: &str = "Clients";
const REDIS: &str = "The same in Redis' words";
const DATA: &str = "Data";
const PROMISE: &str = "Promise";
const EXPERT: &str = "Experts' settings";

/// Options of `serve`; each can also stand in the file given with --config, under the same name.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// A redis.conf to take settings from; options on the command line win over it. If the server
    /// cannot do what a line says, it names the line and opens nothing.
    #[arg(value_name = "REDIS_CONF")]
    pub redis_conf: Option<PathBuf>,
    /// TOML file with any of these options under the same names; options on the command line win
    /// over it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address to listen on; an address that other machines reach needs a password [default:
    /// 127.0.0.1:6379].
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        overrides_with_all = ["port", "bind"],
        help_heading = CLIENTS
    )]
    pub listen: Option<String>,
    /// File whose first line is the password that clients must give; or set PERDURA_PASSWORD.
    #[arg(long, value_name = "FILE", overrides_with = "requirepass", help_heading = CLIENTS)]
    pub password_file: Option<PathBuf>,
    /// Also listen on a Unix socket.
    #[arg(long, value_name = "PATH", help_heading = CLIENTS)]
    pub unix_socket: Option<PathBuf>,
    /// When a write is acknowledged. `warned`: when it is in memory, and the warning covers it.
    /// `fsync`: when it is on the SSD. `none`: as `warned`, but without checkpoints [default:
    /// warned].
    #[arg(long, value_name = "MODE", help_heading = CLIENTS)]
    pub durability: Option<String>,
    /// Most clients at a time [default: 10000].
    #[arg(long, value_name = "N", help_heading = CLIENTS)]
    pub max_clients: Option<usize>,
    /// Disconnect a client that sends nothing for this time; 0s: never [default: 0s].
    #[arg(long, value_name = "TIME", help_heading = CLIENTS)]
    pub client_timeout: Option<String>,
    /// Port to listen on; 0: only the Unix socket.
    #[arg(long, value_name = "PORT", overrides_with = "listen", help_heading = REDIS)]
    pub port: Option<u16>,
    /// Addresses to listen on, with blanks between them. `*` is all addresses; an address with `-`
    /// before it may be missing on this machine.
    #[arg(
        long,
        value_name = "ADDRESSES",
        allow_hyphen_values = true,
        overrides_with = "listen",
        help_heading = REDIS
    )]
    pub bind: Option<String>,
    /// The password that clients must give. Every user of the machine sees it in `ps`; with
    /// --password-file nobody does.
    #[arg(
        long,
        value_name = "PASSWORD",
        overrides_with = "password_file",
        help_heading = REDIS
    )]
    pub requirepass: Option<String>,
    /// A file with users, as Redis writes it: `user NAME RULE …`, a line each. `ACL LOAD` reads it
    /// again, `ACL SAVE` writes it.
    #[arg(long, value_name = "FILE", help_heading = REDIS)]
    pub aclfile: Option<PathBuf>,
    /// A user with its rules, as in a redis.conf: `NAME RULE …`; may be given several times. Every
    /// user of the machine sees it in `ps`.
    #[arg(long, value_name = "RULES", conflicts_with = "aclfile", help_heading = REDIS)]
    pub user: Vec<String>,
    /// Size of the memory, as --memory, but in Redis' units: 512mb, 2gb.
    #[arg(long, value_name = "SIZE", overrides_with = "memory", help_heading = REDIS)]
    pub maxmemory: Option<String>,
    /// Which keys go when the memory is full: `noeviction`: none, writes that need memory fail;
    /// `allkeys-lru`, `allkeys-lfu`, `allkeys-random`; of the keys with an expiry only:
    /// `volatile-lru`, `volatile-lfu`, `volatile-random`, `volatile-ttl` [default: noeviction].
    #[arg(long, value_name = "POLICY", help_heading = REDIS)]
    pub maxmemory_policy: Option<String>,
    /// Any other parameter that CONFIG SET takes; may be given several times.
    #[arg(long, value_name = "PARAMETER=VALUE", help_heading = REDIS)]
    pub set: Vec<String>,
    #[command(flatten)]
    pub tls: TlsArgs,
    #[command(flatten)]
    pub seccomp: SeccompArgs,
    #[command(flatten)]
    pub place: PlaceArgs,
    #[command(flatten)]
    pub watch: WatchArgs,
    #[command(flatten)]
    pub log: LogArgs,
    #[command(flatten)]
    pub ship: crate::ship::ShipArgs,
    /// Directory, best on a drive of its own, for values that do not fit in memory: those used
    /// least lie there. `DIR,SIZE`: at most so much. May be given several times, and values are
    /// spread over all; once a directory has values it must be given at every start.
    #[arg(long, value_name = "DIR[,SIZE]", help_heading = DATA)]
    pub device: Vec<String>,
    /// Power of a device while it is idle and while it is busy, in watts: INFO models each device's
    /// energy by it, as `modelled_`. What is measured is in other fields.
    #[arg(long, value_name = "IDLE,BUSY", requires = "device", help_heading = EXPERT)]
    pub device_watts: Option<String>,
    /// Tell the drives of devices to sleep that had no request for so many seconds: ATA stand-by,
    /// or NVMe's deepest power state. They wake by their next request. A drive on which the store's
    /// image lies is left alone. 0: all are [default: 0].
    #[arg(long, value_name = "SECONDS", requires = "device", help_heading = EXPERT)]
    pub device_sleep: Option<u64>,
    /// How many devices take the values that leave memory. The others are only read, so that their
    /// drives can sleep. `all`; a number, with at most three others for each; or `auto`: as many as
    /// trials find worth it [default: all].
    #[arg(long, value_name = "all|auto|N", requires = "device", help_heading = DATA)]
    pub device_primaries: Option<String>,
    /// Start although a --device that has values is not given: commands that need these values
    /// fail, and the others work.
    #[arg(long, requires = "device", help_heading = DATA)]
    pub allow_missing_devices: bool,
    /// A source of warnings besides SIGTERM, SIGINT and SIGPWR; may be given several times, and the
    /// worst counts. `nut:UPS@HOST`: a UPS of Network UPS Tools. `power-supply`: the kernel's.
    /// `logind`: a shutdown or reboot, which is made to wait. `aws`, `gcp`, `azure`: interruption
    /// notices. `file:PATH`: a file, written by a script for example, that says `steady`,
    /// `on-battery`, `low` or `ending`. `command:COMMAND`: one that prints this.
    #[arg(long, value_name = "SOURCE", help_heading = PROMISE)]
    pub warning: Vec<String>,
    /// Socket of a guard (`perdura guard`) that keeps the memory if this process dies, in the place
    /// of a holder, and says what the power is like. If the guard is lost, everything is saved and
    /// writes are refused until it is back.
    #[arg(long, value_name = "SOCKET", conflicts_with = "no_holder", help_heading = PROMISE)]
    pub guard: Option<PathBuf>,
    /// Time for which the power must be back before writes are accepted again and the whole budget
    /// may be used [default: 10s].
    #[arg(long, value_name = "TIME", help_heading = PROMISE)]
    pub power_settle: Option<String>,
    /// Event loops, each a thread that serves its share of the connections; at most as many as the
    /// store has shards [default: the processors that the server may use].
    #[arg(long, value_name = "N", help_heading = EXPERT)]
    pub threads: Option<NonZeroUsize>,
    /// Event queue of the event loops: `uring`, `epoll`, or `auto` (io_uring, and epoll where the
    /// system refuses io_uring) [default: auto].
    #[arg(long, value_name = "QUEUE", help_heading = EXPERT)]
    pub events: Option<String>,
    /// Seconds after which a silent connection is probed; 0: never [default: 300].
    #[arg(long, value_name = "SECONDS", help_heading = EXPERT)]
    pub tcp_keepalive: Option<u64>,
    /// Microseconds that a command must take to be in SLOWLOG; -1: none is [default: 10000].
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(i64).range(-1..),
        help_heading = EXPERT
    )]
    pub slowlog_log_slower_than: Option<i64>,
    /// Entries that SLOWLOG keeps [default: 128].
    #[arg(long, value_name = "N", help_heading = EXPERT)]
    pub slowlog_max_len: Option<usize>,
    /// Milliseconds after which a script is stopped and undone; 0: never [default: 5000].
    #[arg(long, value_name = "MS", help_heading = EXPERT)]
    pub busy_reply_threshold: Option<u64>,
    /// Memory that the scripts of one event loop may use [default: 128MiB].
    #[arg(long, value_name = "SIZE", help_heading = EXPERT)]
    pub script_memory_limit: Option<String>,
    /// Start no holder. The holder is a second process that keeps the memory if this one dies.
    #[arg(long, help_heading = EXPERT)]
    pub no_holder: bool,
}

/// The place of the data, and what is promised for them.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// Directory of the data; created if missing [default: ./perdura-data].
    #[arg(long, value_name = "DIR", help_heading = DATA)]
    pub dir: Option<PathBuf>,
    /// Size of the memory; the memory of existing data may only grow [default: 1GiB, or as it is].
    #[arg(long, value_name = "SIZE", help_heading = DATA)]
    pub memory: Option<String>,
    /// The warning: time from SIGTERM, or from another sign, to the loss of power or the end of the
    /// process [default: 30s].
    #[arg(long, value_name = "TIME", help_heading = PROMISE)]
    pub grace: Option<String>,
    /// The warning as energy instead of time; needs --watts.
    #[arg(
        long,
        value_name = "JOULES",
        requires = "watts",
        conflicts_with = "grace",
        help_heading = PROMISE
    )]
    pub joules: Option<String>,
    /// A file that describes the battery (TOML; see docs/operating.md). What may be dirty follows
    /// its age, its temperature and the machine's load, and is never more than it lasts for at the
    /// start, nor than --grace, if that is given, allows.
    #[arg(long, value_name = "FILE", conflicts_with = "joules", help_heading = PROMISE)]
    pub battery: Option<PathBuf>,
    /// Power that the machine draws while it flushes: for --joules, and for sources of warnings
    /// that say the energy that is left, and not the time.
    #[arg(long, value_name = "WATTS", help_heading = PROMISE)]
    pub watts: Option<String>,
    /// Most data that may be dirty (changed and not on the SSD yet): a size, or a share of the
    /// memory [default: as much as can be flushed within the warning].
    #[arg(long, value_name = "SIZE|PERCENT", help_heading = PROMISE)]
    pub budget: Option<String>,
    /// Time between checkpoints, to the last of which an unwarned loss goes back; or `off`
    /// [default: 1s].
    #[arg(long, value_name = "TIME", help_heading = PROMISE)]
    pub checkpoint: Option<String>,
    /// Time that the holder or guard of a server that died waits for another server, before it
    /// flushes and lets the memory go; `off`: without end [default: 10m].
    #[arg(long, value_name = "TIME", help_heading = PROMISE)]
    pub holder_wait: Option<String>,
    /// Directory for the memory, which then outlives every process: in `/dev/shm`, or in a file
    /// system on persistent memory (DAX), where it may outlive the kernel, too.
    #[arg(long, value_name = "DIR", help_heading = PROMISE)]
    pub memory_dir: Option<PathBuf>,
    #[command(flatten)]
    pub key: crate::key::KeyArgs,
    /// Size that the memory may ever grow to; fixed when the image is made [default: 4 x memory].
    #[arg(long, value_name = "SIZE", help_heading = EXPERT)]
    pub reserve_memory: Option<String>,
    /// Size of the log on the SSD, as a share of the memory [default: 200%, less on a small disk].
    #[arg(long, value_name = "PERCENT", help_heading = EXPERT)]
    pub log: Option<String>,
    /// Compress what cleaning and checkpoints write to the SSD: `lz4` or `off`. It does not change
    /// how much may be dirty, for the emergency flush compresses nothing [default: off].
    #[arg(long, value_name = "METHOD", help_heading = EXPERT)]
    pub compress: Option<String>,
    /// Part of the warning that is kept back for all but the writing [default: a tenth, 50ms to
    /// 2s].
    #[arg(long, value_name = "TIME", help_heading = EXPERT)]
    pub reserve: Option<String>,
    /// Which dirty data are cleaned first: clock-pro, fifo, segmented, least-recently-updated,
    /// random [default: clock-pro].
    #[arg(long, value_name = "NAME", help_heading = EXPERT)]
    pub policy: Option<String>,
    /// System calls that write the image: auto, uring or pwrite [default: auto].
    #[arg(long, value_name = "ENGINE", help_heading = EXPERT)]
    pub io: Option<String>,
    /// Bypass the page cache: auto, on or off [default: auto].
    #[arg(long, value_name = "MODE", help_heading = EXPERT)]
    pub direct: Option<String>,
    /// Threads of a flush [default: the machine's processors, at most 4].
    #[arg(long, value_name = "N", help_heading = EXPERT)]
    pub flush_threads: Option<usize>,
    /// Measure the flush rate again, although a rate is on record.
    #[arg(long, help_heading = EXPERT)]
    pub prove_again: bool,
}
