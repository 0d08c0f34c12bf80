//! The calls that make bytes and names durable reach the kernel: a kernel that refuses one is heard
//! of. (What the calls must be, and in which order, is tested over simulated files.)

use super::*;

/// Runs `body` on a thread for which the kernel answers EIO to the system call `number`, if the
/// argument at `index` has a bit of `mask`. Prints why it does not, where a filter is not allowed.
fn while_refused(number: i64, argument: Option<(u32, u32)>, body: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| match refuse(number, argument) {
            Ok(()) => body(),
            Err(error) => println!("skipped: no filter of system calls: {error}"),
        });
        thread.join().unwrap();
    });
}

/// Installs a filter for this thread, until the thread ends.
fn refuse(number: i64, argument: Option<(u32, u32)>) -> std::io::Result<()> {
    let step = |code: u32, k: u32, unlike: u8| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: unlike,
        k,
    };
    let load = |offset| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0);
    let answer = |value| step(libc::BPF_RET | libc::BPF_K, value, 0);
    let is_equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let has_bit = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    let mut filter = match argument {
        None => vec![load(0), step(is_equal, number as u32, 1)],
        // The arguments begin at 16, with 8 bytes each.
        Some((index, mask)) => vec![
            load(0),
            step(is_equal, number as u32, 3),
            load(16 + 8 * index),
            step(has_bit, mask, 1),
        ],
    };
    filter.push(answer(libc::SECCOMP_RET_ERRNO | libc::EIO as u32));
    filter.push(answer(libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: both calls concern this thread only; the program lives through the call that reads
    // it.
    let is_set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
    };
    if is_set { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[test]
fn a_flush_that_the_kernel_refuses_fails_and_latches() {
    each_combination(|device, _| {
        while_refused(libc::SYS_fdatasync, None, || {
            let error = device.flush().unwrap_err();
            assert!(matches!(error, DeviceError::Io { op: "flush", .. }), "{error}");
            let latched = device.write_at(0, &filled(1, 1)).unwrap_err();
            assert!(matches!(latched, DeviceError::Latched { .. }), "{latched}");
        });
    });
}

#[test]
fn a_durable_write_that_the_kernel_refuses_fails_and_latches() {
    each_combination(|device, _| {
        while_refused(libc::SYS_pwritev2, Some((5, libc::RWF_DSYNC as u32)), || {
            device.write_at(0, &filled(1, 1)).unwrap();
            let error = device.write_durable_at(0, &filled(1, 1)).unwrap_err();
            assert!(matches!(error, DeviceError::Io { op: "write", .. }), "{error}");
            let latched = device.flush().unwrap_err();
            assert!(matches!(latched, DeviceError::Latched { .. }), "{latched}");
        });
    });
}

#[test]
fn a_name_that_the_kernel_does_not_make_durable_is_no_device() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("image");
    while_refused(libc::SYS_fsync, None, || {
        assert_eq!(sync_parent(&Kernel, &path), Err(Errno::IO));
        assert_eq!(replace(&Kernel, &path, b"bytes"), Err(Errno::IO));
        let mode = OpenMode::Create { capacity_bytes: MIB };
        let error = FileDevice::open(&path, mode, Engine::Pwrite, Direct::Off).unwrap_err();
        assert!(matches!(error, DeviceError::Io { op: "directory sync", .. }), "{error}");
    });
    assert!(!path.exists());
}
