//! A kernel refuses userfaultfd: the fallback is taken, works, and says why. A kernel starts no
//! more threads: one thread flushes what several would have.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

#[path = "region/support/seccomp.rs"]
mod seccomp;

use std::process::Command;
use std::sync::Arc;

use perdura_media::RealClock;
use perdura_media::sim::SimDevice;
use perdura_region::{Config, LaneId, OpenError, Region, SetupError, TrackingKind, TrapKind};

const IN_CHILD: &str = "PERDURA_TEST_IN_CHILD";

fn open(kind: TrapKind, device: SimDevice) -> Result<Region, OpenError> {
    let config = Config { tracking: TrackingKind::Trap(kind), ..Config::new(16 << 20, 1 << 20) };
    Region::open(Arc::new(device), Arc::new(RealClock), config)
}

#[test]
fn without_userfaultfd_mprotect_tracks_and_says_why() {
    if std::env::var_os(IN_CHILD).is_some() {
        return without_userfaultfd();
    }
    let test = "without_userfaultfd_mprotect_tracks_and_says_why";
    run_without(libc::SYS_userfaultfd, libc::EPERM, test);
}

#[test]
fn without_more_threads_the_flush_is_made_by_one() {
    if std::env::var_os(IN_CHILD).is_some() {
        return without_threads();
    }
    let test = "without_more_threads_the_flush_is_made_by_one";
    run_without(libc::SYS_clone3, libc::EAGAIN, test);
}

/// Runs a test again, on the main thread of a child process that is refused the system call
/// `number`.
fn run_without(number: libc::c_long, errno: i32, test: &str) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    child.env(IN_CHILD, "1");
    seccomp::refuse(&mut child, number, errno);
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("refusal seen"), "the filter was not in force: {said}");
}

fn without_threads() {
    if let Err(error) = std::thread::Builder::new().spawn(|| {}) {
        assert_eq!(error.raw_os_error(), Some(libc::EAGAIN));
        println!("refusal seen");
    }
    let device = SimDevice::new(0, 1);
    let config = || Config {
        thread: false,
        checkpoint_every: None,
        lanes: Some(1),
        ..Config::new(4 << 20, 1 << 20)
    };
    let region = Region::open(Arc::new(device.clone()), Arc::new(RealClock), config()).unwrap();
    region.lock(LaneId(0)).write(4096, &[7; 4096]).unwrap();
    region.close(4).unwrap();
    drop(region);
    let region =
        Region::open(Arc::new(device.power_cycle(1)), Arc::new(RealClock), config()).unwrap();
    assert_eq!(region.lock(LaneId(0)).bytes(4096, 4096), [7; 4096]);
}

/// This runs in another process, because a filter cannot be removed again.
fn without_userfaultfd() {
    // SAFETY: the filter answers the call; a descriptor that it returned all the same would stay
    // open until the process ends.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
    assert_eq!((fd, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EPERM)));
    println!("refusal seen");

    let device = SimDevice::new(0, 1);
    let region = open(TrapKind::Auto, device.clone()).unwrap();
    let told = region.describe_tracking();
    assert!(told.starts_with("trap by mprotect") && told.contains("was refused"), "{told}");
    let memory = region.trapped().unwrap();
    // There are more pages than the budget has room for: each store traps, and the cleaner makes
    // room.
    for page in 0..1024 {
        memory.write(page * 4096 + 8, &(page + 1).to_le_bytes());
    }
    assert!(region.stats().faults >= 1024 && region.used_bytes_max() <= 1 << 20);
    region.close(1).unwrap();
    drop(region);
    let region = open(TrapKind::Auto, device.power_cycle(1)).unwrap();
    let memory = region.trapped().unwrap();
    for page in 0..1024 {
        let mut found = [0; 8];
        memory.read(page * 4096 + 8, &mut found);
        assert_eq!(u64::from_le_bytes(found), page + 1, "page {page}");
    }
    // If the mode was asked for by name, a refusal is an error, and no other mode is taken.
    for kind in [TrapKind::UffdSigbus, TrapKind::UffdThread] {
        let refused = open(kind, SimDevice::new(0, 2)).map(drop).unwrap_err();
        assert!(
            matches!(refused, OpenError::Setup(SetupError::Tracking { .. })),
            "{kind:?}: {refused}"
        );
    }
}
