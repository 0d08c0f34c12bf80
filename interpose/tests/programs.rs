//! Programs with the library preloaded do what they do without it, and have their memory in the
//! heap.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// The library beside this test.
fn library() -> PathBuf {
    let path = std::env::current_exe().unwrap().with_file_name("libperdura_interpose.so");
    assert!(path.exists(), "no {}", path.display());
    path
}

fn preloaded(program: impl AsRef<std::ffi::OsStr>, settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library()).env("PERDURA_CAPACITY", "anonymous");
    command.env("PERDURA_CAPACITY_REPORT", "1");
    command.env("PERDURA_CAPACITY_BYTES", (1 << 30).to_string());
    command.envs(settings.iter().copied());
    command
}

/// What a process said of its memory at its end: bytes of the heap, objects from elsewhere; the
/// last that said it.
fn report(output: &Output) -> (u64, u64) {
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().rev().find(|line| line.contains("capacity_bytes="));
    let line = line.unwrap_or_else(|| panic!("no report: {text}"));
    let number = |name: &str| {
        let rest = line.split(name).nth(1).unwrap().trim_start_matches('=');
        rest.split(' ').next().unwrap().parse().unwrap()
    };
    (number("capacity_bytes"), number("elsewhere_objects"))
}

/// The program of `programs.c`; `None`: no compiler.
fn program(folder: &TempDir, more: &[&str]) -> Option<PathBuf> {
    let path = folder.path().join("program");
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Wno-use-after-free", "-Wno-free-nonheap-object"])
        .args(["-Wno-unknown-warning-option", "-fno-builtin", "-pthread", "-o"])
        .arg(&path)
        .args(more)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs.c"))
        .output();
    let Ok(output) = compiled else {
        eprintln!("skipped: no C compiler; install gcc");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(path)
}

fn runs_well(part: &str, settings: &[(&str, &str)]) -> Option<Output> {
    let folder = tempfile::tempdir().unwrap();
    let program = program(&folder, &[])?;
    let output = preloaded(program, settings).arg(part).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{part}: {} {said}", output.status);
    assert_eq!(output.stdout, b"done\n", "{said}");
    Some(output)
}

#[test]
fn threads_and_forked_children_keep_their_memory_apart() {
    let Some(output) = runs_well("threads", &[]) else { return };
    assert!(report(&output).0 >= 1 << 20, "{output:?}");
}

#[test]
fn a_forked_child_has_a_file_of_its_own() {
    let Some(folder) = medium() else { return };
    let dir = folder.path().to_str().unwrap();
    let Some(output) = runs_well("threads", &[("PERDURA_CAPACITY", dir)]) else { return };
    assert!(report(&output).0 >= 1 << 20, "{output:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "files have no names");
}

#[test]
fn several_threads_fork_at_once() {
    runs_well("forks", &[]);
    let Some(folder) = medium() else { return };
    runs_well("forks", &[("PERDURA_CAPACITY", folder.path().to_str().unwrap())]);
}

#[test]
fn libraries_may_use_memory_before_and_after_a_fork() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("forking.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/forking_library.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source);
    if !compiler.output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no C compiler; install gcc");
        return;
    }
    let linked = ["-Wl,--no-as-needed", library.to_str().unwrap()];
    let Some(program) = program(&folder, &linked) else { return };
    let output = preloaded(program, &[]).arg("fork").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output.stdout == b"done\n", "{} {said}", output.status);
    assert!(report(&output).0 > 0, "{said}");
}

#[test]
fn a_process_without_descriptors_left_can_fork() {
    runs_well("no-descriptors", &[]);
    let Some(folder) = medium() else { return };
    let dir = folder.path().to_str().unwrap();
    runs_well("no-descriptors", &[("PERDURA_CAPACITY", dir)]);
}

#[test]
fn freeing_changes_no_errno() {
    let Some(folder) = medium() else { return };
    runs_well("errno", &[("PERDURA_CAPACITY", folder.path().to_str().unwrap())]);
}

/// A shell's subshells write to a descriptor that the shell opened under the number that was free.
#[test]
fn the_heaps_file_is_under_no_number_that_programs_count_on() {
    let Some(folder) = medium() else { return };
    let out = folder.path().join("out");
    let script =
        "exec 3>\"$0\"; echo parent >&3; (echo child >&3); /bin/true | cat; (echo again >&3)";
    let settings = [("PERDURA_CAPACITY", folder.path().to_str().unwrap())];
    let mut command = preloaded("bash", &settings);
    let Ok(output) = command.args(["-c", script]).arg(&out).output() else {
        eprintln!("skipped: no bash");
        return;
    };
    assert!(output.status.success() && report(&output).0 > 0, "{output:?}");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "parent\nchild\nagain\n");
}

#[test]
fn a_program_that_closes_the_heaps_file_gets_nothing_into_its_own() {
    let Some(folder) = medium() else { return };
    let own = folder.path().join("own");
    let Some(program) = program(&folder, &[]) else { return };
    let settings = [("PERDURA_CAPACITY", folder.path().to_str().unwrap())];
    let output = preloaded(program, &settings).arg("close-all").arg(&own).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output.stdout == b"done\n", "{} {said}", output.status);
    // Nor the report, which has nowhere to go.
    assert_eq!((said.as_ref(), std::fs::read(&own).unwrap()), ("", Vec::new()));
}

#[test]
fn threads_leave_nothing_behind() {
    runs_well("many-threads", &[]);
}

#[test]
fn a_large_table_costs_what_is_touched_of_it() {
    runs_well("sparse", &[]);
}

#[test]
fn freed_memory_goes_back_to_the_system() {
    runs_well("give-back", &[]);
    let Some(folder) = medium() else { return };
    runs_well("give-back", &[("PERDURA_CAPACITY", folder.path().to_str().unwrap())]);
}

#[test]
fn sizes_alignments_and_errno_are_as_the_manual_says() {
    runs_well("manners", &[]);
}

#[test]
fn what_the_heap_has_no_room_for_comes_from_elsewhere_and_goes_back() {
    let small = (64 << 20).to_string();
    let settings = [("PERDURA_CAPACITY_BYTES", small.as_str())];
    let Some(output) = runs_well("exhaust", &settings) else { return };
    let (bytes, elsewhere) = report(&output);
    assert!(bytes <= 64 << 20 && elsewhere > 1000, "{bytes} {elsewhere}");
}

#[test]
fn a_full_medium_ends_no_program() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(&folder, &[]) else { return };
    let dir = folder.path().join("medium");
    std::fs::create_dir(&dir).unwrap();
    let mount = "mount -t tmpfs -o size=32m none \"$1\" && exec \"$0\" exhaust";
    let may = "mount -t tmpfs -o size=32m none \"$1\"";
    let inside = |script: &str| {
        let mut command = preloaded("unshare", &[]);
        command.args(["--mount", "sh", "-c", script]).arg(&program).arg(&dir);
        command.env_remove("LD_PRELOAD");
        command
    };
    if !inside(may).output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: this user may not mount a file system");
        return;
    }
    let preload =
        format!("export LD_PRELOAD={}; export PERDURA_CAPACITY=$1; ", library().display());
    let script = mount.replace("exec", &(preload + "exec"));
    let output =
        inside(&script.replace("&& export", "&& { export").replace("exhaust", "exhaust; }"))
            .output()
            .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output.stdout == b"done\n", "{} {said}", output.status);
    let (bytes, elsewhere) = report(&output);
    assert!(bytes > 0 && bytes <= 32 << 20 && elsewhere > 1000, "{said}");
}

/// A folder in memory, where a test costs no device time.
fn medium() -> Option<TempDir> {
    let made = tempfile::tempdir_in("/dev/shm").ok();
    if made.is_none() {
        eprintln!("skipped: no /dev/shm");
    }
    made
}

#[test]
fn memory_freed_twice_or_from_nowhere_ends_the_program_with_its_address() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(&folder, &[]) else { return };
    for (part, words) in
        [("double-free", "freed before"), ("foreign", "neither in capacity memory")]
    {
        let output = preloaded(&program, &[]).arg(part).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
        assert!(said.contains("perdura: free(0x") && said.contains(words), "{said}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn settings_that_cannot_be_end_the_program_before_it_begins() {
    for (name, value, words) in [
        ("PERDURA_CAPACITY_BYTES", "many", "PERDURA_CAPACITY_BYTES=many"),
        ("PERDURA_CAPACITY_BYTES", "1000", "a heap of"),
        ("PERDURA_CAPACITY", "/nonexistent/folder", "/nonexistent/folder"),
        ("PERDURA_NUMA_NODE", "99", "NUMA node 99"),
        ("PERDURA_NUMA_NODE", "-1", "PERDURA_NUMA_NODE=-1"),
    ] {
        let output = preloaded("echo", &[(name, value)]).arg("begun").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(127), "{name}={value}: {said}");
        assert!(output.stdout.is_empty() && said.contains(words), "{name}={value}: {said}");
    }
}

#[test]
fn where_addresses_or_files_are_limited_the_heap_is_smaller() {
    let Some(folder) = medium() else { return };
    let dir = folder.path().to_str().unwrap();
    for capacity in ["anonymous", dir] {
        for limit in ["-v 8000000", "-v 500000", "-f 300000"] {
            let script = format!("ulimit {limit}; exec \"$0\" begun");
            let mut command = preloaded("bash", &[("PERDURA_CAPACITY", capacity)]);
            command.env_remove("PERDURA_CAPACITY_BYTES").env_remove("LD_PRELOAD");
            let script =
                script.replace("exec", &format!("LD_PRELOAD={} exec", library().display()));
            let output = command.args(["-c", &script, "/bin/echo"]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{capacity}, {limit}: {} {said}", output.status);
            assert_eq!(output.stdout, b"begun\n");
            assert!(report(&output).0 > 0, "{capacity}, {limit}: {said}");
        }
    }
}

#[test]
fn memory_can_be_bound_to_a_numa_node() {
    if !Path::new("/proc/self/numa_maps").exists() {
        eprintln!("skipped: this kernel knows of no NUMA nodes");
        return;
    }
    let output =
        preloaded("cat", &[("PERDURA_NUMA_NODE", "0")]).arg("/proc/self/numa_maps").output();
    let output = output.unwrap();
    let maps = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && report(&output).0 > 0, "{output:?}");
    assert!(maps.contains("bind:0"), "{maps}");
}

/// Each program with and without: the same output, and with, its heap is in capacity memory.
#[test]
fn ordinary_programs_do_what_they_do() {
    let folder = tempfile::tempdir().unwrap();
    let numbers = folder.path().join("numbers");
    let text: String = (0..200_000_u64).map(|n| format!("{}\n", n * 7_919 % 1_000_003)).collect();
    std::fs::write(&numbers, text).unwrap();
    let numbers = numbers.to_str().unwrap();
    // A folder of the test's own: what others list may change between the two runs.
    let listed = folder.path().join("listed");
    std::fs::create_dir(&listed).unwrap();
    (0..100).for_each(|n| std::fs::write(listed.join(format!("file {n}")), "").unwrap());
    let listed = listed.to_str().unwrap();
    let loops = "for i in 1 2 3; do x=$(echo $i | tr 1-3 a-c); (echo $x; ls \"$0\" | wc -l); done";
    let python = "import json,threading\nr=[]\n\
                  def f(n):\n r.append(sum(len(json.dumps({str(i):[i]*9})) for i in range(n)))\n\
                  t=[threading.Thread(target=f,args=(3000,)) for _ in range(4)]\n\
                  [x.start() for x in t];[x.join() for x in t]\nprint(r)";
    let spawn = "import subprocess;print(subprocess.check_output(['sort','-n',%r])[-20:])"
        .replace("%r", &format!("{numbers:?}"));
    let programs: [&[&str]; 8] = [
        &["ls", "-l", listed],
        &["sort", "-n", numbers],
        &["sort", "--parallel=2", "-S", "1M", numbers],
        &["bash", "-c", loops, listed],
        &["xz", "-1", "-c", numbers],
        &["python3", "-c", python],
        &["python3", "-c", &spawn],
        &[
            "perl",
            "-e",
            "my %h; $h{$_}=$_ x 9 for 1..50000; print scalar(keys %h), $h{777}, `echo forked`",
        ],
    ];
    for words in programs {
        let run = |mut command: Command| command.args(&words[1..]).stdin(Stdio::null()).output();
        let Ok(plain) = run(Command::new(words[0])) else {
            eprintln!("skipped: {} is not installed", words[0]);
            continue;
        };
        let moved = run(preloaded(words[0], &[])).unwrap();
        assert!(plain.status.success(), "{words:?} {plain:?}");
        let said = String::from_utf8_lossy(&moved.stderr);
        assert!(moved.status.success(), "{words:?}: {} {said}", moved.status);
        assert!(moved.stdout == plain.stdout, "{words:?} says something else: {said}");
        assert!(report(&moved).0 > 0, "{words:?}: {said}");
    }
}

#[test]
fn a_redis_server_serves_and_saves_from_a_forked_child() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let mut command = preloaded("redis-server", &[]);
    command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket);
    command.args(["--dir"]).arg(folder.path()).stdout(Stdio::null()).stderr(Stdio::piped());
    let Ok(mut server) = command.spawn() else {
        eprintln!("skipped: redis-server is not installed");
        return;
    };
    let ask = |words: &[&str]| {
        let output = Command::new("redis-cli").arg("-s").arg(&socket).args(words).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let began = std::time::Instant::now();
    while ask(&["PING"]) != "PONG" {
        assert!(server.try_wait().unwrap().is_none(), "the server ended");
        assert!(began.elapsed().as_secs() < 20, "no answer");
    }
    assert_eq!(
        ask(&[
            "EVAL",
            "for i=1,20000 do redis.call('SET','k'..i,string.rep('x',i%500)) end return 'ok'",
            "0"
        ]),
        "ok"
    );
    assert_eq!(ask(&["GET", "k499"]), "x".repeat(499));
    ask(&["BGSAVE"]);
    while ask(&["INFO", "persistence"]).contains("rdb_bgsave_in_progress:1") {}
    assert!(ask(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:ok"));
    assert!(folder.path().join("dump.rdb").metadata().unwrap().len() > 1000);
    ask(&["SHUTDOWN", "NOSAVE"]);
    let output = server.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(report(&output).0 >= 2 << 20, "{output:?}");
}
