//! The answers of a holder to servers, visitors and warnings.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::mpsc::channel;

use perdura_media::file::{Direct, Engine, OpenMode};
use perdura_media::{FileDevice, RealClock};

use super::*;
use crate::holder::{LinkError, TakeOver, take_over};
use crate::{Config, Region};

const TIMES: Times = Times { grace: Duration::from_secs(60), wait: Some(Duration::from_secs(600)) };

fn holder(dir: &Path) -> Holder {
    let config = Config { thread: false, ..Config::new(1 << 20, 256 << 10) };
    let path = dir.join("image");
    let device =
        FileDevice::open(&path, OpenMode::Create { capacity_bytes: 0 }, Engine::Auto, Direct::Auto)
            .unwrap();
    let region = Region::open(Arc::new(device), Arc::new(RealClock), config).unwrap();
    let copies = || {
        let (memory, ledger) = region.fds();
        (memory.try_clone_to_owned().unwrap(), ledger.try_clone_to_owned().unwrap())
    };
    let ((memory, ledger), attached) = (copies(), copies());
    Holder {
        options: HolderOptions { dir: dir.to_owned(), threads: 1 },
        memory,
        ledger,
        image: std::fs::File::options().read(true).write(true).open(path).unwrap().into(),
        attachment: Attachment::new(attached.0, attached.1).unwrap(),
        link: None,
        server_pid: 0,
        times: TIMES,
        alone_since_ns: 0,
        listener: listen_in(dir).unwrap(),
        warnings: Warnings::by_signals().unwrap(),
    }
}

#[test]
fn a_server_that_takes_over_brings_its_own_times() {
    let dir = tempfile::tempdir().unwrap();
    let mut holder = holder(dir.path());
    let brought = Times { grace: Duration::from_millis(2_500), wait: None };
    std::thread::scope(|scope| {
        let taken = scope.spawn(|| take_over(dir.path(), brought).unwrap());
        assert!(!holder.meet_visitor(&RealClock).unwrap());
        assert!(matches!(taken.join().unwrap(), TakeOver::Held(_)));
    });
    assert_eq!(holder.times, brought);
}

#[test]
fn a_wait_that_is_over_begins_anew_and_one_without_end_is_never_over() {
    let dir = tempfile::tempdir().unwrap();
    let mut holder = holder(dir.path());
    let clock = perdura_media::SimClock::new(0);
    clock.sleep_ns(599_000_000_000);
    assert!(!holder.has_waited(&clock));
    clock.sleep_ns(1_000_000_000);
    assert!(holder.has_waited(&clock));
    assert!(!holder.has_waited(&clock));
    holder.times.wait = None;
    clock.sleep_ns(1 << 62);
    assert!(!holder.has_waited(&clock));
}

#[test]
fn the_wait_begins_when_the_server_ends_under_a_warning_and_the_flush_fails() {
    let dir = tempfile::tempdir().unwrap();
    let mut holder = holder(dir.path());
    // Nothing can be written by this descriptor.
    holder.image = std::fs::File::open(dir.path().join("image")).unwrap().into();
    let (server, link) = socket::socket_pair().unwrap();
    holder.link = Some(link);
    drop(server);
    let clock = perdura_media::SimClock::new(0);
    clock.sleep_ns(600_000_000_000);
    assert!(!holder.heed_warning(&clock).unwrap(), "the flush must fail");
    assert!(!holder.has_waited(&clock), "the server was there until now");
}

#[test]
fn the_wait_begins_when_the_server_ends_and_not_when_it_says_something() {
    let dir = tempfile::tempdir().unwrap();
    let mut holder = holder(dir.path());
    let (server, link) = socket::socket_pair().unwrap();
    holder.link = Some(link);
    let clock = perdura_media::SimClock::new(0);
    clock.sleep_ns(600_000_000_000);
    send(&server, &Message::Ready, &[]).unwrap();
    assert!(!holder.hear_server(&clock), "it said no goodbye");
    assert!(holder.link.is_some() && holder.alone_since_ns == 0, "it is there");
    send(&server, &Message::Goodbye, &[]).unwrap();
    assert!(holder.hear_server(&clock));
    drop(server);
    assert!(!holder.hear_server(&clock));
    assert!(holder.link.is_none());
    assert!(!holder.has_waited(&clock), "the server was there until now");
    clock.sleep_ns(600_000_000_000);
    assert!(holder.has_waited(&clock));
}

/// A flush beside a server that lives would write what the server still changes.
#[test]
fn a_server_that_says_anything_but_goodbye_under_a_warning_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let mut holder = holder(dir.path());
    // Nothing can be written by this descriptor, so a flush would fail.
    holder.image = std::fs::File::open(dir.path().join("image")).unwrap().into();
    let (server, link) = socket::socket_pair().unwrap();
    holder.link = Some(link);
    for message in [Message::Ready, Message::Goodbye] {
        send(&server, &message, &[]).unwrap();
    }
    assert!(holder.heed_warning(&RealClock).unwrap(), "it has flushed beside the server");
}

#[test]
fn who_visits_a_holder_whose_image_was_removed_is_sent_away_with_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut holder = holder(dir.path());
    std::fs::remove_file(dir.path().join("image")).unwrap();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| take_over(dir.path(), TIMES));
        assert!(holder.meet_visitor(&RealClock).unwrap(), "it still holds");
        drop(holder);
        assert!(matches!(asked.join().unwrap(), Ok(TakeOver::Unanswered)));
    });
}

#[test]
fn a_server_that_waits_for_the_device_is_not_ended_and_one_that_hangs_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut holder = holder(dir.path());
    for syncing in [1, 0] {
        let (server, link) = socket::socket_pair().unwrap();
        let mut process = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        holder.server_pid = process.id() as i32;
        holder.link = Some(link);
        holder.times.grace = Duration::from_secs(2);
        holder.attachment.ledger.syncing().store(syncing, std::sync::atomic::Ordering::Release);
        std::thread::scope(|scope| {
            // A failed assertion drops this end, and the holder goes on.
            let server = server;
            let flushed = scope.spawn(|| holder.heed_warning(&RealClock).unwrap());
            if syncing == 0 {
                // The holder ends the server.
                process.wait().unwrap();
            } else {
                // Three times as long as the holder lets a server hang.
                RealClock.sleep_ns(600_000_000);
                assert_eq!(process.try_wait().unwrap(), None);
                process.kill().unwrap();
                process.wait().unwrap();
            }
            send(&server, &Message::Goodbye, &[]).unwrap();
            assert!(flushed.join().unwrap());
        });
    }
}

#[test]
fn a_server_that_hangs_is_ended_within_its_grace_and_one_that_waits_for_the_device_behind_it() {
    /// A clock that goes on by two seconds at each look, as long as a process lives.
    struct Hasty(AtomicU64, parking_lot::Mutex<std::process::Child>);
    impl Hasty {
        fn has_stopped(&self) -> bool {
            self.1.lock().try_wait().unwrap().is_some()
        }
    }
    impl Clock for Hasty {
        fn now_ns(&self) -> u64 {
            let step_s = if self.has_stopped() { 0 } else { 2 };
            self.0.fetch_add(step_s, Relaxed) * 1_000_000_000
        }
        fn unix_ms(&self) -> u64 {
            0
        }
        fn thread_cpu_ns(&self) -> u64 {
            0
        }
        fn sleep_ns(&self, _: u64) {}
    }
    let dir = tempfile::tempdir().unwrap();
    let mut holder = holder(dir.path());
    holder.times.grace = Duration::from_secs(40);
    for syncing in [1, 0] {
        let (server, link) = socket::socket_pair().unwrap();
        let process = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        holder.server_pid = process.id() as i32;
        holder.link = Some(link);
        holder.attachment.ledger.syncing().store(syncing, Release);
        let clock = Hasty(AtomicU64::new(1_000), parking_lot::Mutex::new(process));
        std::thread::scope(|scope| {
            // A failed assertion drops this end, and the holder goes on.
            let server = server;
            let flushed = scope.spawn(|| holder.heed_warning(&clock).unwrap());
            while !clock.has_stopped() {
                std::thread::yield_now();
            }
            let after_s = clock.0.load(Relaxed) - 1_000;
            assert_eq!(after_s > 40, syncing == 1, "syncing {syncing}: {after_s} s");
            assert!(after_s > 4, "a tenth of the grace was not waited for: {after_s} s");
            send(&server, &Message::Goodbye, &[]).unwrap();
            assert!(flushed.join().unwrap());
        });
    }
}

#[test]
fn visitors_of_a_holder_that_flushes_are_told_to_wait_and_how_long() {
    let dir = tempfile::tempdir().unwrap();
    let holder = holder(dir.path());
    let (let_go, held_up) = channel::<()>();
    let held_up = parking_lot::Mutex::new(held_up);
    std::thread::scope(|scope| {
        // A failed assertion drops this end, and the flush ends.
        let let_go = let_go;
        let flushing = scope.spawn(|| {
            emergency::answer_while(&holder.listener, &holder.wait_message(), move || {
                held_up.lock().recv().unwrap();
                Ok(Message::Ready)
            })
        });
        for _ in 0..3 {
            match take_over(dir.path(), TIMES).unwrap() {
                TakeOver::Flushing { grace, used_bytes: 0 } => {
                    assert_eq!(grace, Duration::from_secs(60));
                }
                other => panic!("{other:?}"),
            }
        }
        let asked = crate::holder::flush(dir.path());
        assert!(matches!(asked, Err(LinkError::FlushesAlready { used_bytes: 0 })), "{asked:?}");
        let_go.send(()).unwrap();
        assert_eq!(flushing.join().unwrap().unwrap(), Message::Ready);
    });
    drop(holder.listener);
    let asked = take_over(dir.path(), TIMES).unwrap();
    assert!(matches!(asked, TakeOver::Nobody));
}

#[test]
fn a_holder_whose_server_ends_while_the_power_is_low_flushes_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let power = dir.path().join("power");
    let mut holder = holder(dir.path());
    holder.warnings = perdura_warning::StatusFile::open(&power).unwrap().into();
    for (said, is_saved) in [("steady", false), ("on-battery 5m", false), ("low", true)] {
        std::fs::write(&power, said).unwrap();
        let (server, link) = socket::socket_pair().unwrap();
        holder.link = Some(link);
        drop(server);
        assert_eq!(holder.hear_server(&RealClock), is_saved, "{said}");
        assert!(holder.link.is_none());
    }
}
