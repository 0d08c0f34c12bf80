//! `perdura bench` as a program: every workload against servers, the result file, refusals.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::running::*;

/// The names in a result on which others rely.
const KEYS: [&str; 9] = [
    "ratio",
    "budget_bytes",
    "dirty_bytes_max",
    "ssd_bytes_written",
    "user_bytes_written",
    "throughput_ops_per_s",
    "latency_ns",
    "machine",
    "configuration",
];

fn bench(words: &[&str]) -> Output {
    Command::new(PERDURA).arg("bench").args(words).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn ycsb(words: &[&str], json: &Path) -> serde_json::Value {
    let mut all = vec!["ycsb", "--records", "1000", "--operations", "2000", "--threads", "2"];
    all.extend(words);
    all.extend(["--json", json.to_str().unwrap()]);
    let output = bench(&all);
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(result["errors"], 0, "{result}");
    assert_eq!(result["missing"], 0, "{result}");
    result
}

/// A Redis server that this test has started.
struct Redis(Child, u16);

impl Redis {
    /// Starts one; `None`: Redis is not installed.
    fn start() -> Option<Self> {
        let port = free_port();
        let child = Command::new("redis-server")
            .args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--port"])
            .arg(port.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let redis = Self(child, port);
        let began = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(20), "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(redis)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn all_workloads_against_redis_plain_and_pipelined() {
    let Some(redis) = Redis::start() else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (json, address) = (dir.path().join("result"), format!("127.0.0.1:{}", redis.1));
    for letter in ["a", "b", "c", "d", "e", "f"] {
        for pipeline in ["1", "8"] {
            let words = [
                "--workload",
                letter,
                "--server",
                &address,
                "--pipeline",
                pipeline,
                "--scan-max",
                "9",
            ];
            let result = ycsb(&words, &json);
            assert!(result["target"].as_str().unwrap().starts_with("redis "), "{result}");
            assert!(result["cpu_ns_per_operation"].is_number(), "{result}");
            assert!(result["budget_bytes"].is_null(), "{result}");
        }
    }
}

#[test]
fn all_workloads_against_serve() {
    let dir = TestDir::new();
    let server = Server::start(dir.path(), &["--memory", "256MiB", "--budget", "1MiB"]);
    let results = tempfile::tempdir().unwrap();
    let (json, address) = (results.path().join("result"), format!("127.0.0.1:{}", server.port));
    for letter in ["a", "b", "c", "d", "e", "f"] {
        for pipeline in ["1", "8"] {
            let words = ["--workload", letter, "--server", &address, "--pipeline", pipeline];
            let result = ycsb(&words, &json);
            assert!(result["target"].as_str().unwrap().starts_with("perdura "), "{result}");
            assert_eq!(result["budget_bytes"], 1 << 20, "{result}");
            assert!(result["ssd_bytes_written"].is_number(), "{result}");
        }
    }
}

#[test]
fn checkpoints_are_measured_beside_none() {
    let dir = tempfile::tempdir().unwrap();
    let (json, images) = (dir.path().join("result"), dir.path().join("images"));
    let words = ["--workload", "a", "--dir", images.to_str().unwrap(), "--budget", "11%"];
    let both = [&words[..], &["--checkpoint", "50ms", "--compare-checkpoint", "off"]].concat();
    let result = ycsb(&both, &json);
    assert!(result["ratio"].is_number(), "{result}");
    assert_eq!(result["checkpoint_ns"], 50_000_000, "{result}");
    assert!(result["compare"]["checkpoint_ns"].is_null(), "{result}");
    assert_eq!(result["budget_bytes"], result["compare"]["budget_bytes"], "{result}");
}

#[test]
fn compression_is_measured_beside_none() {
    let dir = tempfile::tempdir().unwrap();
    let (json, images) = (dir.path().join("result"), dir.path().join("images"));
    let words = ["--workload", "a", "--dir", images.to_str().unwrap(), "--budget", "11%"];
    let packed = ["--repeating", "75%", "--compress", "lz4", "--compare-compress", "off"];
    let both = [&words[..], &packed].concat();
    for both in [both.clone(), [&both[..], &["--spawn", "--checkpoint", "50ms"]].concat()] {
        let result = ycsb(&both, &json);
        assert!(result["ratio"].is_number(), "{result}");
        let figure =
            |name: &str| result[name].as_u64().unwrap_or_else(|| panic!("{name}: {result}"));
        assert!(figure("compression_out_bytes") < figure("compression_in_bytes"), "{result}");
        assert!(figure("compression_cpu_ns") > 0, "{result}");
        assert_eq!(
            (&result["compression"], &result["compare"]["compression"]),
            (&"lz4".into(), &"off".into())
        );
        assert!(result["compare"]["compression_in_bytes"].is_null(), "{result}");
        assert_eq!(result["configuration"]["values_repeating_percent"], 75);
    }
}

#[test]
fn two_budgets_embedded_and_served_give_a_ratio() {
    let dir = tempfile::tempdir().unwrap();
    let (json, images) = (dir.path().join("result"), dir.path().join("images"));
    let images = images.to_str().unwrap();
    let both = ["--workload", "a", "--dir", images, "--budget", "11%", "--compare-budget", "100%"];
    let embedded = ycsb(&both, &json);
    let served = ycsb(&[&both[..], &["--spawn"]].concat(), &json);
    for result in [embedded, served] {
        for key in KEYS {
            assert!(!result[key].is_null(), "{key} in {result}");
        }
        assert!(result["ratio"].as_f64().unwrap() > 0.0);
        assert_eq!(result["ratio_per_pair"].as_array().unwrap().len(), 10);
        let dirty = result["dirty_bytes_max"].as_u64().unwrap();
        assert!(dirty <= result["budget_bytes"].as_u64().unwrap());
        assert_eq!(result["compare"]["budget_percent"], 100.0);
        assert!(result["ssd_bytes_written_with_flush"].is_number());
        assert!(result["cpu_ns_per_operation"].is_number());
    }
    assert_eq!(std::fs::read_dir(images).unwrap().count(), 0, "an image was left");
}

#[test]
fn a_sweep_writes_a_page_that_can_be_drawn_again() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (html, json, again, images) = (at("page"), at("json"), at("again"), at("images"));
    let sized = ["ycsb", "--records", "1000", "--operations", "2000", "--larger-records", "2000"];
    let what = ["--workload", "a,c", "--budgets", "11,100%", "--dir", &images];
    let output = bench(&[&sized[..], &what, &["--html", &html, "--json", &json]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = bench(&["ycsb", "--from", &json, "--html", &again]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains("figure 10") && page.contains("published"), "{page}");
    // The last digits of numbers may differ.
    assert_eq!(page.matches("<svg").count(), 9);
    assert_eq!(std::fs::read_to_string(again).unwrap().matches("<svg").count(), 9);
}

#[test]
fn what_makes_no_sense_is_refused_with_its_place_and_a_way_out() {
    let cases: [(&[&str], &[&str]); 9] = [
        (&["--workload", "g"], &["--workload g", "a, b, c, d, e or f"]),
        (&["--records", "0"], &["--records 0", "at least 1"]),
        (&["--budget", "many"], &["--budget many"]),
        (&["--compare-budget", "1%", "--pairs", "3"], &["--pairs 3", "at least 10"]),
        (&["--pairs", "20"], &["--compare-budget"]),
        (&["--pipeline", "8"], &["--server", "--spawn"]),
        (&["--workload", "e"], &["--record string"]),
        (&["--distribution", "normal"], &["--distribution normal", "zipfian"]),
        (&["--server", "127.0.0.1:1"], &["127.0.0.1:1"]),
    ];
    for (words, expected) in cases {
        let output = bench(&[&["ycsb"], words].concat());
        let said = text(&output.stderr);
        assert!(!output.status.success(), "{words:?}");
        for part in expected {
            assert!(said.contains(part), "{part:?} in {said:?}");
        }
    }
}

/// Whether a disk of our own can be made, throttled and cut here; if not, that is said.
fn has_disks() -> bool {
    let throttle = Path::new("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device");
    let tools = ["mkfs.xfs", "xfs_io", "losetup"];
    let is_there = |tool: &&str| Command::new(tool).arg("-V").output().is_ok();
    let has = rustix::process::geteuid().is_root()
        && throttle.exists()
        && tools.iter().all(is_there)
        && Command::new("losetup").arg("--find").status().is_ok_and(|status| status.success());
    if !has {
        eprintln!("SKIPPED: no root, no blkio controller of version 1, no XFS or no loop device");
    }
    has
}

/// The mounts whose path has this in it.
fn mounts(of: &Path) -> usize {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    mounts.lines().filter(|line| line.contains(of.to_str().unwrap())).count()
}

#[test]
fn grace_finds_nothing_lost_by_a_warned_server_and_all_lost_by_one_that_saves_nothing() {
    if !has_disks() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (json, html) = (dir.path().join("r.json"), dir.path().join("r.html"));
    let disks = dir.path().join("disks");
    let has_redis = Command::new("redis-server").arg("--version").output().is_ok();
    let servers = if has_redis { "perdura,redis-nothing" } else { "perdura" };
    let mut command = Command::new(PERDURA);
    command.args(["bench", "grace", "--size", "4MiB", "--grace", "5s", "--load", "300ms"]);
    command.args(["--rounds", "2", "--servers", servers, "--dir", disks.to_str().unwrap()]);
    command.args(["--json", json.to_str().unwrap(), "--html", html.to_str().unwrap()]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let rounds = result["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), if has_redis { 4 } else { 2 });
    for round in rounds {
        let found = &round["found"];
        let keys = found["keys"].as_u64().unwrap();
        assert!(keys > 1_000 && found["wrong"] == 0, "{round}");
        let is_kept = round["server"] == "perdura";
        assert_eq!(found["lost"], if is_kept { 0 } else { keys }, "{round}");
        assert!(round["to_safe_s"].as_f64().is_some_and(|time| time < 5.0), "{round}");
        assert!(round["writes_per_s"].as_f64().unwrap() > 0.0, "{round}");
    }
    assert!(text(&std::fs::read(&html).unwrap()).contains("The gauntlet"));
    assert!(text(&output.stdout).contains("0 of "), "{}", text(&output.stdout));
    assert_eq!((mounts(&disks), std::fs::read_dir(&disks).unwrap().count()), (0, 0));
}

#[test]
fn grace_that_is_interrupted_leaves_no_disk_and_no_server() {
    if !has_disks() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(PERDURA)
        .args(["bench", "grace", "--size", "4MiB", "--load", "60s", "--servers", "perdura"])
        .args(["--dir", dir.path().to_str().unwrap()])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("a disk", || mounts(dir.path()) == 1);
    signal_process(child.id(), "INT");
    wait_until("the end", || child.try_wait().unwrap().is_some());
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success() && text(&output.stderr).contains("interrupted"));
    assert_eq!((mounts(dir.path()), std::fs::read_dir(dir.path()).unwrap().count()), (0, 0));
}

#[test]
fn grace_refuses_what_makes_no_sense() {
    for (words, why) in [
        (["--servers", "reddis"], "expected one of perdura, redis-rdb"),
        (["--size", "1KiB"], "at least 1 MiB"),
        (["--grace", "10ms"], "--grace 10ms: expected at least 1s"),
        (["--low-rate", "1GiB/s"], "at most --rate"),
        (["--rate", "10KiB/s"], "at least 1 MiB/s"),
    ] {
        let output = bench(&[&["grace"], &words[..]].concat());
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{words:?}: {said}");
    }
}
