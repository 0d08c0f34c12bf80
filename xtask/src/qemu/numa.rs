//! The case in which an NVDIMM is system RAM: a NUMA node without processors, as CXL memory has.
//!
//! The guest (`guest/numa.sh`) puts the NVDIMM's namespace into devdax mode and gives it to the
//! kernel as movable memory. Then it runs the heap's test of binding (`heap/tests/numa.rs`: private
//! memory, regions), and an unmodified program under `perdura run`
//! (`xtask/examples/qemu_numa.rs`). Both ask the kernel where their pages are.

use anyhow::{Context, Result, ensure};

use super::machine::{Guest, Machine, NUMA};

/// The NVDIMM's size. The node's memory comes in blocks of 128 MiB, and the namespace's tables take
/// the first block.
const NVDIMM_BYTES: u64 = 512 << 20;
const NODE_KIB_LEAST: u64 = 256 << 10;
/// The node of the NVDIMM, which has no other memory.
const NODE: u64 = 1;

/// Runs the case and returns the sizes that were found, as text.
pub fn run(machine: &Machine) -> Result<String> {
    let nvdimm = machine.new_nvdimm("nvdimm", NVDIMM_BYTES)?;
    let hardware = [
        "-machine q35,accel=tcg,nvdimm=on",
        "-m 512M,slots=2,maxmem=4G",
        "-object memory-backend-ram,id=plain,size=512M",
        "-numa node,nodeid=0,cpus=0,memdev=plain",
        &format!("-numa node,nodeid={NODE}"),
        &format!("-device nvdimm,id=nv,memdev=medium,node={NODE}"),
        "-object",
    ];
    let mut hardware: Vec<String> =
        hardware.iter().flat_map(|words| words.split(' ')).map(str::to_owned).collect();
    // This word is not split, because its path may have spaces.
    hardware.push(format!(
        "memory-backend-file,id=medium,share=on,size={NVDIMM_BYTES},align=2M,mem-path={}",
        nvdimm.display()
    ));
    let mut guest = machine.boot(&NUMA, "", &hardware)?;
    let (node, node_kib) = (guest.wait_for("node")?, guest.wait_for("node_kib")?);
    ensure!(node == NODE, "the NVDIMM became node {node}\n{}", guest.transcript());
    ensure!(node_kib >= NODE_KIB_LEAST, "a node of {node_kib} KiB\n{}", guest.transcript());
    let status = guest.wait_for("heap_tests")?;
    ensure!(status == 0, "the heap's tests ended with {status}\n{}", guest.transcript());
    let tests = passed(&guest)?;
    let (bound, unbound) = (guest.wait_for("bound_kib")?, guest.wait_for("unbound_kib")?);
    let forked = guest.wait_for("forked_file_bound_kib")?;
    let large_bound = guest.wait_for("large_bound_kib")?;
    let large_unbound = guest.wait_for("large_unbound_kib")?;
    guest.wait_for("run_status")?;
    ensure!(large_bound <= node_kib, "{large_bound} KiB on a node of {node_kib} KiB");
    drop(guest);
    std::fs::remove_file(nvdimm)?;
    Ok(format!(
        "node {node} of {node_kib} KiB from an NVDIMM; heap: {tests} tests; \
         `perdura run --numa-node {node}`: {bound} KiB of heap on the node, {unbound} KiB of the \
         program beside its heap elsewhere; a forked child's file: {forked} KiB on the node; a \
         program larger than the node: {large_bound} KiB on the node, {large_unbound} KiB elsewhere"
    ))
}

/// The number of tests that passed. It is an error if a test was skipped or left out.
fn passed(guest: &Guest) -> Result<u64> {
    let skipped = guest.heard_lines().find(|line| line.contains("skipped"));
    ensure!(skipped.is_none(), "{}\n{}", skipped.unwrap_or_default(), guest.transcript());
    let mut results = guest.heard_lines().filter_map(|line| line.strip_prefix("test result: ok. "));
    let result = results.next().with_context(|| format!("no result\n{}", guest.transcript()))?;
    let tests = result.split(' ').next().unwrap_or_default().parse()?;
    let is_whole = result.contains("; 0 ignored;") && result.contains(" 0 filtered out");
    ensure!(tests > 0 && is_whole, "not all tests ran: {result}");
    Ok(tests)
}
