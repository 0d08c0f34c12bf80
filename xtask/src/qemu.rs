//! `cargo xtask test-qemu`: a whole machine is lost, kernel and page cache with it, and boots
//! again.
//!
//! Each case serves from one disk through several cuts: boot, verify, write, SIGKILL to QEMU. The
//! guest's client (`xtask/examples/qemu_guest.rs`) knows every state that the store may be in and
//! says over the serial console how many writes were acknowledged. A cut comes at a number of
//! acknowledged writes, and a few milliseconds on.
//!
//! The disk behaves like one with a volatile write cache: what the guest has not flushed is, in
//! part, lost (see `machine::Machine::new_disk`). The host itself goes on running: this is the loss
//! of a guest.
//!
//! Beside the cuts, an NVDIMM becomes system RAM, and capacity memory is bound to it (`numa.rs`);
//! and another one becomes a DAX file system, which a workload measures (`dax.rs`, `cargo xtask
//! test-dax`).

mod dax;
mod machine;
mod numa;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use machine::{Guest, Machine, SERVE};

const SIZES: &str = "--memory 64MiB --budget 4MiB --grace 10s --flush-threads 1";
const NUMA_NAME: &str = "an NVDIMM as NUMA node: capacity memory on it, nothing else";
/// `cargo xtask test-dax` runs this one alone.
pub const DAX_NAME: &str = "an NVDIMM as DAX file system: a workload with MAP_SYNC";

struct Case {
    name: &'static str,
    /// Options of `perdura serve`, beside the sizes.
    options: &'static str,
    is_warned: bool,
    /// Whether everything acknowledged must be there, or only a prefix.
    keeps_all: bool,
    /// What the banner must say after a cut.
    origin: &'static str,
    /// Writes acknowledged in each boot before it is cut.
    writes: [u64; 3],
}

/// From the console line to the cut, so that cuts fall in different steps of a commit.
const PAUSES_MS: [u64; 3] = [0, 3, 11];

const CASES: [Case; 3] = [
    Case {
        name: "unwarned loss, durability fsync: everything acknowledged",
        options: "--durability fsync",
        is_warned: false,
        keeps_all: true,
        origin: "loaded from the last checkpoint",
        writes: [640, 2_500, 5_000],
    },
    Case {
        name: "unwarned loss, durability warned: a checkpoint, never a mixture",
        options: "--checkpoint 300ms",
        is_warned: false,
        keeps_all: false,
        origin: "loaded from the last checkpoint",
        writes: [8_000, 12_000, 20_000],
    },
    Case {
        name: "warned loss (SIGTERM), durability warned: everything acknowledged",
        options: "--checkpoint off",
        is_warned: true,
        keeps_all: true,
        origin: "loaded after a complete flush",
        writes: [640, 5_000, 15_000],
    },
];

/// All cases whose names contain `part`.
pub fn test(part: &str) -> Result<()> {
    let mut names = CASES.iter().map(|case| case.name).chain([NUMA_NAME, DAX_NAME]);
    ensure!(names.any(|name| name.contains(part)), "no case of test-qemu is called {part:?}");
    let machine = Machine::prepare()?;
    let (mut passed, mut failed) = (0, 0);
    let mut run = |name: &str, case: &dyn Fn() -> Result<String>| {
        if !name.contains(part) {
            return;
        }
        let began = Instant::now();
        match case() {
            Ok(found) => {
                passed += 1;
                println!("ok    {name}: {found}");
            }
            Err(error) => {
                failed += 1;
                println!("FAIL  {name}: {error:#}");
            }
        }
        eprintln!("  {:.0} s", began.elapsed().as_secs_f64());
    };
    for (index, case) in CASES.iter().enumerate() {
        run(case.name, &|| case.run(&machine, index));
    }
    run(NUMA_NAME, &|| numa::run(&machine));
    run(DAX_NAME, &|| dax::run(&machine));
    println!("{passed} passed, {failed} failed");
    ensure!(failed == 0, "{failed} of {} cases failed", passed + failed);
    Ok(())
}

impl Case {
    /// The counts of each cut.
    fn run(&self, machine: &Machine, index: usize) -> Result<String> {
        let disk = machine.new_disk(&format!("disk{index}"))?;
        let mut guest = self.boot(machine, &disk, &[])?;
        // The first write of each boot: the guest tells by it which boot a value must be from.
        let mut starts = vec![guest.wait_for("found")?];
        let mut counts = format!("[{}]", guest.device());
        for (writes, pause_ms) in self.writes.into_iter().zip(PAUSES_MS) {
            let before = starts[starts.len() - 1];
            let acked = self.write_and_cut(guest, before + writes, pause_ms)?;
            guest = self.boot(machine, &disk, &starts)?;
            let found = guest.wait_for("found")?;
            counts += &format!(" {acked} acknowledged, {found} found;");
            let banner = guest.transcript();
            let at_least = if self.keeps_all { acked } else { before };
            ensure!(found >= at_least, "{counts} at least {at_least} expected\n{banner}");
            ensure!(banner.contains(self.origin), "{counts} not {:?}\n{banner}", self.origin);
            starts.push(found);
        }
        ensure!(starts.iter().any(|start| *start > 0), "{counts} nothing was ever kept");
        Ok(counts.trim_end_matches(';').to_owned())
    }

    /// `starts`: the first write of each earlier boot.
    fn boot(&self, machine: &Machine, disk: &Path, starts: &[u64]) -> Result<Guest> {
        let starts: Vec<String> = starts.iter().map(u64::to_string).collect();
        let words = format!("STARTS={} OPTIONS=\"{SIZES} {}\"", starts.join(","), self.options);
        let hardware = ["-machine", "q35,accel=tcg", "-m", "512M", "-drive"];
        let mut hardware = hardware.map(str::to_owned).to_vec();
        hardware.push(format!("file={},format=qcow2,if=virtio,cache=none", disk.display()));
        machine.boot(&SERVE, &words, &hardware)
    }

    /// How many writes were acknowledged, as far as the console showed before the cut.
    fn write_and_cut(&self, mut guest: Guest, until: u64, pause_ms: u64) -> Result<u64> {
        while guest.wait_for("acked")? < until {}
        std::thread::sleep(Duration::from_millis(pause_ms));
        if self.is_warned {
            guest.warn()?;
            let status = guest.wait_for("served")?;
            ensure!(status == 0, "perdura ended with {status}\n{}", guest.transcript());
        }
        guest.cut()
    }
}
