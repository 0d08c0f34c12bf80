//! The server's own state, and the parts of it that a control command may touch.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use perdura_media::Clock;
use perdura_store::{DATABASES, Store};

use perdura_warning::Demand;

use super::blocking::Wait;
use super::call::{Outcome, Random};
use super::error::CommandError;
use super::handler::InPlaceTries;
use super::index::Index;
use super::index_for;
use super::room::Limit;
use super::scripts::Scripts;
use crate::acl::Users;
use crate::config::{Durability, ServerConfig};
use crate::resp::Reply;
use crate::session::Session;
use crate::shared::{Held, Message, Own, Shared, Stats, Topic};
use crate::turn_clock::TurnClock;

/// The server as one of its loops sees it.
pub(crate) struct Server<'a> {
    pub shared: &'a Shared<'a>,
    /// Number of the loop.
    pub number: usize,
    /// What this loop alone writes.
    pub own: &'a Own,
    /// The loop's counters.
    pub stats: &'a Stats,
    pub store: &'a Store,
    pub clock: &'a dyn Clock,
    /// The configuration, as of the turn's beginning or of the loop's own change.
    pub config: Arc<ServerConfig>,
    config_changes: u64,
    /// The users, as of the same moment.
    pub users: Arc<Users>,
    pub index: Index,
    pub random: Random,
    pub facts: Facts,
    /// The loop's Lua state.
    pub scripts: Scripts,
    /// Messages that the command being run sends when it has happened.
    pub outgoing: Vec<Message>,
    /// Each MIGRATE of the loop's clients that is under way has a reference to it.
    pub migrations: Arc<()>,
    /// What the command being run waits for, because it has found nothing.
    pub wait: Option<Wait>,
    /// Keys that the command being run has changed, and that clients may wait for.
    pub ready: VecDeque<(u8, Box<[u8]>)>,
    /// Whether any key may have changed that clients wait for.
    pub is_all_ready: bool,
    /// The clients that wait for data, held during an EXEC that may unblock some.
    pub waiters: Option<Held<'a>>,
    /// Whether the power is so low that writes are refused in this turn.
    pub is_power_low: bool,
    /// The room below the limit of memory.
    pub limit: Limit,
    /// Whether the command being run has committed a step, whatever its outcome.
    pub has_stepped: bool,
    /// Whether the command being run has changed nothing, though it is one that writes.
    pub left_all: bool,
    /// Which commands are worth a try in place.
    pub in_place_tries: InPlaceTries,
    /// Monotonic time after the last command; read once a command.
    pub now_ns: u64,
    /// The clock that tells the time after each command.
    pub turn_clock: TurnClock,
    /// `(monotonic ns, unix ms)` at the turn's beginning.
    pub turn: (u64, u64),
    /// Name of the event queue that the loop waits on.
    pub multiplexing: &'static str,
}

impl<'a> Server<'a> {
    /// The server as the loop with this number sees it.
    pub fn new(shared: &'a Shared<'a>, number: usize) -> Self {
        let Shared { store, clock, .. } = *shared;
        let (now_ns, unix_ms) = (clock.now_ns(), clock.unix_ms());
        let config_changes = shared.config_changes();
        let config = Arc::clone(&shared.config());
        let users = Arc::clone(&shared.users());
        let (own, index) = (&shared.loops[number], index_for(&config));
        let in_place_tries = InPlaceTries::new(index.specs().len());
        Self {
            shared,
            number,
            own,
            stats: &own.stats,
            store,
            clock,
            random: Random::new(config.seed ^ (number as u64) << 32),
            index,
            config,
            config_changes,
            users,
            facts: Facts::default(),
            scripts: Scripts::default(),
            outgoing: Vec::new(),
            migrations: Arc::new(()),
            wait: None,
            ready: VecDeque::new(),
            is_all_ready: false,
            waiters: None,
            is_power_low: false,
            limit: Limit::default(),
            has_stepped: false,
            left_all: false,
            in_place_tries,
            now_ns,
            turn_clock: TurnClock::default(),
            turn: (now_ns, unix_ms),
            multiplexing: "",
        }
    }

    /// Takes the time at which a turn of the loop begins.
    pub fn begin_turn(&mut self) {
        self.now_ns = self.clock.now_ns();
        self.turn_clock.begin_turn(self.now_ns, self.clock.ticks());
        self.turn = (self.now_ns, self.clock.unix_ms());
        self.heed_config();
        let power = self.config.power.as_ref();
        self.is_power_low = power.is_some_and(|power| power.begin_turn(self.number));
        self.limit.room = self.shared.memory_limit.room();
    }

    /// Takes the configuration that is in force if it has changed. What a turn receives before it
    /// begins was sent before a change that it does not see; what it fetches itself may have been
    /// sent by a client who knows of one.
    pub fn heed_config(&mut self) {
        if self.shared.config_changes() != self.config_changes {
            self.take_config();
        }
    }

    /// Takes the configuration and the users that are in force.
    pub fn take_config(&mut self) {
        self.config_changes = self.shared.config_changes();
        self.config = Arc::clone(&self.shared.config());
        self.users = Arc::clone(&self.shared.users());
    }

    /// Ends all subscriptions of a client.
    pub fn unsubscribe_all(&self, session: &Session) {
        for topic in Topic::ALL {
            for name in session.subscribed.names(topic) {
                self.shared.topics.leave(topic, &name, session.card.id);
            }
        }
    }

    /// Whether writes are accepted.
    ///
    /// # Errors
    /// The log has failed, the power is low, or the backup is too far behind.
    pub fn check_writes(&self) -> Outcome {
        if let Some(why) = self.shared.latched.get() {
            return Err(CommandError::Latched(why.clone()));
        }
        match &self.config.power {
            Some(power) if self.is_power_low => {
                Err(CommandError::PowerLow(power.said().reading.to_string()))
            }
            Some(power) if power.is_backup_late() => Err(CommandError::BackupLate),
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

    /// Unix time of the command being run, milliseconds.
    pub fn unix_ms(&self) -> u64 {
        self.turn.1 + self.now_ns.saturating_sub(self.turn.0) / 1_000_000
    }

    /// Whether clients must say who they are first.
    pub fn needs_password(&self) -> bool {
        !self.users.default().is_open()
    }

    /// Whether replies to writes wait for a group commit.
    pub fn holds_replies(&self) -> bool {
        self.config.durability == Durability::Fsync
    }

    /// Begins a look from outside the loops: at this moment, with no lock of the store.
    pub fn begin_look(&mut self) {
        self.now_ns = self.clock.now_ns();
        self.turn = (self.now_ns, self.clock.unix_ms());
        self.heed_config();
        self.refresh_quick_facts();
    }

    /// Takes the facts about the whole store anew. Not from inside a transaction, which holds the
    /// store's locks.
    pub fn refresh_facts(&mut self) {
        self.facts.detached = self.store.stats().detached;
        self.refresh_quick_facts();
    }

    /// Takes those facts anew for which no lock of the store is needed.
    fn refresh_quick_facts(&mut self) {
        for db in 0..DATABASES {
            let (keys, keys_with_expiry) = self.store.counted(db);
            self.facts.keys[usize::from(db)] = keys;
            self.facts.keys_with_expiry[usize::from(db)] = keys_with_expiry;
        }
        self.facts.used_bytes = self.store.used_bytes();
        let used_bytes = self.facts.used_bytes;
        let before = self.shared.used_bytes_max.fetch_max(used_bytes, Relaxed);
        self.facts.used_bytes_max = before.max(used_bytes);
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

/// All clients together, at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Clients {
    pub connected: usize,
    /// Clients that wait for data, or whose next command waits for CLIENT UNPAUSE.
    pub blocked: usize,
    pub memory_bytes: usize,
    /// The longest request that waits, and the longest reply that is not sent yet.
    pub input_bytes_max: usize,
    pub output_bytes_max: usize,
}

impl Context<'_, '_, '_> {
    /// Looks at every client, the one whose command runs included.
    pub fn clients(&mut self) -> Clients {
        self.session.publish(0, self.session.request_bytes);
        clients(self.server.shared, Some(self.session.card.id))
    }
}

/// Looks at every client. The buffers of the one that asks are not those of a client that waits.
pub(super) fn clients(shared: &Shared<'_>, asking: Option<u64>) -> Clients {
    let (blocked, _) = shared.waiters.clients();
    let mut all = Clients { blocked, ..Clients::default() };
    shared.each_client(|card| {
        if card.is_killed() {
            return;
        }
        let seen = card.seen();
        let bytes = |of: &AtomicU64| of.load(Relaxed) as usize;
        all.connected += 1;
        all.blocked += usize::from(card.is_paused());
        all.memory_bytes += bytes(&seen.memory_bytes);
        if asking != Some(card.id) {
            all.input_bytes_max = all.input_bytes_max.max(bytes(&seen.request_bytes));
            all.output_bytes_max = all.output_bytes_max.max(bytes(&seen.unsent_bytes));
        }
    });
    all
}

/// The parts of the server that a control command works on.
pub(crate) struct Context<'c, 'a, 'o> {
    pub server: &'c mut Server<'a>,
    pub session: &'c mut Session,
    pub reply: &'c mut Reply<'o>,
}
