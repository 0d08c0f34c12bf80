//! `perdura-lab access run` on files, devices and regions: what runs, what is refused before
//! anything runs, and that nothing is left behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::process::*;
use serde_json::Value;

/// A folder with one workload file and room for its results.
struct Ground(tempfile::TempDir);

impl Ground {
    fn with(workload: &str) -> Self {
        let ground = Self(tempfile::tempdir().unwrap());
        fs::create_dir(ground.path("place")).unwrap();
        fs::write(ground.path("w.yaml"), workload).unwrap();
        ground
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(LAB);
        command.args(["access", "run"]).arg(self.path("w.yaml")).args(words);
        command.arg("--results").arg(self.path("results")).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Runs the workload and returns its results.
    fn done(&self, words: &[&str]) -> Value {
        let output = self.run(words);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&fs::read(self.path("results/w.json")).unwrap()).unwrap()
    }

    fn refused(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && !said.contains("panicked"), "{said}");
        assert!(!self.path("results").exists(), "nothing ran: {said}");
        said
    }

    fn device(&self, bytes: u64) -> String {
        let path = self.path("device");
        fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn benchmarks_that_run_together_have_a_file_each_and_leave_none() {
    let ground = Ground::with(
        "b:\n  parallel_benchmark:\n    log:\n      args: \
         {memory_range: 1M, operation: write, persist_instruction: none}\n    \
         scan:\n      args: {memory_range: 2M}\n",
    );
    let place = ground.path("place");
    let results = ground.done(&["--path", place.to_str().unwrap()]);
    let parts = &results[0]["benchmarks"][0]["results"];
    assert_eq!(parts["log"]["results"]["accessed_bytes"], 1 << 20);
    assert_eq!(parts["scan"]["results"]["accessed_bytes"], 2 << 20);
    assert!(is_empty(&place));
}

#[test]
fn a_run_that_is_killed_leaves_no_file() {
    let ground = Ground::with("b:\n  args: {memory_range: 8M, run_time: 60}\n");
    let place = ground.path("place");
    let mut run = ground.command(&["--path", place.to_str().unwrap()]).spawn().unwrap();
    // The file's name is removed once its memory is mapped.
    let began = Instant::now();
    let maps = format!("/proc/{}/maps", run.id());
    while !fs::read_to_string(&maps).is_ok_and(|maps| maps.contains("perdura-access")) {
        assert!(began.elapsed() < Duration::from_secs(60) && run.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(5));
    }
    while !is_empty(&place) {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    assert!(is_empty(&place));
}

#[test]
fn a_device_is_read_and_written_by_whole_blocks_wherever_parts_lie() {
    let ground = Ground::with(
        "single:\n  matrix: {operation: [read, write], exec_mode: [sequential, random]}\n  \
         args: {memory_range: 1M, access_size: 4K, run_time: 1, latency_sample_frequency: 7}\n\
         chain:\n  args: \
         {memory_range: 1M, exec_mode: custom, custom_operations: 'r_8192,w_4096_cache_4096', \
         number_operations: 50}\n\
         both:\n  parallel_benchmark:\n    one: \
         {args: {memory_range: 512K, access_size: 4K, operation: write}}\n    \
         two: {args: {memory_range: 512K, access_size: 4K}}\n",
    );
    let device = ground.device(1 << 20);
    let results = ground.done(&["--device", &device, "--overwrite", "--run-time-max", "1"]);
    let cells = results[0]["benchmarks"].as_array().unwrap();
    assert_eq!(cells.len(), 4);
    for cell in cells {
        let figures = &cell["results"];
        assert!(figures["num_operations"].as_u64() > Some(0), "{cell}");
        assert!(figures["latency"]["samples"].as_u64() > Some(0), "{cell}");
    }
    // All bytes of the device were written, and not with zeros, which a device may treat specially.
    let bytes = fs::read(&device).unwrap();
    assert!(bytes.chunks(4096).all(|block| block.iter().any(|byte| *byte != 0)));
}

#[test]
fn what_a_device_cannot_do_is_found_before_anything_runs() {
    for (args, words, said) in [
        ("operation: write, access_size: 4K", &[][..], "give --overwrite"),
        ("access_size: 512", &[][..], "access_size: 512 B: a device is accessed by whole blocks"),
        (
            "exec_mode: custom, custom_operations: 'r_4096,w_4096_none_64'",
            &["--overwrite"][..],
            "custom_operations: 64 B",
        ),
        ("exec_mode: custom, custom_operations: r_256", &[][..], "custom_operations: 256 B"),
        (
            "access_size: 256, memory_range: 1539K, number_threads: 2, number_partitions: 0, \
             exec_mode: custom, custom_operations: r_4096, number_operations: 2",
            &[][..],
            "memory_range in each partition",
        ),
    ] {
        let range = if args.contains("memory_range") { "" } else { "memory_range: 1M, " };
        let ground = Ground::with(&format!(
            "first: {{args: {{memory_range: 1M, access_size: 4K}}}}\nb: \
             {{args: {{{range}{args}}}}}\n"
        ));
        let device = ground.device(4 << 20);
        let found = ground.refused(&[&["--device", &device], words].concat());
        assert!(found.contains("w.yaml: b: ") && found.contains(said), "{args}: {found}");
    }
    let ground = Ground::with("b: {args: {memory_range: 2M, access_size: 4K}}\n");
    let device = ground.device(1 << 20);
    let output = ground.run(&["--device", &device]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("2 MiB: 1 MiB are free there"));
}

#[test]
fn a_region_is_measured_and_its_pages_are_there_before() {
    let ground = Ground::with(
        "b:\n  args: \
         {memory_range: 8M, exec_mode: random, operation: write, persist_instruction: none, \
         number_operations: 20000}\n",
    );
    let place = ground.path("place");
    let results = ground.done(&["--region", "2MiB", "--dir", place.to_str().unwrap()]);
    let told = results[0]["place"].as_str().unwrap();
    assert!(told.contains("a region with a budget of 2 MiB"), "{told}");
    assert_eq!(results[0]["benchmarks"][0]["results"]["num_operations"], 20000);
    assert!(is_empty(&place));
}

/// Requests have any number of lines; none reaches beyond its range.
#[test]
fn a_trace_is_replayed_request_by_request() {
    let ground = Ground::with(
        "b:\n  args: \
         {memory_range: 64K, exec_mode: trace, trace_file: t.csv, persist_instruction: none}\n",
    );
    let rows = [("Read", 65344, 192), ("Write", 128, 320), ("Read", 0, 64), ("Read", 65472, 8192)];
    let rows =
        rows.map(|(op, offset, bytes)| format!("128166372000000000,h,0,{op},{offset},{bytes},9\n"));
    fs::write(ground.path("t.csv"), rows.concat()).unwrap();
    let results = ground.done(&["--dram"]);
    let figures = &results[0]["benchmarks"][0]["results"];
    assert_eq!(figures["accessed_bytes"], 192 + 320 + 64 + 8192);
    fs::remove_file(ground.path("t.csv")).unwrap();
    fs::remove_dir_all(ground.path("results")).unwrap();
    let said = ground.refused(&["--dram"]);
    assert!(said.contains("w.yaml: b: ") && said.contains("t.csv"), "{said}");
}
