//! The system calls that a server and its holder make once they have started, and those for which
//! a process is killed. What is in neither table is refused with `ENOSYS`.
//!
//! Each call that is allowed is in systemd's `@system-service` and not in its `@privileged`, so the
//! unit's filter allows it, too. Calls that only some processors have are in groups of their own.

use libc::*;

/// All groups whose calls are allowed to server and holder, whatever their arguments are.
pub const ALLOWED: &[&[c_long]] =
    &[MEMORY, THREADS, TIME, FILES, RING, EVENTS, SOCKETS, KNOWING, OLDER];

/// More that a holder does: it leaves the server's session, and ends a server that hangs, which
/// could change memory that is to be flushed.
pub const HOLDER: &[c_long] = &[SYS_kill, SYS_setsid];

/// Memory: the allocator's, the region's, and buffers. Mapping and protecting have conditions.
const MEMORY: &[c_long] = &[
    SYS_brk,
    SYS_get_mempolicy,
    SYS_madvise,
    SYS_mbind,
    SYS_membarrier,
    SYS_memfd_create,
    SYS_mlock,
    SYS_mlock2,
    SYS_mremap,
    SYS_msync,
    SYS_munlock,
    SYS_munmap,
];

/// Threads: start, wait, end, signals, priorities, and the end of a child. The start itself has
/// conditions.
const THREADS: &[c_long] = &[
    SYS_exit,
    SYS_exit_group,
    SYS_futex,
    SYS_get_robust_list,
    SYS_getcpu,
    SYS_getpriority,
    SYS_gettid,
    SYS_pidfd_open,
    SYS_pidfd_send_signal,
    SYS_restart_syscall,
    SYS_rseq,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_rt_sigtimedwait,
    SYS_sched_getaffinity,
    SYS_sched_getparam,
    SYS_sched_getscheduler,
    SYS_sched_yield,
    SYS_set_robust_list,
    SYS_set_tid_address,
    SYS_setpriority,
    SYS_sigaltstack,
    SYS_tgkill,
    SYS_tkill,
    SYS_wait4,
    SYS_waitid,
];

/// Time: most readings need no call, but on some machines they do.
const TIME: &[c_long] = &[
    SYS_clock_getres,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_getrusage,
    SYS_gettimeofday,
    SYS_nanosleep,
    SYS_timerfd_create,
    SYS_timerfd_gettime,
    SYS_timerfd_settime,
    SYS_times,
];

/// Files: the image, values on devices, dumps, backups, ACL files, certificates, `/proc`.
const FILES: &[c_long] = &[
    SYS_close,
    SYS_close_range,
    SYS_copy_file_range,
    SYS_dup,
    SYS_dup3,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_fadvise64,
    SYS_fallocate,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_fcntl,
    SYS_fdatasync,
    SYS_flock,
    SYS_fstat,
    SYS_fstatfs,
    SYS_fsync,
    SYS_ftruncate,
    SYS_getcwd,
    SYS_getdents64,
    SYS_ioctl,
    SYS_linkat,
    SYS_lseek,
    SYS_mkdirat,
    SYS_newfstatat,
    SYS_openat,
    SYS_pipe2,
    SYS_pread64,
    SYS_preadv,
    SYS_preadv2,
    SYS_pwrite64,
    SYS_pwritev,
    SYS_pwritev2,
    SYS_read,
    SYS_readlinkat,
    SYS_readv,
    SYS_renameat,
    SYS_renameat2,
    SYS_sendfile,
    SYS_splice,
    SYS_statfs,
    SYS_statx,
    SYS_sync_file_range,
    SYS_syncfs,
    SYS_umask,
    SYS_unlinkat,
    SYS_utimensat,
    SYS_write,
    SYS_writev,
];

/// io_uring: event loops make theirs after the filter, and a device that comes makes another.
const RING: &[c_long] = &[SYS_io_uring_enter, SYS_io_uring_register, SYS_io_uring_setup];

/// Events: loops and threads that wait for descriptors.
const EVENTS: &[c_long] = &[
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_epoll_pwait2,
    SYS_eventfd2,
    SYS_inotify_add_watch,
    SYS_inotify_init1,
    SYS_inotify_rm_watch,
    SYS_ppoll,
    SYS_pselect6,
    SYS_signalfd4,
];

/// Sockets: clients, metrics, the holder or guard, backups, other servers. Making one has
/// conditions.
const SOCKETS: &[c_long] = &[
    SYS_accept,
    SYS_accept4,
    SYS_bind,
    SYS_connect,
    SYS_getpeername,
    SYS_getsockname,
    SYS_getsockopt,
    SYS_listen,
    SYS_recvfrom,
    SYS_recvmmsg,
    SYS_recvmsg,
    SYS_sendmmsg,
    SYS_sendmsg,
    SYS_sendto,
    SYS_setsockopt,
    SYS_shutdown,
    SYS_socketpair,
];

/// Knowing the process, its limits and its machine; random bytes.
const KNOWING: &[c_long] = &[
    SYS_getegid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getpgid,
    SYS_getpid,
    SYS_getppid,
    SYS_getrandom,
    SYS_getrlimit,
    SYS_getsid,
    SYS_getuid,
    SYS_prlimit64,
    SYS_sysinfo,
    SYS_uname,
];

/// Calls of x86_64 that other processors do not have, and that C libraries still make there.
#[cfg(target_arch = "x86_64")]
const OLDER: &[c_long] = &[
    SYS_access,
    SYS_chmod,
    SYS_dup2,
    SYS_epoll_create,
    SYS_epoll_wait,
    SYS_eventfd,
    SYS_getdents,
    SYS_getpgrp,
    SYS_link,
    SYS_lstat,
    SYS_mkdir,
    SYS_open,
    SYS_pause,
    SYS_pipe,
    SYS_poll,
    SYS_readlink,
    SYS_rename,
    SYS_rmdir,
    SYS_select,
    SYS_stat,
    SYS_time,
    SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[];

/// Calls that nothing in the process makes, not even by way of the C library, and that are the next
/// step of whoever has taken it over.
pub const KILLED: &[&[c_long]] = &[PROGRAMS, OTHERS, MOUNTS, KERNEL, KEYS, USERS, PORTS];

/// Calls that put another program in the place of this one.
pub const PROGRAMS: &[c_long] = &[SYS_execve, SYS_execveat];

/// Memory and descriptors of other processes.
const OTHERS: &[c_long] = &[
    SYS_kcmp,
    SYS_perf_event_open,
    SYS_pidfd_getfd,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_ptrace,
];

/// Calls that change the view of the file system, or the namespaces.
const MOUNTS: &[c_long] = &[
    SYS_chroot,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fsopen,
    SYS_fspick,
    SYS_mount,
    SYS_mount_setattr,
    SYS_move_mount,
    SYS_open_by_handle_at,
    SYS_open_tree,
    SYS_pivot_root,
    SYS_setns,
    SYS_umount2,
    SYS_unshare,
];

/// Code in the kernel, another kernel, and its settings.
const KERNEL: &[c_long] = &[
    SYS_acct,
    SYS_adjtimex,
    SYS_bpf,
    SYS_clock_adjtime,
    SYS_clock_settime,
    SYS_delete_module,
    SYS_finit_module,
    SYS_init_module,
    SYS_kexec_load,
    SYS_quotactl,
    SYS_reboot,
    SYS_setdomainname,
    SYS_sethostname,
    SYS_settimeofday,
    SYS_swapoff,
    SYS_swapon,
    SYS_syslog,
];

/// The kernel's keys.
const KEYS: &[c_long] = &[SYS_add_key, SYS_keyctl, SYS_request_key];

/// Calls that change the user or the rights of a process.
const USERS: &[c_long] = &[
    SYS_capset,
    SYS_personality,
    SYS_setfsgid,
    SYS_setfsuid,
    SYS_setgid,
    SYS_setgroups,
    SYS_setregid,
    SYS_setresgid,
    SYS_setresuid,
    SYS_setreuid,
    SYS_setuid,
];

/// The machine's ports, and segments of code.
#[cfg(target_arch = "x86_64")]
const PORTS: &[c_long] = &[SYS_ioperm, SYS_iopl, SYS_modify_ldt];
#[cfg(not(target_arch = "x86_64"))]
const PORTS: &[c_long] = &[];

/// Controls of a terminal (`ioctl`) that put words into it as if its user had typed them, or had
/// pasted what the console has selected, for which a process is killed, too.
pub const TYPING: &[Ioctl] = &[TIOCSTI, TIOCLINUX];
