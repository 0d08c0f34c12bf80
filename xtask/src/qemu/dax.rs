//! The case in which `perdura-lab access run` measures an NVDIMM with a DAX file system, mapped
//! with MAP_SYNC.
//!
//! The guest (`guest/dax.sh`) puts the namespace into fsdax mode and mounts ext4 with `-o dax`.
//! With `--dax` the program refuses a file that cannot be mapped with MAP_SYNC; the guest tries
//! this on tmpfs.

use anyhow::{Context, Result, ensure};

use super::machine::{CACHES, DAX, Machine};

const NVDIMM_BYTES: u64 = 128 << 20;
/// The bandwidths in the results: two for each of the six cells, one of them the thread's.
const FIGURES: u64 = 2 * 6;

/// Runs the case and returns the number of measured cells and their place, as text.
pub fn run(machine: &Machine) -> Result<String> {
    let nvdimm = machine.new_nvdimm("nvdimm-dax", NVDIMM_BYTES)?;
    let hardware = Machine::with_nvdimm(&nvdimm, NVDIMM_BYTES, CACHES);
    let mut guest = machine.boot(&DAX, "", &hardware)?;
    let status = guest.wait_for("run_status")?;
    let (left, figures) = (guest.wait_for("left")?, guest.wait_for("dax_cells")?);
    guest.wait_for("done")?;
    ensure!(status == 0, "the workload ended with {status}\n{}", guest.transcript());
    ensure!(left == 0, "{left} files were left on the medium\n{}", guest.transcript());
    ensure!(figures == FIGURES, "{figures} figures\n{}", guest.transcript());
    let refused = guest.heard_lines().any(|line| line.contains("not a DAX file system"));
    ensure!(refused, "tmpfs was not refused for what it is\n{}", guest.transcript());
    let place = guest.heard_lines().find(|line| line.contains("\"place\""));
    let place = place.with_context(|| format!("no place\n{}", guest.transcript()))?;
    ensure!(place.contains("DAX"), "measured was {place}");
    let found = format!(
        "{} cells on{}",
        figures / 2,
        place.trim().trim_end_matches(',').trim_start_matches("\"place\":")
    );
    drop(guest);
    std::fs::remove_file(nvdimm)?;
    Ok(found)
}
