//! Servers that share a battery: idle time moves to those who write, and all together never have
//! more dirty than the battery has time for.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::guarding::*;
use crate::running::*;

/// The rate that the servers reckon with, bytes per second. The device is faster.
const RATE: f64 = 10e6;
const SIZE: [&str; 4] = ["--memory", "64MiB", "--grace", "10s"];

/// Makes a directory whose record says the rate above.
fn prepare(dir: &Path) {
    let mut server = Server::start(dir, &[&SIZE[..], &["--no-holder"]].concat());
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let path = dir.join("rate.toml");
    let slow = |line: &str| match line.split(' ').next() {
        Some("rate_bytes_per_s" | "mean_bytes_per_s") => {
            format!("{} = {RATE}", line.split(' ').next().unwrap())
        }
        _ => line.to_owned(),
    };
    let record = std::fs::read_to_string(&path).unwrap();
    let record: Vec<_> = record.lines().map(slow).collect();
    std::fs::write(&path, record.join("\n")).unwrap();
}

fn serve(guard: &GuardProcess, name: &str) -> Server {
    let socket = guard.socket.to_str().unwrap();
    Server::start(&guard.data(name), &[&SIZE[..], &["--guard", socket]].concat())
}

/// What the guard says of its battery and its regions.
fn status(guard: &GuardProcess) -> serde_json::Value {
    let mut command = Command::new(PERDURA);
    let output = command.args(["status", "--json", "--guard"]).arg(&guard.socket).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

fn drill(guard: &GuardProcess) -> Output {
    Command::new(PERDURA).args(["drill", "--guard"]).arg(&guard.socket).output().unwrap()
}

/// The share of the server in this directory, seconds.
fn share(guard: &GuardProcess, name: &str) -> f64 {
    let (status, image) = (status(guard), guard.data(name).join("image.perdura"));
    let regions = status["regions"].as_array().unwrap();
    let region = regions.iter().find(|it| it["image"] == *image.to_str().unwrap());
    region.map_or(0.0, |region| region["share_s"].as_f64().unwrap())
}

/// Clients that overwrite 40 MB of values until they are told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Load {
    fn on(server: &Server) -> Self {
        let (stop, mut client) = (Arc::new(AtomicBool::new(false)), server.client());
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let value = "v".repeat(4_000);
            let mut written = 0u64;
            while !told.load(Ordering::Relaxed) {
                let key = format!("k{}", written % 10_000);
                assert_eq!(client.ask(&["SET", &key, &value]), "+OK");
                written += 1;
            }
            written
        });
        Self { stop, thread }
    }

    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Waits until `is_so`, while the battery holds at every look.
fn watch(guard: &GuardProcess, what: &str, is_so: impl Fn() -> bool) -> Duration {
    let began = Instant::now();
    while !is_so() {
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "{what} does not come: {}",
            status(guard)
        );
        let status = status(guard);
        let battery = &status["battery"];
        assert!(status["holds"] == true && battery["overcommitted_s"] == 0.0, "{status}");
        let shares = status["regions"].as_array().unwrap().iter();
        let sum: f64 = shares.map(|region| region["share_s"].as_f64().unwrap()).sum();
        assert!(sum <= battery["flush_s"].as_f64().unwrap() + 1e-6, "{status}");
    }
    began.elapsed()
}

#[test]
fn idle_time_moves_to_those_who_write_and_comes_back_and_survives_the_death_of_everybody() {
    let mut guard = GuardProcess::start();
    ["a", "b"].iter().for_each(|name| prepare(&guard.data(name)));
    // 2 s without the reserve: 18 MB in all.
    guard.again_with(&["--grace", "2s"]);
    let mut servers = ["a", "b"].map(|name| serve(&guard, name));
    let most = 1.8;
    let load = Load::on(&servers[0]);
    watch(&guard, "what the idle server has", || share(&guard, "a") > most * 0.8);
    let other = Load::on(&servers[1]);
    watch(&guard, "half of it for the other server", || share(&guard, "b") > most * 0.4);
    watch(&guard, "the same for both", || share(&guard, "a") < most * 0.55);
    let written = load.end();
    watch(&guard, "all for the other one", || share(&guard, "b") > most * 0.8);

    // The next guard reckons with what the servers have.
    let killed = guard.guard();
    signal_process(killed, "KILL");
    wait_until("another guard", || guard.guard() != killed);
    let again = Load::on(&servers[0]);
    watch(&guard, "half of it again", || share(&guard, "a") > most * 0.4);
    let (again, others) = (again.end(), other.end());

    // All flush at the same time, each with a full share.
    let drilled = drill(&guard);
    let said = String::from_utf8_lossy(&drilled.stdout);
    assert!(drilled.status.success() && said.ends_with("PASS\n"), "{said}");
    assert_eq!(said.matches("promised 1.8").count(), 2, "{said}");

    // A server that dies leaves what is dirty; the others share the rest.
    servers[0].signal("KILL");
    let _ = servers[0].wait();
    let other = Load::on(&servers[1]);
    watch(&guard, "what the dead server does not need", || share(&guard, "b") > most * 0.4);
    let drilled = drill(&guard);
    assert_eq!(String::from_utf8_lossy(&drilled.stdout).matches("flushed").count(), 1);
    servers[0] = serve(&guard, "a");
    assert!(servers[0].banner.contains("kept by"), "{}", servers[0].banner);
    let load = Load::on(&servers[0]);
    watch(&guard, "half of it for the new server", || share(&guard, "a") > most * 0.4);
    let (mine, theirs) = (load.end(), other.end());
    for (server, written) in servers.iter().zip([written.max(again).max(mine), others.max(theirs)])
    {
        let keys = server.client().ask(&["DBSIZE"]);
        assert_eq!(keys, format!(":{}", written.min(10_000)));
    }
}

#[test]
fn a_neighbour_writes_one_frame_at_a_time_while_a_server_commits() {
    let mut guard = GuardProcess::start();
    guard.again_with(&["--grace", "10s"]);
    prepare(&guard.data("cleans"));
    let cleaning = serve(&guard, "cleans");
    let load = Load::on(&cleaning);
    wait_until("cleaning", || cleaning.figure("frames") > 50);
    assert_eq!(cleaning.figure("short_queue_frames"), 0);
    let socket = guard.socket.to_str().unwrap();
    let options = [&SIZE[..], &["--guard", socket, "--durability", "fsync"]].concat();
    let committing = Server::start(&guard.data("commits"), &options);
    let mut client = committing.client();
    wait_until("short queues", || {
        assert!(client.ask(&["INCR", "commits"]).starts_with(':'));
        cleaning.figure("short_queue_frames") > 50
    });
    // It ends when nobody commits any more.
    wait_until("full queues", || {
        let before = (cleaning.figure("frames"), cleaning.figure("short_queue_frames"));
        wait_until("more frames", || cleaning.figure("frames") > before.0 + 50);
        cleaning.figure("short_queue_frames") == before.1
    });
    load.end();
}
