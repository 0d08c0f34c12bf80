//! A child process to which the kernel refuses one system call, as container runtimes do.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes the child of `command`, and the processes that it starts, get `errno` from the system call
/// `number`.
pub fn refuse(command: &mut Command, number: libc::c_long, errno: i32) {
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let jump = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let answer = (libc::BPF_RET | libc::BPF_K) as u16;
    let errno = libc::SECCOMP_RET_ERRNO | errno as u32;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        // The number of the call is the first word that a filter sees.
        step(load, 0, 0, 0),
        step(jump, 0, 1, number as u32),
        step(answer, 0, 0, errno),
        step(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    // SAFETY: only `prctl` is called between fork and exec, which is async-signal-safe; the filter
    // lives in the closure, and the kernel copies it.
    unsafe {
        command.pre_exec(move || {
            let program =
                libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
            let allowed = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
                    == 0;
            if allowed { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        });
    }
}
