//! Huge pages for allocated memory. A hash map of a gigabyte in small pages spends a part of its
//! time on page tables, and would be a weaker rival than it can be.

use std::os::unix::process::CommandExt;
use std::process::Command;

use serde::Serialize;

const VARIABLE: &str = "GLIBC_TUNABLES";
const TUNABLE: &str = "glibc.malloc.hugetlb";

/// Whether allocated memory lies in huge pages.
#[derive(Debug, Clone, Serialize)]
pub struct HugePages {
    /// A text for people.
    pub about: String,
}

/// Starts this program again with glibc told to use huge pages, which it reads only at the start.
/// Returns if that has been done, or if the user has set the variable.
pub fn ask() -> HugePages {
    let told = std::env::var(VARIABLE).unwrap_or_default();
    if !told.contains(TUNABLE) {
        let all = if told.is_empty() { String::new() } else { format!("{told}:") };
        let failed = std::env::current_exe().map(|program| {
            let words = std::env::args_os().skip(1);
            Command::new(program).args(words).env(VARIABLE, format!("{all}{TUNABLE}=1")).exec()
        });
        let error = failed.unwrap_or_else(|error| error);
        return HugePages { about: format!("small pages: could not start again: {error}") };
    }
    let system = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let system = system.unwrap_or_else(|error| error.to_string());
    HugePages {
        about: format!(
            "started with {VARIABLE}={told}, for all allocations of this process; the system's \
             transparent huge pages: {}",
            system.trim()
        ),
    }
}
