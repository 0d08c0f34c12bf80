//! The answers of those who hold memory to servers, visitors and warnings.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Instant;

use perdura_dirty::Ledger;
use perdura_dirty::sys::SharedMemory;
use perdura_media::file::{Direct, Engine, OpenMode};
use perdura_media::{FileDevice, RealClock, SimClock};
use perdura_region::holder::Times;
use perdura_region::holder::socket::{connect_to, listen_at, socket_pair};
use perdura_region::holder::wire::send;
use perdura_region::{BLOCK_BYTES, Config, LaneId, Region};
use perdura_warning::Response;
use rustix::fs::Mode;

use super::*;
use crate::parent::{Inherited, inherit};
use crate::sys::{Peer, Process, own_user};
use crate::tenancy::{Battery, Tenant};

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
        drill: None,
    }
}

/// A holder of a region whose server is linked through the first value, and the clock.
fn holder(dir: &Path) -> (OwnedFd, Holding, Arc<SimClock>) {
    let clock = Arc::new(SimClock::new(0));
    let mut holding = holding(dir, Role::Holder, clock.clone());
    let (server, link) = socket_pair().unwrap();
    let state = State::Linked { link, ending: None };
    holding
        .held
        .push(Held::new(left(dir), own_user(), (TIMES, RATE), Process::of(0), state).unwrap());
    (server, holding, clock)
}

/// A guard, and the end of its parent.
fn guard(dir: &Path, regions_max: usize) -> (OwnedFd, Holding) {
    let (parent, child) = socket_pair().unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    send(&parent, &Message::Ready, &[null.as_fd()]).unwrap();
    let Inherited { parent: to_parent, .. } = inherit(child, &RealClock).unwrap();
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

#[test]
fn a_server_that_takes_over_brings_its_own_times() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut holder, _) = holder(dir.path());
    drop(server);
    until(&mut holder, |holder| holder.held[0].is_alone());
    let times = Times { grace: Duration::from_millis(2_500), wait: None };
    let message = Message::TakeOver { times, image: name(dir.path()) };
    let link = ask(&mut holder, dir.path(), &message, &[]);
    let (said, fds) = receive(&link).unwrap().unwrap();
    assert!(matches!(said, Message::Held { used_bytes } if used_bytes >= 4096), "{said:?}");
    assert_eq!((fds.len(), holder.held[0].times), (3, times));
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
    holder.held[0].image = read_only(dir.path());
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
    holder.held[0].image = read_only(dir.path());
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
    holder.held[0].image = image.unwrap().into();
    clock.sleep_ns(SECOND_NS);
    until(&mut holder, Holding::is_over);
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
    let message = Message::TakeOver { times: TIMES, image: name(dir.path()) };
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
    for message in [Message::Flush { image }, Message::TakeOver { times: TIMES, image }] {
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

fn set_syncing(held: &Held, syncing: u64) {
    let ledger = SharedMemory::from_fd(held.fds()[1].try_clone_to_owned().unwrap()).unwrap();
    Ledger::attach(ledger).unwrap().syncing().store(syncing, Release);
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
            holder.held[0].lose_patience(&clock);
            // As the loop does between two looks: a killed process needs a moment to end.
            RealClock.sleep_ns(WATCH_EVERY.as_nanos() as u64);
        }
        let after_s = clock.0.load(Relaxed);
        assert_eq!(after_s > 40, syncing == 1, "syncing {syncing}: {after_s} s");
        assert!(after_s > 4, "a tenth of the grace was not waited for: {after_s} s");
    }
}

/// What the parent hears next, but for signs of life.
fn heard(parent: &OwnedFd) -> (Message, Vec<OwnedFd>) {
    loop {
        match receive(parent).unwrap().unwrap() {
            (Message::Ready, _) => {}
            other => return other,
        }
    }
}

#[test]
fn a_guard_holds_for_many_tells_its_parent_first_and_passes_warnings_on() {
    let (dir, one, two) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (parent, mut guard) = guard(dir.path(), 8);
    let mut links = Vec::new();
    for place in [one.path(), two.path()] {
        let fds = left(place);
        let link = ask(
            &mut guard,
            dir.path(),
            &Message::Hold { times: TIMES, rate_bytes_per_s: RATE },
            &fds,
        );
        let (kept, fds) = heard(&parent);
        assert!(matches!(kept, Message::Keep { .. }) && fds.len() == 4, "{kept:?}");
        assert_eq!(answer(&link), Message::Ready);
        // No battery is shared.
        assert_eq!(answer(&link), Message::Share { serial: 0, share_us: u64::MAX });
        links.push(link);
    }
    say(&mut guard, dir.path(), "on-battery 5m");
    for link in &links {
        let Message::Warning { reading } = answer(link) else { panic!("no warning") };
        assert!(reading.starts_with("fresh on-battery 300000ms "), "{reading}");
    }
    // One server dies, the other one says goodbye.
    drop(links.remove(0));
    let name_of_two = name(two.path());
    until(&mut guard, |guard| guard.held[0].is_alone());
    let (kept, fds) = heard(&parent);
    assert!(matches!(kept, Message::Keep { .. }) && fds.len() == 3, "{kept:?}");
    send(&links[0], &Message::Goodbye, &[]).unwrap();
    until(&mut guard, |guard| guard.held.len() == 1);
    assert!(!guard.is_over(), "a guard goes on");
    let (forgot, _) = heard(&parent);
    assert_eq!(forgot, Message::Forget { image: name_of_two });
    say(&mut guard, dir.path(), "low");
    until(&mut guard, |guard| guard.held.is_empty());
    assert!(!guard.is_over(), "power may come back");
    say(&mut guard, dir.path(), "ending");
    assert!(guard.is_over());
    let fds = left(&dir.path().join("."));
    let said = asked(
        &mut guard,
        dir.path(),
        &Message::Hold { times: TIMES, rate_bytes_per_s: RATE },
        &fds,
    );
    assert!(matches!(said, Message::Failed { why } if why.contains("the power is ending")));
}

#[test]
fn a_guard_takes_no_foreign_descriptors_and_no_more_regions_than_it_may() {
    let (dir, one, two) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_parent, mut guard) = guard(dir.path(), 1);
    let good = left(one.path());
    let copy = |fd: &OwnedFd| fd.try_clone().unwrap();
    let [memory, ledger, image] = [&good[0], &good[1], &good[2]];
    let pipe = rustix::pipe::pipe().unwrap().0;
    let bad = [
        (vec![], "0 descriptors"),
        (vec![copy(memory), copy(ledger)], "2 descriptors"),
        (vec![copy(image), copy(ledger), copy(image)], "as many as its ledger says"),
        (vec![copy(memory), copy(image), copy(image)], "another version"),
        (vec![copy(memory), copy(memory), copy(image)], ""),
        (vec![copy(ledger), copy(ledger), copy(image)], "as many as its ledger says"),
        (vec![copy(memory), copy(ledger), copy(&pipe)], "neither a file nor a block device"),
        (vec![copy(memory), copy(ledger), read_only(one.path())], "not open for reading and"),
    ];
    let hold = Message::Hold { times: TIMES, rate_bytes_per_s: RATE };
    for (fds, expected) in bad {
        let said = asked(&mut guard, dir.path(), &hold, &fds);
        assert!(matches!(&said, Message::Failed { why } if why.contains(expected)), "{said:?}");
        assert!(guard.held.is_empty());
    }
    let link = ask(&mut guard, dir.path(), &hold, &good);
    assert_eq!(answer(&link), Message::Ready);
    let said = asked(&mut guard, dir.path(), &hold, &good);
    assert!(matches!(&said, Message::Failed { why } if why.contains("is held")), "{said:?}");
    let said = asked(&mut guard, dir.path(), &hold, &left(two.path()));
    assert!(matches!(&said, Message::Failed { why } if why.contains("at most 1")), "{said:?}");
    // Its own server comes back after it has lost the link.
    drop(link);
    until(&mut guard, |guard| guard.held[0].is_alone());
    let again = ask(&mut guard, dir.path(), &hold, &good);
    assert_eq!(answer(&again), Message::Ready);
    // A peer with another user's memory.
    drop(again);
    until(&mut guard, |guard| guard.held[0].is_alone());
    guard.held[0].owner = 4242;
    let image = name(one.path());
    let other = Peer { user: 4243, process: Process::of(1) };
    let refused = guard.check_use(image, other);
    assert!(matches!(refused, Err(Message::Failed { why }) if why.contains("4242")));
    assert_eq!(guard.check_use(image, Peer { user: 4242, process: Process::of(1) }), Ok(()));
    assert_eq!(guard.check_use(image, Peer { user: 0, process: Process::of(1) }), Ok(()));
}

#[test]
fn the_next_guard_has_the_memory_and_the_links_of_the_one_before() {
    let (dir, one, two) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (server, link) = socket_pair().unwrap();
    let (parent, child) = socket_pair().unwrap();
    let keep = Message::Keep {
        owner: 5,
        times: TIMES,
        pid: 77,
        started: 78,
        rate_bytes_per_s: RATE,
        granted_us: 0,
    };
    let fds = left(one.path());
    let linked: Vec<_> = borrowed(&fds).into_iter().chain([link.as_fd()]).collect();
    send(&parent, &keep, &linked).unwrap();
    let fds = left(two.path());
    send(&parent, &keep, &borrowed(&fds)).unwrap();
    // One that cannot be held again does not keep the others from it.
    send(&parent, &keep, &borrowed(&fds[..2])).unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    send(&parent, &Message::Ready, &[null.as_fd()]).unwrap();
    let Inherited { parent: to_parent, held, .. } = inherit(child, &RealClock).unwrap();
    drop(link);
    let role =
        Role::Guard { regions_max: 8, regions_of_one_max: 8, parent: to_parent, tenancy: None };
    let mut guard = holding(dir.path(), role, Arc::new(RealClock));
    guard.resume(held);
    let states: Vec<_> = guard.held.iter().map(|held| (held.owner, held.is_alone())).collect();
    assert_eq!(states, [(5, false), (5, true)]);
    assert_eq!(answer(&server), Message::Ready);
    drop(server);
    until(&mut guard, |guard| guard.held[0].is_alone());
    // A guard without a parent goes on.
    drop(parent);
    guard.turn().unwrap();
    say(&mut guard, dir.path(), "low");
    until(&mut guard, |guard| guard.held.is_empty());
}

/// A guard whose servers share a battery of 1 s.
fn sharing(dir: &Path, tenants: Vec<Tenant>) -> (OwnedFd, Holding) {
    let (parent, mut guard) = guard(dir, 8);
    let grace = Duration::from_millis(1_100);
    let battery = Battery { grace, file: None, response: Response::new(grace, None), tenants };
    if let Role::Guard { tenancy, .. } = &mut guard.role {
        *tenancy = Some(Box::new(Tenancy::new(battery, &*guard.clock)));
    }
    (parent, guard)
}

/// The next order on a link.
fn order(guard: &mut Holding, link: &OwnedFd) -> (u64, u64) {
    loop {
        guard.turn().unwrap();
        let mut ready = [PollFd::new(link, PollFlags::IN)];
        poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
        if !ready[0].revents().is_empty()
            && let Message::Share { serial, share_us } = answer(link)
        {
            return (serial, share_us);
        }
    }
}

/// The rate at which the smallest budget of a region takes a tenth of a second.
fn slow_rate(fds: &[OwnedFd; 3]) -> u64 {
    let [memory, ledger, _] = fds.each_ref().map(|fd| fd.try_clone().unwrap());
    let region = perdura_region::Attachment::new(memory, ledger).unwrap();
    (region.flush_time(1, region.budget_bytes()).as_secs_f64() * 10.0) as u64
}

#[test]
fn time_is_given_on_when_the_newest_order_is_kept_and_the_parent_knows_first() {
    let (dir, one, two) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (parent, mut guard) = sharing(dir.path(), Vec::new());
    let fds = left(one.path());
    let hold = Message::Hold { times: TIMES, rate_bytes_per_s: slow_rate(&fds) };
    let first = ask(&mut guard, dir.path(), &hold, &fds);
    let (serial, all_us) = order(&mut guard, &first);
    assert!((900_000..1_000_000).contains(&all_us), "{all_us}");
    let granted = std::iter::repeat_with(|| heard(&parent).0).find_map(|message| match message {
        Message::Keep { granted_us, .. } if granted_us >= all_us => Some(granted_us),
        _ => None,
    });
    assert_eq!(granted, Some(all_us), "the parent knows before the server does");
    send(&first, &Message::Kept { serial }, &[]).unwrap();

    // What a second one needs to begin with is lent to the first.
    let fds = left(two.path());
    assert!(matches!(asked(&mut guard, dir.path(), &hold, &fds), Message::Later { .. }));
    assert_eq!(guard.held.len(), 1);
    let (serial, less_us) = order(&mut guard, &first);
    assert!(less_us <= all_us - 89_000, "it is taken back: {less_us} of {all_us}");
    send(&first, &Message::Kept { serial }, &[]).unwrap();
    let third = ask(&mut guard, dir.path(), &hold, &fds);
    assert_eq!(answer(&third), Message::Ready);
    send(&third, &Message::Goodbye, &[]).unwrap();
    until(&mut guard, |guard| guard.held.len() == 1);
    while guard.share_us(name(one.path())) < 600_000 {
        guard.turn().unwrap();
    }
    let small = Message::Hold { times: TIMES, rate_bytes_per_s: u64::MAX >> 20 };
    let second = ask(&mut guard, dir.path(), &small, &fds);
    let (serial, share_us) = order(&mut guard, &first);
    assert!(share_us < 600_000, "half of it: {share_us}");
    let (second_serial, second_us) = order(&mut guard, &second);
    assert!(second_us < 20_000, "nothing is free yet: {second_us}");
    for (link, serial) in [(&second, second_serial), (&first, serial - 1)] {
        send(link, &Message::Kept { serial }, &[]).unwrap();
    }
    for _ in 0..5 {
        guard.turn().unwrap();
    }
    assert!(guard.share_us(name(two.path())) < 20_000, "an old order is kept");
    send(&first, &Message::Kept { serial }, &[]).unwrap();
    let (_, second_us) = order(&mut guard, &second);
    assert!(second_us > 300_000, "{second_us}");

    // One that dies keeps what its dirty data need.
    drop(first);
    until(&mut guard, |guard| guard.held[0].is_alone());
    assert!(guard.share_us(name(one.path())) <= 100_100);
    let (_, second_us) = order(&mut guard, &second);
    assert!(second_us > 800_000, "{second_us}");
}

#[test]
fn one_that_is_not_trusted_is_charged_its_whole_region_or_refused() {
    let (dir, one, two) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let distrusted = Tenant { is_trusted: false, ..Tenant::default() };
    let (_parent, mut guard) = sharing(dir.path(), vec![distrusted]);
    let fds = left(one.path());
    // 1 MiB at 4 MiB/s.
    let hold = |rate| Message::Hold { times: TIMES, rate_bytes_per_s: rate };
    let link = ask(&mut guard, dir.path(), &hold(4 << 20), &fds);
    let (_, share_us) = order(&mut guard, &link);
    assert!(share_us >= 250_000 && share_us == guard.share_us(name(one.path())), "{share_us}");
    let refused = asked(&mut guard, dir.path(), &hold(1 << 20), &left(two.path()));
    let Message::Failed { why } = refused else { panic!("{refused:?}") };
    assert!(why.contains("entitled"), "{why}");
}

#[test]
fn one_that_takes_more_than_its_share_is_reckoned_with() {
    let (dir, one) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let small = Tenant { limit: Some(Duration::from_millis(20)), ..Tenant::default() };
    let (_parent, mut guard) = sharing(dir.path(), vec![small]);
    let fds = left(one.path());
    let rate = slow_rate(&fds) * 10;
    let ledger = {
        let memory = SharedMemory::from_fd(fds[1].try_clone().unwrap()).unwrap();
        Ledger::attach(memory).unwrap()
    };
    let hold = Message::Hold { times: TIMES, rate_bytes_per_s: rate };
    let link = ask(&mut guard, dir.path(), &hold, &fds);
    let (serial, share_us) = order(&mut guard, &link);
    assert!(share_us <= 20_000, "{share_us}");
    send(&link, &Message::Kept { serial }, &[]).unwrap();
    ledger.budget_limit().store(ledger.budget_limit().load(Relaxed) * 10, Release);
    let one = name(one.path());
    until(&mut guard, |guard| guard.share_us(one) > 90_000);
}

#[test]
fn a_rate_claimed_later_takes_nothing_that_others_are_entitled_to() {
    let (dir, one, two) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let half = Tenant { reservation: Duration::from_millis(400), ..Tenant::default() };
    let (_parent, mut guard) = sharing(dir.path(), vec![half]);
    let hold = Message::Hold { times: TIMES, rate_bytes_per_s: u64::MAX >> 20 };
    let first = ask(&mut guard, dir.path(), &hold, &left(one.path()));
    let (serial, _) = order(&mut guard, &first);
    send(&first, &Message::Kept { serial }, &[]).unwrap();
    guard.turn().unwrap();
    let second = ask(&mut guard, dir.path(), &hold, &left(two.path()));
    assert_eq!(answer(&second), Message::Ready);
    for rate_bytes_per_s in [1, 0, u64::MAX] {
        send(&second, &Message::Claim { rate_bytes_per_s }, &[]).unwrap();
        guard.turn().unwrap();
        for _ in 0..5 {
            guard.turn().unwrap();
        }
        let held: Vec<_> = guard.held.iter().map(|held| held.rate_bytes_per_s).collect();
        let claimed = if rate_bytes_per_s > 1 { rate_bytes_per_s } else { u64::MAX >> 20 };
        assert_eq!(held, [u64::MAX >> 20, claimed]);
    }
}
