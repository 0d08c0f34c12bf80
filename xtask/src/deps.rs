//! Debian packages that some tests use as clients and as oracles. Without them those tests say what they
//! skipped.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

/// Package, and a program that shows it is there.
const PACKAGES: [(&str, &str); 3] = [
    ("redis-server", "/usr/bin/redis-server"),
    ("redis-tools", "/usr/bin/redis-benchmark"),
    ("python3-redis", "/usr/lib/python3/dist-packages/redis/__init__.py"),
];

/// Installs what is missing, if it may.
pub fn install() -> Result<()> {
    let missing: Vec<&str> = PACKAGES
        .iter()
        .filter(|(_, proof)| !Path::new(proof).exists())
        .map(|(package, _)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let can_install = Path::new("/usr/bin/apt-get").exists() && is_root();
    if !can_install {
        eprintln!("xtask: some tests will be skipped; they use: {}", missing.join(" "));
        return Ok(());
    }
    apt(&["update", "-qq"])?;
    let mut words = vec!["install", "-y", "-qq", "--no-install-recommends"];
    words.extend(&missing);
    apt(&words)
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
