//! A virtual machine made of Debian's kernel, busybox, and this workspace's programs.
//!
//! The guest's root is an initramfs; its one disk holds only the store. All files lie under
//! `target/qemu`, and each run makes them again, except the kernel. The processor is emulated
//! (TCG), so that no KVM is needed.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::{deps, run};

const MUSL: &str = "x86_64-unknown-linux-musl";
/// The package that depends on Debian's newest kernel for virtual machines, the smallest kernel.
const KERNEL_PACKAGE: &str = "linux-image-cloud-amd64";
const INIT: &str = include_str!("guest/init.sh");
const FSDAX: &str = include_str!("guest/fsdax.sh");

/// The work of a guest, with the kernel modules that it needs.
pub struct Task {
    pub name: &'static str,
    /// The shell script that process 1 runs.
    script: &'static str,
    modules: &'static [&'static str],
    /// What the guest's NVDIMM keeps when the machine is lost, as QEMU calls it; `None`: it has
    /// none.
    pub nvdimm_keeps: Option<&'static str>,
}

/// What an NVDIMM keeps with everything that processors had cached.
pub const CACHES: &str = "cpu";

pub const SERVE: Task = Task {
    name: "serve",
    script: include_str!("guest/serve.sh"),
    modules: &["virtio_pci", "virtio_blk", "ext4"],
    nvdimm_keeps: None,
};

/// As [`SERVE`], with the server's memory on an NVDIMM.
pub const KEPT: Task = Task {
    name: "kept",
    script: include_str!("guest/kept.sh"),
    modules: &["virtio_pci", "virtio_blk", "nfit", "nd_pmem", "ext4"],
    nvdimm_keeps: Some(CACHES),
};

/// As [`KEPT`], with an NVDIMM that loses what was cached.
pub const KEPT_BUT_NOT_CACHES: Task = Task { nvdimm_keeps: Some("mem-ctrl"), ..KEPT };

pub const NUMA: Task = Task {
    name: "numa",
    script: include_str!("guest/numa.sh"),
    modules: &["nfit", "dax_pmem", "device_dax", "kmem"],
    // It becomes system RAM.
    nvdimm_keeps: None,
};

pub const DAX: Task = Task {
    name: "dax",
    script: include_str!("guest/dax.sh"),
    modules: &["nfit", "nd_pmem", "ext4"],
    nvdimm_keeps: Some(CACHES),
};

/// The longest wait for one line from the guest; a boot takes about 10 s.
const PATIENCE: Duration = Duration::from_secs(90);

pub struct Machine {
    dir: PathBuf,
    kernel: PathBuf,
    initramfs: PathBuf,
}

impl Machine {
    pub fn prepare() -> Result<Self> {
        ensure!(cfg!(target_arch = "x86_64"), "the guest is x86-64, and so must be this machine");
        deps::install_qemu()?;
        std::env::set_current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))?;
        let dir = target_dir().join("qemu");
        let root = dir.join("root");
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("bin"))?;
        let (release, kernel) = unpack_kernel(&dir)?;
        for task in [SERVE, KEPT, NUMA, DAX] {
            copy_task(&task, &dir, &release, &root)?;
        }
        for (program, name) in build_programs()? {
            copy_program(&program, &name, &root)?;
        }
        fs::copy("/bin/busybox", root.join("bin/busybox"))?;
        fs::write(root.join("init"), INIT)?;
        fs::write(root.join("bin/fsdax.sh"), FSDAX)?;
        fs::set_permissions(root.join("init"), fs::Permissions::from_mode(0o755))?;
        let initramfs = dir.join("initramfs");
        let names = output(Command::new("find").arg(".").current_dir(&root))?;
        let mut cpio = Command::new("cpio")
            .args(["--quiet", "-o", "-H", "newc"])
            .current_dir(&root)
            .stdin(Stdio::piped())
            .stdout(File::create(&initramfs)?)
            .spawn()?;
        // The pipe is closed after the write, so that cpio sees the end of its input.
        cpio.stdin.take().context("cpio's input")?.write_all(names.as_bytes())?;
        ensure!(cpio.wait()?.success(), "cpio failed");
        Ok(Self { dir, kernel, initramfs })
    }

    /// An empty ext4 file system in a qcow2 image.
    ///
    /// The image loses writes as a volatile write cache does. QEMU keeps the table entries of
    /// clusters that are written for the first time in its own memory until the guest flushes. When
    /// QEMU is killed, these writes are lost, but writes to clusters in the table are kept. A raw
    /// image would keep every completed write.
    pub fn new_disk(&self, name: &str) -> Result<PathBuf> {
        let raw = self.dir.join(format!("{name}.raw"));
        let disk = self.dir.join(format!("{name}.qcow2"));
        File::create(&raw)?.set_len(1 << 30)?;
        output(Command::new("/sbin/mkfs.ext4").args(["-q", "-F"]).arg(&raw))?;
        output(Command::new("qemu-img").args(["convert", "-O", "qcow2"]).arg(&raw).arg(&disk))?;
        fs::remove_file(&raw)?;
        Ok(disk)
    }

    /// A sparse file as persistent memory that was never written.
    pub fn new_nvdimm(&self, name: &str, len_bytes: u64) -> Result<PathBuf> {
        let file = self.dir.join(name);
        File::create(&file)?.set_len(len_bytes)?;
        Ok(file)
    }

    /// The words that give a guest an NVDIMM. The host keeps every store to it, whatever the guest
    /// is told that it `keeps`.
    pub fn with_nvdimm(file: &Path, len_bytes: u64, keeps: &str) -> Vec<String> {
        let hardware = format!(
            "-machine q35,accel=tcg,nvdimm=on,nvdimm-persistence={keeps} \
             -m 512M,slots=2,maxmem=2G -device nvdimm,id=nv,memdev=medium -object"
        );
        let mut hardware: Vec<String> = hardware.split_whitespace().map(str::to_owned).collect();
        // This word is not split, because its path may have spaces.
        hardware.push(format!(
            "memory-backend-file,id=medium,share=on,size={len_bytes},align=2M,mem-path={}",
            file.display()
        ));
        hardware
    }

    /// Starts a guest with this hardware. `words` are `NAME=value` settings, which the kernel gives
    /// to process 1 as environment.
    pub fn boot(&self, task: &Task, words: &str, hardware: &[String]) -> Result<Guest> {
        let mut child = Command::new("qemu-system-x86_64")
            .args(["-cpu", "max", "-smp", "1"])
            .args(["-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot"])
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(&self.initramfs)
            .arg("-append")
            .arg(format!("console=ttyS0 quiet panic=-1 TASK={} {words}", task.name))
            .args(hardware)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("qemu-system-x86_64")?;
        let input = child.stdin.take().context("the guest's input")?;
        let console = BufReader::new(child.stdout.take().context("the guest's console")?);
        Ok(Guest { child, input, lines: lines_of(console), transcript: Vec::new() })
    }
}

/// A running guest, which is killed when dropped.
pub struct Guest {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    transcript: Vec<String>,
}

impl Guest {
    /// The number in the next `guest: {what} NUMBER`.
    pub fn wait_for(&mut self, what: &str) -> Result<u64> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let patience = deadline.saturating_duration_since(Instant::now());
            let line = match self.lines.recv_timeout(patience) {
                Ok(line) => line,
                Err(end) => {
                    let end =
                        if end == RecvTimeoutError::Timeout { "too late" } else { "QEMU ended" };
                    bail!("the guest did not say {what:?}: {end}\n{}", self.transcript());
                }
            };
            if let Some(number) = self.heard(line, what)? {
                return Ok(number);
            }
        }
    }

    /// Tells the guest to send SIGTERM to the server.
    pub fn warn(&mut self) -> Result<()> {
        Ok(self.input.write_all(b"warning\n")?)
    }

    /// SIGKILL to the whole machine. The last count of acknowledged writes that it got out.
    pub fn cut(mut self) -> Result<u64> {
        self.child.kill()?;
        self.child.wait()?;
        while let Ok(line) = self.lines.recv() {
            self.heard(line, "acked")?;
        }
        let said = self.transcript.iter().rev().find_map(|line| line.strip_prefix("guest: acked "));
        Ok(said.context("nothing was acknowledged")?.parse()?)
    }

    /// The words of the server's banner about the device.
    pub fn device(&self) -> &str {
        let image = self.transcript.iter().find_map(|line| line.strip_prefix("image  "));
        image.and_then(|line| line.split_once("; ")).map_or("device unknown", |(_, device)| device)
    }

    /// All lines of the console so far.
    pub fn heard_lines(&self) -> impl Iterator<Item = &str> {
        self.transcript.iter().map(String::as_str)
    }

    /// The last 40 lines of the console.
    pub fn transcript(&self) -> String {
        let from = self.transcript.len().saturating_sub(40);
        self.transcript[from..].join("\n")
    }

    fn heard(&mut self, line: String, what: &str) -> Result<Option<u64>> {
        let said = line.strip_prefix("guest: ").and_then(|rest| rest.split_once(' '));
        let said = said.map(|(verb, rest)| (verb.to_owned(), rest.to_owned()));
        self.transcript.push(line);
        match said {
            Some((verb, _)) if verb == "FAILED" => {
                // The server may print its own reason after its client has failed.
                while let Ok(line) = self.lines.recv_timeout(Duration::from_secs(1)) {
                    self.transcript.push(line);
                }
                bail!("the guest failed\n{}", self.transcript())
            }
            Some((verb, number)) if verb == what => Ok(Some(number.parse()?)),
            _ => Ok(None),
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The whole lines of the console. A line that the cut has shortened is dropped, because its number
/// would be too small.
fn lines_of(mut console: impl BufRead + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = sync_channel(1_024);
    std::thread::spawn(move || {
        let mut line = Vec::new();
        while console.read_until(b'\n', &mut line).is_ok() && line.ends_with(b"\n") {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            line.clear();
            if sender.send(text).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The kernel's release and image. The package is downloaded by the first run only.
fn unpack_kernel(dir: &Path) -> Result<(String, PathBuf)> {
    let kernel = dir.join("kernel");
    if !kernel.exists() {
        let depends = output(Command::new("apt-cache").args(["depends", KERNEL_PACKAGE]))
            .context("apt knows no kernel package; run apt-get update as root")?;
        let package = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
        let package = package.with_context(|| format!("{KERNEL_PACKAGE} names no kernel"))?;
        // The folder gets its name when it is complete.
        let (fetched, unpacked) = (dir.join("package"), dir.join("kernel.new"));
        let _ = fs::remove_dir_all(&fetched);
        let _ = fs::remove_dir_all(&unpacked);
        fs::create_dir_all(&fetched)?;
        output(Command::new("apt-get").args(["download", package]).current_dir(&fetched))?;
        let file = fs::read_dir(&fetched)?.next().context("apt-get downloaded nothing")??;
        output(Command::new("dpkg").arg("-x").arg(file.path()).arg(&unpacked))?;
        fs::rename(&unpacked, &kernel)?;
        fs::remove_dir_all(&fetched)?;
    }
    let release = fs::read_dir(kernel.join("lib/modules"))?.next().context("no modules")??;
    let release = release.file_name().to_string_lossy().into_owned();
    output(Command::new("/sbin/depmod").arg("-b").arg(&kernel).arg(&release))?;
    let image = kernel.join(format!("boot/vmlinuz-{release}"));
    Ok((release, image))
}

/// Copies a task's script and kernel modules, and writes the modules' names in the order in which
/// they must be loaded.
fn copy_task(task: &Task, dir: &Path, release: &str, root: &Path) -> Result<()> {
    fs::create_dir_all(root.join("modules"))?;
    fs::create_dir_all(root.join("tasks"))?;
    // The host's rules for modprobe do not hold in the guest.
    let no_rules = dir.join("no-rules");
    fs::create_dir_all(&no_rules)?;
    let listed = output(
        Command::new("/sbin/modprobe")
            .arg("-C")
            .arg(&no_rules)
            .arg("-d")
            .arg(fs::canonicalize(dir.join("kernel"))?)
            .args(["-S", release, "--show-depends", "-a"])
            .args(task.modules),
    )?;
    let mut names = Vec::new();
    for path in listed.lines().filter_map(|line| line.strip_prefix("insmod ")) {
        let path = Path::new(path.trim());
        let name = path.file_name().context("a module without a name")?;
        let name_text = name.to_string_lossy().into_owned();
        if !names.contains(&name_text) {
            fs::copy(path, root.join("modules").join(name))?;
            names.push(name_text);
        }
    }
    let file = |kind: &str| root.join("tasks").join(format!("{}.{kind}", task.name));
    fs::write(file("modules"), names.join("\n") + "\n")?;
    Ok(fs::write(file("sh"), task.script)?)
}

/// Builds the guest's programs and returns them with their names in the guest.
///
/// They are static if the musl target can be installed. Debian's programs, and the library that is
/// preloaded into one of them, are those of this machine.
fn build_programs() -> Result<Vec<(PathBuf, String)>> {
    let added = Command::new("rustup").args(["target", "add", MUSL]).output();
    let is_static = added.is_ok_and(|added| added.status.success());
    let target = if is_static { vec!["--target", MUSL] } else { Vec::new() };
    let build = ["build", "--release", "--quiet"];
    let package = |name: &'static str| [&build[..], &["--package", name], &target].concat();
    run::cargo(&package("perdura-cli"))?;
    run::cargo(&package("perdura-lab"))?;
    run::cargo(&[&package("xtask")[..], &["--examples"]].concat())?;
    run::cargo(&[&build[..], &["--package", "perdura-interpose"]].concat())?;
    let heap_numa = build_test("perdura-heap", "numa", &target)?;
    let release = target_dir().join("release");
    let built = if is_static { target_dir().join(MUSL).join("release") } else { release.clone() };
    let named = |path: PathBuf, name: &str| (path, name.to_owned());
    Ok(vec![
        named(built.join("perdura"), "perdura"),
        named(built.join("perdura-lab"), "perdura-lab"),
        named(built.join("examples/qemu_guest"), "qemu_guest"),
        named(built.join("examples/qemu_numa"), "qemu_numa"),
        named(heap_numa, "heap_numa"),
        named(release.join("libperdura_interpose.so"), "libperdura_interpose.so"),
        named(PathBuf::from("/usr/bin/perl"), "perl"),
        named(PathBuf::from("/sbin/mkfs.ext4"), "mkfs.ext4"),
    ])
}

/// The path of a package's test program, which cargo chooses.
fn build_test(package: &str, test: &str, target: &[&str]) -> Result<PathBuf> {
    let words = ["test", "--release", "--no-run", "--package", package, "--test", test];
    let mut cargo = Command::new("cargo");
    cargo.args(words).args(target).args(["--quiet", "--message-format", "json"]);
    let messages = output(&mut cargo)?;
    let mut named = messages.lines().filter_map(|line| line.split_once("\"executable\":\""));
    let last = named.next_back().and_then(|(_, rest)| rest.split_once('"'));
    let (path, _) = last.with_context(|| format!("{cargo:?} named no binary"))?;
    Ok(PathBuf::from(path))
}

fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}

/// Copies a program, and the loader and libraries that it names to the paths where it looks for
/// them.
fn copy_program(program: &Path, name: &str, root: &Path) -> Result<()> {
    fs::copy(program, root.join("bin").join(name))
        .with_context(|| program.display().to_string())?;
    // ldd fails for a static program and names no libraries.
    let listed = Command::new("ldd").arg(program).output().context("ldd")?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    for library in listed.split_whitespace().filter(|word| word.starts_with('/')) {
        let to = root.join(library.trim_start_matches('/'));
        fs::create_dir_all(to.parent().context("a library without a directory")?)?;
        fs::copy(library, to)?;
    }
    Ok(())
}

fn output(command: &mut Command) -> Result<String> {
    let done = command.output().with_context(|| format!("{command:?}"))?;
    if !done.status.success() {
        bail!("{command:?} ended with {}: {}", done.status, String::from_utf8_lossy(&done.stderr));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
