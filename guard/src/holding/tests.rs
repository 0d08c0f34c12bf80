//! The answers of those who hold memory to servers, visitors and warnings.

mod drilling;
mod guarding;
mod hanging;

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Instant;

use perdura_dirty::sys::SharedMemory;
use perdura_dirty::{LIVE_LAYOUT, Ledger, SetupError};
use perdura_media::file::{Direct, Engine, OpenMode};
use perdura_media::{FileDevice, RealClock, SimClock};
use perdura_region::holder::Times;
use perdura_region::holder::socket::{connect_to, listen_at, socket_pair};
use perdura_region::holder::wire::send;
use perdura_region::{BLOCK_BYTES, Config, LaneId, Region, RegionError};
use rustix::fs::Mode;

use super::*;
use crate::foreign::Foreign;
use crate::held::HOPELESS_MAX;
use crate::parent::{Inherited, inherit};
use crate::sys::{Peer, Process, own_user};

const GRACE: Duration = Duration::from_secs(60);
const TIMES: Times = Times { grace: GRACE, wait: Some(Duration::from_secs(600)) };
const RATE: u64 = 100 << 20;
const SECOND_NS: u64 = 1_000_000_000;

/// Memory, ledger and image of a region whose process is gone, with a dirty block.
fn left(dir: &Path) -> [OwnedFd; 3] {
    let config = Config { thread: false, ..Config::new(1 << 20, 256 << 10) };
    let path = dir.join("image");
    let device =
        FileDevice::open(&path, OpenMode::Create { capacity_bytes: 0 }, Engine::Auto, Direct::Auto)
            .unwrap();
    let region = Region::open(Arc::new(device), Arc::new(RealClock), config).unwrap();
    let mut credit = 0;
    loop {
        let mut lane = region.lock_with(LaneId(0), std::mem::take(&mut credit));
        let Err(need) = lane.write(BLOCK_BYTES, &[7; 4096]) else { break };
        drop(lane);
        credit = region.satisfy(need).unwrap();
    }
    let (memory, ledger) = region.fds();
    let image = std::fs::File::options().read(true).write(true).open(path).unwrap();
    [memory.try_clone_to_owned().unwrap(), ledger.try_clone_to_owned().unwrap(), image.into()]
}

fn borrowed(fds: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    fds.iter().map(AsFd::as_fd).collect()
}

fn holding(dir: &Path, role: Role, clock: Arc<dyn Clock>) -> Holding {
    let socket = dir.join("sock");
    Holding {
        role,
        listener: listen_at(&socket, Mode::RWXU).unwrap(),
        socket: Some(socket),
        warnings: Warnings::default(),
        told: None,
        flushes: Flushes::new(1, Arc::clone(&clock)).unwrap(),
        clock,
        held: Vec::new(),
        visitors: Visitors::default(),
        neighbours: Neighbours::default(),
        closings: Closings::default(),
        drill: None,
        given_up: None,
    }
}

/// Descriptors, as if a peer had sent them.
fn foreign(fds: impl Into<Vec<OwnedFd>>) -> Vec<Foreign> {
    Closings::default().take(fds.into(), own_user())
}

/// A holder of a region whose server is linked through the first value, and the clock.
fn holder(dir: &Path) -> (OwnedFd, Holding, Arc<SimClock>) {
    let clock = Arc::new(SimClock::new(0));
    let mut holding = holding(dir, Role::Holder, clock.clone());
    let (server, link) = socket_pair().unwrap();
    let state = State::Linked { link, ending: None };
    holding.held.push(
        Held::new(foreign(left(dir)), own_user(), (TIMES, RATE), Process::of(0), state).unwrap(),
    );
    (server, holding, clock)
}

/// A guard, and the end of its parent.
fn guard(dir: &Path, regions_max: usize) -> (OwnedFd, Holding) {
    let (parent, child) = socket_pair().unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    send(&parent, &Message::Ready, &[null.as_fd()]).unwrap();
    let Inherited { parent: to_parent, .. } =
        inherit(child, &Closings::default(), &RealClock).unwrap();
    let role = Role::Guard {
        regions_max,
        regions_of_one_max: regions_max,
        parent: to_parent,
        tenancy: None,
    };
    (parent, holding(dir, role, Arc::new(RealClock)))
}

/// Warns by a file that says `said`, whatever was said before.
fn say(holding: &mut Holding, dir: &Path, said: &str) {
    let power = dir.join("power");
    std::fs::write(&power, "steady").unwrap();
    holding.warnings = Warnings::default();
    holding.warnings.add(perdura_warning::StatusFile::open(&power).unwrap());
    std::fs::write(&power, said).unwrap();
    holding.heed_warnings();
}

fn until(holding: &mut Holding, is_so: impl Fn(&Holding) -> bool) {
    let began = Instant::now();
    while !is_so(holding) {
        assert!(began.elapsed() < Duration::from_secs(20), "it does not come");
        holding.turn().unwrap();
    }
}

/// Sends a message from a new connection. Returns the connection, with the answer unread.
fn ask(holding: &mut Holding, dir: &Path, message: &Message, fds: &[OwnedFd]) -> OwnedFd {
    let socket = connect_to(&dir.join("sock")).unwrap().unwrap();
    send(&socket, message, &borrowed(fds)).unwrap();
    holding.turn().unwrap();
    holding.turn().unwrap();
    socket
}

fn answer(socket: &OwnedFd) -> Message {
    receive(socket).unwrap().expect("an answer").0
}

fn asked(holding: &mut Holding, dir: &Path, message: &Message, fds: &[OwnedFd]) -> Message {
    let socket = ask(holding, dir, message, fds);
    answer(&socket)
}

fn name(dir: &Path) -> ImageFile {
    ImageFile::at(&dir.join("image")).unwrap().unwrap()
}

fn read_only(dir: &Path) -> OwnedFd {
    std::fs::File::open(dir.join("image")).unwrap().into()
}

fn set_image(held: &mut Held, image: impl Into<OwnedFd>) {
    held.image = Arc::new(foreign([image.into()]).remove(0));
}

#[test]
fn a_server_that_takes_over_brings_its_own_times() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut holder, _) = holder(dir.path());
    drop(server);
    until(&mut holder, |holder| holder.held[0].is_alone());
    (holder.held[0].hopeless, holder.held[0].failure) = (2, Some("before".into()));
    let times = Times { grace: Duration::from_millis(2_500), wait: None };
    let message = Message::TakeOver { times, image: name(dir.path()), layout: LIVE_LAYOUT };
    let link = ask(&mut holder, dir.path(), &message, &[]);
    let (said, fds) = receive(&link).unwrap().unwrap();
    assert!(matches!(said, Message::Held { used_bytes } if used_bytes >= 4096), "{said:?}");
    assert_eq!((fds.len(), holder.held[0].times), (3, times));
    assert_eq!((holder.held[0].hopeless, &holder.held[0].failure), (0, &None));
    assert_eq!(holder.held[0].server.pid, std::process::id() as i32);
    // Another one is told who has it.
    let said = asked(&mut holder, dir.path(), &message, &[]);
    assert_eq!(said, Message::Busy { pid: std::process::id() as i32 });
}

#[test]
fn a_wait_that_is_over_ends_with_a_flush_and_one_without_end_is_never_over() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut holder, clock) = holder(dir.path());
    // Nothing can be written by this descriptor.
    set_image(&mut holder.held[0], read_only(dir.path()));
    drop(server);
    until(&mut holder, |holder| holder.held[0].is_alone());
    clock.sleep_ns(599 * SECOND_NS);
    assert!(!holder.held[0].has_waited(clock.now_ns()));
    clock.sleep_ns(SECOND_NS);
    holder.look_after();
    assert!(matches!(holder.held[0].state, State::Flushing { .. }));
    until(&mut holder, |holder| holder.held[0].is_alone());
    assert!(!holder.held[0].has_waited(clock.now_ns()), "the wait begins anew");
    holder.held[0].times.wait = None;
    clock.sleep_ns(1 << 62);
    assert!(!holder.held[0].has_waited(clock.now_ns()));
}

#[test]
fn the_wait_begins_when_the_server_ends_and_not_when_it_says_something() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut holder, clock) = holder(dir.path());
    clock.sleep_ns(600 * SECOND_NS);
    send(&server, &Message::Ready, &[]).unwrap();
    holder.turn().unwrap();
    assert!(holder.held[0].link().is_some(), "it is there");
    drop(server);
    holder.turn().unwrap();
    assert!(holder.held[0].is_alone());
    assert!(!holder.held[0].has_waited(clock.now_ns()), "the server was there until now");
    clock.sleep_ns(600 * SECOND_NS);
    assert!(holder.held[0].has_waited(clock.now_ns()));
}

#[test]
fn at_a_goodbye_the_socket_is_gone_before_the_link_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut holder, _) = holder(dir.path());
    send(&server, &Message::Goodbye, &[]).unwrap();
    holder.turn().unwrap();
    assert!(holder.is_over() && !dir.path().join("sock").exists());
    assert!(receive(&server).unwrap().is_none(), "the link is open");
}

/// A flush beside a server that lives would write what the server still changes.
#[test]
fn a_linked_server_is_waited_for_at_the_end_and_one_that_is_gone_is_flushed_for() {
    for says_goodbye in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (server, mut holder, _) = holder(dir.path());
        say(&mut holder, dir.path(), "ending");
        for _ in 0..3 {
            send(&server, &Message::Ready, &[]).unwrap();
            holder.turn().unwrap();
            assert!(holder.held[0].is_ending(), "it was not waited for");
        }
        if says_goodbye {
            send(&server, &Message::Goodbye, &[]).unwrap();
        }
        drop(server);
        until(&mut holder, Holding::is_over);
        // A goodbye means that the server has flushed.
        let device = FileDevice::open(
            &dir.path().join("image"),
            OpenMode::Existing,
            Engine::Auto,
            Direct::Auto,
        );
        let config = Config { thread: false, ..Config::new(1 << 20, 256 << 10) };
        let clock = Arc::new(RealClock);
        let region = Region::open(Arc::new(device.unwrap()), clock, config).unwrap();
        let found = region.lock(LaneId(0)).bytes(BLOCK_BYTES, 4096).to_vec();
        assert_eq!(found == [7; 4096], !says_goodbye);
    }
}

#[test]
fn under_a_warning_a_flush_that_fails_is_tried_again_until_it_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut holder, clock) = holder(dir.path());
    set_image(&mut holder.held[0], read_only(dir.path()));
    clock.sleep_ns(600 * SECOND_NS);
    say(&mut holder, dir.path(), "ending");
    drop(server);
    until(&mut holder, |holder| holder.held[0].is_alone());
    assert!(!holder.held[0].has_waited(clock.now_ns()), "the server was there until now");
    assert!(!holder.is_over(), "it lets go of what is not saved");
    // Once a second, without another warning.
    let again = |holder: &mut Holding| {
        holder.look_after();
        !holder.held[0].is_alone()
    };
    assert!(!again(&mut holder));
    clock.sleep_ns(SECOND_NS);
    assert!(again(&mut holder));
    until(&mut holder, |holder| holder.held[0].is_alone());
    let image = std::fs::File::options().read(true).write(true).open(dir.path().join("image"));
    set_image(&mut holder.held[0], image.unwrap());
    clock.sleep_ns(SECOND_NS);
    until(&mut holder, Holding::is_over);
}

#[test]
fn memory_whose_ledger_is_damaged_is_held_until_the_end_and_no_longer() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut holder, clock) = holder(dir.path());
    let ledger = ledger(&holder.held[0]);
    ledger.region_bytes().store(ledger.geometry().reserved_bytes + BLOCK_BYTES, Release);
    say(&mut holder, dir.path(), "low");
    drop(server);
    let attempt = |holder: &mut Holding| {
        let is_alone = |held: &Held| held.is_alone();
        until(holder, |holder| holder.held.first().is_none_or(is_alone));
        clock.sleep_ns(SECOND_NS);
        holder.look_after();
    };
    for _ in 0..5 {
        attempt(&mut holder);
        assert_eq!(holder.held[0].hopeless, 0, "power may come back");
    }
    until(&mut holder, |holder| holder.held[0].is_alone());
    assert!(holder.held[0].failure.as_ref().unwrap().contains("size of the region"));
    say(&mut holder, dir.path(), "ending");
    for attempts in 0..HOPELESS_MAX {
        assert_eq!(holder.held[0].hopeless, attempts);
        attempt(&mut holder);
    }
    until(&mut holder, Holding::is_over);
    let given_up = holder.run().unwrap_err().to_string();
    assert!(given_up.contains("are lost") && given_up.contains("image"), "{given_up}");
}

#[test]
fn a_panic_is_hopeless_and_a_device_that_fails_is_not() {
    let source = |source| HoldError::Flush { used_bytes: 1, source };
    let damaged = SetupError::UnknownState { what: "state", index: 0, value: 9 };
    let damaged = RegionError::DamagedLedger { source: Arc::new(damaged) };
    let failed = RegionError::Latched { cause: "no space".into() };
    assert!(HoldError::FlushPanicked { used_bytes: 1 }.is_hopeless());
    assert!(source(damaged).is_hopeless() && !source(failed).is_hopeless());
    assert!(!HoldError::StillRuns { pid: 1, used_bytes: 1 }.is_hopeless());
}

#[test]
fn a_short_queue_is_asked_for_while_a_neighbour_commits_and_no_warning_counts() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_server, mut holder, clock) = holder(dir.path());
    let (_other, link) = socket_pair().unwrap();
    let state = State::Linked { link, ending: None };
    let fds = foreign(left(other.path()));
    let held = Held::new(fds, own_user(), (TIMES, RATE), Process::of(0), state).unwrap();
    holder.held.push(held);
    let commit = |holder: &Holding| ledger(&holder.held[1]).group_commits().fetch_add(1, Release);
    let asked = |holder: &mut Holding| {
        holder.look_after();
        [0, 1].map(|number| ledger(&holder.held[number]).short_queue().load(Acquire))
    };
    assert_eq!(asked(&mut holder), [0, 0]);
    commit(&holder);
    assert_eq!(asked(&mut holder), [1, 0]);
    say(&mut holder, dir.path(), "on-battery");
    assert_eq!(asked(&mut holder), [0, 0], "saving counts");
    say(&mut holder, dir.path(), "steady");
    assert_eq!(asked(&mut holder), [1, 0]);
    clock.sleep_ns(3 * SECOND_NS);
    assert_eq!(asked(&mut holder), [0, 0], "it commits no more");
}

#[test]
fn nothing_is_flushed_beside_a_server_that_has_closed_its_link_and_runs_until_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut holder, clock) = holder(dir.path());
    let mut process = sleeper();
    holder.held[0].server = Process::of(process.id() as i32);
    say(&mut holder, dir.path(), "low");
    drop(server);
    for again in [false, true] {
        if again {
            clock.sleep_ns(SECOND_NS);
        }
        until(&mut holder, |holder| matches!(holder.held[0].state, State::Flushing { .. }));
        until(&mut holder, |holder| holder.held[0].is_alone());
    }
    // Nobody else has it, and nobody has it flushed.
    let image = name(dir.path());
    let message = Message::TakeOver { times: TIMES, image, layout: LIVE_LAYOUT };
    let said = asked(&mut holder, dir.path(), &message, &[]);
    assert_eq!(said, Message::Busy { pid: process.id() as i32 });
    let said = asked(&mut holder, dir.path(), &Message::Flush { image }, &[]);
    assert_eq!(said, Message::Busy { pid: process.id() as i32 });
    assert!(process.try_wait().unwrap().is_none(), "it was ended before the end");
    say(&mut holder, dir.path(), "ending");
    until(&mut holder, Holding::is_over);
    assert!(!process.wait().unwrap().success());
}

#[test]
fn a_server_that_says_what_nobody_knows_is_there_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut holder, _) = holder(dir.path());
    say(&mut holder, dir.path(), "low");
    let null = std::fs::File::open("/dev/null").unwrap();
    for fds in [&[][..], &[null.as_fd(); 4][..]] {
        send(&server, &Message::Unknown { text: "\u{fffd} rubbish".into() }, fds).unwrap();
        holder.turn().unwrap();
        assert!(holder.held[0].is_linked());
    }
}

#[test]
fn a_holder_whose_server_ends_while_the_power_is_low_flushes_at_once() {
    for (said, is_saved) in [("on-battery 5m", false), ("low", true)] {
        let dir = tempfile::tempdir().unwrap();
        let (server, mut holder, _) = holder(dir.path());
        say(&mut holder, dir.path(), said);
        drop(server);
        holder.turn().unwrap();
        assert!(holder.held[0].link().is_none());
        assert_eq!(matches!(holder.held[0].state, State::Flushing { .. }), is_saved, "{said}");
        if is_saved {
            until(&mut holder, Holding::is_over);
        }
    }
}

#[test]
fn memory_whose_image_was_removed_is_let_go_and_a_visitor_is_sent_away_with_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut holder, _) = holder(dir.path());
    drop(server);
    until(&mut holder, |holder| holder.held[0].is_alone());
    let message = Message::TakeOver { times: TIMES, image: name(dir.path()), layout: LIVE_LAYOUT };
    std::fs::remove_file(dir.path().join("image")).unwrap();
    assert_eq!(asked(&mut holder, dir.path(), &message, &[]), Message::NotHeld);
    assert!(holder.is_over() && dir.path().join("sock").exists());
}

#[test]
fn a_visitor_waits_for_its_flush_and_others_are_told_how_long_that_may_take() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut holder, _) = holder(dir.path());
    drop(server);
    until(&mut holder, |holder| holder.held[0].is_alone());
    let image = name(dir.path());
    // As if a flush were under way.
    holder.held[0].state = State::Flushing { asked_by: None };
    for message in
        [Message::Flush { image }, Message::TakeOver { times: TIMES, image, layout: LIVE_LAYOUT }]
    {
        let said = asked(&mut holder, dir.path(), &message, &[]);
        assert!(matches!(said, Message::Flushing { grace_ms: 60_000, used_bytes: 4096.. }));
    }
    holder.held[0].state = State::Alone { since_ns: 0 };
    let asker = ask(&mut holder, dir.path(), &Message::Flush { image }, &[]);
    until(&mut holder, Holding::is_over);
    assert!(matches!(answer(&asker), Message::Flushed { dirty_bytes: 4096.., .. }));
}

#[test]
fn a_visitor_that_says_nothing_or_rubbish_delays_nobody_and_is_sent_away() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, mut holder, clock) = holder(dir.path());
    let connect = || connect_to(&dir.path().join("sock")).unwrap().unwrap();
    let silent: Vec<_> = (0..20).map(|_| connect()).collect();
    for _ in 0..20 {
        holder.turn().unwrap();
    }
    assert_eq!(holder.visitors.sockets().count(), 16, "more than one user may have");
    clock.sleep_ns(SECOND_NS);
    holder.look_after();
    assert!(holder.visitors.are_none());
    assert!(silent.iter().all(|socket| receive(socket).unwrap().is_none()));
    let rubbish = connect();
    rustix::io::write(&rubbish, b"\xff rubbish").unwrap();
    holder.turn().unwrap();
    holder.turn().unwrap();
    assert!(matches!(answer(&rubbish), Message::Failed { why } if why.contains("rubbish")));
    assert!(receive(&rubbish).unwrap().is_none());
    let said = asked(&mut holder, dir.path(), &Message::Goodbye, &[]);
    assert!(matches!(said, Message::Failed { .. }), "{said:?}");
    let said = asked(
        &mut holder,
        dir.path(),
        &Message::Hold { times: TIMES, rate_bytes_per_s: RATE },
        &[],
    );
    assert!(matches!(said, Message::Failed { .. }), "a holder has taken more memory: {said:?}");
    assert_eq!(holder.held.len(), 1);
}

fn sleeper() -> Child {
    Command::new("sleep").arg("1000").spawn().unwrap()
}

fn ledger(held: &Held) -> Ledger {
    let memory = SharedMemory::from_fd(held.fds()[1].try_clone_to_owned().unwrap()).unwrap();
    Ledger::attach(memory).unwrap()
}

fn set_syncing(held: &Held, syncing: u64) {
    ledger(held).syncing().store(syncing, Release);
}

/// A clock that goes on by two seconds at each look, as long as a process lives.
struct Hasty(AtomicU64, std::sync::Mutex<Child>);

impl Hasty {
    fn has_stopped(&self) -> bool {
        self.1.lock().unwrap().try_wait().unwrap().is_some()
    }
}

impl Clock for Hasty {
    fn now_ns(&self) -> u64 {
        let step_s = if self.has_stopped() { 0 } else { 2 };
        self.0.fetch_add(step_s, Relaxed) * SECOND_NS
    }
    fn unix_ms(&self) -> u64 {
        0
    }
    fn thread_cpu_ns(&self) -> u64 {
        0
    }
    fn sleep_ns(&self, _: u64) {}
}

#[test]
fn a_server_that_hangs_is_ended_within_its_grace_and_one_that_waits_for_the_device_behind_it() {
    for syncing in [1, 0] {
        let dir = tempfile::tempdir().unwrap();
        let (_server, mut holder, _) = holder(dir.path());
        let process = sleeper();
        holder.held[0].server = Process::of(process.id() as i32);
        holder.held[0].times.grace = Duration::from_secs(40);
        set_syncing(&holder.held[0], syncing);
        say(&mut holder, dir.path(), "ending");
        let clock = Hasty(AtomicU64::new(0), process.into());
        holder.held[0].state =
            match std::mem::replace(&mut holder.held[0].state, State::Alone { since_ns: 0 }) {
                State::Linked { link, .. } => State::Linked { link, ending: None },
                other => other,
            };
        holder.held[0].expect_goodbye(&clock);
        while !clock.has_stopped() {
            holder.held[0].lose_patience(Duration::MAX, &clock);
            // As the loop does between two looks: a killed process needs a moment to end.
            RealClock.sleep_ns(WATCH_EVERY.as_nanos() as u64);
        }
        let after_s = clock.0.load(Relaxed);
        assert_eq!(after_s > 40, syncing == 1, "syncing {syncing}: {after_s} s");
        assert!(after_s > 4, "a tenth of the grace was not waited for: {after_s} s");
    }
}
