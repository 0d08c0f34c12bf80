//! The machine and the build of a measurement: without them a figure cannot be compared.

use std::fmt;
use std::path::Path;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// The machine and the build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub cpu: String,
    /// Number of processors that this process may use.
    pub cpus: usize,
    /// `governor` of the first processor, if the machine has one.
    pub governor: Option<String>,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Kernel version and architecture.
    pub kernel: String,
    /// Load average of the last minute when the run began, from all programs.
    pub load_1m: Option<String>,
    /// Version of Perdura.
    pub version: String,
    /// Revision of the source, from `PERDURA_REVISION` when it was built or run, else from git
    /// where it runs.
    pub revision: String,
    /// Whether the build is optimised, without debug assertions.
    pub is_release: bool,
    /// Start of the run, milliseconds since 1970.
    pub unix_ms: u64,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, cpus, kernel, version, revision, .. } = self;
        let warning = if self.is_release { "" } else { " (NOT a release build)" };
        write!(f, "{cpu}, {cpus} processors, {kernel}; perdura {version} {revision}{warning}")
    }
}

impl Machine {
    /// Describes this machine now.
    pub fn here() -> Self {
        let system = rustix::system::uname();
        let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            cpu: line_of("/proc/cpuinfo", "model name")
                .map_or("unknown".into(), |line| line.trim_start_matches([' ', '\t', ':']).into()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            memory_bytes: kib_of("MemTotal:").unwrap_or(0),
            kernel: format!(
                "{} {} {}",
                text(system.sysname()),
                text(system.release()),
                text(system.machine())
            ),
            load_1m: read("/proc/loadavg")
                .and_then(|text| text.split(' ').next().map(str::to_owned)),
            version: env!("CARGO_PKG_VERSION").into(),
            revision: revision(),
            is_release: !cfg!(debug_assertions),
            unix_ms: since_1970.map_or(0, |since| since.as_millis() as u64),
        }
    }
}

/// Bytes of memory that can be used without swapping.
pub fn memory_available_bytes() -> Option<u64> {
    kib_of("MemAvailable:")
}

/// Free bytes on the disk of a directory, or of the nearest parent that exists.
pub fn disk_available_bytes(dir: &Path) -> Option<u64> {
    let stat = dir.ancestors().find_map(|dir| {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        rustix::fs::statvfs(dir).ok()
    })?;
    Some(stat.f_bavail * stat.f_frsize)
}

/// Processor time of this process, nanoseconds.
pub fn process_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Processor time of this thread, nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Processor time of a process, nanoseconds, in the system's ticks (10 ms); `None` if the process
/// cannot be read.
pub fn cpu_ns_of(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may contain anything.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut ticks = fields.split(' ').skip(11).map_while(|field| field.parse::<u64>().ok());
    let (user, system) = (ticks.next()?, ticks.next()?);
    Some((user + system) * (1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)))
}

fn revision() -> String {
    if let Some(built) = option_env!("PERDURA_REVISION") {
        return built.to_owned();
    }
    if let Ok(told) = std::env::var("PERDURA_REVISION") {
        return told;
    }
    // Only in the source's own folder: elsewhere git would name another repository's revision.
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let git = std::process::Command::new("git")
        .args(["-C", source, "describe", "--always", "--dirty", "--abbrev=12"])
        .stderr(std::process::Stdio::null())
        .output();
    match git {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(output.stdout.trim_ascii()).into_owned()
        }
        _ => "unknown".into(),
    }
}

fn read(path: &str) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

fn line_of(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
}

fn kib_of(name: &str) -> Option<u64> {
    let line = line_of("/proc/meminfo", name)?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_sees_itself_work() {
        let before = process_cpu_ns();
        std::hint::black_box((0..1_000_000u64).fold(0, |sum, n| sum ^ n.wrapping_mul(n)));
        assert!(process_cpu_ns() > before);
        assert!(cpu_ns_of(std::process::id()).is_some());
        assert_eq!(cpu_ns_of(u32::MAX), None);
    }

    #[test]
    fn disk_space_is_that_of_the_folder_above_while_there_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let here = disk_available_bytes(dir.path()).unwrap();
        let to_be = disk_available_bytes(&dir.path().join("not/yet")).unwrap();
        assert!(here > 0 && to_be.abs_diff(here) < here / 2, "{here}, {to_be}");
        assert!(disk_available_bytes(Path::new("not/yet")).is_some());
    }

    #[test]
    fn the_machine_says_what_it_is() {
        let machine = Machine::here();
        assert!(machine.cpus > 0 && machine.memory_bytes > 0, "{machine:?}");
        assert!(machine.kernel.starts_with("Linux "), "{machine:?}");
    }
}
