//! The commands for developers of this repository; `cargo xtask help` lists them.

mod book;
mod changed;
mod deps;
mod fuzz;
mod lazyfs;
mod moving;
mod mutants;
mod oracle;
mod package;
mod pages;
mod plan_rivals;
mod product;
mod programs;
mod python;
mod qemu;
mod queues;
mod redis_suites;
mod run;
mod s3;
mod served;
mod steps;
mod systemd;
mod time_to_safe;

use std::process::ExitCode;

use anyhow::{Result, bail};

const HELP: &str = "\
cargo xtask COMMAND

Check a change:
  lint           Check format and lints, the pages (links, lengths of lines, paths, rooms, locks,
                 packages, contents), and that each file of code is compiled.
  test --quick   Run the lints and tests of the packages that differ from main.
  test           Run everything that CI runs: format, lints, tests, doc tests, a short simulation,
                 whole-process tests, and the tests of the Python package with Spark.
  python         Run the tests of the Python package alone, from the wheel that maturin builds;
                 `test` takes the library that the workspace's build has made.
  python wheel   Build the wheel and the source distribution, in target/python/dist.
  deps           Install the Debian packages that the tests use as clients and oracles. Without
                 root, print their names.

Test more:
  model [--long] Run the models of locks, which `test` runs, too. With --long, explore one more
                 interruption of each schedule, and print which model finds each ordering weakened.
  miri           Run the tests of pure data structures under Miri. Needs a nightly toolchain with
                 miri and rust-src.
  test-qemu [PART]
                 Cut a virtual machine that runs `perdura serve`, boot it again, and compare. Then
                 bind capacity memory to an NVDIMM that is a NUMA node. PART chooses the cases
                 whose names contain it. Takes about two minutes after the build. Needs x86-64
                 Debian, QEMU and a kernel package: as root they are installed, otherwise named.
  test-dax       Run the one case of test-qemu in which an NVDIMM becomes a DAX file system and
                 `perdura-lab access run` measures it.
  test-lazyfs [--lazyfs PATH [--perdura PROGRAM]]
                 Serve from LazyFS, whose program is at PATH, under load; kill server and holder,
                 forget what was not synced, and compare. Without PATH, run the tests over our own
                 files in memory that forget in the same way. Needs FUSE. PROGRAM is served instead
                 of the one that is built here.
  test-package [--perdura PROGRAM]
                 Install the Debian package in a clean Debian beneath a systemd of its own, kill its
                 server, upgrade it under load, remove and purge it. Built from PROGRAM or, quickly,
                 in the development profile. Needs root, systemd, cgroups of version 2, and once
                 the network (debootstrap).
  test-s3        Build the S3 server versitygw into target/tools, once, in minutes, and run over it
                 the tests of backups that need a bucket. Needs go, and once the network.
  test-systemd [KILLS [--perdura PROGRAM]]
                 Kill a server beneath systemd with Restart=always and RestartSec=0 so many times
                 [default: 200], and fewer times with other settings. Needs root, systemd, and
                 cgroups of version 2; systemd runs in namespaces of its own.
  queues [--seconds N] [--every N] [--library NAME] [--perdura PROGRAM | --redis] [--no-holder]
                 Run RQ, Celery and BullMQ over a server for so long [default: 600] that is killed
                 so often [default: 20 s], and account for each job. Needs python3, node and npm;
                 the packages come from the network once. --no-holder must make it fail; --redis
                 takes a redis-server with appendfsync always, to compare.
  moving [--seconds N] [--keys N] [--source PROGRAM] [--perdura PROGRAM] [--no-pause]
                 Move a Redis, or the PROGRAM of a Redis or Valkey, to a Perdura while others write
                 [default: for 10 s], and compare each key; and break moves off in their middle.
                 Needs redis-server, redis-cli and python3. --no-pause must make it fail.
  fuzz [SECONDS [TARGET]]
                 Run each fuzz target, or TARGET alone, for so long [default: 600], beginning with
                 the inputs in fuzz/seeds, and keep there what reaches most. Needs a nightly
                 toolchain and cargo-fuzz.
  mutants [--since REV | --all [K/N]]
                 Plant wrong lines in the code that makes data durable, and run the tests that must
                 notice: in the lines that differ from REV [default: where this branch left main],
                 or everywhere, or in part K (from 0) of N. Needs cargo-mutants.
  apps           Test the small applications in lab/apps, and run each once with little work.
  rivals         Build and test `perdura-rivals`, the engines beside the store, and run each once
                 with little work. The first build takes minutes, because it compiles RocksDB.

Measure and release:
  time-to-safe [DIR]
                 Measure the README's figure: Perdura's flush of a full budget beside Redis' SAVE,
                 at growing sizes of data, in DIR [default: target/time-to-safe]. Needs
                 redis-server, 8 GiB of memory and 20 GB of disk.
  plan-rivals [RECORDS]
                 Measure the analysis of traces beside pandas and polars on the same records
                 [default: 5000000].
  redis-suites REDIS [--perdura PROGRAM] [--threads N] [FILE...]
                 Run the test suites of Redis itself, whose source is at REDIS, against a server,
                 and print how many tests pass. FILE is as `unit/type/list` [default: all that the
                 server is to pass]. Needs tclsh. PROGRAM is served instead of the one that is
                 built here.
  book           Build the pages as a book into target/book, and check its links. mdBook is
                 installed into target/tools, once, in a minute or two.
  release        Build the program as it is released, with all formats of traces.
  package [--profile dev] [--perdura PROGRAM] [--version V]
                 Write a Debian package, an archive and the context of a container image into
                 target/package, from a release build, a development build, or PROGRAM. cargo-deb
                 is installed into target/tools.
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
        ["model"] => steps::model(false),
        ["model", "--long"] => steps::model(true),
        ["miri"] => steps::miri(),
        ["book"] => book::build(),
        ["release"] => steps::release(),
        ["package", options @ ..] => package::Wanted::parse(options)?.write(),
        ["test-package"] => package::test(None),
        ["test-package", "--perdura", perdura] => package::test(Some(perdura)),
        ["python"] => match python::test(python::environment(), python::install_wheel)? {
            None => Ok(()),
            Some(reason) => bail!("the tests of the Python package were skipped: {reason}"),
        },
        ["python", "wheel"] => python::wheel(&python::environment()?),
        ["deps"] => deps::install().map(|_| ()),
        ["test-qemu"] => qemu::test(""),
        ["test-qemu", part] => qemu::test(part),
        ["test-dax"] => qemu::test(qemu::DAX_NAME),
        ["test-lazyfs"] => lazyfs::test(None, None),
        ["test-lazyfs", "--lazyfs", program] => lazyfs::test(Some(program), None),
        ["test-lazyfs", "--lazyfs", program, "--perdura", perdura] => {
            lazyfs::test(Some(program), Some(perdura))
        }
        ["test-s3"] => s3::test(),
        ["test-systemd"] => systemd::test(200, None),
        ["test-systemd", kills] => systemd::test(kills.parse()?, None),
        ["test-systemd", kills, "--perdura", perdura] => {
            systemd::test(kills.parse()?, Some(perdura))
        }
        ["queues", options @ ..] => queues::Trial::parse(options)?.run(),
        ["moving", options @ ..] => moving::Trial::parse(options)?.run(),
        ["rivals"] => {
            deps::install_rivals()?;
            steps::rivals()
        }
        ["plan-rivals"] => plan_rivals::compare("5000000"),
        ["plan-rivals", records] => plan_rivals::compare(records),
        ["redis-suites", redis, words @ ..] => redis_suites::measure(redis, words),
        ["apps"] => steps::apps(),
        ["time-to-safe"] => time_to_safe::measure("target/time-to-safe"),
        ["time-to-safe", dir] => time_to_safe::measure(dir),
        ["fuzz"] => fuzz::run(600, None),
        ["fuzz", seconds] => fuzz::run(seconds.parse()?, None),
        ["fuzz", seconds, target] => fuzz::run(seconds.parse()?, Some(target)),
        ["mutants"] => mutants::of_change(None),
        ["mutants", "--since", revision] => mutants::of_change(Some(revision)),
        ["mutants", "--all"] => mutants::all("0/1"),
        ["mutants", "--all", shard] => mutants::all(shard),
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        other => bail!("unknown command {:?}\n\n{HELP}", other.join(" ")),
    }
}
