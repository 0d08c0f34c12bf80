//! `perdura-lab access run`, `perdura-lab access compare` and `perdura-lab access suite` as
//! programs: results in the published shape, and the message for every bad input.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::process::*;
use serde_json::Value;

/// Small workloads of every kind: a matrix, chains with DRAM beside them, and two that run
/// together.
const SMALL: &str = "\
reads:
  matrix:
    number_threads: [1, 2]
    access_size: [64, 4K]
  args:
    memory_range: 1M
    repetitions: 3
chains:
  matrix:
    custom_operations: [r_64, 'rd_128,rp_256,wp_64_none_64']
  args:
    memory_range: 1M
    dram_memory_range: 1M
    exec_mode: custom
    number_operations: 2000
    latency_sample_frequency: 10
";
const TOGETHER: &str = "\
both:
  parallel_benchmark:
    log:
      matrix:
        access_size: [64, 256]
      args:
        memory_range: 256K
        operation: write
        persist_instruction: none
    lookups:
      args:
        memory_range: 1M
        exec_mode: random
        number_operations: 2000
";

fn bench(words: &[&str]) -> Output {
    Command::new(LAB).arg("access").args(words).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The message with which the program refuses.
fn refused(output: &Output) -> String {
    let said = text(&output.stderr);
    assert!(!output.status.success(), "it went on: {}{said}", text(&output.stdout));
    assert!(!said.contains("panicked"), "{said}");
    said
}

fn done(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// A folder with workload files and room for their results.
struct Ground(tempfile::TempDir);

impl Ground {
    fn with(files: &[(&str, &str)]) -> Self {
        let ground = Self(tempfile::tempdir().unwrap());
        fs::create_dir(ground.path("w")).unwrap();
        for (name, text) in files {
            let path = ground.path("w").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        ground
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn word(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Runs the workload files of the folder and writes the results to `results`.
    fn run(&self, results: &str, extra: &[&str]) -> Output {
        let (from, to) = (self.word("w"), self.word(results));
        bench(&[&["run", &from, "--results", &to], extra].concat())
    }
}

/// A folder on a small file system of its own, which only root can mount; unmounted on drop.
struct SmallDisk<'g>(&'g Ground);

impl<'g> SmallDisk<'g> {
    fn of(ground: &'g Ground, size: &str) -> Option<Self> {
        fs::create_dir(ground.path("disk")).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "perdura-test"]);
        let mounted = mount.arg(ground.path("disk")).stderr(Stdio::null()).status();
        let is_mounted = mounted.is_ok_and(|status| status.success());
        if !is_mounted {
            println!("skipped: no file system of its own without root");
        }
        is_mounted.then_some(Self(ground))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path("disk")).status();
    }
}

#[test]
fn each_workload_file_has_a_result_file_of_the_published_shape() {
    let ground = Ground::with(&[("small.yaml", SMALL), ("deep/er/together.yml", TOGETHER)]);
    let page = ground.word("page.html");
    let said = done(&ground.run("results", &["--dram", "--html", &page]));
    assert!(said.contains("reads: measured, DRAM"), "{said}");
    let mut names: Vec<_> = fs::read_dir(ground.path("results")).unwrap().flatten().collect();
    names.sort_by_key(fs::DirEntry::file_name);
    let names: Vec<_> =
        names.iter().map(|entry| entry.file_name().into_string().unwrap()).collect();
    assert_eq!(names, ["deep-er-together.json", "small.json"]);

    let small = json(&ground.path("results/small.json"));
    let reads = &small[0];
    assert_eq!((&reads["bm_name"], &reads["bm_type"]), (&"reads".into(), &"single".into()));
    assert_eq!(reads["matrix_args"], serde_json::json!(["number_threads", "access_size"]));
    assert_eq!(reads["label"], "measured");
    assert_eq!(reads["place"], "DRAM");
    assert!(reads["instructions"].is_string() && reads["machine"]["cpu"].is_string());
    let cells = reads["benchmarks"].as_array().unwrap();
    assert_eq!(cells.len(), 4);
    for cell in cells {
        let (config, results) = (&cell["config"], &cell["results"]);
        assert_eq!(config["memory_range"], 1 << 20);
        assert_eq!(config["exec_mode"], "sequential");
        assert!(config["number_operations"].is_null(), "without effect: {config}");
        assert_eq!(results["accessed_bytes"], 1 << 20);
        let threads = results["threads"].as_array().unwrap();
        assert_eq!(threads.len() as u64, config["number_threads"].as_u64().unwrap());
        assert_eq!(results["repetitions"].as_array().unwrap().len(), 3);
        for key in [
            "bandwidth",
            "execution_time",
            "thread_bandwidth_avg",
            "thread_bandwidth_std_dev",
            "ops_per_second",
        ] {
            assert!(results[key].is_number(), "{key}: {results}");
        }
    }
    let chain = &small[1]["benchmarks"][1];
    assert_eq!(chain["config"]["custom_operations"], "rd_128,rp_256,wp_64_none_64");
    assert_eq!(chain["results"]["num_operations"], 2000);
    let latency = &chain["results"]["latency"];
    for key in [
        "min",
        "avg",
        "max",
        "std_dev",
        "median",
        "lower_quartile",
        "upper_quartile",
        "percentile_90",
        "percentile_95",
        "percentile_99",
        "percentile_999",
        "percentile_9999",
    ] {
        assert!(latency[key].is_number(), "{key}: {latency}");
    }

    let both = &json(&ground.path("results/deep-er-together.json"))[0];
    assert_eq!(both["bm_type"], "parallel");
    assert_eq!(both["matrix_args"], serde_json::json!({"log": ["access_size"], "lookups": []}));
    let cell = &both["benchmarks"][0];
    assert_eq!(cell["config"]["log"]["access_size"], 64);
    assert_eq!(cell["config"]["lookups"]["exec_mode"], "random");
    assert_eq!(cell["results"]["log"]["results"]["accessed_bytes"], 256 << 10);
    assert!(cell["results"]["lookups"]["results"]["bandwidth"].as_f64().unwrap() > 0.0);

    let page = fs::read_to_string(page).unwrap();
    for part in ["reads: measured", "both / log, measured", "99 % within", "small.json", "<svg"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("http") && !page.contains("<script src"), "of itself");
}

#[test]
fn what_is_modelled_says_so_everywhere() {
    let ground = Ground::with(&[("small.yaml", SMALL)]);
    let page = ground.word("page.html");
    let said = done(&ground.run("results", &["--model", "apache-256", "--html", &page]));
    assert!(said.contains("reads: modelled, "), "{said}");
    for benchmark in json(&ground.path("results/small.json")).as_array().unwrap() {
        assert_eq!(benchmark["label"], "modelled");
        assert_eq!(benchmark["instructions"], "none");
        assert!(benchmark["benchmarks"][0]["results"]["cpu_share"].is_null());
    }
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("reads: <span class=\"modelled\">modelled"));
    assert!(page.contains("reads, modelled: GiB/s") && !page.contains(", measured"));
}

#[test]
fn each_broken_rule_names_file_line_key_value_and_rule() {
    let cases: [(&str, &str); 24] = [
        ("acess_size: 64", "line 3: acess_size: no such key; did you mean access_size?"),
        (
            "access_size: 64\n    access_size: 64",
            "line 4: access_size: given on line 3 already; leave one out",
        ),
        ("access_size: 100", "line 3: access_size: 100: a power of two, 64 or more"),
        ("access_size: 32", "line 3: access_size: 32: a power of two, 64 or more"),
        ("access_size: 4X", "line 3: access_size: 4X: bytes, as 4096, 64K, 16M or 10G"),
        ("memory_range: 1000", "line 3: memory_range: 1000: a multiple of access_size, 256 B"),
        ("min_io_chunk_size: 65", "line 3: min_io_chunk_size: 65: a power of two"),
        ("dram_memory_range: 100", "line 3: dram_memory_range: 100: a multiple of access_size"),
        ("dram_operation_ratio: 2", "line 3: dram_operation_ratio: 2: 0 to 1"),
        ("number_threads: 0", "line 3: number_threads: 0: 1 to 1024"),
        ("number_partitions: 7", "line 3: number_partitions: 7: divides number_threads, 1"),
        ("number_operations: 9", "line 3: number_operations: 9: with exec_mode random or custom"),
        ("run_time: 99999999", "line 3: run_time: 99999999: a day at most"),
        ("operation: erase", "line 3: operation: erase: one of read, write"),
        ("exec_mode: upwards", "line 3: exec_mode: upwards: one of sequential, sequential_desc"),
        ("persist_instruction: clwb", "persist_instruction: clwb: one of nocache, cache, cacheinv"),
        ("numa_pattern: other", "line 3: numa_pattern: other: one of near, far"),
        ("random_distribution: normal", "random_distribution: normal: one of uniform, zipf"),
        ("zipf_alpha: -1", "line 3: zipf_alpha: -1: more than 0"),
        ("prefault_file: 2", "line 3: prefault_file: 2: true or false"),
        ("latency_sample_frequency: -1", "latency_sample_frequency: -1: a whole number"),
        (
            "exec_mode: custom\n    custom_operations: w_64_none",
            "line 4: custom_operations: w_64_none: the first access is a read",
        ),
        (
            "exec_mode: custom\n    custom_operations: 'r_64,w_64_cache_10'",
            "line 4: custom_operations: r_64,w_64_cache_10: offsets are multiples of 64",
        ),
        (
            "exec_mode: custom\n    custom_operations: 'r_64,wd_64_none'\n    \
             dram_memory_range: 1M",
            "line 4: custom_operations: r_64,wd_64_none: a write follows an access to the same \
             memory",
        ),
    ];
    for (args, expected) in cases {
        let ground = Ground::with(&[("w.yaml", &format!("b:\n  args:\n    {args}\n"))]);
        let said = refused(&ground.run("results", &["--dram"]));
        let file = format!("{}, ", ground.path("w/w.yaml").display());
        assert!(said.contains(&file) && said.contains(expected), "{args}: {said}");
        assert!(!ground.path("results").exists(), "judged before anything is made");
    }
}

#[test]
fn one_bad_file_of_many_is_found_before_any_runs() {
    let ground = Ground::with(&[("a.yaml", SMALL), ("z.yaml", "z:\n  matrix: {}\n")]);
    let said = refused(&ground.run("results", &["--dram"]));
    assert!(said.contains("z.yaml, line 1: z: args is missing"), "{said}");
    assert!(!ground.path("results").exists());
}

#[test]
fn what_is_no_workload_is_named() {
    let ground = Ground::with(&[]);
    let said = refused(&ground.run("results", &[]));
    assert!(said.contains(&format!("{}: no workload files in it", ground.word("w"))), "{said}");

    fs::write(ground.path("w/notes.txt"), "b:\n  args: {}\n").unwrap();
    assert!(refused(&ground.run("results", &[])).contains("no workload files in it"));

    for (garbage, expected) in [
        (&b"\x89PNG\r\n\x1a\n\0\0"[..], "garbage.yaml: stream did not contain valid UTF-8"),
        (b"{{{{", "garbage.yaml, line 2: no YAML"),
        (b"a: &b [*b]\n", "garbage.yaml, line 1: an anchor"),
        (b"", "garbage.yaml, line 1: the file: expected at least one benchmark"),
    ] {
        fs::write(ground.path("w/garbage.yaml"), garbage).unwrap();
        let said = refused(&ground.run("results", &[]));
        assert!(said.contains(expected), "{garbage:?}: {said}");
    }
    fs::write(ground.path("w/garbage.yaml"), vec![b'#'; (1 << 20) + 1]).unwrap();
    assert!(refused(&ground.run("results", &[])).contains("garbage.yaml: longer than 1 MiB"));

    let said = refused(&bench(&["run", "/nowhere/w.yaml", "--results", &ground.word("results")]));
    assert!(said.contains("/nowhere/w.yaml: No such file"), "{said}");
    assert!(!ground.path("results").exists());
}

#[test]
fn two_files_whose_results_would_have_one_name_are_refused() {
    let ground = Ground::with(&[("a-b.yaml", SMALL), ("a/b.yaml", SMALL)]);
    let said = refused(&ground.run("results", &[]));
    assert!(said.contains("would both go to a-b.json"), "{said}");
}

#[test]
fn a_folder_that_may_not_be_read_is_named() {
    let ground = Ground::with(&[("w.yaml", SMALL)]);
    let locked = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    locked(ground.0.path(), 0o755);
    locked(&ground.path("w"), 0o300);
    let output = unprivileged(Path::new(LAB), ground.0.path())
        .args(["access", "run", &ground.word("w"), "--results", "/nowhere"])
        .output()
        .unwrap();
    locked(&ground.path("w"), 0o755);
    let said = refused(&output);
    assert!(said.contains(&format!("{}: Permission denied", ground.word("w"))), "{said}");
}

#[test]
fn results_go_to_a_folder_of_their_own() {
    let ground = Ground::with(&[("w.yaml", SMALL)]);
    fs::create_dir(ground.path("results")).unwrap();
    fs::write(ground.path("results/old.json"), "[]").unwrap();
    let said = refused(&ground.run("results", &["--dram"]));
    assert!(said.contains("not empty") && said.contains("results/old.json"), "{said}");
    assert_eq!(fs::read(ground.path("results/old.json")).unwrap(), b"[]");

    fs::write(ground.path("file"), "").unwrap();
    let said = refused(&ground.run("file", &["--dram"]));
    assert!(said.contains("--results ") && said.contains("Not a directory"), "{said}");
    let said = refused(&ground.run("new", &["--html", "/nowhere/page.html"]));
    assert!(said.contains("--html /nowhere/page.html"), "{said}");
}

#[test]
fn a_full_disk_is_said_and_leaves_no_half_a_result() {
    let ground = Ground::with(&[("w.yaml", SMALL)]);
    let Some(_disk) = SmallDisk::of(&ground, "4k") else { return };
    let said = refused(&ground.run("disk", &["--dram"]));
    assert!(said.contains("disk/w.json") && said.contains("No space left"), "{said}");
    assert_eq!(fs::read_dir(ground.path("disk")).unwrap().count(), 0);
}

#[test]
fn a_range_that_finds_no_room_is_said_with_what_there_is() {
    let huge =
        "b:\n  args:\n    memory_range: 90000G\n    exec_mode: random\n    number_operations: 10\n";
    let ground = Ground::with(&[("w.yaml", huge)]);
    let said = refused(&ground.run("r1", &["--dram"]));
    assert!(said.contains("b: memory_range: ") && said.contains("more than the"), "{said}");
    assert!(said.contains("--range-max"), "{said}");
    let here = ground.word("w");
    let said = refused(&ground.run("r2", &["--path", &here]));
    assert!(said.contains("memory_range: ") && said.contains("are free there"), "{said}");
    done(&ground.run("r3", &["--dram", "--range-max", "1MiB"]));
    assert!(
        json(&ground.path("r3/w.json"))[0]["bounded"][0].as_str().unwrap().contains("memory_range")
    );
    // A model has room for ranges that no machine has.
    done(&ground.run("r4", &["--model", "apache-256"]));

    let ground = Ground::with(&[("w.yaml", SMALL)]);
    let Some(_disk) = SmallDisk::of(&ground, "512k") else { return };
    let disk = ground.word("disk");
    let said = refused(&ground.run("r1", &["--path", &disk]));
    assert!(said.contains("reads: ") && said.contains("512 KiB are free there"), "{said}");
    assert_eq!(fs::read_dir(disk).unwrap().count(), 0, "nothing is left");
}

#[test]
fn places_that_are_not_there_are_named() {
    let ground = Ground::with(&[("w.yaml", SMALL)]);
    let here = ground.word("w");
    let said = refused(&ground.run("r1", &["--path", &here, "--dax"]));
    assert!(said.contains("not a DAX file system") && said.contains("MAP_SYNC"), "{said}");
    let said = refused(&ground.run("r2", &["--path", "/nowhere"]));
    assert!(said.contains("--path /nowhere"), "{said}");
    let said = refused(&ground.run("r3", &["--model", "apache-257"]));
    assert!(said.contains("apache-257") && said.contains("apache-256"), "{said}");
    let said = refused(&ground.run("r4", &["--region", "lots"]));
    assert!(said.contains("--region") && said.contains("lots"), "{said}");
    let said = refused(&ground.run("r5", &["--dram", "--model", "apache-256"]));
    assert!(said.contains("cannot be used with"), "{said}");
}

#[test]
fn what_the_machine_lacks_is_found_before_anything_is_measured() {
    let durable =
        "b:\n  args:\n    memory_range: 1M\n    operation: write\n    persist_instruction: cache\n";
    let ground = Ground::with(&[("a.yaml", SMALL), ("b.yaml", durable)]);
    let said = refused(&ground.run("r1", &["--isa", "portable"]));
    assert!(said.contains("b: persist_instruction: cache: "), "{said}");
    assert!(!ground.path("r1").exists());
    let said = refused(&ground.run("r2", &["--isa", "neon"]));
    assert!(said.contains("--isa neon: expected avx512, avx2, sse2 or portable"), "{said}");
    let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if !flags.contains("avx512f") {
        let said = refused(&ground.run("r3", &["--isa", "avx512"]));
        assert!(said.contains("no avx512"), "{said}");
    }
}

#[test]
fn far_memory_needs_a_second_node() {
    let far = "b:\n  args:\n    memory_range: 1M\n    numa_pattern: far\n";
    let ground = Ground::with(&[("w.yaml", far)]);
    if Path::new("/sys/devices/system/node/node1").exists() {
        println!("skipped: this machine has far memory");
        return;
    }
    let said = refused(&ground.run("results", &["--dram"]));
    assert!(said.contains("b: ") && said.contains("numa_pattern: far"), "{said}");
}

#[test]
fn what_was_measured_before_an_error_is_kept() {
    let files = "reads: {args: {memory_range: 1M, access_size: 4K}}\n\
                 huge: {args: {memory_range: 1G, access_size: 4K}}\n";
    let ground = Ground::with(&[("w.yaml", files)]);
    let (page, device) = (ground.word("page.html"), ground.word("device"));
    fs::File::create(&device).unwrap().set_len(1 << 20).unwrap();
    let said = refused(&ground.run("results", &["--device", &device, "--html", &page]));
    assert!(said.contains("w.yaml: huge: ") && said.contains("1 MiB are free there"), "{said}");
    let kept = json(&ground.path("results/w.json"));
    assert_eq!(kept.as_array().unwrap().len(), 1, "reads");
    assert!(fs::read_to_string(page).unwrap().contains("reads: measured"));
}

#[test]
fn two_results_are_compared() {
    let ground = Ground::with(&[("w.yaml", SMALL), ("t.yaml", TOGETHER)]);
    for (results, extra) in [
        ("a", &["--dram"][..]),
        ("b", &["--dram", "--isa", "portable"]),
        ("m", &["--model", "apache-256"]),
    ] {
        done(&ground.run(results, extra));
    }
    let (a, b, m) = (ground.word("a/w.json"), ground.word("b/w.json"), ground.word("m/w.json"));
    let found = ground.word("found.json");
    let said = done(&bench(&["compare", &a, &b, "--json", &found]));
    assert!(
        said.contains("NOT THE SAME instructions: ") && said.contains("portable in B"),
        "{said}"
    );
    assert!(said.contains("number_threads 2, access_size 4096"), "{said}");
    assert!(said.contains("no test of 2: only one measurement in A"), "{said}");
    assert!(said.contains("Welch's test on the repetitions"), "{said}");
    let found = json(Path::new(&found));
    let reads = &found["cells"][0];
    assert!(reads["bandwidth"]["ci95"].is_array() && reads["p"].is_number(), "{reads}");
    let chains = found["cells"].as_array().unwrap().iter().find(|cell| cell["bm_name"] == "chains");
    assert_eq!(chains.unwrap()["verdict"], "no_test");

    let said = done(&bench(&["compare", &m, &a]));
    assert!(said.contains("NOT THE SAME figures: modelled in A, measured in B"), "{said}");
    assert!(said.contains("reads: modelled (A) beside measured (B)"), "{said}");
    assert!(said.contains("no test of 6: modelled figures are the same every time"), "{said}");

    let together = ground.word("a/t.json");
    let said = done(&bench(&["compare", &together, &together, "--json", "-"]));
    let itself: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(itself["cells"].as_array().unwrap().len(), 4);
    assert_eq!(itself["cells"][1]["part"], "lookups");
    assert_eq!(itself["cells"][0]["bandwidth"]["ratio"], 1.0);
    let said = done(&bench(&["compare", &together, &a]));
    assert!(said.contains("only in A, 2:") && said.contains("only in B, 6:"), "{said}");
}

#[test]
fn what_is_no_result_is_refused() {
    let ground = Ground::with(&[("w.yaml", SMALL)]);
    done(&ground.run("a", &["--dram"]));
    let (good, workload) = (ground.word("a/w.json"), ground.word("w/w.yaml"));
    let said = refused(&bench(&["compare", &good, &workload]));
    assert!(said.contains("w.yaml: not a result file"), "{said}");
    let said = refused(&bench(&["compare", "/nowhere.json", &good]));
    assert!(said.contains("/nowhere.json: No such file"), "{said}");
    let before = fs::read(&good).unwrap();
    let said = refused(&bench(&["compare", &good, &good, "--json", &good]));
    assert!(said.contains("--json ") && said.contains("to be read"), "{said}");
    assert_eq!(fs::read(&good).unwrap(), before);
}

#[test]
fn the_suite_is_told_and_written_and_what_is_written_is_what_runs() {
    let ground = Ground::with(&[]);
    let to = ground.word("suite");
    let said = done(&bench(&["suite", "--write", &to]));
    for name in
        ["hash_lookup", "fptree_update", "lbtree_update", "log_store_put", "page_propagation"]
    {
        assert!(said.contains(name), "{name}: {said}");
    }
    assert_eq!(fs::read_dir(&to).unwrap().count(), 10);
    assert_eq!(done(&bench(&["suite"])), said);
    let said = refused(&bench(&["suite", "--write", &to]));
    assert!(said.contains("sequential.yaml: File exists"), "{said}");

    let one = format!("{to}/persist.yaml");
    let results = ground.word("results");
    let bounds = ["--range-max", "1MiB", "--threads-max", "1", "--model", "apache-256"];
    done(&bench(&[&["run", &one, "--results", &results], &bounds[..]].concat()));
    assert_eq!(json(&ground.path("results/persist.json")).as_array().unwrap().len(), 2);

    let said = refused(&bench(&["run", "--suite", &one, "--results", &results]));
    assert!(said.contains("cannot be used with"), "{said}");
    let said = refused(&bench(&["run", "--results", &results]));
    assert!(said.contains("FILE|DIR"), "{said}");
    let said = refused(&bench(&["run", "--suite", "--results", &results]));
    assert!(said.contains("not empty"), "{said}");
}
