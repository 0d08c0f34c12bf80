//! `cargo xtask test-qemu`: loses a whole virtual machine, with its kernel and page cache, and
//! boots it again.
//!
//! Each case serves from one disk through several cuts: boot, verify, write, SIGKILL to QEMU. The
//! guest's client (`xtask/examples/qemu_guest.rs`) knows every state that the store may be in, and
//! prints on the serial console how many writes were acknowledged. The machine is cut some
//! milliseconds after a chosen number of acknowledged writes.
//!
//! The disk behaves as if it had a volatile write cache: a part of the data that the guest has not
//! flushed is lost (see `machine::Machine::new_disk`). The host goes on running.
//!
//! In one case the server's memory lies on an NVDIMM, which keeps every store. Two more cases use
//! an NVDIMM. In one it becomes system RAM, and capacity memory is bound to it (`numa.rs`). In the
//! other it becomes a DAX file system, which a workload measures (`dax.rs`, `cargo xtask
//! test-dax`).

mod dax;
mod machine;
mod numa;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use machine::{Guest, KEPT, KEPT_BUT_NOT_CACHES, Machine, SERVE, Task};

const SIZES: &str = "--memory 64MiB --budget 4MiB --grace 10s --flush-threads 1";
/// The NVDIMM has room for the memory, and for a ledger of four times the memory.
const NVDIMM_BYTES: u64 = 256 << 20;
const NUMA_NAME: &str = "an NVDIMM as NUMA node: capacity memory on it, nothing else";
/// The name of the case that `cargo xtask test-dax` runs alone.
pub const DAX_NAME: &str = "an NVDIMM as DAX file system: a workload with MAP_SYNC";

struct Case {
    name: &'static str,
    task: Task,
    /// The options of `perdura serve`, in addition to [`SIZES`].
    options: &'static str,
    is_warned: bool,
    /// Whether all acknowledged writes must be found after a cut, or only a prefix of them.
    keeps_all: bool,
    /// The words that the banner must have after a cut.
    origin: &'static str,
    /// How many writes are acknowledged in each boot before the machine is cut.
    writes: [u64; 3],
}

/// The time from the console's line to the cut; it varies, so that cuts hit different steps of a
/// commit.
const PAUSES_MS: [u64; 3] = [0, 3, 11];

const CASES: [Case; 5] = [
    Case {
        name: "unwarned loss, durability fsync: everything acknowledged",
        task: SERVE,
        options: "--durability fsync",
        is_warned: false,
        keeps_all: true,
        origin: "loaded from the last checkpoint",
        writes: [640, 2_500, 5_000],
    },
    Case {
        name: "unwarned loss, durability warned: a checkpoint, never a mixture",
        task: SERVE,
        options: "--checkpoint 300ms",
        is_warned: false,
        keeps_all: false,
        origin: "loaded from the last checkpoint",
        writes: [8_000, 12_000, 20_000],
    },
    Case {
        name: "warned loss (SIGTERM), durability warned: everything acknowledged",
        task: SERVE,
        options: "--checkpoint off",
        is_warned: true,
        keeps_all: true,
        origin: "loaded after a complete flush",
        writes: [640, 5_000, 15_000],
    },
    Case {
        name: "unwarned loss, memory on an NVDIMM: everything acknowledged, nothing is read",
        task: KEPT,
        options: "--checkpoint off",
        is_warned: false,
        keeps_all: true,
        origin: "memory kept in files",
        writes: [640, 5_000, 15_000],
    },
    Case {
        name: "unwarned loss, memory on an NVDIMM that lacks what processors cache: not trusted",
        task: KEPT_BUT_NOT_CACHES,
        options: "--checkpoint 300ms",
        is_warned: false,
        keeps_all: false,
        origin: "loaded from the last checkpoint",
        writes: [8_000, 5_000, 5_000],
    },
];

/// Runs all cases whose names contain `part`.
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
    /// Runs the case and returns the number of writes of each cut, as text.
    fn run(&self, machine: &Machine, index: usize) -> Result<String> {
        let disk = machine.new_disk(&format!("disk{index}"))?;
        let nvdimm = machine.new_nvdimm(&format!("nvdimm{index}"), NVDIMM_BYTES)?;
        let mut guest = self.boot(machine, [&disk, &nvdimm], &[])?;
        // The first write of each boot, from which the guest knows the boot of each value.
        let mut starts = vec![guest.wait_for("found")?];
        let mut counts = format!("[{}]", guest.device());
        for (writes, pause_ms) in self.writes.into_iter().zip(PAUSES_MS) {
            let before = starts[starts.len() - 1];
            let acked = self.write_and_cut(guest, before + writes, pause_ms)?;
            guest = self.boot(machine, [&disk, &nvdimm], &starts)?;
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

    /// Boots the guest. `starts` are the first writes of the earlier boots.
    fn boot(
        &self,
        machine: &Machine,
        [disk, nvdimm]: [&PathBuf; 2],
        starts: &[u64],
    ) -> Result<Guest> {
        let starts: Vec<String> = starts.iter().map(u64::to_string).collect();
        let words = format!("STARTS={} OPTIONS=\"{SIZES} {}\"", starts.join(","), self.options);
        let mut hardware = match self.task.nvdimm_keeps {
            Some(keeps) => Machine::with_nvdimm(nvdimm, NVDIMM_BYTES, keeps),
            None => ["-machine", "q35,accel=tcg", "-m", "512M"].map(str::to_owned).to_vec(),
        };
        hardware.push("-drive".into());
        hardware.push(format!("file={},format=qcow2,if=virtio,cache=none", disk.display()));
        machine.boot(&self.task, &words, &hardware)
    }

    /// Cuts the machine after `until` writes and returns the number of acknowledged writes that the
    /// console showed before the cut.
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
