//! The server's own state, and the parts of it that a control command may touch.

use std::collections::VecDeque;

use perdura_media::Clock;
use perdura_store::{DATABASES, Store};

use perdura_warning::Demand;

use super::call::{Outcome, Random};
use super::error::CommandError;
use super::index::Index;
use super::spec::Spec;
use crate::config::{Durability, ServerConfig};
use crate::conn::Peers;
use crate::lately::{Counts, Lately};
use crate::resp::Reply;
use crate::saving::Saving;
use crate::session::Session;

/// The state of the server that belongs to no single client.
pub(crate) struct Server<'a> {
    pub store: &'a Store,
    pub clock: &'a dyn Clock,
    pub saving: &'a Saving,
    pub config: ServerConfig,
    pub index: Index,
    pub random: Random,
    pub stats: Stats,
    pub lately: Lately,
    pub slowlog: Slowlog,
    pub pause: Pause,
    pub facts: Facts,
    /// Whether a client's SHUTDOWN was accepted.
    pub shutdown: bool,
    /// Whether a client was marked as killed and must be looked for.
    pub kills: bool,
    /// The first failure of a group commit: writes are refused from then on.
    pub latched: Option<String>,
    /// Whether the power is so low that writes are refused in this turn.
    pub is_power_low: bool,
    /// Write commands carried out since start.
    pub changes: u64,
    /// Bytes of keys, fields and values in the write commands carried out since start.
    pub user_bytes: u64,
    /// Monotonic time after the last command; read once a command.
    pub now_ns: u64,
    /// `(monotonic ns, unix ms)` at the turn's beginning.
    pub turn: (u64, u64),
    pub started_ns: u64,
    pub started_unix_ms: u64,
    pub tcp_port: u16,
    /// Name of the event queue that the loop waits on.
    pub multiplexing: &'static str,
}

impl<'a> Server<'a> {
    pub fn new(
        store: &'a Store,
        clock: &'a dyn Clock,
        saving: &'a Saving,
        config: ServerConfig,
        index: Index,
    ) -> Self {
        let (now_ns, unix_ms) = (clock.now_ns(), clock.unix_ms());
        Self {
            store,
            clock,
            saving,
            random: Random::new(config.seed),
            stats: Stats::new(index.specs().len()),
            index,
            lately: Lately::default(),
            slowlog: Slowlog::default(),
            pause: Pause::default(),
            facts: Facts::default(),
            shutdown: false,
            kills: false,
            latched: None,
            is_power_low: false,
            changes: 0,
            user_bytes: 0,
            now_ns,
            turn: (now_ns, unix_ms),
            started_ns: now_ns,
            started_unix_ms: unix_ms,
            tcp_port: 0,
            multiplexing: "",
            config,
        }
    }

    /// Takes the time at which a turn of the loop begins.
    pub fn begin_turn(&mut self) {
        self.now_ns = self.clock.now_ns();
        self.turn = (self.now_ns, self.clock.unix_ms());
        self.is_power_low = self.config.power.as_ref().is_some_and(|power| power.begin_turn());
    }

    /// Whether writes are accepted.
    ///
    /// # Errors
    /// The log has failed, or the power is low.
    pub fn check_writes(&self) -> Outcome {
        if let Some(why) = &self.latched {
            return Err(CommandError::Latched(why.clone()));
        }
        match &self.config.power {
            Some(power) if self.is_power_low => {
                Err(CommandError::PowerLow(power.said().reading.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// Whether the budget is that of the promise, and may be used and changed.
    ///
    /// # Errors
    /// The power asks for less.
    pub fn check_budget_is_free(&self) -> Outcome {
        match self.config.power.as_ref().map(|power| power.said()) {
            Some(said) if said.demand != Demand::Promise => {
                Err(CommandError::PowerAsksForLess(said.reading.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// Notes the counts of this moment, about ten times a second.
    pub fn sample(&mut self) {
        let Stats { commands, net_input_bytes, net_output_bytes, .. } = self.stats;
        let counts =
            Counts { commands, input_bytes: net_input_bytes, output_bytes: net_output_bytes };
        self.lately.sample(self.now_ns, counts);
    }

    /// Unix time of the command being run, milliseconds.
    pub fn unix_ms(&self) -> u64 {
        self.turn.1 + self.now_ns.saturating_sub(self.turn.0) / 1_000_000
    }

    /// Whether clients must give a password first.
    pub fn needs_password(&self) -> bool {
        self.config.requirepass.as_ref().is_some_and(|p| !p.is_empty())
    }

    /// Whether replies to writes wait for a group commit.
    pub fn holds_replies(&self) -> bool {
        self.config.durability == Durability::Fsync
    }

    /// Takes the facts about the whole store anew. Not from inside a transaction, which holds the
    /// store's locks.
    pub fn refresh_facts(&mut self) {
        for db in 0..DATABASES {
            let (keys, keys_with_expiry) = self.store.counted(db);
            self.facts.keys[usize::from(db)] = keys;
            self.facts.keys_with_expiry[usize::from(db)] = keys_with_expiry;
        }
        let store = self.store.stats();
        self.facts.used_bytes = store.region_bytes.saturating_sub(store.free_bytes);
        self.facts.used_bytes_max = self.facts.used_bytes_max.max(self.facts.used_bytes);
        self.facts.detached = store.detached;
        let region = self.store.region();
        self.facts.region = region.stats();
        self.facts.capacity_bytes = region.len_bytes();
        self.facts.budget_bytes = region.budget_bytes();
        self.facts.budget_now_bytes = region.budget_now_bytes();
        self.facts.dirty_bytes = region.used_bytes();
        self.facts.dirty_bytes_max = region.used_bytes_max();
        self.facts.log_bytes = region.log_bytes();
        self.facts.loading = region.load_progress();
        self.facts.failure = region.failure().map(str::to_owned);
    }
}

/// The facts about the store that INFO tells; inside EXEC as of EXEC's beginning.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub keys: [u64; DATABASES as usize],
    pub keys_with_expiry: [u64; DATABASES as usize],
    pub used_bytes: u64,
    /// The most that was in use whenever these facts were taken.
    pub used_bytes_max: u64,
    /// Deleted tables whose parts are not all freed yet.
    pub detached: u64,
    pub capacity_bytes: u64,
    pub budget_bytes: u64,
    pub budget_now_bytes: u64,
    pub dirty_bytes: u64,
    pub dirty_bytes_max: u64,
    pub log_bytes: u64,
    /// The first failure of the device.
    pub failure: Option<String>,
    /// How much of the image is in memory, while it is being loaded.
    pub loading: Option<perdura_region::LoadProgress>,
    /// The region's own counters.
    pub region: perdura_region::Stats,
}

/// Counters of this run (CONFIG RESETSTAT clears them).
#[derive(Debug)]
pub(crate) struct Stats {
    pub connections: u64,
    pub rejected_connections: u64,
    pub commands: u64,
    pub errors: u64,
    pub expired_keys: u64,
    pub keyspace_hits: u64,
    pub keyspace_misses: u64,
    pub net_input_bytes: u64,
    pub net_output_bytes: u64,
    /// Times that a socket was read with bytes to show for it, and written.
    pub reads: u64,
    pub writes: u64,
    pub output_limit_disconnections: u64,
    pub group_writes: u64,
    pub clients_max_seen: u64,
    /// The counters of each command, by its row in the table.
    pub by_command: Vec<CommandStats>,
}

/// The counters of one command.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CommandStats {
    pub calls: u64,
    pub time_ns: u64,
    pub rejected: u64,
    pub failed: u64,
}

impl Stats {
    /// Counters at zero, for so many commands.
    pub fn new(commands: usize) -> Self {
        Self {
            connections: 0,
            rejected_connections: 0,
            commands: 0,
            errors: 0,
            expired_keys: 0,
            keyspace_hits: 0,
            keyspace_misses: 0,
            net_input_bytes: 0,
            net_output_bytes: 0,
            reads: 0,
            writes: 0,
            output_limit_disconnections: 0,
            group_writes: 0,
            clients_max_seen: 0,
            by_command: vec![CommandStats::default(); commands],
        }
    }
}

/// The slowest commands of late, newest first.
#[derive(Debug, Default)]
pub(crate) struct Slowlog {
    pub entries: VecDeque<SlowEntry>,
    pub next_id: u64,
}

/// A slow command, as SLOWLOG GET reports it.
#[derive(Debug)]
pub(crate) struct SlowEntry {
    pub id: u64,
    pub unix_s: u64,
    pub time_us: u64,
    pub args: Vec<Vec<u8>>,
    pub client: String,
    pub client_name: Vec<u8>,
}

/// The pause that CLIENT PAUSE has asked for.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    pub until_ns: u64,
    pub writes_only: bool,
}

impl Pause {
    pub fn holds(&self, spec: &Spec, now_ns: u64) -> bool {
        now_ns < self.until_ns
            && (!self.writes_only || spec.has(super::spec::flag::WRITE) || spec.name == "exec")
    }
}

/// All clients together, at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Clients {
    pub connected: usize,
    /// Clients whose next command waits for CLIENT UNPAUSE.
    pub blocked: usize,
    pub memory_bytes: usize,
    /// The longest request that waits, and the longest reply that is not sent yet.
    pub input_bytes_max: usize,
    pub output_bytes_max: usize,
}

impl Context<'_, '_, '_> {
    /// Looks at every client, the one whose command runs included.
    pub fn clients(&mut self) -> Clients {
        let connected = self.peers.connected();
        let memory_bytes = self.session.memory_bytes(0, 0);
        let mut all = Clients { connected, memory_bytes, ..Clients::default() };
        self.peers.each(&mut |session, unsent, pending| {
            all.blocked += usize::from(session.is_paused);
            all.memory_bytes += session.memory_bytes(unsent, pending);
            all.input_bytes_max = all.input_bytes_max.max(pending);
            all.output_bytes_max = all.output_bytes_max.max(unsent);
        });
        all
    }
}

/// The parts of the server that a control command works on.
pub(crate) struct Context<'c, 'a, 'o> {
    pub server: &'c mut Server<'a>,
    pub session: &'c mut Session,
    pub peers: Peers<'c>,
    pub reply: &'c mut Reply<'o>,
}
