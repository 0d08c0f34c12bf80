//! `perdura bench` as a program: every workload against servers, the result file, refusals.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

mod common;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::*;

/// What everyone may rely on in a result.
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

/// A Redis of our own.
struct Redis(Child, u16);

impl Redis {
    /// `None` where there is none.
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
    // The last digits of numbers aside.
    assert_eq!(page.matches("<svg").count(), 9);
    assert_eq!(std::fs::read_to_string(again).unwrap().matches("<svg").count(), 9);
}

#[test]
fn bare_memory_says_how_far_it_is_from_the_bound() {
    let dir = tempfile::tempdir().unwrap();
    let (json, images) = (dir.path().join("json"), dir.path().join("images"));
    let words =
        ["memory", "--memory", "4MiB", "--stores", "3000", "--rounds", "1", "--sizes", "64,1KiB"];
    let places = ["--dir", images.to_str().unwrap(), "--json", json.to_str().unwrap()];
    let output = bench(&[&words[..], &places, &["--policies", "clock-pro,fifo"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(result["cells"].as_array().unwrap().len(), 2 * 2 * 2 * 2 * 3);
    for (words, expected) in [
        (["--sizes", "100"], "powers of two"),
        (["--memory", "1KiB"], "--memory 1 KiB"),
        (["--policies", "best"], "--policy best"),
        (["--budgets", "x"], "--budgets x"),
    ] {
        let output = bench(&["memory", words[0], words[1]]);
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
}

fn heap(words: &[&str], json: &Path) -> serde_json::Value {
    let small = ["heap", "--objects", "3000", "--rounds", "2", "--round", "10ms", "--json"];
    let output = bench(&[&small[..], &[json.to_str().unwrap()], words].concat());
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    for key in ["kernel", "cpu", "revision"] {
        assert!(result["machine"][key].is_string(), "{key} in {result}");
    }
    assert_eq!(result["configuration"]["seed"], 1, "{result}");
    result
}

/// A positive number.
fn figure(of: &serde_json::Value, key: &str) -> f64 {
    let number = of[key].as_f64().unwrap_or_else(|| panic!("{key} in {of}"));
    assert!(number.is_finite() && number > 0.0, "{key} in {of}");
    number
}

#[test]
fn heaps_are_measured_in_turn_and_their_flushes_counted() {
    let dir = tempfile::tempdir().unwrap();
    let result = heap(&["--threads", "1,2"], &dir.path().join("json"));
    for threads in ["1", "2"] {
        let found = &result["threads"][threads];
        assert!(
            figure(found, "harness_pair_ns")
                < figure(&found["rivals"]["glibc"], "capacity_pair_ns")
        );
        for (name, pair) in [
            ("glibc", "capacity_pair_ns"),
            ("jemalloc", "capacity_pair_ns"),
            ("mimalloc", "capacity_pair_ns"),
            ("libpmemobj", "persistent_pair_ns"),
        ] {
            let rival = &found["rivals"][name];
            if let Some(missing) = rival["missing"].as_str() {
                println!("skipped: {name}: {missing}");
                assert!(missing.contains("apt install"), "{missing}");
                continue;
            }
            // Another allocator than was asked for would say another name.
            assert!(rival["allocator"].as_str().unwrap().contains(name), "{rival}");
            let spread = &rival["spread"][pair];
            assert_eq!(spread["rounds"].as_array().unwrap().len(), 2, "{rival}");
            assert!(figure(spread, "min") <= figure(rival, pair), "{rival}");
            assert!(figure(rival, pair) <= figure(spread, "max"), "{rival}");
            assert!(rival["memory"]["populated"]["asked_bytes"].as_u64() > Some(3000 * 400));
        }
        for key in [
            "persistent_pair_ns",
            "persistent_pair_strict_ns",
            "persistent_pair_published_ns",
            "persistent_pair_ordered_ns",
            "persistent_pair_conventional_ns",
            "capacity_pair_ns",
            "tx64_ns",
            "tx4x64_ns",
            "tx64_undo_ns",
            "recovery_objects_per_s",
        ] {
            figure(found, key);
        }
        // The allocation's line, and what logs and runs need once in many.
        let lines = figure(found, "lines_flushed_per_alloc");
        assert!((1.0..=2.0).contains(&lines), "{found}");
        // Exactly two, but for what a log needs once in thousands.
        let flushed = figure(found, "lines_flushed_per_tx64");
        assert!(flushed <= 2.01, "{found}");
        assert!(figure(found, "lines_per_tx64_total") >= flushed, "{found}");
        assert!((1.0..=2.0).contains(&figure(found, "fences_per_tx64")), "{found}");
        assert_eq!(found["bounds"]["fences_per_tx64"]["is_met"], true, "{found}");
        assert!(figure(found, "lines_flushed_per_alloc_conventional") >= 4.0, "{found}");
        let recovered: Vec<_> = found["recovery"].as_array().unwrap().iter().collect();
        let objects: Vec<_> = recovered.iter().map(|of| of["objects"].as_u64().unwrap()).collect();
        assert_eq!(objects, [1501, 3001, 6001], "{found}");
        assert_eq!(found["spread"]["tx64_ns"]["rounds"].as_array().unwrap().len(), 2, "{found}");
        for (name, ratio) in found["ratios"].as_object().unwrap() {
            // Tiny heaps, perhaps an unoptimised build: no more than that it is a ratio.
            let of_medians = figure(ratio, "of_medians");
            assert!((0.001..1000.0).contains(&of_medians), "{name}: {ratio}");
        }
        let pmemobj = &found["rivals"]["libpmemobj"];
        if pmemobj["missing"].is_null() {
            figure(pmemobj, "tx4x64_ns");
            // Whoever overwrites 64 B in place flushes them and a copy.
            assert!(figure(pmemobj, "lines_flushed_per_tx64") >= 3.0, "{pmemobj}");
            assert!(figure(pmemobj, "fences_per_tx64") >= 2.0, "{pmemobj}");
            let four = figure(pmemobj, "lines_flushed_per_tx4x64");
            assert!(four > figure(pmemobj, "lines_flushed_per_tx64"), "{pmemobj}");
        }
    }
}

#[test]
fn a_rival_that_is_not_installed_is_named_with_its_package() {
    let dir = tempfile::tempdir().unwrap();
    let nothing = dir.path().join("nothing");
    std::fs::create_dir(&nothing).unwrap();
    let words = ["--threads", "1", "--library-path", nothing.to_str().unwrap()];
    let result = heap(&words, &dir.path().join("json"));
    let rivals = &result["threads"]["1"]["rivals"];
    for (name, package) in [
        ("jemalloc", "libjemalloc2"),
        ("mimalloc", "libmimalloc2.0"),
        ("libpmemobj", "libpmemobj1"),
    ] {
        let missing = rivals[name]["missing"].as_str().unwrap();
        assert!(missing.contains(&format!("apt install {package}")), "{missing}");
    }
    assert!(rivals["glibc"]["missing"].is_null(), "{rivals}");
}

#[test]
fn what_no_heap_can_be_measured_with_is_refused() {
    for (words, expected) in [
        (["--sizes", "8-9"], "--sizes 8-9"),
        (["--threads", "1,0"], "--threads 1,0"),
        (["--touch", "none"], "--touch none"),
        (["--objects", "4000000000"], "give fewer objects"),
        (["--dir", "/nowhere"], "/nowhere"),
    ] {
        let output = bench(&["heap", words[0], words[1]]);
        assert!(!output.status.success(), "{words:?}");
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
}

#[test]
fn a_medium_is_measured_and_what_makes_no_sense_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (json, html) = (dir.path().join("media.json"), dir.path().join("media.html"));
    let small = ["media", "--profile", "pcm", "--size", "8MiB", "--seconds", "0.8"];
    let places = ["--json", json.to_str().unwrap(), "--html", html.to_str().unwrap()];
    let output =
        bench(&[&small[..], &places[..], &["--dir", dir.path().to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    for key in [
        "target_read_ns",
        "measured_read_ns_p50",
        "target_write_ns",
        "measured_write_ns_p50",
        "target_read_bandwidth_bytes_per_s",
        "measured_read_bandwidth_bytes_per_s",
        "target_write_bandwidth_bytes_per_s",
        "measured_write_bandwidth_bytes_per_s",
        "modelled_requests_per_s",
    ] {
        assert!(result[key].as_f64().is_some_and(|value| value > 0.0), "{key}: {}", result[key]);
    }
    assert!(result["machine"]["cpus"].is_u64());
    for path in ["base", "unscheduled", "atomic", "spin", "direct", "pread_ssd", "mmap_tmpfs"] {
        assert!(result["software_ns_per_4k"][path].is_f64(), "{path}");
    }
    assert!(std::fs::read_to_string(html).unwrap().contains("The four steps of HASTE"));
    let refused = bench(&[&small[..], &["--steps", "base,fast"]].concat());
    let error = text(&refused.stderr);
    assert!(
        !refused.status.success()
            && error.contains("--steps fast")
            && error.contains("unscheduled"),
        "{error}"
    );
    for (words, expected) in [
        (["--profile", "bubble"], "no profile is called \"bubble\""),
        (["--link", "string"], "no link is called \"string\""),
        (["--size", "-4GiB"], "--size -4GiB"),
        (["--size", "5000000"], "a medium of 5000000 bytes: expected a multiple of 4096"),
        (["--size", "900TiB"], "give a smaller --size"),
        (["--seconds", "0"], "--seconds 0: expected"),
        (["--dir", "/nowhere"], "/nowhere"),
    ] {
        let usual = if words[0] == "--size" { &[][..] } else { &["--size", "8MiB"][..] };
        let output = bench(&[&["media"], &words[..], usual].concat());
        assert!(!output.status.success(), "{words:?}");
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
}

#[test]
fn rivals_are_measured_by_a_program_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    // Away from the source, where a built one may lie.
    let perdura = dir.path().join("bin/perdura");
    std::fs::create_dir(dir.path().join("bin")).unwrap();
    std::fs::copy(PERDURA, &perdura).unwrap();
    let words = ["bench", "rivals", "--records", "7", "--help"];
    let run = || {
        let mut command = Command::new(&perdura);
        command.args(words).env("PATH", "").current_dir(&dir).stdin(Stdio::null());
        command.output().unwrap()
    };
    let missing = run();
    assert!(!missing.status.success());
    let said = text(&missing.stderr);
    assert!(said.contains("cargo build --release --manifest-path lab/rivals/Cargo.toml"), "{said}");
    let program = dir.path().join("bin/perdura-rivals");
    std::fs::write(&program, "#!/bin/sh\necho \"$@\"\nexit 3\n").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let handed = run();
    assert_eq!(text(&handed.stdout), "--records 7 --help\n", "{}", text(&handed.stderr));
    assert_eq!(handed.status.code(), Some(3));
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
