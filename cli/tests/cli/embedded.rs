//! Programs with the embedded library whose memory a real guard keeps.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use perdura::{Heap, Holder, Options, Region, Store, TrappedRegion};

use crate::guarding::GuardProcess;
use crate::running::*;

const MIB: u64 = 1 << 20;
/// Longer than any change takes that does not wait.
const A_WHILE: Duration = Duration::from_millis(200);
/// Names the directory and the socket to the process that is killed.
const CHILD_VARIABLES: [&str; 2] = ["PERDURA_TEST_DIR", "PERDURA_TEST_SOCKET"];
const KEYS: u32 = 3_000;

fn options(socket: &Path) -> Options {
    Options::new()
        .memory_bytes(16 * MIB)
        .budget(perdura::Budget::Bytes(2 * MIB))
        .warning(Duration::from_secs(10))
        .checkpoint_every(None)
        .power_settle(Duration::from_millis(100))
        .guard(socket)
}

fn value(key: u32) -> Vec<u8> {
    key.to_le_bytes().repeat(100)
}

/// Not a test: the program that is killed.
#[test]
#[ignore = "run by another test"]
fn child() {
    let [Some(dir), Some(socket)] = CHILD_VARIABLES.map(std::env::var_os) else { return };
    let store = Store::open_with(dir, &options(Path::new(&socket))).unwrap();
    for key in 0..KEYS {
        store.set(key.to_le_bytes(), value(key)).unwrap();
    }
    println!("\nfilled");
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn a_killed_programs_changes_are_with_the_guard() {
    let guard = GuardProcess::start();
    let dir = guard.data("store");
    let [dir_variable, socket_variable] = CHILD_VARIABLES;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "embedded::child", "--ignored", "--nocapture"])
        .env(dir_variable, &dir)
        .env(socket_variable, &guard.socket)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let filled = lines.map_while(Result::ok).any(|line| line == "filled");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(filled, "the program ended before it was killed");
    let store = Store::open_with(&dir, &options(&guard.socket)).unwrap();
    for key in 0..KEYS {
        assert_eq!(store.get(key.to_le_bytes()).unwrap(), Some(value(key)), "key {key}");
    }
    store.close().unwrap();
}

#[test]
fn changes_wait_while_the_power_is_low_or_the_guard_is_gone() {
    let mut guard = GuardProcess::start();
    let store = Store::open_with(guard.data("store"), &options(&guard.socket)).unwrap();
    let (store, changes) = (Arc::new(store), Arc::new(AtomicU64::new(0)));
    let (changed, counted) = (Arc::clone(&store), Arc::clone(&changes));
    let writer = std::thread::spawn(move || {
        for change in 1.. {
            if changed.set(change.to_string(), [7; 500]).is_err() {
                return;
            }
            counted.store(change, SeqCst);
        }
    });
    let goes_on = || {
        let before = changes.load(SeqCst);
        wait_until("changes", || changes.load(SeqCst) > before + 10);
    };
    let waits = |why: &str| {
        wait_until("a wait", || {
            let before = changes.load(SeqCst);
            std::thread::sleep(A_WHILE);
            changes.load(SeqCst) == before
        });
        assert_eq!(store.len(), changes.load(SeqCst), "{why}: a change is half made");
    };
    goes_on();
    guard.say("low\n");
    waits("low");
    guard.say("steady\n");
    goes_on();
    guard.kill_both();
    waits("the guard is gone");
    guard.again_with(&[]);
    goes_on();
    guard.say("ending\n");
    writer.join().unwrap();
    assert!(guard.parent.wait().unwrap().success(), "the guard");
    let made = changes.load(SeqCst);
    drop(store);
    // The image alone has everything.
    let store = Store::open(guard.data("store")).unwrap();
    assert_eq!(store.len(), made);
    assert_eq!(store.get(made.to_string()).unwrap(), Some(vec![7; 500]));
}

#[test]
fn at_the_end_of_the_power_everything_that_is_open_is_saved_without_the_program() {
    let mut guard = GuardProcess::start();
    let options = options(&guard.socket);
    let region = Region::open_with(guard.data("region"), &options).unwrap();
    region.write(5_000, &[1; 10_000]).unwrap();
    let trapped = TrappedRegion::open_with(guard.data("trapped"), &options).unwrap();
    trapped.write(5_000, &[2; 10_000]).unwrap();
    let heap = Heap::options().open_in(guard.data("heap"), &options).unwrap();
    heap.transaction(|tx| -> Result<(), perdura::heap_types::HeapError> {
        let object = tx.put([3_u64, 4])?;
        tx.set_root("object", object)
    })
    .unwrap();
    guard.say("ending\n");
    assert!(guard.parent.wait().unwrap().success(), "the guard");
    let refused = region.write(0, &[9]).unwrap_err();
    assert!(refused.to_string().contains("closed"), "{refused}");
    // As if the process had ended: what it still has goes nowhere.
    drop((region, trapped, heap));
    let alone = Options::new();
    let mut found = [0; 10_000];
    Region::open_with(guard.data("region"), &alone).unwrap().read(5_000, &mut found).unwrap();
    assert_eq!(found, [1; 10_000]);
    let trapped = TrappedRegion::open_with(guard.data("trapped"), &alone).unwrap();
    trapped.read(5_000, &mut found).unwrap();
    assert_eq!(found, [2; 10_000]);
    let heap = Heap::options().open_in(guard.data("heap"), &alone).unwrap();
    let object = heap.root::<[u64; 2]>("object").unwrap().expect("the object");
    assert_eq!(heap.read(object).unwrap(), [3, 4]);
}

#[test]
fn a_holder_beside_a_guard_and_a_guard_that_is_not_there_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("no-guard.sock");
    let both = options(&socket).holder(Holder::perdura(PERDURA));
    let error = Store::open_with(dir.path().join("data"), &both).err().unwrap().to_string();
    assert!(error.contains("no holder beside a guard"), "{error}");
    let error = Store::open_with(dir.path().join("data"), &options(&socket)).err().unwrap();
    assert!(error.to_string().contains("no-guard.sock"), "{error}");
    assert!(!dir.path().join("data").exists());
}
