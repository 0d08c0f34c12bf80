//! A server, and rounds of clients. In each round the keys are new.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use perdura_media::{Clock, RealClock, SimDevice};
use perdura_region::{Config, Planted, Region};
use perdura_server::{Durability, EventQueue, Listener, ServerConfig, StopFlag};
use perdura_store::{Heap, Store, StoreOptions};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::broken::{Broken, Wrong};
use super::check::{Verdict, check};
use super::clients::{Client, LAST, LISTS, NUMBERS, TOGETHER, draw};
use super::model::{Answer, End, Key, Op};
use super::record::{Event, Moments, parts};

/// What is to be run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Decides the server's settings and the commands.
    pub seed: u64,
    /// The bug, if any, that the server has.
    pub planted: Planted,
    /// Rounds, each with keys of its own.
    pub rounds: u32,
    /// Clients, each a thread.
    pub clients: usize,
    /// Commands of a client in a round, at least.
    pub commands: usize,
    /// Steps after which the search for an order is given up.
    pub steps_max: u64,
}

impl Default for Plan {
    fn default() -> Self {
        let planted = Planted::None;
        Self { seed: 0, planted, rounds: 12, clients: 5, commands: 40, steps_max: 2_000_000 }
    }
}

/// What a run has shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shown {
    /// Commands whose answers were explained; EXEC and what it carries out are one.
    pub commands: u64,
    /// Histories that were checked, each of connected keys.
    pub histories: u64,
    /// Pops and moves that had to wait, or could have, and found something.
    pub found: u64,
    /// Pops and moves that found nothing in their time.
    pub late: u64,
    /// Transactions that happened.
    pub executed: u64,
    /// Transactions that a change of a watched key has ended.
    pub stale: u64,
    /// Clients that still waited when all others had ended.
    pub at_rest: u64,
}

/// Runs the rounds of a plan.
///
/// # Errors
/// See [`Broken`].
pub fn run(plan: &Plan) -> Result<Shown, Broken> {
    let clock: Arc<dyn Clock> = Arc::new(RealClock);
    let store = open(plan, Arc::clone(&clock)).map_err(Broken::Open)?;
    let mut random = Random::seed_from_u64(plan.seed);
    let config = ServerConfig {
        bind: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        threads: random.random_range(2..=3),
        durability: [Durability::Warned, Durability::Fsync][random.random_range(0..2)],
        events: [EventQueue::default(), EventQueue::Epoll][random.random_range(0..2)],
        seed: plan.seed,
        ..ServerConfig::default()
    };
    let listener = Listener::bind(&config)?;
    let addr = listener.local_addr();
    let addr = addr.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::AddrNotAvailable))?;
    let stop = StopFlag::new()?;
    std::thread::scope(|scope| {
        let server = scope.spawn(|| perdura_server::run(listener, &store, &config, &*clock, &stop));
        let shown = rounds(plan, addr, &stop, &mut random);
        stop.trigger();
        let ended = server.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let shown = shown?;
        ended?;
        Ok(shown)
    })
}

fn open(plan: &Plan, clock: Arc<dyn Clock>) -> Result<Store, String> {
    let config = Config { planted: plan.planted, lanes: Some(4), ..Config::new(16 << 20, 8 << 20) };
    let device = Arc::new(SimDevice::new(0, plan.seed));
    let region = Region::open(device, Arc::clone(&clock), config);
    let heap = Heap::open(region.map_err(|error| error.to_string())?);
    let heap = heap.map_err(|error| error.to_string())?;
    Store::open(heap, clock, StoreOptions::default()).map_err(|error| error.to_string())
}

fn rounds(
    plan: &Plan,
    addr: SocketAddr,
    stop: &StopFlag,
    random: &mut Random,
) -> Result<Shown, Broken> {
    let clients: Result<Vec<_>, _> =
        (0..=plan.clients).map(|number| Client::connect(addr, number)).collect();
    let (mut clients, mut shown) = (clients?, Shown::default());
    for number in 0..plan.rounds {
        let mut round = Round { plan, number, stop, shown: &mut shown };
        clients.iter_mut().for_each(|client| client.prefix = format!("r{number}:"));
        let events = round.events(&mut clients, random)?;
        round.check(events)?;
    }
    Ok(shown)
}

struct Round<'p> {
    plan: &'p Plan,
    number: u32,
    stop: &'p StopFlag,
    shown: &'p mut Shown,
}

type Ending<'s> = ScopedJoinHandle<'s, Result<Vec<Event>, Broken>>;

impl Round<'_> {
    /// Lets the clients work, and returns what all have noted.
    fn events(
        &mut self,
        clients: &mut [Client],
        random: &mut Random,
    ) -> Result<Vec<Event>, Broken> {
        let (moments, at_end) = (&Moments::default(), &AtomicUsize::new(0));
        let Some((last, clients)) = clients.split_last_mut() else { return Ok(Vec::new()) };
        std::thread::scope(|scope| {
            let mut waits = Vec::new();
            let mut threads: Vec<Ending<'_>> = Vec::new();
            for client in clients {
                let ops = draw(random, client.number, self.plan.commands);
                // Some wait for good at last, for what others leave.
                let keys = match random.random_range(0..8) {
                    0 => LISTS[..1].to_vec(),
                    1..3 => LISTS[1..].to_vec(),
                    3 => TOGETHER[2..].to_vec(),
                    4..7 => vec![LAST],
                    _ => Vec::new(),
                };
                let wait = (!keys.is_empty()).then_some(Op::WaitPop(keys, End::Left, 0));
                waits.push(wait.clone());
                threads.push(scope.spawn(move || {
                    let count = || at_end.fetch_add(1, SeqCst);
                    let events = ops.into_iter().map(|op| client.call(op, moments));
                    let events: Result<Vec<_>, _> = events.collect();
                    count();
                    let mut events = events?;
                    if let Some(wait) = wait {
                        events.push(client.call(wait, moments)?);
                    }
                    Ok(events)
                }));
            }
            let all_there = || at_end.load(SeqCst) == threads.len();
            let rest = self.until_rest(last, &threads, all_there);
            let ended = rest.and_then(|()| self.end(last, &threads, &waits, moments));
            if ended.is_err() {
                // Who still waits hears the end of the connection.
                self.stop.trigger();
            }
            let mut events = Vec::new();
            for thread in threads {
                let noted = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                match (&ended, noted) {
                    (_, Ok(noted)) => events.extend(noted),
                    (Ok(_), Err(error)) => return Err(error),
                    (Err(_), Err(_)) => {}
                }
            }
            events.extend(ended?);
            Ok(events)
        })
    }

    /// Returns when each client has ended, or waits, and nothing is on its way to one that waits.
    fn until_rest(
        &self,
        client: &mut Client,
        threads: &[Ending<'_>],
        is_so: impl Fn() -> bool,
    ) -> Result<(), Broken> {
        let began = Instant::now();
        loop {
            // Who ends meanwhile counts in neither number.
            let has_ended = threads.iter().filter(|thread| thread.is_finished()).count();
            let at_rest = has_ended + client.blocked()?;
            if at_rest == threads.len() && is_so() {
                return Ok(());
            }
            if began.elapsed() > Duration::from_secs(20) {
                return Err(self.wrong(Wrong::NoRest { clients: threads.len(), at_rest }));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Checks that nobody waits for what is there, ends the waits, and reads all keys.
    fn end(
        &mut self,
        client: &mut Client,
        threads: &[Ending<'_>],
        waits: &[Option<Op>],
        moments: &Moments,
    ) -> Result<Vec<Event>, Broken> {
        let mut events = Vec::new();
        let waiting = || -> Vec<(usize, &Op)> {
            let of_all = threads.iter().zip(waits).enumerate();
            let waiting = of_all.filter(|(_, (thread, _))| !thread.is_finished());
            waiting.filter_map(|(number, (_, wait))| Some((number, wait.as_ref()?))).collect()
        };
        self.shown.at_rest += waiting().len() as u64;
        for element in (0..).step_by(2) {
            let waiting = waiting();
            for (number, wait) in &waiting {
                events.extend(self.find_nothing(client, *number, wait, moments)?);
            }
            let Some((_, wait)) = waiting.first() else { break };
            // Two may be served together.
            let push = Op::Push(wait.keys()[0], End::Right, vec![element, element + 1]);
            events.push(client.call(push, moments)?);
            self.until_rest(client, threads, || true)?;
        }
        for key in NUMBERS.into_iter().chain(TOGETHER).chain(LISTS).chain([LAST]) {
            let op = if matches!(key, Key::List(_)) { Op::Range } else { Op::Get };
            events.push(client.call(op(key), moments)?);
        }
        Ok(events)
    }

    /// Looks at the keys for which a client waits.
    fn find_nothing(
        &self,
        client: &mut Client,
        number: usize,
        wait: &Op,
        moments: &Moments,
    ) -> Result<Vec<Event>, Broken> {
        let look = |key| client.call(Op::Range(key), moments);
        let events: Vec<Event> = wait.keys().into_iter().map(look).collect::<Result<_, _>>()?;
        match events.iter().find(|event| event.answer != Answer::Many(Vec::new())) {
            None => Ok(events),
            Some(event) => {
                let (command, found) = (wait.to_string(), event.answer.to_string());
                Err(self.wrong(Wrong::Missed { client: number, command, found }))
            }
        }
    }

    /// Searches for an order of each history of connected keys.
    fn check(&mut self, events: Vec<Event>) -> Result<(), Broken> {
        for part in parts(events) {
            match check(&part, self.plan.steps_max) {
                Verdict::Linearizable => self.note(&part),
                Verdict::Not { longest } => {
                    let history = shown(&part, |at| longest.contains(&at));
                    return Err(self.wrong(Wrong::NotLinearizable { history }));
                }
                Verdict::Undecided { steps } => {
                    let history = shown(&part, |_| true);
                    return Err(self.wrong(Wrong::Undecided { steps, history }));
                }
            }
        }
        Ok(())
    }

    fn note(&mut self, part: &[Event]) {
        self.shown.histories += 1;
        self.shown.commands += part.len() as u64;
        for event in part {
            let count = match (&event.op, &event.answer) {
                (Op::WaitPop(..) | Op::WaitMove(..), Answer::Null) => &mut self.shown.late,
                (Op::WaitPop(..) | Op::WaitMove(..), _) => &mut self.shown.found,
                (Op::Exec(_), Answer::Null) => &mut self.shown.stale,
                (Op::Exec(_), _) => &mut self.shown.executed,
                _ => continue,
            };
            *count += 1;
        }
    }

    fn wrong(&self, what: Wrong) -> Broken {
        let Plan { seed, planted, .. } = self.plan;
        let place = format!("seed {seed}, round {}", self.number);
        let replay = format!(
            "again: PERDURA_SEED={seed} PERDURA_PLANT={} cargo test -p perdura-sim --test history \
             one_seed_from_the_environment -- --nocapture",
            planted.name()
        );
        Broken::Round { place, what, replay }
    }
}

fn shown(part: &[Event], is_in_order: impl Fn(usize) -> bool) -> String {
    let mark = |at| if is_in_order(at) { ' ' } else { '!' };
    part.iter().enumerate().map(|(at, event)| format!("{} {event}\n", mark(at))).collect()
}
