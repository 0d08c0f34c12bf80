//! A mounted LazyFS: a file system that keeps what was not synced in its own memory, and forgets it
//! when it is told to.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// The longest wait for a mount, for its end, or for a command's effect.
const PATIENCE: Duration = Duration::from_secs(60);
/// The cache holds the whole image: a cache that is full writes through, and forgets nothing.
pub const CACHE_BYTES: u64 = 512 << 20;

/// A mounted LazyFS, which is unmounted when dropped.
pub struct Mount {
    program: PathBuf,
    dir: PathBuf,
    child: Option<Child>,
    /// Both ends are open, so that neither LazyFS nor this process waits for the other's.
    faults: File,
    done: BufReader<File>,
}

impl Mount {
    /// Mounts `DIR/root` at `DIR/data`.
    pub fn new(program: &Path, dir: &Path) -> Result<Self> {
        for name in ["root", "data"] {
            fs::create_dir_all(dir.join(name))?;
        }
        let config = format!(
            "[faults]\nfifo_path={:?}\nfifo_path_completed={:?}\n[cache]\napply_eviction=false\n\
             [cache.simple]\ncustom_size=\"{}mb\"\nblocks_per_page=1\n\
             [filesystem]\nlog_all_operations=false\nlogfile=\"\"\n",
            dir.join("faults"),
            dir.join("done"),
            CACHE_BYTES >> 20,
        );
        fs::write(dir.join("lazyfs.toml"), config)?;
        let fifo = |name: &str| -> Result<File> {
            let path = dir.join(name);
            let made = Command::new("mkfifo").arg(&path).status().context("mkfifo")?;
            ensure!(made.success(), "mkfifo {}: {made}", path.display());
            Ok(File::options().read(true).write(true).open(path)?)
        };
        let (faults, done) = (fifo("faults")?, BufReader::new(fifo("done")?));
        let mut mount =
            Self { program: program.to_owned(), dir: dir.to_owned(), child: None, faults, done };
        mount.mount()?;
        Ok(mount)
    }

    /// Where the files are seen through LazyFS.
    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Where the files are that LazyFS would find after a loss of power.
    pub fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    /// Forgets everything that was not synced.
    pub fn forget(&mut self) -> Result<()> {
        self.command("lazyfs::clear-cache")?;
        let mut line = String::new();
        self.done.read_line(&mut line)?;
        ensure!(line.contains("clear-cache"), "LazyFS answered {line:?}");
        Ok(())
    }

    /// Tells LazyFS to do something, now or at a later operation.
    pub fn command(&mut self, words: &str) -> Result<()> {
        Ok(self.faults.write_all(format!("{words}\n").as_bytes())?)
    }

    /// Waits until LazyFS has ended by a fault that it was told of, and mounts it again.
    pub fn wait_for_crash(&mut self) -> Result<()> {
        let began = Instant::now();
        let mut child = self.child.take().context("LazyFS does not run")?;
        while child.try_wait()?.is_none() {
            if began.elapsed() > PATIENCE {
                self.child = Some(child);
                anyhow::bail!("LazyFS does not crash");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Mounts again after a crash.
    pub fn mount_again(&mut self) -> Result<()> {
        unmount(&self.data())?;
        self.mount()
    }

    fn mount(&mut self) -> Result<()> {
        let log = File::create(self.dir.join("lazyfs.log"))?;
        let mut command = Command::new(&self.program);
        command.arg(self.data()).arg("--config-path").arg(self.dir.join("lazyfs.toml"));
        command.args(["-o", "allow_other", "-o", "modules=subdir", "-o"]);
        command.arg(format!("subdir={}", self.root().display())).arg("-f");
        let errors = log.try_clone()?;
        let child = command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn();
        let child = self.child.insert(child.with_context(|| format!("{command:?}"))?);
        let began = Instant::now();
        let beside = fs::metadata(&self.dir)?.dev();
        while fs::metadata(self.dir.join("data")).map_or(beside, |found| found.dev()) == beside {
            let log = || fs::read_to_string(self.dir.join("lazyfs.log")).unwrap_or_default();
            ensure!(child.try_wait()?.is_none(), "LazyFS ended at once: {}", log());
            ensure!(began.elapsed() < PATIENCE, "LazyFS does not mount: {}", log());
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = unmount(&self.data()) {
            eprintln!("xtask: {error:#}");
        }
        if let Some(mut child) = self.child.take() {
            // LazyFS ends when it is unmounted; a second end does no harm.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Unmounts also what a process still has open, or what LazyFS has left by a crash.
fn unmount(place: &Path) -> Result<()> {
    let done = Command::new("umount").arg("-l").arg(place).output().context("umount")?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "umount {}: {said}", place.display());
    Ok(())
}
