//! The configuration of a server, and the flag that stops it.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

use perdura_region::Terms;
use perdura_store::{Eviction, Store};
use perdura_tier::devices::{Devices, Watts};
use perdura_tier::drives::DriveKeeper;

use crate::acl::{self, Users};
use crate::look::Watcher;
use crate::parameters::{Encodings, Notify};
use crate::power::Power;
use crate::resp::Limits;
use crate::tls::{AuthClients, TlsError, TlsSettings};

/// Connections that may wait to be accepted.
pub(crate) const BACKLOG: i32 = 4096;

/// The moment at which a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// When the write is in memory: the warning before a loss is long enough to flush it.
    #[default]
    Warned,
    /// After a group commit, which makes all writes of a turn of the loop durable.
    Fsync,
    /// When the write is in memory; nothing is promised beyond checkpoints.
    None,
}

impl Durability {
    /// The word for the setting on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Warned => "warned",
            Self::Fsync => "fsync",
            Self::None => "none",
        }
    }
}

/// Which of the kernel's event queues the loops wait on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EventQueue {
    /// io_uring, or epoll where the system refuses it.
    #[default]
    Auto,
    /// Always epoll.
    Epoll,
    /// Always io_uring: where the system refuses it the server does not start.
    Uring,
}

/// Everything a server is told. `Default` listens on 127.0.0.1:6379.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// TCP addresses to listen on. One that is not loopback needs `requirepass`, and
    /// `allow_plaintext`.
    pub bind: Vec<SocketAddr>,
    /// Whether clients of other machines may do without TLS.
    pub allow_plaintext: bool,
    /// More TCP addresses, each listened on only if the machine has it.
    pub bind_if_there: Vec<SocketAddr>,
    /// TCP addresses at which clients speak TLS, as `bind`; they need `tls`.
    pub tls_bind: Vec<SocketAddr>,
    /// More such addresses, each listened on only if the machine has it.
    pub tls_bind_if_there: Vec<SocketAddr>,
    /// The certificates and settings of TLS; [`TlsSettings::load`] has read the files.
    pub tls: TlsSettings,
    /// Set by a signal: the files of TLS are to be read again.
    pub reload: Option<Arc<AtomicBool>>,
    /// A Unix socket's path. It must not exist, or be a socket at which nobody listens any more,
    /// which is replaced.
    pub unix_socket: Option<PathBuf>,
    /// The permissions of the socket, such as `0o600`.
    pub unix_socket_mode: u32,
    /// The password that clients must give first.
    pub requirepass: Option<String>,
    /// A file with users, which ACL LOAD reads again and ACL SAVE writes.
    pub acl_file: Option<PathBuf>,
    /// Users, each as a line of redis.conf: `user NAME RULE …`. Not together with `acl_file`.
    pub users: Vec<String>,
    /// Whether a new user may use all channels.
    pub acl_all_channels: bool,
    /// Keys that clients can track at a time; 0: any number.
    pub tracking_keys_max: usize,
    /// Entries that ACL LOG keeps.
    pub acl_log_len_max: usize,
    /// When writes are acknowledged.
    pub durability: Durability,
    /// The event queue that a loop waits on.
    pub events: EventQueue,
    /// Event loops, each a thread; at most as many as the store has shards.
    pub threads: usize,
    /// Most connections at a time; a further one gets an error and is closed.
    pub clients_max: usize,
    /// Seconds after which a silent client is disconnected; 0: never.
    pub timeout_s: u64,
    /// Seconds after which a silent connection is probed; 0: never.
    pub tcp_keepalive_s: u64,
    /// Seconds in which a client that gets a copy of everything takes some of it.
    pub repl_timeout_s: u64,
    /// The file of settings that the server was started with; for INFO only.
    pub config_file: Option<PathBuf>,
    /// The limits of one request.
    pub limits: Limits,
    /// Bytes read from one connection in one turn, so that none starves the others.
    pub turn_bytes_max: usize,
    /// Unsent reply bytes above which no further command of that client is executed.
    pub output_pause_bytes: usize,
    /// Unsent reply bytes above which a client is disconnected.
    pub output_max_bytes: usize,
    /// Bytes of commands that one MULTI may queue.
    pub multi_max_bytes: usize,
    /// Held write replies above which a group is committed before the turn ends.
    pub group_writes_max: usize,
    /// Most writes of a group that the event loop makes durable itself, if no commit is on its way.
    /// For so few writes, to wake a thread and to be woken would take longer than it saves.
    pub group_writes_inline: usize,
    /// Commands at least this slow are logged, microseconds; negative: none.
    pub slowlog_slower_than_us: i64,
    /// Milliseconds from which an event is noted for LATENCY; 0: none is.
    pub latency_threshold_ms: u64,
    /// Whether the times of each command are counted, for LATENCY HISTOGRAM and INFO.
    pub latency_tracking: bool,
    /// Bytes up to which a HyperLogLog stays sparse.
    pub hll_sparse_max_bytes: u64,
    /// Which events of keys are published (`notify-keyspace-events`).
    pub notify: Notify,
    /// The percentiles of these times that INFO shows.
    pub latency_percentiles: Vec<f64>,
    /// Entries that the slow log keeps.
    pub slowlog_len_max: usize,
    /// Where the file of an export lies; `None`: where the system has temporary files.
    pub spill_dir: Option<PathBuf>,
    /// Whether DEBUG is allowed, which can stop the server for a while.
    pub debug_enabled: bool,
    /// How keys are evicted when the memory is full.
    pub eviction: Eviction,
    /// Most bytes of memory that are used, if less than there is.
    pub memory_max_bytes: Option<u64>,
    /// The sizes up to which values are small.
    pub encodings: Encodings,
    /// Values that were set of parameters that change nothing, by their names.
    pub inert: BTreeMap<&'static str, String>,
    /// Milliseconds after which a script is stopped and rolled back; 0: never.
    pub script_limit_ms: u64,
    /// Bytes of memory that the scripts of one loop may use.
    pub script_memory_max: usize,
    /// Seed of every random choice, such as HRANDFIELD's.
    pub seed: u64,
    /// The warning the budget was computed for, seconds; for INFO only.
    pub warning_s: f64,
    /// The terms of the promise, to which a budget that is set at run time must keep.
    pub terms: Option<Terms>,
    /// Whether another process keeps the memory if this one dies; for INFO only.
    pub has_holder: bool,
    /// How much of a filter of system calls the process has; for INFO only.
    pub seccomp: &'static str,
    /// Whether a guard says how much of the promise may be used.
    pub has_guard: bool,
    /// What the power lets the server do, if somebody heeds warnings for it.
    pub power: Option<Arc<Power>>,
    /// The backup of the image, if one is made, for INFO.
    pub backup: Option<Arc<dyn Backup>>,
    /// The devices on which values lie that are not in memory, if the store has any.
    pub devices: Option<Arc<Devices>>,
    /// Who looks at the real drives behind the devices, for INFO.
    pub drives: Option<Arc<DriveKeeper>>,
    /// Power of a device, by which INFO models its energy.
    pub device_watts: Option<Watts>,
    /// Who watches the server, on a thread of its own.
    pub watcher: Option<Arc<dyn Watcher>>,
    /// Threads that a drill flushes with.
    pub flush_threads: usize,
    /// For a measurement: GET and SET are answered without the store, GET with so many bytes (at
    /// most 4096).
    #[doc(hidden)]
    pub null_value_bytes: Option<usize>,
}

/// A backup that somebody makes beside the server.
pub trait Backup: Send + Sync + std::fmt::Debug {
    /// Its figures, by name and in the order in which INFO shows them.
    fn figures(&self) -> Vec<(&'static str, String)>;
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            bind: vec![SocketAddr::from(([127, 0, 0, 1], 6379))],
            allow_plaintext: false,
            bind_if_there: Vec::new(),
            tls_bind: Vec::new(),
            tls_bind_if_there: Vec::new(),
            tls: TlsSettings::default(),
            reload: None,
            unix_socket: None,
            unix_socket_mode: 0o600,
            requirepass: None,
            acl_file: None,
            users: Vec::new(),
            acl_all_channels: false,
            acl_log_len_max: 128,
            tracking_keys_max: 1_000_000,
            durability: Durability::Warned,
            events: EventQueue::Auto,
            threads: 1,
            clients_max: 10_000,
            timeout_s: 0,
            tcp_keepalive_s: 300,
            repl_timeout_s: 60,
            config_file: None,
            limits: Limits::default(),
            turn_bytes_max: 64 << 10,
            output_pause_bytes: 1 << 20,
            output_max_bytes: 1 << 30,
            multi_max_bytes: 64 << 20,
            group_writes_max: 4096,
            group_writes_inline: 64,
            slowlog_slower_than_us: 10_000,
            latency_threshold_ms: 0,
            latency_tracking: true,
            hll_sparse_max_bytes: crate::hll::SPARSE_BYTES_MAX_DEFAULT,
            notify: Notify::default(),
            latency_percentiles: vec![50.0, 99.0, 99.9],
            slowlog_len_max: 128,
            spill_dir: None,
            debug_enabled: false,
            eviction: Eviction::default(),
            memory_max_bytes: None,
            encodings: Encodings::default(),
            inert: BTreeMap::new(),
            script_limit_ms: 5000,
            script_memory_max: 128 << 20,
            seed: 0,
            warning_s: 0.0,
            terms: None,
            has_holder: false,
            seccomp: "off",
            has_guard: false,
            power: None,
            backup: None,
            devices: None,
            drives: None,
            device_watts: None,
            watcher: None,
            flush_threads: 2,
            null_value_bytes: None,
        }
    }
}

impl ServerConfig {
    /// Checks what can be checked before anything is bound.
    ///
    /// # Errors
    /// An address would be open to everyone, or there is nothing to listen on.
    pub fn check(&self) -> Result<(), StartError> {
        let is_local = self.bind.is_empty() && self.bind_if_there.is_empty();
        if is_local && !self.listens_with_tls() && self.unix_socket.is_none() {
            return Err(StartError::NoListener);
        }
        self.check_users(&self.load_users().map_err(StartError::Users)?)
    }

    /// Whether there are addresses at which clients speak TLS.
    pub(crate) fn listens_with_tls(&self) -> bool {
        !self.tls_bind.is_empty() || !self.tls_bind_if_there.is_empty()
    }

    /// Whether these users leave no address open to everyone. It holds at the start, and for each
    /// change of users and passwords afterwards.
    pub(crate) fn check_users(&self, users: &Users) -> Result<(), StartError> {
        let is_open = |addr: &&SocketAddr| !is_loopback(addr.ip());
        let plain = self.bind.iter().chain(&self.bind_if_there).find(is_open).copied();
        let sealed = self.tls_bind.iter().chain(&self.tls_bind_if_there).find(is_open).copied();
        // A certificate that the server demands says who a client is.
        let sealed = sealed.filter(|_| self.tls.auth_clients != AuthClients::Yes);
        if let (Some(addr), Some(user)) = (plain.or(sealed), users.open_user()) {
            let user = String::from_utf8_lossy(&user.name).into_owned();
            return Err(StartError::Unprotected { addr, user });
        }
        match plain {
            Some(addr) if !self.allow_plaintext => Err(StartError::Plaintext { addr }),
            _ => Ok(()),
        }
    }

    /// The users that the configuration describes.
    pub(crate) fn load_users(&self) -> Result<Users, String> {
        match (&self.acl_file, &self.users[..]) {
            (None, []) => Ok(Users::new(self.requirepass.as_deref())),
            (None, lines) => {
                let lines = lines.iter().map(|line| line.as_bytes()).zip(1..);
                let users = acl::parse("user", lines, self.acl_all_channels)?;
                let has_default = self.users.iter().any(|line| acl::names_default(line.as_bytes()));
                let password = self.requirepass.as_deref().filter(|p| !p.is_empty());
                Ok(if has_default { users } else { users.with_password(password) })
            }
            (Some(file), []) => acl::load(file, self.acl_all_channels),
            (Some(_), _) => {
                Err("users are in an ACL file and in the configuration, too: use one of both"
                    .to_owned())
            }
        }
    }
}

impl ServerConfig {
    /// Tells the store what the configuration says of it.
    pub(crate) fn apply_to(&self, store: &Store) {
        store.set_eviction(self.eviction);
        store.set_small_sets(self.encodings.sets);
        store.set_chunk_limits(self.encodings.streams);
    }
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Anyone who reaches the address could read and delete everything.
    #[error("refusing to listen on {addr} {}", unprotected(user))]
    Unprotected {
        /// The address that was asked for.
        addr: SocketAddr,
        /// A user who needs no password.
        user: String,
    },
    /// Whoever is on the way could read passwords and data, and change them.
    #[error(
        "refusing to listen on {addr} without TLS, because whoever is on the way could read the \
         password and all data: give --tls-listen {addr} with --tls-cert-file and --tls-key-file \
         and let --listen be 127.0.0.1, or give --allow-plaintext if the network is trusted"
    )]
    Plaintext {
        /// The address that was asked for.
        addr: SocketAddr,
    },
    /// The configuration has neither an address nor a Unix socket.
    #[error("nothing to listen on: give an address or a Unix socket")]
    NoListener,
    /// The users of the configuration or of its file have mistakes.
    #[error("{0}")]
    Users(String),
    /// There can be no TLS with these settings.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The system refused a TCP address.
    #[error("cannot listen on {addr}: {source}{}", advice(source))]
    Bind {
        /// The address that was asked for.
        addr: SocketAddr,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The system refused the Unix socket.
    #[error(
        "cannot listen on {}: {source}; remove the file if no server uses it, or give another path",
        path.display()
    )]
    BindUnix {
        /// The path of the socket.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl StartError {
    /// The error of a change to users while the server runs, when the address is open already.
    pub(crate) fn of_change(&self) -> String {
        match self {
            Self::Unprotected { addr, user } => format!(
                "the server listens on {addr}, so that anyone who reaches it could be user \
                 '{user}' without a password: give that user a password (>PASSWORD), turn it off, \
                 or take its permissions (-@all); without a password the server may listen on \
                 127.0.0.1 only"
            ),
            other => other.to_string(),
        }
    }

    /// Whether another socket has the address. It may be that of a process that is about to end.
    pub fn is_address_in_use(&self) -> bool {
        match self {
            Self::Bind { source, .. } | Self::BindUnix { source, .. } => {
                source.kind() == io::ErrorKind::AddrInUse
            }
            Self::Unprotected { .. }
            | Self::Plaintext { .. }
            | Self::NoListener
            | Self::Users(_)
            | Self::Tls(_) => false,
        }
    }
}

/// Why a user who needs no password leaves an address open, and what ends that.
fn unprotected(user: &str) -> String {
    if user.as_bytes() == acl::DEFAULT {
        return "without a password, because anyone who reaches it could read and delete \
                everything: give --password-file FILE, set PERDURA_PASSWORD, or listen on \
                127.0.0.1 only"
            .to_owned();
    }
    format!(
        "while user {user:?} needs no password, because anyone who reaches it could be that user: \
         give the user a password (>PASSWORD in place of nopass), turn it off, or listen on \
         127.0.0.1 only"
    )
}

/// The remedy for an address that the system refuses, as the end of an error's text.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; end the program that listens there, or give another port",
        io::ErrorKind::AddrNotAvailable => "; give an address that this machine has",
        io::ErrorKind::PermissionDenied => "; give a port from 1024 on",
        _ => "",
    }
}

/// Why a running server ended by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The event queue failed; nothing can be served without it.
    #[error("the event loop failed at {op}: {source}")]
    Events {
        /// The call that failed.
        op: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The users of the configuration or of its file have mistakes.
    #[error("{0}")]
    Users(String),
}

/// Ends a running server from any thread. Set once; never cleared.
#[derive(Debug)]
pub struct StopFlag {
    set: AtomicBool,
    event: OwnedFd,
}

impl StopFlag {
    /// Makes a flag that is not set.
    ///
    /// # Errors
    /// The system has no event file descriptor left.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { set: AtomicBool::new(false), event })
    }

    /// Sets the flag and wakes the loop. Safe to call again.
    pub fn trigger(&self) {
        self.set.store(true, Ordering::Release);
        // This fails only if the counter is full, and then the loop is awake already.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Whether the flag has been set.
    pub fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }
}

impl AsFd for StopFlag {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_address_needs_a_password() {
        let with = |addr: &str, requirepass: Option<&str>| {
            ServerConfig {
                bind: vec![addr.parse().unwrap()],
                requirepass: requirepass.map(str::to_owned),
                allow_plaintext: true,
                ..ServerConfig::default()
            }
            .check()
        };
        assert!(matches!(with("0.0.0.0:0", None), Err(StartError::Unprotected { .. })));
        assert!(matches!(with("0.0.0.0:0", Some("")), Err(StartError::Unprotected { .. })));
        assert!(with("0.0.0.0:0", Some("secret")).is_ok());
        assert!(with("127.0.0.1:0", None).is_ok());
        assert!(with("[::1]:0", None).is_ok());
        assert!(with("[::ffff:127.0.0.1]:0", None).is_ok());
    }

    #[test]
    fn an_open_address_needs_tls_or_a_word_that_allows_plaintext() {
        let with = |plain: &str, sealed: &str, auth_clients, allow_plaintext, password: bool| {
            let address = |text: &str| text.parse().ok().into_iter().collect();
            let mut config = ServerConfig {
                bind: address(plain),
                tls_bind: address(sealed),
                allow_plaintext,
                requirepass: password.then(|| "secret".to_owned()),
                ..ServerConfig::default()
            };
            config.tls.auth_clients = auth_clients;
            config.check()
        };
        use AuthClients::{No, Yes};
        let open = "0.0.0.0:1";
        assert!(matches!(with(open, "", Yes, false, true), Err(StartError::Plaintext { .. })));
        assert!(with(open, "", Yes, true, true).is_ok());
        assert!(with("127.0.0.1:1", open, No, false, true).is_ok());
        assert!(with("127.0.0.1:1", open, Yes, false, false).is_ok());
        let unprotected = with("127.0.0.1:1", open, No, false, false);
        assert!(matches!(unprotected, Err(StartError::Unprotected { .. })));
        let plain = with(open, open, Yes, true, false);
        assert!(matches!(plain, Err(StartError::Unprotected { .. })));
    }
}
