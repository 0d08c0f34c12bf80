//! The one place for developer commands: `cargo xtask help` lists them.

mod changed;
mod deps;
mod pages;
mod plan_rivals;
mod product;
mod programs;
mod python;
mod qemu;
mod run;
mod steps;
mod time_to_safe;

use std::process::ExitCode;

use anyhow::{Result, bail};

const HELP: &str = "\
cargo xtask COMMAND

  test          everything CI runs: format, lints, tests, doc tests, a short simulation, whole-process tests,
                and the Python package's, with Spark (`python` runs these alone)
  test --quick  lints and tests of the packages that differ from main
  release       the program as it is released, with all formats of traces
  lint          format, lints, and the pages: links, lengths of lines, paths, rooms, locks, packages;
                and that each file of code is compiled
  deps          install the Debian packages that the whole-process tests compare with (as root), or name them
  test-qemu [PART]  cut a virtual machine that runs `perdura serve`, boot it again, compare; and bind capacity memory to
                an NVDIMM that is a NUMA node. Some two minutes after the build, or the cases with PART in their names;
                x86-64 Debian; needs QEMU and a kernel package, which it installs or fetches as root, or names
  test-dax      of these, the one in which an NVDIMM becomes a DAX file system that a workload of `perdura-lab access run` measures
  rivals        build the engines that `perdura-lab rivals` measures beside the store (minutes: RocksDB), test them,
                and run each once, small
  plan-rivals [RECORDS]  the analysis of traces beside pandas and polars on the same records (default 5000000)
  time-to-safe [DIR]  the README's figure: Perdura's flush of a full budget beside Redis' SAVE, at growing sizes of
                data in DIR (default target/time-to-safe); needs redis-server, 8 GiB of memory and 20 GB of disk
  apps          build the small applications of `lab/apps/` and run each by all its ways, small; with their tests
  fuzz [SECONDS]  run each fuzz target (default 600 s each; needs nightly and cargo-fuzz)
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match dispatch(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(words: &[&str]) -> Result<()> {
    match words {
        ["test"] => steps::test(),
        ["test", "--quick"] => steps::test_changed(),
        ["lint"] => {
            steps::format()?;
            steps::clippy(&["--workspace"])
        }
        ["release"] => steps::release(),
        ["python"] => match python::test(python::environment())? {
            None => Ok(()),
            Some(reason) => bail!("the tests of the Python package were skipped: {reason}"),
        },
        ["deps"] => deps::install().map(|_| ()),
        ["test-qemu"] => qemu::test(""),
        ["test-qemu", part] => qemu::test(part),
        ["test-dax"] => qemu::test(qemu::DAX_NAME),
        ["rivals"] => {
            deps::install_rivals()?;
            steps::rivals()
        }
        ["plan-rivals"] => plan_rivals::compare("5000000"),
        ["plan-rivals", records] => plan_rivals::compare(records),
        ["apps"] => steps::apps(),
        ["time-to-safe"] => time_to_safe::measure("target/time-to-safe"),
        ["time-to-safe", dir] => time_to_safe::measure(dir),
        ["fuzz"] => steps::fuzz(600),
        ["fuzz", seconds] => steps::fuzz(seconds.parse()?),
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        other => bail!("unknown command {:?}\n\n{HELP}", other.join(" ")),
    }
}
