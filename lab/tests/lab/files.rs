//! `perdura-lab run --at`: programs whose files are on a modelled medium do the same as without it,
//! in the medium's time.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::process::LAB;
use perdura_media::recording::{Kind, Recording, Step, replay};
use perdura_media::{Model, System};
use perdura_plan::media::Workload;
use serde_json::Value;

/// A folder in memory, or anywhere if there is no /dev/shm.
fn folder() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() }.unwrap()
}

/// `perdura-lab run` with the library that was built for this test.
fn run() -> Command {
    let library = std::env::current_exe().unwrap().with_file_name("libperdura_interpose.so");
    assert!(library.exists(), "no {}", library.display());
    let mut command = Command::new(LAB);
    command.env("PERDURA_INTERPOSE", library).arg("run");
    command
}

/// Whether a program is installed; prints a line that names the test if it is not.
fn found(program: &str, package: &str) -> bool {
    let is_found = Path::new(program).exists();
    if !is_found {
        eprintln!("skipped: no {program}; install Debian's {package}");
    }
    is_found
}

const PYTHON: &str = "/usr/bin/python3";

fn done(output: &Output, what: &str) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {} {said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a program with a folder served; returns its output and the reports of its processes.
fn served(at: &Path, media: &str, words: &[&str]) -> (String, Vec<Value>) {
    let report = at.with_extension("json");
    let mut command = run();
    command.arg("--at").arg(at).args(["--media", media, "--report-json"]).arg(&report);
    let output = command.arg("--").args(words).output().unwrap();
    let printed = done(&output, &words.join(" "));
    let lines = std::fs::read_to_string(&report).unwrap_or_default();
    let reports = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let _ = std::fs::remove_file(&report);
    (printed, reports)
}

fn number(report: &Value, path: &str) -> u64 {
    let found = report.pointer(path).and_then(Value::as_u64);
    found.unwrap_or_else(|| panic!("no number {path} in {report}"))
}

/// All files of a folder with their bytes.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let name = path.strip_prefix(folder).unwrap().to_owned();
                    found.push((name, std::fs::read(path).unwrap()));
                }
            }
        }
    }
    found.sort();
    found
}

#[test]
fn random_calls_give_and_leave_the_same_as_without_the_library() {
    if !found(PYTHON, "python3") {
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/files/oracle.py");
    let script = script.to_str().unwrap();
    for seed in 1..=12 {
        let (plain, other) = (folder(), folder());
        let words = |at: &Path| {
            [PYTHON, script, at.to_str().unwrap(), &seed.to_string(), "400"].map(str::to_owned)
        };
        let words_plain = words(plain.path());
        let output = Command::new(PYTHON).args(&words_plain[1..]).output().unwrap();
        let expected = done(&output, "the oracle itself");
        let words_other = words(other.path());
        let words_other: Vec<&str> = words_other.iter().map(String::as_str).collect();
        let (printed, _) = served(other.path(), "dram", &words_other);
        let again =
            format!("perdura-lab run --at DIR --media dram -- {PYTHON} {script} DIR {seed} 400");
        let mut lines = expected.lines().zip(printed.lines()).enumerate();
        if let Some((line, (expected, printed))) = lines.find(|(_, (a, b))| a != b) {
            panic!("seed {seed}, line {line}: {printed:?} in the place of {expected:?}; {again}");
        }
        assert_eq!(expected.len(), printed.len(), "seed {seed}; {again}");
        let is_same = contents(plain.path()) == contents(other.path());
        assert!(is_same, "seed {seed}: files differ; {again}");
    }
}

#[test]
fn offsets_are_where_they_would_be_for_everybody_who_shares_them() {
    if !found(PYTHON, "python3") {
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/files/offsets.py");
    let (plain, other) = (folder(), folder());
    let words = |at: &Path| {
        let (script, at) = (script.to_str().unwrap(), at.to_str().unwrap());
        [PYTHON, script, at, "execl", "execlp", "execle"].map(str::to_owned)
    };
    let output = Command::new(PYTHON).args(&words(plain.path())[1..]).output().unwrap();
    let expected = done(&output, "the oracle itself");
    assert!(expected.contains("execle 0"), "{expected}");
    let words = words(other.path());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (printed, _) = served(other.path(), "dram", &words);
    assert_eq!(expected, printed);
}

#[test]
fn copies_and_streams_and_shells_leave_the_same_files() {
    let script = r#"
        set -e; cd "$0"
        i=0; while [ $i -lt 3000 ]; do echo "line $i of the first file"; i=$((i+1)); done > lines
        { echo before; cat lines; echo after; } > joined
        echo more >> joined; cat lines >> joined
        cp lines copied; cp --sparse=always joined sparse; mv copied moved
        dd if=joined of=cut bs=1000 skip=3 count=40 2> /dev/null
        dd if=lines of=cut bs=512 seek=7 count=3 conv=notrunc,fsync 2> /dev/null
        dd if=lines of=direct bs=4096 count=2 oflag=append conv=notrunc 2> /dev/null
        head -c 5000 joined | tail -c 100 > tail; sort -r lines > sorted
        md5sum lines joined cut > sums
        sed -i s/line/LINE/ moved; truncate -s 12345 sparse; cat moved sparse | wc -c > count
        cat sums count; exec 3<> lines; read first <&3; echo "$first"; cat <&3 | wc -l
        read none <&3 || echo end
    "#;
    for shell in ["sh", "bash"] {
        let (plain, other) = (folder(), folder());
        let words = |at: &Path| ["-c", script, at.to_str().unwrap()].map(str::to_owned);
        let output = Command::new(shell).args(words(plain.path())).output().unwrap();
        let expected = done(&output, shell);
        let [c, script, at] = &words(other.path());
        let (printed, reports) = served(other.path(), "dram", &[shell, c, script, at]);
        assert_eq!(printed, expected, "{shell}");
        assert!(contents(plain.path()) == contents(other.path()), "{shell}: files differ");
        let sum = |path: &str| reports.iter().map(|report| number(report, path)).sum::<u64>();
        assert!(sum("/passed_streams") > 0, "md5sum reads by streams: {reports:?}");
        let moved = |kind: &str| {
            let of = reports.iter().filter(|report| report.get("requests").is_some());
            of.map(|report| number(report, &format!("/requests/{kind}/requests"))).sum::<u64>()
        };
        let (reads, writes) = (moved("reads"), moved("writes"));
        assert!(reads > 40 && writes > 40, "{shell}: {reads} and {writes}: {reports:?}");
    }
}

const SQLITE: &str = r"
import sqlite3, sys, random
draw = random.Random(7)
base = sqlite3.connect(sys.argv[1] + '/base'); base.execute('pragma journal_mode=' + sys.argv[2])
base.execute('create table if not exists t (k integer primary key, v blob)')
for n in range(60):
    with base:
        for _ in range(20):
            row = (draw.randrange(2000), draw.randbytes(300))
            base.execute('insert or replace into t values (?, ?)', row)
    if n % 10 == 9:
        try:
            with base: base.execute('delete from t where k % 3 = 0'); raise KeyError
        except KeyError: pass
base.execute('vacuum')
sums = base.execute('select count(*), sum(k), sum(length(v)) from t').fetchone()
print(base.execute('pragma integrity_check').fetchone(), sums)
base.close()
";

#[test]
fn sqlite_keeps_its_databases_there() {
    if !found(PYTHON, "python3") {
        return;
    }
    for journal in ["delete", "wal", "truncate"] {
        let (plain, other) = (folder(), folder());
        let words = |at: &Path| ["-c", SQLITE, at.to_str().unwrap(), journal].map(str::to_owned);
        let output = Command::new(PYTHON).args(words(plain.path())).output().unwrap();
        let expected = done(&output, journal);
        let [c, script, at, journal] = &words(other.path());
        let (printed, reports) =
            served(other.path(), "pcie-pcm", &[PYTHON, c, script, at, journal]);
        assert_eq!(printed, expected, "{journal}");
        assert!(printed.starts_with("('ok',)"), "{printed}");
        assert!(number(&reports[0], "/requests/writes/requests") > 100, "{reports:?}");
        assert!(number(&reports[0], "/requests/flushes/requests") > 10, "{reports:?}");
        // One program wrote the file, the other one reads it.
        let output = Command::new(PYTHON).args(words(other.path())).output().unwrap();
        assert!(done(&output, journal).starts_with("('ok',)"));
    }
}

const BERKELEY: &str = r"
import sys, random
from bsddb3 import db
env = db.DBEnv(); env.set_cachesize(0, 1 << 20)
parts = db.DB_INIT_MPOOL | db.DB_INIT_TXN | db.DB_INIT_LOG | db.DB_INIT_LOCK
env.open(sys.argv[1], db.DB_CREATE | parts | db.DB_PRIVATE)
draw = random.Random(3)
for kind, name in ((db.DB_BTREE, 'btree'), (db.DB_HASH, 'hash')):
    base = db.DB(env); base.open(name, dbtype=kind, flags=db.DB_CREATE | db.DB_AUTO_COMMIT)
    for n in range(300):
        txn = env.txn_begin()
        for _ in range(4): base.put(b'%08d' % draw.randrange(5000), draw.randbytes(400), txn=txn)
        txn.abort() if n % 17 == 0 else txn.commit()
    env.txn_checkpoint()
    print(name, len(base.keys()), sum(map(sum, base.values()))); base.close()
env.close()
for name in ('btree', 'hash'): db.DB().verify(sys.argv[1] + '/' + name); print(name, 'sound')
";

#[test]
fn berkeley_db_makes_its_transactions_there() {
    let proof = "/usr/lib/python3/dist-packages/bsddb3";
    if !found(PYTHON, "python3") || !found(proof, "python3-bsddb3") {
        return;
    }
    let (plain, other) = (folder(), folder());
    let words = |at: &Path| ["-c", BERKELEY, at.to_str().unwrap()].map(str::to_owned);
    let expected = done(&Command::new(PYTHON).args(words(plain.path())).output().unwrap(), "plain");
    let [c, script, at] = &words(other.path());
    let (printed, reports) = served(other.path(), "pcie-pcm", &[PYTHON, c, script, at]);
    assert_eq!(printed, expected);
    assert!(printed.ends_with("hash sound\n"), "{printed}");
    assert!(number(&reports[0], "/requests/flushes/requests") >= 500, "{reports:?}");
}

#[test]
fn fio_finds_what_it_wrote_by_several_threads() {
    if !found("/usr/bin/fio", "fio") {
        return;
    }
    for (engine, kind) in [("psync", "randrw"), ("sync", "write"), ("pvsync2", "randwrite")] {
        let folder = folder();
        let words = format!(
            "fio --name=job --directory={} --thread --numjobs=3 --size=8m --bs=4k --rw={kind} \
             --ioengine={engine} --verify=crc32c --do_verify=1 --verify_fatal=1 --randseed=5 \
             --fsync=64 --allow_mounted_write=1 --verify_state_save=0",
            folder.path().display()
        );
        let words: Vec<&str> = words.split_whitespace().collect();
        let (printed, reports) = served(folder.path(), "dram", &words);
        assert!(printed.contains("err= 0"), "{engine}: {printed}");
        let sum = |path: &str| -> u64 {
            let all = reports.iter().filter(|report| report.get("requests").is_some());
            all.map(|report| number(report, path)).sum()
        };
        assert!(sum("/requests/reads/requests") > 1000, "{engine}: {reports:?}");
        assert!(sum("/requests/writes/requests") > 1000, "{engine}: {reports:?}");
    }
}

/// Reads and overwrites at random by all four calls, between two calls that mark the range in the
/// trace.
const OVERWRITES: &str = r"
import os, sys, random
fd = os.open(sys.argv[1], os.O_RDWR); size = os.fstat(fd).st_size
draw = random.Random(1); block = draw.randbytes(4096)
places = [draw.randrange(size // 4096) * 4096 for _ in range(2000)]
os.umask(0o12)
for at in places:
    os.pread(fd, 4096, at); os.pwrite(fd, block, at)
    os.lseek(fd, at, 0); os.read(fd, 4096)
    os.lseek(fd, at, 0); os.write(fd, block)
    os.fsync(fd)
os.umask(0o13)
";

fn made(folder: &Path, bytes: usize) -> String {
    let path = folder.join("data");
    std::fs::write(&path, vec![7; bytes]).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn reads_and_overwrites_make_no_system_call() {
    if !found(PYTHON, "python3") {
        return;
    }
    let folder = folder();
    let path = made(folder.path(), 4 << 20);
    let (_, reports) = served(folder.path(), "dram", &[PYTHON, "-c", OVERWRITES, &path]);
    assert_eq!(number(&reports[0], "/in_kernel_requests"), 0, "{reports:?}");
    assert_eq!(number(&reports[0], "/requests/reads/requests"), 4000, "{reports:?}");
    if !found("/usr/bin/strace", "strace") {
        return;
    }
    let trace = tempfile::NamedTempFile::new().unwrap();
    let words = ["strace", "-o", trace.path().to_str().unwrap(), PYTHON, "-c", OVERWRITES, &path];
    served(folder.path(), "dram", &words);
    let trace = std::fs::read_to_string(trace.path()).unwrap();
    let calls: Vec<&str> =
        trace.lines().skip_while(|line| !line.starts_with("umask(012")).collect();
    let end = calls.iter().position(|line| line.starts_with("umask(013")).expect("the end");
    // Requests to Python's own memory do not count.
    let is_data =
        |line: &&&str| !["mmap(NULL", "munmap(", "brk("].iter().any(|own| line.starts_with(own));
    let calls: Vec<&&str> = calls[1..end].iter().filter(is_data).collect();
    assert!(calls.is_empty(), "{} system calls, the first: {}", calls.len(), calls[0]);
}

const READS: &str = r"
import os, sys, random
fd = os.open(sys.argv[1], os.O_RDONLY); size = os.fstat(fd).st_size
draw = random.Random(1)
for at in [draw.randrange(size // 4096) * 4096 for _ in range(2000)]: os.pread(fd, 4096, at)
";

#[test]
fn half_of_the_reads_take_what_the_model_says_within_a_twentieth() {
    if !found(PYTHON, "python3") {
        return;
    }
    let folder = folder();
    let path = made(folder.path(), 16 << 20);
    for media in ["pcie-pcm", "pcie-flash"] {
        let (_, reports) = served(folder.path(), media, &[PYTHON, "-c", READS, &path]);
        let modelled = number(&reports[0], "/requests/reads/modelled_ns_p50") as f64;
        let measured = number(&reports[0], "/requests/reads/measured_ns_p50") as f64;
        let error = measured / modelled - 1.0;
        assert!(error.abs() < 0.05, "{media}: modelled {modelled} ns, measured {measured} ns");
    }
}

const WRITER: &str = r"
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 1 << 20)
n = 0
while True:
    n += 1
    os.pwrite(fd, b'%015d\n' % n, n % 60000 * 16)
    os.pwrite(fd, b'%015d\n' % n, (1 << 20) + n * 16)
    os.write(1, b'%d\n' % n)
";

#[test]
fn a_killed_program_leaves_all_writes_that_it_had_made() {
    if !found(PYTHON, "python3") {
        return;
    }
    let folder = folder();
    let path = folder.path().join("data");
    let mut command = run();
    command.arg("--at").arg(folder.path()).args(["--media", "dram", "--", PYTHON, "-c", WRITER]);
    let mut child = command.arg(&path).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut last = 0;
    while last < 5000 {
        last = lines.next().unwrap().unwrap().parse().unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for line in lines {
        // The last line may be cut off.
        last = line.unwrap().parse::<usize>().map_or(last, |n| n.max(last));
    }
    let bytes = std::fs::read(&path).unwrap();
    let record = |at: usize| String::from_utf8_lossy(&bytes[at..at + 15]).parse::<usize>();
    for n in 1..=last {
        assert_eq!(record((1 << 20) + n * 16), Ok(n), "appended, of {last}");
        let overwritten = record(n % 60000 * 16).unwrap();
        assert!(overwritten >= n && overwritten % 60000 == n % 60000, "{overwritten} for {n}");
    }
}

const RECORDED: &str = r"
import os, sys
fd = os.open(sys.argv[1] + '/a', os.O_RDWR | os.O_CREAT)
os.write(fd, bytes(10000)); os.pread(fd, 100, 50); os.fsync(fd)
os.pwrite(fd, b'xyz', 9000); os.lseek(fd, 9990, 0); os.read(fd, 100)
os.read(fd, 100); sum(range(1000000))
other = os.open(sys.argv[1] + '/b', os.O_RDWR | os.O_CREAT); os.write(other, b'1')
if len(sys.argv) > 2: os.kill(os.getpid(), 9)
";

#[test]
fn a_recording_holds_what_was_asked_and_is_replayed_on_any_medium() {
    if !found(PYTHON, "python3") {
        return;
    }
    let (folder, apart) = (folder(), tempfile::tempdir().unwrap());
    let trace = apart.path().join("steps");
    let record = |more: &[&str]| {
        let mut command = run();
        command.arg("--at").arg(folder.path()).arg("--record").arg(&trace).args(["--", PYTHON]);
        let output = command.args(["-c", RECORDED]).arg(folder.path()).args(more).output().unwrap();
        (output, Recording::open(&trace).unwrap())
    };
    let (output, recording) = record(&[]);
    done(&output, "recorded");
    assert!(recording.is_finished && recording.threads_seen == 1, "{recording:?}");
    let asked = |recording: &Recording| -> Vec<(Kind, u64, u32)> {
        let step = |step: &Step| (step.kind, step.offset_bytes, step.len_bytes);
        recording.steps.iter().map(step).collect()
    };
    let expected = [
        (Kind::Write, 0, 10000),
        (Kind::Read, 50, 100),
        (Kind::Flush, 0, 0),
        (Kind::Write, 9000, 3),
        (Kind::Read, 9990, 10),
        (Kind::Write, 64 << 20, 1),
    ];
    assert_eq!(asked(&recording), expected);
    let thought_ps = recording.steps[5].think_ps;
    assert!(thought_ps > 1_000_000_000, "it computed for {thought_ps} ps only");
    let elapsed = ["dram", "pcie-pcm", "disk-raid0"].map(|name| {
        let system = System::find(name).unwrap();
        let replayed = replay(&recording.steps, &Model::new(&system, 1 << 30));
        assert_eq!((replayed.reads, replayed.writes, replayed.flushes), (2, 3, 1));
        assert_eq!(replayed.elapsed_ps, replayed.think_ps + replayed.medium_ps);
        replayed.elapsed_ps
    });
    assert!(elapsed.is_sorted(), "{elapsed:?}");
    // The file is recorded once more in place of the first one, by a program that is killed.
    std::fs::remove_file(folder.path().join("a")).unwrap();
    let (output, recording) = record(&["kill"]);
    assert!(!output.status.success() && !recording.is_finished);
    assert_eq!(asked(&recording), expected);
}

#[test]
fn what_cannot_be_is_refused_before_the_program_starts() {
    let folder = folder();
    let at = folder.path().to_str().unwrap();
    let mine = folder.path().with_extension("mine");
    std::fs::write(&mine, "not a recording, and somebody's").unwrap();
    let mine = mine.to_str().unwrap();
    let inside = format!("{at}/steps");
    let cases: [(&[&str], &[&str]); 10] = [
        (&["--at", at, "--media", "no-such"], &["--media no-such", "pcie-pcm"]),
        (&["--at", at, "--media", "pcm", "--link", "rope"], &["--link rope", "pcie1x8"]),
        (&["--at", at, "--media", "/no/such.toml"], &["/no/such.toml"]),
        (&["--media", "pcm"], &["--at"]),
        (&["--at", at, "--link", "pcie1x8"], &["--media"]),
        (&["--at", "/no/such/folder/file"], &["--at /no/such/folder/file"]),
        (&["--at", "/"], &["--at /"]),
        (&["--at", "/dev/null"], &["--at /dev/null", "neither a file nor a directory"]),
        (&["--at", at, "--record", &inside], &["among the served files"]),
        (&["--at", at, "--record", mine], &["not a recording", "not replaced"]),
    ];
    for (words, said) in cases {
        let output = run().args(words).args(["--", "echo", "began"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && output.stdout.is_empty(), "{words:?} went on");
        for word in said {
            assert!(text.contains(word), "{words:?}: {word:?} is missing in: {text}");
        }
    }
    let read = std::fs::read(mine).unwrap();
    assert_eq!(read, b"not a recording, and somebody's");
    std::fs::remove_file(mine).unwrap();
    let output = run().args(["--at", at, "--record", mine, "--record-steps", "0", "echo"]).output();
    let text = String::from_utf8_lossy(&output.unwrap().stderr).into_owned();
    assert!(text.contains("--record-steps 0"), "{text}");
}

#[test]
fn a_recorded_program_is_a_load() {
    let dir = tempfile::tempdir().unwrap();
    let (data, recording) = (dir.path().join("data"), dir.path().join("recording"));
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("in"), vec![7u8; 1 << 20]).unwrap();
    let library = std::env::current_exe().unwrap().with_file_name("libperdura_interpose.so");
    let ran = Command::new(LAB)
        .env("PERDURA_INTERPOSE", library)
        .args([
            "run",
            "--at",
            data.to_str().unwrap(),
            "--record",
            recording.to_str().unwrap(),
            "--",
            "/usr/bin/python3",
            "-c",
        ])
        .arg(
            "import os, sys\nf = os.open(sys.argv[1], os.O_RDONLY)\nfor i in range(100): \
              os.pread(f, 4096, i * 8192)",
        )
        .arg(data.join("in"))
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let recording = Recording::open(&recording).unwrap();
    let load = Workload::of_recording(&recording, &Workload::default()).unwrap();
    assert_eq!([load.request_bytes, load.capacity_bytes], [4 << 10, 400 << 10]);
    assert_eq!(load.read_share, 1.0);
}
