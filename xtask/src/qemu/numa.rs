//! An NVDIMM as system RAM: a NUMA node of its own, with no processors, as CXL memory has.
//!
//! The guest (`guest/numa.sh`) puts the NVDIMM's namespace into devdax mode and gives it to the
//! kernel as movable memory. Then it runs the heap's own test of binding (`heap/tests/numa.rs`:
//! private memory, regions) and a program that knows nothing of it (`xtask/examples/qemu_numa.rs`).
//! Both ask the kernel where pages are.

use anyhow::{Context, Result, ensure};

use super::machine::{Guest, Machine, NUMA};

/// A node's memory comes in blocks of 128 MiB; the namespace's own tables cost the first.
const NVDIMM_BYTES: u64 = 512 << 20;
const NODE_KIB_LEAST: u64 = 256 << 10;
/// Its proximity domain, which has nothing else.
const NODE: u64 = 1;

/// What was found.
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
    // Last, for its path may have spaces.
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
        "node {node} of {node_kib} KiB from an NVDIMM; heap: {tests} tests; `perdura run --numa-node {node}`: \
         {bound} KiB of heap on it, {unbound} KiB of the program beside its heap not; a forked child's file: {forked} KiB; a program larger than the node: \
         {large_bound} KiB on it, {large_unbound} KiB not"
    ))
}

/// How many tests there were: none may have been skipped, or left out.
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
