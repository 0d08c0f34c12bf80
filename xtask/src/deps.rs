//! Debian packages that some tests use as clients, as oracles and as machines.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

/// Package, and a file that shows it is there.
const PACKAGES: [(&str, &str); 16] = [
    ("redis-server", "/usr/bin/redis-server"),
    ("redis-tools", "/usr/bin/redis-benchmark"),
    ("python3-redis", "/usr/lib/python3/dist-packages/redis/__init__.py"),
    // The heap's C interface, and programs to preload the library into.
    ("g++", "/usr/bin/g++"),
    // What `perdura-lab heap` measures beside the heap: small libraries, loaded at run time.
    ("libjemalloc2", "/usr/share/doc/libjemalloc2"),
    ("libmimalloc2.0", "/usr/share/doc/libmimalloc2.0"),
    ("libpmemobj1", "/usr/share/doc/libpmemobj1"),
    // Programs with their files on a modelled medium, and who counts their system calls.
    ("python3-bsddb3", "/usr/share/doc/python3-bsddb3"),
    ("fio", "/usr/bin/fio"),
    ("strace", "/usr/bin/strace"),
    // Clients of `perdura-lab block serve`, and a file system to put on it.
    ("qemu-utils", "/usr/bin/qemu-io"),
    ("libnbd-bin", "/usr/bin/nbdcopy"),
    ("fuse3", "/usr/bin/fusermount3"),
    ("xfsprogs", "/usr/sbin/mkfs.xfs"),
    // The Python package's tests: an environment, and what Spark runs on.
    ("python3-venv", "/usr/share/doc/python3-venv"),
    ("openjdk-17-jre-headless", "/usr/bin/java"),
];

/// The same for `test-qemu`.
const QEMU_PACKAGES: [(&str, &str); 7] = [
    ("qemu-system-x86", "/usr/bin/qemu-system-x86_64"),
    ("qemu-utils", "/usr/bin/qemu-img"),
    ("busybox-static", "/bin/busybox"),
    ("cpio", "/usr/bin/cpio"),
    ("kmod", "/sbin/depmod"),
    ("e2fsprogs", "/sbin/mkfs.ext4"),
    // For what is C in a static program: zstd.
    ("musl-tools", "/usr/bin/x86_64-linux-musl-gcc"),
];

/// The same for `rivals`: RocksDB's binding is made from its headers.
const RIVALS_PACKAGES: [(&str, &str); 2] =
    [("libclang-dev", "/usr/share/doc/libclang-dev"), ("g++", "/usr/bin/g++")];

/// The names of the packages that `cargo xtask deps` and `cargo xtask test` install.
pub fn names() -> impl Iterator<Item = &'static str> {
    PACKAGES.iter().map(|(name, _)| *name)
}

/// Installs what is missing, if it may, and returns what is missing still. Tests that lack a client
/// or an oracle say that they were skipped.
pub fn install() -> Result<Vec<&'static str>> {
    let missing = install_missing(&PACKAGES)?;
    if !missing.is_empty() {
        eprintln!("xtask: some tests will be skipped; they use: {}", missing.join(" "));
    }
    Ok(missing)
}

/// Installs what `test-qemu` needs, or names it in an error.
pub fn install_qemu() -> Result<()> {
    let missing = install_missing(&QEMU_PACKAGES)?;
    if !missing.is_empty() {
        bail!("test-qemu needs these Debian packages: {}", missing.join(" "));
    }
    Ok(())
}

/// Installs what `rivals` needs, or names it: a compiler and a libclang from elsewhere do as well.
pub fn install_rivals() -> Result<()> {
    let missing = install_missing(&RIVALS_PACKAGES)?;
    if !missing.is_empty() {
        eprintln!("xtask: the build may fail without these Debian packages: {}", missing.join(" "));
    }
    Ok(())
}

/// What is missing still.
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
