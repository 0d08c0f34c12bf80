//! Installs the Debian packages that some tests use as clients, as oracles and as machines.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

/// The packages for `cargo xtask test`, each with a path that exists once it is installed.
const PACKAGES: [(&str, &str); 29] = [
    ("redis-server", "/usr/bin/redis-server"),
    ("redis-tools", "/usr/bin/redis-benchmark"),
    ("python3-redis", "/usr/lib/python3/dist-packages/redis/__init__.py"),
    // Reads the manifests of `perdura plan kubernetes`.
    ("python3-yaml", "/usr/share/doc/python3-yaml"),
    // Programs whose mapped files are durable memory.
    ("python3-lmdb", "/usr/share/doc/python3-lmdb"),
    ("python3-numpy", "/usr/share/doc/python3-numpy"),
    ("python3-tdb", "/usr/share/doc/python3-tdb"),
    ("tdb-tools", "/usr/bin/tdbtool"),
    ("rrdtool", "/usr/bin/rrdtool"),
    // Compiles tests of the heap's C interface, and programs to preload the library into.
    ("g++", "/usr/bin/g++"),
    // Allocators that `perdura-lab heap` measures beside the heap; loaded at run time.
    ("libjemalloc2", "/usr/share/doc/libjemalloc2"),
    ("libmimalloc2.0", "/usr/share/doc/libmimalloc2.0"),
    ("libpmemobj1", "/usr/share/doc/libpmemobj1"),
    // Programs whose files lie on a modelled medium, and a program that counts their system calls.
    ("python3-bsddb3", "/usr/share/doc/python3-bsddb3"),
    ("fio", "/usr/bin/fio"),
    ("strace", "/usr/bin/strace"),
    // Clients of `perdura-lab block serve`, and a file system to put on it.
    ("qemu-utils", "/usr/bin/qemu-io"),
    ("libnbd-bin", "/usr/bin/nbdcopy"),
    ("fuse3", "/usr/bin/fusermount3"),
    ("xfsprogs", "/usr/sbin/mkfs.xfs"),
    // A UPS that is simulated, its daemon, and the program that cuts its power.
    ("nut-server", "/lib/nut/dummy-ups"),
    ("nut-client", "/usr/bin/upsrw"),
    // logind, and a bus for it, on which a shutdown is asked for.
    ("systemd", "/lib/systemd/systemd-logind"),
    ("dbus", "/usr/bin/dbus-daemon"),
    // Watch a server: a Prometheus with its checks, a strict parser, and a browser.
    ("prometheus", "/usr/bin/promtool"),
    ("python3-prometheus-client", "/usr/share/doc/python3-prometheus-client"),
    ("chromium-driver", "/usr/bin/chromedriver"),
    // The Python package's tests need a virtual environment, and Java for Spark.
    ("python3-venv", "/usr/share/doc/python3-venv"),
    ("openjdk-17-jre-headless", "/usr/bin/java"),
];

/// The packages for `test-qemu`.
const QEMU_PACKAGES: [(&str, &str); 7] = [
    ("qemu-system-x86", "/usr/bin/qemu-system-x86_64"),
    ("qemu-utils", "/usr/bin/qemu-img"),
    ("busybox-static", "/bin/busybox"),
    ("cpio", "/usr/bin/cpio"),
    ("kmod", "/sbin/depmod"),
    ("e2fsprogs", "/sbin/mkfs.ext4"),
    // Compiles the C code of zstd for static programs.
    ("musl-tools", "/usr/bin/x86_64-linux-musl-gcc"),
];

/// The packages for `rivals`, which generates the binding of RocksDB from C headers.
const RIVALS_PACKAGES: [(&str, &str); 2] =
    [("libclang-dev", "/usr/share/doc/libclang-dev"), ("g++", "/usr/bin/g++")];

/// The packages for `test-package`, which makes a small Debian of its own.
const LIFE_PACKAGES: [(&str, &str); 2] =
    [("debootstrap", "/usr/sbin/debootstrap"), ("dpkg-dev", "/usr/bin/dpkg-shlibdeps")];

/// The names of the packages that `cargo xtask deps` and `cargo xtask test` install.
pub fn names() -> impl Iterator<Item = &'static str> {
    PACKAGES.iter().map(|(name, _)| *name)
}

/// Installs the packages for `cargo xtask test` if it may, and returns those that are still
/// missing. Tests that lack a package say that they were skipped.
pub fn install() -> Result<Vec<&'static str>> {
    let missing = install_missing(&PACKAGES)?;
    if !missing.is_empty() {
        eprintln!("xtask: some tests will be skipped; they use: {}", missing.join(" "));
    }
    Ok(missing)
}

/// Installs the packages for `test-qemu`, or names the missing ones in an error.
pub fn install_qemu() -> Result<()> {
    require("test-qemu", &QEMU_PACKAGES)
}

/// Installs the packages for `test-package`, or names the missing ones in an error.
pub fn install_life() -> Result<()> {
    require("test-package", &LIFE_PACKAGES)
}

fn require(command: &str, packages: &[(&'static str, &str)]) -> Result<()> {
    let missing = install_missing(packages)?;
    if !missing.is_empty() {
        bail!("{command} needs these Debian packages: {}", missing.join(" "));
    }
    Ok(())
}

/// Installs the packages for `rivals`, or prints the missing ones. It is no error if some are
/// missing, because a compiler and a libclang may come from elsewhere.
pub fn install_rivals() -> Result<()> {
    let missing = install_missing(&RIVALS_PACKAGES)?;
    if !missing.is_empty() {
        eprintln!("xtask: the build may fail without these Debian packages: {}", missing.join(" "));
    }
    Ok(())
}

/// Installs the missing packages, as root, and returns those that are still missing.
fn install_missing(packages: &[(&'static str, &str)]) -> Result<Vec<&'static str>> {
    let missing: Vec<&str> = packages
        .iter()
        .filter(|(_, proof)| !Path::new(proof).exists())
        .map(|(package, _)| *package)
        .collect();
    let can_install = Path::new("/usr/bin/apt-get").exists() && is_root();
    if missing.is_empty() || !can_install {
        return Ok(missing);
    }
    apt(&["update", "-qq"])?;
    let mut words = vec!["install", "-y", "-qq", "--no-install-recommends"];
    words.extend(&missing);
    apt(&words)?;
    Ok(Vec::new())
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|found| found.stdout.trim_ascii() == b"0")
}

fn apt(words: &[&str]) -> Result<()> {
    eprintln!("+ apt-get {}", words.join(" "));
    let status =
        Command::new("apt-get").args(words).env("DEBIAN_FRONTEND", "noninteractive").status()?;
    if !status.success() {
        bail!("apt-get {} ended with {status}", words.join(" "));
    }
    Ok(())
}
