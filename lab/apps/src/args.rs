//! The command line.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Parser;

use crate::kinds::{self, App, Size};
use crate::measure::Settings;
use crate::ways::{Places, Way};

/// Small applications, each by several ways to the same data: a persistent heap, plain memory, a
/// RAM disk, mapped files, files on a device. Measures calls, memory, page latency, and run times
/// in turn; results must be equal.
#[derive(Debug, Parser)]
#[command(name = "perdura-apps", version, max_term_width = 100, args_override_self = true)]
pub struct Args {
    /// Applications: table, pictures, faces, snappy, mails, video, words.
    #[arg(long, value_name = "NAME,...|all", default_value = "all")]
    pub app: String,
    /// Amount of work: small (tests), medium, paper (the paper's counts: gigabytes, minutes).
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "medium",
        value_parser = ["small", "medium", "paper"]
    )]
    pub size: String,
    /// Ways: dram, heap, heap-io, heap-ordered, ramdisk, mmap, mmap-sync, block. `dram` alone makes
    /// no files, and allocates by malloc only.
    #[arg(long, value_name = "NAME,...|all", default_value = "all")]
    pub way: String,
    /// Timed runs of each way.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// Pages for the measurement of page latency; 0 leaves it out.
    #[arg(long, value_name = "N", default_value_t = 4096)]
    pub pages: usize,
    /// Seed of all inputs.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Folder on a tmpfs, for the RAM disk and for heaps; it must not exist, and is removed at the
    /// end, but not when the run is killed [default: one in /dev/shm].
    #[arg(long, value_name = "DIR")]
    pub ram_dir: Option<PathBuf>,
    /// Folder on a device's file system, for mapped files and block I/O; it must not exist, and is
    /// removed at the end.
    #[arg(long, value_name = "DIR", default_value = "perdura-apps-run")]
    pub disk_dir: PathBuf,
    /// Also write all results to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Args {
    /// Checks every value.
    ///
    /// # Errors
    /// A value is wrong; the error names it.
    pub fn resolve(&self) -> Result<(Vec<Box<dyn App>>, Settings)> {
        if self.rounds == 0 {
            bail!("--rounds 0: expected at least 1");
        }
        let size = match &*self.size {
            "small" => Size::Small,
            "paper" => Size::Paper,
            _ => Size::Medium,
        };
        let ways = self.ways()?;
        let ram_dir = self.ram_dir.clone().unwrap_or_else(|| {
            Path::new("/dev/shm").join(format!("perdura-apps-{}", std::process::id()))
        });
        let places = Places { ram_dir, disk_dir: self.disk_dir.clone(), heap_bytes: 0 };
        if ways.iter().any(|way| way.is_in_files()) {
            check_places(&places)?;
        }
        let apps = self.apps(kinds::all(size, self.seed))?;
        Ok((apps, Settings { ways, rounds: self.rounds, places }))
    }

    fn apps(&self, all: Vec<Box<dyn App>>) -> Result<Vec<Box<dyn App>>> {
        let names: Vec<&str> = all.iter().map(|app| app.name()).collect();
        let chosen = chosen("--app", &self.app, &names)?;
        Ok(all.into_iter().filter(|app| chosen.contains(&app.name())).collect())
    }

    fn ways(&self) -> Result<Vec<Way>> {
        let names = Way::ALL.map(Way::name);
        let chosen = chosen("--way", &self.way, &names)?;
        Ok(Way::ALL.into_iter().filter(|way| chosen.contains(&way.name())).collect())
    }
}

fn chosen<'a>(option: &str, words: &'a str, names: &[&'a str]) -> Result<Vec<&'a str>> {
    if words == "all" {
        return Ok(names.to_vec());
    }
    let words: Vec<&str> = words.split(',').map(str::trim).collect();
    if let Some(unknown) = words.iter().find(|word| !names.contains(word)) {
        bail!("{option} {unknown}: expected all, or some of {}", names.join(", "));
    }
    Ok(words)
}

/// Number of tmpfs in the results of `statfs`.
const TMPFS: i64 = 0x0102_1994;

fn check_places(places: &Places) -> Result<()> {
    if !is_tmpfs(&places.ram_dir)? {
        bail!("--ram-dir {}: not on a tmpfs", places.ram_dir.display());
    }
    if is_tmpfs(&places.disk_dir)? {
        bail!(
            "--disk-dir {}: on a tmpfs, expected a device's file system",
            places.disk_dir.display()
        );
    }
    for (option, dir) in [("--ram-dir", &places.ram_dir), ("--disk-dir", &places.disk_dir)] {
        if dir.exists() {
            bail!("{option} {}: exists; name a folder that is to be made", dir.display());
        }
    }
    Ok(())
}

fn is_tmpfs(dir: &Path) -> Result<bool> {
    let above = dir.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("."));
    let about = rustix::fs::statfs(above).with_context(|| above.display().to_string())?;
    Ok(about.f_type as i64 == TMPFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(words: &[&str]) -> Result<(Vec<Box<dyn App>>, Settings)> {
        Args::try_parse_from([&["perdura-apps"], words].concat())?.resolve()
    }

    fn refused(words: &[&str]) -> String {
        resolve(words).err().unwrap().to_string()
    }

    #[test]
    fn names_choose_applications_and_ways() {
        let (apps, settings) = resolve(&["--app", "words,table", "--way", "dram"]).unwrap();
        assert_eq!(apps.iter().map(|app| app.name()).collect::<Vec<_>>(), ["table", "words"]);
        assert_eq!(settings.ways, [Way::Dram]);
        assert_eq!(resolve(&["--way", "all"]).unwrap().1.ways, Way::ALL);
    }

    #[test]
    fn values_that_make_no_sense_are_named() {
        assert!(
            refused(&["--app", "chess"]).starts_with("--app chess: expected all, or some of table")
        );
        assert!(
            refused(&["--way", "tape"]).starts_with("--way tape: expected all, or some of dram")
        );
        assert!(refused(&["--rounds", "0"]).starts_with("--rounds 0"));
        assert!(refused(&["--ram-dir", "/proc/perdura"]).contains("not on a tmpfs"));
        assert!(refused(&["--disk-dir", "/dev/shm/perdura"]).contains("on a tmpfs"));
        assert!(refused(&["--disk-dir", "src"]).contains("--disk-dir src: exists"));
    }

    #[test]
    fn plain_memory_alone_looks_at_no_folder() {
        assert!(resolve(&["--way", "dram", "--disk-dir", "src", "--ram-dir", "src"]).is_ok());
    }
}
