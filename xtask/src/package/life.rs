//! `cargo xtask test-package`: the Debian package's life in a clean Debian. It is installed, its
//! server is killed under load, upgraded under load, removed, installed again, and purged; and each
//! time what was acknowledged is there.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::root::Root;
use super::stage::{Stage, copy};
use super::{Wanted, deb};
use crate::oracle::{Oracle, PIPELINE, Written};
use crate::served;

const OLD: &str = "0.1.0-1";
const NEW: &str = "0.1.0-2";
/// How many writes are acknowledged before the server is stopped.
const WRITES: u64 = 20_000;
/// The longest time from the installation's beginning to the first answer.
const TO_FIRST_ANSWER: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(60);
const DATA: &str = "var/lib/perdura";
/// The data of a server with a key.
const ENCRYPTED: &str = "/var/lib/perdura/encrypted";

/// Makes two versions of the package, and leads the first through its life.
pub fn test(perdura: Option<&str>) -> Result<()> {
    let stage = Stage::fill(&Wanted { is_dev: true, perdura, version: None })?;
    let packages = [OLD, NEW].map(|version| deb::write(&stage, Some(version)));
    let [old, new] = packages;
    let (old, new) = (old?, new?);
    let address = format!("127.0.0.1:{}", served::free_port()?);
    // The port may be taken on this machine, whose network the Debian shares.
    let other = format!(
        "[Service]\nExecStart=\nExecStart=/usr/bin/perdura serve --config \
         /etc/perdura/perdura.toml --listen {address}\n"
    );
    let root = Root::start(|files| {
        copy(&old, &files.join("old.deb"))?;
        copy(&new, &files.join("new.deb"))?;
        let units = files.join("etc/systemd/system/perdura.service.d");
        fs::create_dir_all(&units)?;
        Ok(fs::write(units.join("address.conf"), other)?)
    })?;
    let mut life = Life { root, address, starts: Vec::new() };
    let lived = life.live();
    if lived.is_err() {
        eprintln!("{}", life.journal());
        return lived;
    }
    life.root.remove()
}

struct Life {
    root: Root,
    address: String,
    /// The first write of each load.
    starts: Vec<u64>,
}

impl Life {
    fn live(&mut self) -> Result<()> {
        let took = self.timed(&["dpkg", "-i", "/old.deb"])?;
        ensure!(took < TO_FIRST_ANSWER, "the first answer came after {took:?}");
        println!("ok    installed: the first PONG {:.1} s after dpkg began", took.as_secs_f64());
        self.is_installed(OLD)?;

        let (acked, away) = self.under_load(&[
            "systemctl",
            "kill",
            "--kill-whom=main",
            "--signal=KILL",
            "perdura",
        ])?;
        ensure!(self.journal().contains("kept by the holder"), "the memory was not kept");
        println!("ok    killed after {acked} writes: nothing lost, away for {}", ms(away));

        let (acked, away) = self.under_load(&["dpkg", "-i", "/new.deb"])?;
        self.is_installed(NEW)?;
        println!("ok    upgraded after {acked} writes: nothing lost, away for {}", ms(away));

        let said = self.root.namespace.run(&["dpkg", "-r", "perdura"])?;
        ensure!(said.contains("the data stay in /var/lib/perdura"), "{said}");
        ensure!(self.has_ended()? && self.has(DATA), "removed, but not as it should be");
        self.timed(&["dpkg", "-i", "/new.deb"])?;
        let found = self.verify()?;
        ensure!(found == acked, "{acked} acknowledged, {found} found after removal");
        println!("ok    removed and installed again: all {found} writes are there");

        self.keeps_a_key()?;
        println!("ok    encrypted by a key that only systemd can read");

        let said = self.root.namespace.run(&["dpkg", "-P", "perdura"])?;
        ensure!(said.contains("removing the data in /var/lib/perdura"), "{said}");
        let left = [DATA, "etc/perdura", "usr/bin/perdura", "usr/lib/perdura"];
        let left: Vec<_> = left.into_iter().filter(|path| self.has(path)).collect();
        ensure!(left.is_empty() && self.has_ended()?, "left after the purge: {left:?}");
        let users = fs::read_to_string(self.root.files.join("etc/passwd"))?;
        ensure!(!users.contains("perdura"), "the user is left: {users}");
        println!("ok    purged: no data, no settings, no user, no process");
        Ok(())
    }

    /// Runs a command beside polling; returns the time to the first answer.
    fn timed(&mut self, words: &[&str]) -> Result<Duration> {
        let began = Instant::now();
        let mut child = self.root.namespace.command(words)?.spawn()?;
        let answered = self.wait_for_answer(began);
        ensure!(child.wait()?.success(), "{words:?} failed");
        answered
    }

    fn wait_for_answer(&self, began: Instant) -> Result<Duration> {
        while !served::answers(&self.address) {
            ensure!(began.elapsed() < PATIENCE, "no answer after {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(began.elapsed())
    }

    /// What a package of this version has brought.
    fn is_installed(&mut self, version: &str) -> Result<()> {
        let namespace = &mut self.root.namespace;
        let is = namespace.run(&["dpkg-query", "-W", "-f=${Version} ${Status}", "perdura"])?;
        ensure!(is == format!("{version} install ok installed"), "installed: {is}");
        let words = ["systemctl", "show", "-p", "ActiveState,UnitFileState,User", "perdura"];
        let shown = namespace.run(&words)?;
        for line in ["ActiveState=active", "UnitFileState=enabled", "User=perdura"] {
            ensure!(shown.contains(line), "the service: {shown}");
        }
        // The server, its holder, what starts holders beneath the filter, and nobody else.
        let processes = namespace.run(&["pgrep", "-c", "-u", "perdura"])?;
        ensure!(processes.trim() == "3", "processes of the user: {}", processes.trim());
        let status = namespace.run(&["perdura", "status", "--connect", &self.address])?;
        ensure!(status.contains("holder"), "perdura status: {status}");
        let has_filter = !self.journal().contains("there is no filter of system calls");
        ensure!(has_filter, "the unit does not let the server install its filter");
        let namespace = &mut self.root.namespace;
        // Its library is found.
        namespace.run(&["perdura", "run", "--report", "--", "/bin/true"])?;
        for path in [
            "etc/perdura/perdura.toml",
            "usr/share/man/man1/perdura-serve.1.gz",
            "usr/share/bash-completion/completions/perdura",
        ] {
            ensure!(self.has(path), "/{path} is missing");
        }
        Ok(())
    }

    /// Starts a server of other data by the sealed key of docs/packages.md, in the unit's sandbox.
    fn keeps_a_key(&mut self) -> Result<()> {
        let namespace = &mut self.root.namespace;
        namespace.run(&["perdura", "key", "generate", "/root/key"])?;
        let words = ["encrypt", "--name=key", "/root/key", "/etc/perdura/key.sealed"];
        namespace.run(&[&["systemd-creds"], &words[..]].concat())?;
        let drop_in = format!(
            "[Service]\nLoadCredentialEncrypted=key:/etc/perdura/key.sealed\nExecStart=\n\
             ExecStart=/usr/bin/perdura serve --config /etc/perdura/perdura.toml --listen {} \
             --memory 64MiB --dir {ENCRYPTED}\n",
            self.address
        );
        let etc = self.root.files.join("etc");
        fs::write(etc.join("systemd/system/perdura.service.d/key.conf"), drop_in)?;
        let settings = etc.join("perdura/perdura.toml");
        let text = fs::read_to_string(&settings)?;
        let example = text.lines().find_map(|line| line.strip_prefix("#key-command"));
        let example = example.context("perdura.toml has no example of key-command")?;
        fs::write(settings, format!("{text}\nkey-command{example}\n"))?;
        let namespace = &mut self.root.namespace;
        namespace.run(&["systemctl", "daemon-reload"])?;
        namespace.run(&["systemctl", "restart", "perdura"])?;
        self.wait_for_answer(Instant::now())?;
        let said = self.journal();
        ensure!(said.contains("encryption       aes-256-gcm"), "the image is not encrypted");
        Ok(())
    }

    /// Runs a command while a client writes. Checks that everything acknowledged is there
    /// afterwards, and returns how much that is, and the time without answers.
    fn under_load(&mut self, words: &[&str]) -> Result<(u64, Duration)> {
        let from = self.verify()?;
        self.starts.push(from);
        let noted = Arc::new(AtomicU64::new(from));
        let writer = self.write(from, Arc::clone(&noted))?;
        while noted.load(Ordering::Acquire) < from + WRITES {
            ensure!(!writer.is_finished(), "the load ended early");
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut child = self.root.namespace.command(words)?.spawn()?;
        let (written, cut) = writer.join().map_err(|_| anyhow!("the client panicked"))?;
        self.wait_for_answer(cut)?;
        let away = cut.elapsed();
        ensure!(child.wait()?.success(), "{words:?} failed");
        if let Some(refusal) = written.refusal {
            bail!("write {} was refused: {refusal:?}", written.acked);
        }
        let found = self.verify()?;
        let acked = written.acked;
        ensure!(
            (acked..=acked + PIPELINE).contains(&found),
            "{acked} acknowledged, {found} found after {words:?}"
        );
        Ok((found, away))
    }

    /// Writes in a thread until the connection ends.
    fn write(&self, from: u64, noted: Arc<AtomicU64>) -> Result<JoinHandle<(Written, Instant)>> {
        let oracle = Oracle::try_connect(&self.address)?;
        let run = self.starts.len() - 1;
        Ok(std::thread::spawn(move || {
            let written = { oracle }.write(from, run, |n| noted.store(n, Ordering::Release));
            (written, Instant::now())
        }))
    }

    /// The number of writes that the server has.
    fn verify(&self) -> Result<u64> {
        let oracle = Oracle::try_connect(&self.address);
        oracle.and_then(|mut oracle| oracle.verify(&self.starts)).context("compare")
    }

    fn has(&self, path: impl AsRef<Path>) -> bool {
        self.root.files.join(path).exists()
    }

    /// Whether neither server nor holder runs.
    fn has_ended(&mut self) -> Result<bool> {
        let asked = self.root.namespace.command(&["pgrep", "-x", "perdura"])?.output()?;
        Ok(asked.stdout.is_empty())
    }

    /// What the server has said.
    fn journal(&mut self) -> String {
        let words = ["journalctl", "-b", "--no-pager", "-u", "perdura"];
        self.root.namespace.run(&words).unwrap_or_else(|error| error.to_string())
    }
}

fn ms(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}
