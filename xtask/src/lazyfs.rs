//! `cargo xtask test-lazyfs`: serves from a file system that forgets what was not synced.
//!
//! LazyFS (github.com/dsrhaslab/lazyfs) is brought by the user, built as its README says. It keeps
//! writes in its own memory until they are synced, forgets them when told to, writes a part of one
//! write, or crashes at an operation. A server serves from it under load; then server and holder
//! are killed, and another server serves what is left. The client (`oracle.rs`) knows every state
//! that the store may be in.
//!
//! Without LazyFS, the tests over `perdura_media::SimFiles` run: files in memory that forget in the
//! same way, under the same `FileDevice`, cut at every durable operation. They have no server.

mod mount;

use std::fmt::{Display, Formatter};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::oracle::Oracle;
use crate::run::cargo;
use crate::served::{self, Served};
use mount::Mount;

const SIZES: [&str; 6] = ["--memory", "64MiB", "--budget", "4MiB", "--grace", "10s"];
const IMAGE: &str = "image.perdura";

/// How a run of the server ends.
#[derive(Clone, Copy)]
enum Loss {
    /// Server and holder are killed; what was not synced is forgotten.
    Killed,
    /// SIGTERM, the end of server and holder; what was not synced is forgotten.
    Warned,
    /// LazyFS crashes before or after one sync of the image.
    AtSync(&'static str),
    /// LazyFS makes only these quarters of one write durable, and crashes.
    Torn(&'static str),
}

struct Case {
    name: &'static str,
    /// The options of `perdura serve`, in addition to [`SIZES`].
    options: &'static [&'static str],
    /// Whether an unwarned loss keeps every acknowledged write, or only some first of them.
    keeps_all: bool,
    /// The ends of the runs, each with the number of writes that are acknowledged before.
    losses: &'static [(Loss, u64)],
}

const CASES: [Case; 4] = [
    Case {
        name: "durability fsync: everything acknowledged, whatever the loss",
        options: &["--durability", "fsync"],
        keeps_all: true,
        losses: &[
            (Loss::Killed, 640),
            (Loss::Torn("2,4"), 600),
            (Loss::Killed, 2_500),
            (Loss::AtSync("before"), 900),
            (Loss::Torn("1,3"), 1_500),
            (Loss::AtSync("after"), 600),
            (Loss::Warned, 1_000),
            (Loss::Killed, 5_000),
        ],
    },
    Case {
        name: "durability warned, unwarned loss: a checkpoint, never a mixture",
        options: &["--checkpoint", "200ms"],
        keeps_all: false,
        losses: &[
            (Loss::Killed, 8_000),
            (Loss::Torn("4"), 5_000),
            (Loss::AtSync("before"), 8_000),
            (Loss::Killed, 12_000),
            (Loss::Torn("1,4"), 5_000),
            (Loss::AtSync("after"), 5_000),
            (Loss::Killed, 20_000),
        ],
    },
    Case {
        name: "durability warned, SIGTERM and then the loss: everything acknowledged",
        options: &["--checkpoint", "off"],
        keeps_all: false,
        losses: &[(Loss::Warned, 640), (Loss::Warned, 5_000), (Loss::Warned, 15_000)],
    },
    Case {
        name: "durability none: the last complete flush, never a mixture",
        options: &["--durability", "none"],
        keeps_all: false,
        losses: &[(Loss::Warned, 3_000), (Loss::Killed, 6_000), (Loss::Warned, 3_000)],
    },
];

/// The times from the last write to the loss; they vary, so that a loss hits different steps.
const PAUSES_MS: [u64; 4] = [0, 3, 11, 40];

/// Runs all cases over LazyFS, whose program is at `lazyfs`, or the tests over the files in memory.
/// The server is `perdura`, or the one that is built here.
pub fn test(lazyfs: Option<&str>, perdura: Option<&str>) -> Result<()> {
    let Some(lazyfs) = lazyfs else {
        eprintln!(
            "xtask: no --lazyfs PATH: the tests over our own files that forget, without a server"
        );
        cargo(&["test", "-p", "perdura-media", "--quiet", "sim::files"])?;
        return cargo(&["test", "-p", "perdura-region", "--quiet", "--test", "region", "files::"]);
    };
    let lazyfs = fs::canonicalize(lazyfs).with_context(|| format!("--lazyfs {lazyfs}"))?;
    let perdura = served::program(perdura)?;
    // A short path: LazyFS reads commands of at most 100 bytes.
    let place = std::env::temp_dir().join(format!("perdura-{}", std::process::id()));
    let (mut kept, mut failures) = (0, Vec::new());
    for (index, case) in CASES.iter().enumerate() {
        let began = Instant::now();
        let dir = place.join(index.to_string());
        match case.run(&lazyfs, &perdura, &dir) {
            Ok(found) => {
                kept += 1;
                println!("ok    {}: {found}", case.name);
            }
            Err(error) => {
                println!("FAIL  {}: {error:#}", case.name);
                failures.push(case.name);
            }
        }
        eprintln!("  {:.0} s", began.elapsed().as_secs_f64());
    }
    println!("{kept} passed, {} failed", failures.len());
    let place_shown = place.display();
    ensure!(failures.is_empty(), "{} cases failed; see {place_shown}", failures.len());
    fs::remove_dir_all(&place).with_context(|| place_shown.to_string())
}

impl Case {
    /// Runs the case and returns the number of writes of each loss, as text.
    fn run(&self, lazyfs: &Path, perdura: &Path, dir: &Path) -> Result<String> {
        let options = [&SIZES[..], self.options].concat();
        let store = dir.join("store");
        fs::create_dir_all(&store)?;
        let mut mount = Mount::new(lazyfs, dir)?;
        lay_out(perdura, &store, &options, &mount)?;
        let start = |number: usize| {
            let log = dir.join(format!("serve{number}.log"));
            Served::start(perdura, &store, &options, &log)
        };
        // The first write of each run, from which the client knows the run of each value.
        let mut starts = vec![0];
        let mut counts = String::new();
        let (mut served, mut oracle) = start(0)?;
        for (number, (loss, writes)) in self.losses.iter().enumerate() {
            let before = starts[number];
            let load = Load { oracle, from: before, run: number, until: before + writes };
            let pause = Duration::from_millis(PAUSES_MS[number % PAUSES_MS.len()]);
            let acked = load
                .lose(*loss, &mut mount, served, pause)
                .with_context(|| format!("{counts} {loss}"))?;
            (served, oracle) = start(number + 1).with_context(|| format!("{counts} {loss}"))?;
            let found = oracle
                .verify(&starts)
                .with_context(|| format!("{counts} {loss}: {acked} acknowledged"))?;
            counts += &format!(" {loss}: {acked} acknowledged, {found} found;");
            let must_keep_all = self.keeps_all || matches!(loss, Loss::Warned);
            let at_least = if must_keep_all { acked } else { before };
            ensure!(found >= at_least, "{counts} at least {at_least} expected: {}", served.said());
            starts.push(found);
        }
        drop(oracle);
        served.warn()?;
        let image_bytes = fs::metadata(mount.root().join(IMAGE))?.len();
        ensure!(
            image_bytes < mount::CACHE_BYTES,
            "an image of {image_bytes} B fills LazyFS's cache, which then forgets nothing"
        );
        ensure!(starts.iter().any(|start| *start > 0), "{counts} nothing was ever kept");
        Ok(counts.trim().trim_end_matches(';').to_owned())
    }
}

/// Makes a store whose image alone lies on LazyFS, by a symbolic link: LazyFS has no sockets, so
/// the holder's must lie elsewhere. The image is made first and moved then, because an image is
/// never made at the end of a link.
fn lay_out(perdura: &Path, store: &Path, options: &[&str], mount: &Mount) -> Result<()> {
    let (served, mut oracle) = Served::start(perdura, store, options, &store.join("first.log"))?;
    ensure!(oracle.verify(&[])? == 0, "a new store has contents");
    served.warn()?;
    fs::rename(store.join(IMAGE), mount.root().join(IMAGE))?;
    Ok(std::os::unix::fs::symlink(mount.data().join(IMAGE), store.join(IMAGE))?)
}

/// The writes of one run of the server.
struct Load {
    oracle: Oracle,
    from: u64,
    run: usize,
    /// The loss comes after so many acknowledged writes.
    until: u64,
}

impl Load {
    /// Writes, and loses what the loss takes. Returns how many writes were acknowledged.
    fn lose(self, loss: Loss, mount: &mut Mount, served: Served, pause: Duration) -> Result<u64> {
        let Self { mut oracle, from, run, until } = self;
        let acked = Arc::new(AtomicU64::new(from));
        let noted = Arc::clone(&acked);
        let writer = std::thread::spawn(move || {
            oracle.write(from, run, |n| noted.store(n, Ordering::Release))
        });
        while acked.load(Ordering::Acquire) < until {
            ensure!(!writer.is_finished(), "the load ended early: {}", served.said());
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(pause);
        let image = mount.root().join(IMAGE);
        let crash = match loss {
            Loss::Killed | Loss::Warned => None,
            Loss::AtSync(timing) => {
                Some(format!("lazyfs::crash::timing={timing}::op=fsync::from_rgx=image"))
            }
            Loss::Torn(parts) => {
                Some(format!("lazyfs::torn-op::file={}::persist={parts}::parts=4", image.display()))
            }
        };
        match (&crash, loss) {
            (Some(words), _) => {
                mount.command(words)?;
                mount.wait_for_crash()?;
                served.kill_with_holder()?;
                mount.mount_again()?;
            }
            (None, Loss::Warned) => {
                served.warn()?;
                mount.forget()?;
            }
            (None, _) => {
                served.kill_with_holder()?;
                mount.forget()?;
            }
        }
        let written = writer.join().map_err(|_| anyhow!("the client panicked"))?;
        // A server whose file system has crashed refuses writes, and may.
        match written.refusal {
            Some(refusal) if crash.is_none() => {
                bail!("write {} was refused: {refusal:?}", written.acked)
            }
            _ => Ok(written.acked),
        }
    }
}

impl Display for Loss {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Killed => write!(f, "killed"),
            Self::Warned => write!(f, "warned"),
            Self::AtSync(timing) => write!(f, "crash {timing} a sync"),
            Self::Torn(parts) => write!(f, "quarters {parts} of a write"),
        }
    }
}
