//! What would end the server and the keeper of its memory together: refused or warned of at the
//! start, where it can be seen. docs/fault-model.md has the list.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use perdura_media::Bytes;
use perdura_region::room::process_bytes;

/// Limits from here on stand for "none".
const NO_LIMIT_BYTES: u64 = 1 << 60;
/// File systems that are gone with the power: tmpfs, ramfs, hugetlbfs.
const IN_MEMORY: [u64; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];
/// Set in every container of a Kubernetes pod.
const KUBERNETES: &str = "KUBERNETES_SERVICE_HOST";

/// A limit of the memory of a group of processes.
#[derive(Debug, PartialEq)]
struct MemoryLimit {
    /// The file that says so.
    file: PathBuf,
    bytes: u64,
}

/// The system's files, which a test replaces.
struct Files<'r> {
    /// The directory that stands for `/`.
    root: &'r Path,
}

/// Refuses a memory that this process's cgroup cannot hold: the kernel would kill the server, and
/// perhaps the holder, which is charged for the same memory.
pub fn check_memory_fits(memory_bytes: u64) -> Result<()> {
    Files { root: Path::new("/") }.check_memory_fits(memory_bytes)
}

/// Refuses a directory for the memory of an encrypted image that lies on a drive: there the memory
/// would outlive the machine's power, and it is not encrypted.
pub fn check_keeps_nothing(memory_dir: &Path) -> Result<()> {
    let place = || format!("--memory-dir {}", memory_dir.display());
    let nearest = memory_dir.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("."));
    let kind = rustix::fs::statfs(nearest).with_context(place)?.f_type as u64;
    if !IN_MEMORY.contains(&kind) {
        bail!(
            "{}: with a key it must be in a tmpfs, such as /dev/shm: memory is not encrypted, and \
             there it would lie on a drive",
            place()
        );
    }
    Ok(())
}

/// Logs what may end server and holder at the same time, and is not refused. `memory_bytes` is what
/// the server has; `is_locked` says that it cannot be swapped out.
pub fn warn(memory_bytes: u64, is_locked: bool, has_holder: bool) {
    let files = Files { root: Path::new("/") };
    let in_kubernetes = std::env::var_os(KUBERNETES).is_some();
    for warning in files.warnings(memory_bytes, is_locked, has_holder, in_kubernetes) {
        tracing::warn!("{warning}");
    }
}

impl Files<'_> {
    fn check_memory_fits(&self, memory_bytes: u64) -> Result<()> {
        match self.memory_limit() {
            Some(MemoryLimit { file, bytes }) if bytes < process_bytes(memory_bytes) => bail!(
                "a memory of {} needs {}, and {} allows this process and its holder {}: give less \
                 --memory, or a higher limit (MemoryMax=, resources.limits.memory). Nothing was \
                 made",
                Bytes(memory_bytes),
                Bytes(process_bytes(memory_bytes)),
                file.display(),
                Bytes(bytes),
            ),
            _ => Ok(()),
        }
    }

    fn warnings(
        &self,
        memory_bytes: u64,
        is_locked: bool,
        has_holder: bool,
        in_kubernetes: bool,
    ) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Err(error) = self.check_memory_fits(memory_bytes) {
            warnings.push(format!("the memory may outgrow a limit, and all be killed: {error}"));
        }
        if has_holder && let Some(file) = self.ends_together() {
            warnings.push(format!(
                "{} is 1: if memory is short the kernel kills the server and its holder together, \
                 and the data go back to the last checkpoint; set it to 0 (OOMPolicy=continue), or \
                 use a guard outside this cgroup",
                file.display()
            ));
        }
        if !is_locked && self.has_swap() {
            warnings.push(
                "the memory is not locked, and this machine swaps: a flush that has to read pages \
                 back from the swap may take longer than promised; raise the limit of locked \
                 memory (LimitMEMLOCK=infinity, ulimit -l), or turn the swap off"
                    .to_owned(),
            );
        }
        if in_kubernetes && has_holder {
            warnings.push(
                "in a pod the holder ends with the container: a deleted pod gets its \
                 terminationGracePeriodSeconds, and a container that is killed or runs out of \
                 memory goes back to the last checkpoint; see `perdura plan kubernetes`"
                    .to_owned(),
            );
        }
        warnings
    }

    /// The smallest limit of the cgroups that this process is in, of either version.
    fn memory_limit(&self) -> Option<MemoryLimit> {
        let limits = self.groups("memory", "memory.limit_in_bytes", "memory.max");
        let limits = limits.into_iter().filter_map(|file| {
            let text = fs::read_to_string(&file).ok()?;
            // Version 2 says "max" where there is none.
            let bytes: u64 = text.trim().parse().ok()?;
            (bytes < NO_LIMIT_BYTES).then_some(MemoryLimit { file, bytes })
        });
        limits.min_by_key(|limit| limit.bytes)
    }

    /// The file that says that all processes of the cgroup are killed together.
    fn ends_together(&self) -> Option<PathBuf> {
        let files = self.groups("memory", "memory.oom.group", "memory.oom.group");
        let is_set = |file: &PathBuf| {
            fs::read_to_string(file).is_ok_and(|text| text.trim().parse() == Ok(1))
        };
        files.into_iter().find(is_set)
    }

    /// The files of the cgroups of this process and of their parents, by their names in versions 1
    /// and 2. In a container the paths are often those outside; then the root is what counts.
    fn groups(&self, controller: &str, of_version_1: &str, of_version_2: &str) -> Vec<PathBuf> {
        let text = fs::read_to_string(self.path("proc/self/cgroup")).unwrap_or_default();
        let mut files = Vec::new();
        for line in text.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            let (mounts, name): (&[&str], _) = match controllers {
                "" => (&["sys/fs/cgroup", "sys/fs/cgroup/unified"], of_version_2),
                named if named.split(',').any(|it| it == controller) => {
                    (&["sys/fs/cgroup/memory"], of_version_1)
                }
                _ => continue,
            };
            for mount in mounts.iter().map(|mount| self.path(mount)) {
                let group = Path::new(path.trim_start_matches('/'));
                let found = group.ancestors().map(|group| mount.join(group).join(name));
                files.extend(found.filter(|file| file.exists()));
            }
        }
        files
    }

    fn has_swap(&self) -> bool {
        // The first line names the columns.
        fs::read_to_string(self.path("proc/swaps")).is_ok_and(|text| text.lines().count() > 1)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A system with these files.
    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    const OF_2: &str = "0::/system.slice/perdura.service\n";

    #[test]
    fn the_smallest_limit_of_all_groups_above_counts_in_both_versions() {
        let two = system(&[
            ("proc/self/cgroup", OF_2),
            ("sys/fs/cgroup/system.slice/memory.max", "104857600\n"),
            ("sys/fs/cgroup/system.slice/perdura.service/memory.max", "max\n"),
        ]);
        let one = system(&[
            ("proc/self/cgroup", "8:pids:/\n4:memory,x:/a/b\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "104857600\n"),
            ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "204857600\n"),
        ]);
        for dir in [two, one] {
            let files = Files { root: dir.path() };
            assert_eq!(files.memory_limit().unwrap().bytes, 100 * MIB);
            files.check_memory_fits(34 * MIB).unwrap();
            let error = files.check_memory_fits(36 * MIB).unwrap_err().to_string();
            assert!(error.contains("allows this process and its holder 100 MiB"), "{error}");
        }
    }

    #[test]
    fn nothing_is_said_where_nothing_is_known_or_wrong() {
        let plain = system(&[
            ("proc/self/cgroup", OF_2),
            ("proc/swaps", "Filename Type Size Used Priority\n"),
            ("sys/fs/cgroup/system.slice/perdura.service/memory.max", "max\n"),
            ("sys/fs/cgroup/system.slice/perdura.service/memory.oom.group", "0\n"),
        ]);
        for dir in [plain, system(&[])] {
            let files = Files { root: dir.path() };
            assert_eq!(files.warnings(1 << 40, false, true, false), Vec::<String>::new());
            files.check_memory_fits(1 << 40).unwrap();
        }
    }

    #[test]
    fn what_ends_all_together_is_warned_of() {
        let dir = system(&[
            ("proc/self/cgroup", OF_2),
            ("proc/swaps", "Filename Type Size Used Priority\n/swapfile file 1 0 -2\n"),
            ("sys/fs/cgroup/system.slice/memory.max", "1048576\n"),
            ("sys/fs/cgroup/system.slice/perdura.service/memory.oom.group", "1\n"),
        ]);
        let files = Files { root: dir.path() };
        let words = ["outgrow a limit", "memory.oom.group is 1", "swaps", "pod"];
        let warnings = files.warnings(MIB, false, true, true);
        assert_eq!(warnings.len(), words.len());
        for (warning, word) in warnings.iter().zip(words) {
            assert!(warning.contains(word), "{warning}");
        }
        // A locked memory is not swapped, and without a holder nothing else ends.
        assert_eq!(files.warnings(MIB, true, false, true).len(), 1);
    }
}
