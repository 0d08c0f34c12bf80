//! The steps of the commands, each of which runs programs to their end.

use std::process::Command;

use anyhow::Result;

use crate::run::{cargo, linting_cargo, run, target};
use crate::{changed, deps, mutants, pages, product, programs, python};

/// Checks the format of the code, the packages of the product, and the pages, in some seconds.
pub fn format() -> Result<()> {
    cargo(&["fmt", "--all", "--check"])?;
    product::check()?;
    pages::check()
}

/// Runs clippy on the packages that `words` choose.
pub fn clippy(words: &[&str]) -> Result<()> {
    let after = ["--all-targets", "--quiet", "--", "-D", "warnings"];
    cargo(&[&["clippy"], words, &after].concat())
}

/// Runs everything that CI runs.
///
/// All code is compiled and linted once, in the development profile, with the programs that tests
/// start. What only the tests need, Debian packages and the Python environment, is fetched while
/// they are compiled. The Python package's tests, the doc tests and the simulation run beside the
/// test programs at the lowest priority, so that they do not disturb tests that measure time and no
/// processor is idle while a test waits.
pub fn test() -> Result<()> {
    format()?;
    let (missing, without_package) = std::thread::scope(|scope| {
        let fetched = scope.spawn(|| -> Result<_> {
            // The environment needs some of the packages.
            let missing = deps::install()?;
            Ok((missing, python::environment()))
        });
        let programs = programs::build(linting_cargo(), &["--workspace"])?;
        // What no test program holds: the Python package's library, and the benchmarks.
        run(linting_cargo().args(["build", "--workspace", "--lib", "--bench", "*", "--quiet"]))?;
        let (missing, environment) = programs::joined(fetched)?;
        let package = scope.spawn(move || {
            be_last()?;
            python::test(environment, python::install_built)
        });
        let others = scope.spawn(|| {
            be_last()?;
            doc_tests()?;
            // The seed is another one each day, and never that of the tests.
            sim(&["cut", "--seconds", "4"])?;
            sim(&["order", "--seed", "2", "--states-max", "32"])
        });
        programs::run(programs)?;
        programs::joined(others)?;
        programs::joined(package).map(|reason| (missing, reason))
    })?;
    if let Some(left) = mutants::in_ci()? {
        eprintln!("xtask: mutants of this change that were not run: {left}");
    }
    if !missing.is_empty() {
        eprintln!("xtask: not installed, so some tests were skipped: {}", missing.join(" "));
    }
    if let Some(reason) = without_package {
        eprintln!("xtask: the tests of the Python package were skipped: {reason}");
    }
    Ok(())
}

/// Gives the calling thread, and the programs it starts, the lowest priority: on Linux each thread
/// has a priority of its own.
fn be_last() -> Result<()> {
    rustix::process::nice(19)?;
    Ok(())
}

/// Runs the lints and tests of the packages that differ from `main`, without those of packages that
/// depend on them.
pub fn test_changed() -> Result<()> {
    cargo(&["fmt", "--all", "--check"])?;
    let packages = changed::packages()?;
    if packages.is_empty() {
        eprintln!("xtask: no package differs from main; nothing to test");
        return Ok(());
    }
    let words: Vec<&str> = packages.iter().flat_map(|name| ["-p", name]).collect();
    clippy(&words)?;
    programs::run(programs::build(Command::new("cargo"), &words)?)
}

/// Runs the models of locks and the schedules of a region's threads. `is_long` explores more and
/// prints what was found.
pub fn model(is_long: bool) -> Result<()> {
    let mut models = Command::new("cargo");
    models.args(["test", "-p", "perdura-model"]);
    if is_long {
        models.arg("--release").env("PERDURA_MODEL_LONG", "1");
        models.args(["--", "--nocapture", "--test-threads", "1"]);
    }
    run(&mut models)
}

/// What Miri runs: the tests whose paths have one of the words, mostly names of modules whose tests
/// make no system call.
const MIRI: [(&str, &[&str]); 6] = [
    (
        "perdura-dirty",
        &["summary::", "extent::", "policy::", "promise::", "geometry::", "kind::", "ranks::"],
    ),
    ("perdura-image", &["codec::", "format::", "newest::", "table::"]),
    (
        "perdura-heap",
        &[
            "layout::",
            "classes::",
            "pool::",
            "a_piece_reads",
            "a_piece_with",
            "owned::",
            "writes::",
        ],
    ),
    ("perdura-slots", &["pool::", "span_word::"]),
    ("perdura-store", &["packed::", "record::"]),
    ("perdura-server", &["number::", "glob::", "resp::"]),
];

/// Runs under Miri what makes no system call: the tests of data structures, sizes and formats, by
/// package and by the words that choose them.
pub fn miri() -> Result<()> {
    for (package, words) in MIRI {
        let mut tests = Command::new("cargo");
        tests.args(["+nightly", "miri", "test", "-p", package, "--lib", "--"]).args(words);
        tests.env("MIRIFLAGS", "-Zmiri-disable-isolation").env("PROPTEST_CASES", "8");
        // Miri compiles everything in its own way; so the other builds stay as they are.
        run(tests.env("CARGO_TARGET_DIR", target()?.join("miri")))?;
    }
    Ok(())
}

/// Builds `perdura` as it is released, with all formats of traces, and the library
/// that `perdura run` preloads.
pub fn release() -> Result<()> {
    cargo(&[
        "build",
        "--release",
        "-p",
        "perdura-cli",
        "-p",
        "perdura-interpose",
        "--features",
        RELEASE,
    ])
}

/// The examples in the pages of the libraries. The C library has none, and rustdoc would confuse it
/// with the Rust library, which has the same name.
fn doc_tests() -> Result<()> {
    let words = ["test", "--workspace", "--exclude", "perdura-capi", "--doc", "--quiet"];
    run(linting_cargo().args(words))
}

/// The features of a release that the default build leaves out.
const RELEASE: &str = "perdura-cli/release";

/// Runs `perdura sim` with the program that was built for the tests.
fn sim(words: &[&str]) -> Result<()> {
    run(Command::new(target()?.join("debug/perdura")).arg("sim").args(words))
}

/// Tests the engines that are measured beside the store, and runs them with little work.
pub fn rivals() -> Result<()> {
    let small = ["--records", "2000", "--workload", "a,c", "--dir", "target/rivals-run"];
    apart("lab/rivals/Cargo.toml", &small)
}

/// Tests the small applications, and runs them with little work.
pub fn apps() -> Result<()> {
    let small = ["--size", "small", "--rounds", "3", "--disk-dir", "target/apps-run"];
    apart("lab/apps/Cargo.toml", &small)
}

/// Checks and tests a package that is no member of the workspace, and runs its program with
/// `words`.
fn apart(manifest: &str, words: &[&str]) -> Result<()> {
    let of = ["--manifest-path", manifest];
    let step = |before: &[&str], after: &[&str]| cargo(&[before, &of[..], after].concat());
    step(&["fmt", "--check"], &[])?;
    step(&["clippy", "--release", "--all-targets", "--quiet"], &["--", "-D", "warnings"])?;
    step(&["test", "--release", "--quiet"], &[])?;
    step(&["run", "--release", "--quiet"], &[&["--"], words].concat())
}
