//! The children and the names of processes, read from `/proc`.

use std::fs;

/// The children that a process has now. A process that ends meanwhile has none.
pub fn children_of(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<i32>>()
        })
        .collect()
}

/// The name that a process gives itself.
pub fn name_of(pid: i32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{}[{pid}]", name.trim_end())
}

/// Whether it runs, or stands still; not if it has ended and only waits to be asked for its status.
pub fn is_alive(pid: i32) -> bool {
    let state = stat(pid, 0).and_then(|state| state.chars().next());
    !matches!(state, None | Some('Z' | 'X' | 'x'))
}

/// Whether other threads of it run when its first one has ended. By its number it looks as if all
/// of it had ended then: nothing is known of its memory under that number any more.
pub fn has_only_other_threads(pid: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let others = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    !is_alive(pid) && others.into_iter().any(|thread| thread != pid && is_alive(thread))
}

/// Whether a process is a thread of the kernel's own.
pub fn is_of_kernel(pid: i32) -> bool {
    const PF_KTHREAD: u64 = 0x0020_0000;
    const FLAGS: usize = 6;
    let flags: Option<u64> = stat(pid, FLAGS).and_then(|flags| flags.parse().ok());
    flags.is_some_and(|flags| flags & PF_KTHREAD != 0)
}

/// A word of `/proc/PID/stat` behind the name, which may itself hold anything.
fn stat(pid: i32, word: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_whitespace().nth(word).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_are_alive_and_named_and_process_0_is_not() {
        let us = std::process::id() as i32;
        assert!(is_alive(us) && !is_alive(0));
        assert!(!is_of_kernel(us) && !is_of_kernel(0));
        assert!(name_of(us).ends_with(&format!("[{us}]")));
    }
}
