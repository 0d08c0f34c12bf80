//! The signal that a process cannot leave to its default.

/// Makes a write beyond the limit on file sizes fail with an error, which names the file, instead
/// of ending the process. Programs that this process starts inherit it.
pub fn ignore_file_size_signal() {
    // SAFETY: no handler runs; only the signal's disposition changes.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
