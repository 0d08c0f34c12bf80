use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use super::*;

/// Which of these tests a child is to carry out, in the place of its parent.
const TASK: &str = "PERDURA_TEST_SECCOMP";

/// Runs `forbidden` under a server's filter, in a child that is this test again.
fn under_filter(test: &str, starts_programs: bool, forbidden: fn()) -> Option<ExitStatus> {
    under_filter_of(Role::Server, test, starts_programs, forbidden)
}

fn under_filter_of(
    role: Role,
    test: &str,
    starts_programs: bool,
    forbidden: fn(),
) -> Option<ExitStatus> {
    if std::env::var_os(TASK).is_some() {
        Filter::build(role, starts_programs).unwrap().install().unwrap();
        forbidden();
        return None;
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    let name = format!("seccomp::tests::{test}");
    let output = again.args([&name, "--exact", "--nocapture"]).env(TASK, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!said.contains("0 passed; 0 failed"), "no test {name}: {said}");
    Some(output.status)
}

fn errno_of(outcome: rustix::io::Result<impl Sized>) -> Option<i32> {
    outcome.err().map(rustix::io::Errno::raw_os_error)
}

fn map_page(protection: rustix::mm::ProtFlags) -> rustix::io::Result<()> {
    let flags = rustix::mm::MapFlags::PRIVATE;
    let page = 4096;
    // SAFETY: new memory, at an address that the kernel chooses; nobody uses it.
    unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), page, protection, flags) }.map(drop)
}

#[test]
fn a_server_cannot_start_a_program() {
    let exec = || drop(Command::new("/bin/true").status());
    let Some(status) = under_filter("a_server_cannot_start_a_program", false, exec) else { return };
    // The start of another process is refused already.
    assert!(status.success(), "{status}");
}

#[test]
fn a_process_that_becomes_another_program_is_killed() {
    use std::os::unix::process::CommandExt;
    let exec = || drop(Command::new("/bin/true").exec());
    let name = "a_process_that_becomes_another_program_is_killed";
    let Some(status) = under_filter(name, false, exec) else { return };
    assert_eq!(status.signal(), Some(libc::SIGSYS), "{status}");
}

#[test]
fn every_thread_has_the_filter() {
    use std::os::unix::process::CommandExt;
    let exec = || {
        // Those that were there before, such as the one that runs the tests, have it, too.
        for task in std::fs::read_dir("/proc/self/task").unwrap() {
            let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            assert!(status.contains("\nSeccomp:\t2\n"), "{status}");
        }
        let thread = thread::spawn(|| drop(Command::new("/bin/true").exec()));
        drop(thread.join());
    };
    let Some(status) = under_filter("every_thread_has_the_filter", false, exec) else { return };
    assert_eq!(status.signal(), Some(libc::SIGSYS), "{status}");
}

#[test]
fn what_is_in_no_table_fails_as_on_an_older_kernel() {
    let ask = || {
        let groups = rustix::process::getgroups();
        assert_eq!(errno_of(groups), Some(libc::ENOSYS));
        use rustix::net::{AddressFamily, SocketType, socket};
        let netlink = socket(AddressFamily::NETLINK, SocketType::RAW, None);
        assert_eq!(errno_of(netlink), Some(libc::ENOSYS));
        socket(AddressFamily::INET6, SocketType::STREAM, None).unwrap();
        std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let undumpable = [libc::PR_SET_DUMPABLE as c_long, 0, 0];
        assert_eq!(error_of(libc::SYS_prctl, undumpable), Some(libc::ENOSYS));
        // A process of its own, and a thread in another namespace.
        let process = c_long::from(libc::SIGCHLD);
        assert_eq!(error_of(libc::SYS_clone, [process, 0, 0]), Some(libc::ENOSYS));
        for namespace in NAMESPACES {
            let thread = c_long::from(libc::CLONE_THREAD | namespace);
            assert_eq!(error_of(libc::SYS_clone, [thread, 0, 0]), Some(libc::ENOSYS));
        }
        assert_eq!(error_of(libc::SYS_kill, [0; 3]), Some(libc::ENOSYS));
        // The C library starts threads by `clone` where `clone3` is refused.
        thread::Builder::new().name("named".into()).spawn(|| 7).unwrap().join().unwrap();
    };
    let name = "what_is_in_no_table_fails_as_on_an_older_kernel";
    let Some(status) = under_filter(name, false, ask) else { return };
    assert!(status.success(), "{status}");
}

#[test]
fn a_holder_ends_a_server_that_hangs_and_leaves_its_session() {
    let ask = || {
        let own = c_long::from(std::process::id());
        assert_eq!(error_of(libc::SYS_kill, [own, 0, 0]), None);
        assert_ne!(error_of(libc::SYS_setsid, [0; 3]), Some(libc::ENOSYS));
        assert_eq!(error_of(libc::SYS_clone3, [0; 3]), Some(libc::ENOSYS));
    };
    let name = "a_holder_ends_a_server_that_hangs_and_leaves_its_session";
    let Some(status) = under_filter_of(Role::Holder, name, false, ask) else { return };
    assert!(status.success(), "{status}");
}

/// Where nobody is killed, the calls of each group can be tried.
#[test]
fn no_group_of_dangerous_calls_is_forgotten() {
    let ask = || {
        for call in [
            libc::SYS_ptrace,
            libc::SYS_process_vm_writev,
            libc::SYS_pidfd_getfd,
            libc::SYS_perf_event_open,
            libc::SYS_mount,
            libc::SYS_chroot,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_bpf,
            libc::SYS_init_module,
            libc::SYS_kexec_load,
            libc::SYS_keyctl,
            libc::SYS_setuid,
            libc::SYS_personality,
        ] {
            // No such address, process or flag: nothing happens where a call is allowed.
            assert_eq!(error_of(call, [-1; 3]), Some(libc::EPERM), "call {call}");
        }
        #[cfg(target_arch = "x86_64")]
        assert_eq!(error_of(libc::SYS_iopl, [-1; 3]), Some(libc::EPERM));
    };
    let name = "no_group_of_dangerous_calls_is_forgotten";
    let Some(status) = under_filter(name, true, ask) else { return };
    assert!(status.success(), "{status}");
}

#[test]
fn memory_is_never_both_written_and_executed() {
    let map = || {
        use rustix::mm::ProtFlags;
        map_page(ProtFlags::READ | ProtFlags::WRITE).unwrap();
        map_page(ProtFlags::READ | ProtFlags::EXEC).unwrap();
        let both = ProtFlags::READ | ProtFlags::WRITE | ProtFlags::EXEC;
        assert_eq!(errno_of(map_page(both)), Some(libc::ENOSYS));
        // Of no memory at all, so that nothing changes where it is allowed.
        let execute = c_long::from(libc::PROT_READ | libc::PROT_EXEC);
        assert_eq!(error_of(libc::SYS_mprotect, [0, 0, execute]), Some(libc::ENOSYS));
        let write = c_long::from(libc::PROT_READ | libc::PROT_WRITE);
        assert_eq!(error_of(libc::SYS_mprotect, [0, 0, write]), None);
    };
    let name = "memory_is_never_both_written_and_executed";
    let Some(status) = under_filter(name, false, map) else { return };
    assert!(status.success(), "{status}");
}

#[test]
fn a_server_that_starts_programs_can_and_is_refused_other_calls() {
    let start = || {
        assert!(Command::new("/bin/true").status().unwrap().success());
        let entered = rustix::process::chroot("/");
        assert_eq!(errno_of(entered), Some(libc::EPERM));
        // So are the programs.
        let shell = Command::new("/bin/sh").args(["-c", "exec chroot / true"]).status().unwrap();
        assert!(!shell.success());
    };
    let name = "a_server_that_starts_programs_can_and_is_refused_other_calls";
    let Some(status) = under_filter(name, true, start) else { return };
    assert!(status.success(), "{status}");
}

/// The error of a call with these arguments; the other three are 0.
fn error_of(call: c_long, arguments: [c_long; 3]) -> Option<i32> {
    let [first, second, third] = arguments;
    // SAFETY: the calls that are tried here take numbers, and no address but a null pointer.
    let outcome = unsafe { libc::syscall(call, first, second, third, 0, 0, 0) };
    (outcome < 0).then(|| std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

#[test]
fn what_types_into_a_terminal_is_killed() {
    let kind = || {
        let _killed = error_of(libc::SYS_ioctl, [0, libc::TIOCSTI as c_long, 0]);
    };
    let name = "what_types_into_a_terminal_is_killed";
    let Some(status) = under_filter(name, false, kind) else { return };
    assert_eq!(status.signal(), Some(libc::SIGSYS), "{status}");
}

#[test]
fn a_server_that_starts_programs_has_no_way_around_what_is_refused() {
    let ask = || {
        for control in table::TYPING {
            let typed = error_of(libc::SYS_ioctl, [0, *control as c_long, 0]);
            assert_eq!(typed, Some(libc::EPERM));
        }
        for namespace in NAMESPACES {
            let flags = c_long::from(namespace | libc::SIGCHLD);
            assert_eq!(error_of(libc::SYS_clone, [flags, 0, 0]), Some(libc::EPERM));
        }
        assert_eq!(error_of(libc::SYS_clone3, [0; 3]), Some(libc::ENOSYS));
        if cfg!(target_arch = "x86_64") {
            let of_x32 = libc::SYS_getpid | 1 << 30;
            assert_eq!(error_of(of_x32, [0; 3]), Some(libc::EPERM));
        }
        // A window's size is no danger, and the standard input here is no terminal.
        let size = error_of(libc::SYS_ioctl, [-1, libc::TIOCGWINSZ as c_long, 0]);
        assert_eq!(size, Some(libc::EBADF));
    };
    let name = "a_server_that_starts_programs_has_no_way_around_what_is_refused";
    let Some(status) = under_filter(name, true, ask) else { return };
    assert!(status.success(), "{status}");
}

#[test]
fn no_call_is_in_two_groups() {
    let mut seen: BTreeSet<c_long> = bounded().unwrap().into_keys().collect();
    for call in [table::ALLOWED, table::KILLED, &[table::HOLDER]].concat().concat() {
        assert!(seen.insert(call), "call {call} is there twice");
    }
}

/// The filter of the unit allows what ours does, so that both hold together.
#[test]
fn all_allowed_calls_are_in_the_filter_of_the_unit() {
    let text = include_str!("table.rs");
    let (allowed, _) = text.split_once("pub const KILLED").unwrap();
    let is_end = |letter: char| !letter.is_ascii_alphanumeric() && letter != '_';
    let names = allowed.split("SYS_").skip(1).filter_map(|rest| rest.split(is_end).next());
    let mut names: BTreeSet<&str> = names.collect();
    names.extend(["clone", "mmap", "mprotect", "prctl", "socket"]);
    let (Some(service), Some(privileged)) = (calls_of("@system-service"), calls_of("@privileged"))
    else {
        return;
    };
    for name in names {
        assert!(service.contains(name), "{name} is not in @system-service");
        assert!(!privileged.contains(name), "{name} is in @privileged");
    }
}

/// The calls of a set of systemd, with those of the sets in it; `None` where systemd is not there.
fn calls_of(set: &str) -> Option<BTreeSet<String>> {
    let output = Command::new("systemd-analyze").args(["syscall-filter", set]).output().ok()?;
    let mut calls = BTreeSet::new();
    for word in String::from_utf8_lossy(&output.stdout).lines().skip(1).map(str::trim) {
        match word {
            inner if inner.starts_with('@') => calls.extend(calls_of(inner)?),
            call => drop(calls.insert(call.to_owned())),
        }
    }
    Some(calls)
}
