//! Ways around the trap: each is closed, or it is shown together with the promise of
//! `prepare_write` about it.

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::*;
use perdura_media::sim::SimDevice;
use perdura_region::{Config, RegionError, TrapKind};
use rustix::io::Errno;

/// Runs `child` in a forked process, and returns the signal that ended that process.
fn signal_of_child(child: impl FnOnce()) -> Option<i32> {
    // SAFETY: the child makes only plain stores and system calls, and ends by `_exit`.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            child();
            libc::_exit(0);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
        libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status))
    }
}

#[test]
fn a_forked_child_that_touches_the_region_dies() {
    for kind in modes() {
        let region = open(&SimDevice::new(0, 1), config(kind));
        let base = region.trapped().unwrap().as_ptr() as usize;
        store(base, 0, 1);
        for offset in [0, 8 * PAGE] {
            assert_eq!(signal_of_child(|| store(base, offset, 2)), Some(libc::SIGSEGV), "{kind:?}");
        }
        assert_eq!(load(base, 0), 1);
        assert_eq!(region.used_bytes(), PAGE);
    }
}

#[test]
fn a_fault_outside_every_region_ends_the_process_as_ever() {
    for kind in modes() {
        let region = open(&SimDevice::new(0, 2), config(kind));
        store(region.trapped().unwrap().as_ptr() as usize, 0, 1);
        let file = tempfile::tempfile().unwrap();
        file.set_len(PAGE).unwrap();
        // SAFETY: the mappings are new, and only this test uses them.
        let (beyond_end, read_only) = unsafe {
            let map = |len, prot| {
                let fd = file.as_raw_fd();
                libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_SHARED, fd, 0) as usize
            };
            (map(2 * PAGE as usize, libc::PROT_WRITE), map(PAGE as usize, libc::PROT_READ))
        };
        assert_eq!(signal_of_child(|| store(beyond_end, PAGE, 1)), Some(libc::SIGBUS));
        assert_eq!(signal_of_child(|| store(read_only, 0, 1)), Some(libc::SIGSEGV));
    }
}

#[test]
fn the_memory_file_can_be_neither_shrunk_nor_sealed_by_a_holder() {
    let region = open(&SimDevice::new(0, 3), config(TrapKind::Auto));
    let (memory, ledger) = region.fds();
    for fd in [memory, ledger] {
        assert_eq!(rustix::fs::ftruncate(fd, PAGE), Err(Errno::PERM));
        let seals = rustix::fs::SealFlags::FUTURE_WRITE;
        assert_eq!(rustix::fs::fcntl_add_seals(fd, seals), Err(Errno::PERM));
    }
}

#[test]
fn a_sealed_mapping_cannot_be_moved_or_unmapped() {
    for kind in modes() {
        let sealed = Config { seal_mapping: true, ..config(kind) };
        if kind == TrapKind::Mprotect {
            let device = Arc::new(SimDevice::new(0, 4));
            let clock = Arc::new(perdura_media::RealClock);
            assert!(perdura_region::Region::open(device, clock, sealed).is_err());
            continue;
        }
        let region = open(&SimDevice::new(0, 4), sealed);
        let told = region.describe_tracking();
        if told.contains("not sealed") {
            eprintln!("skipped: {told}");
            continue;
        }
        let base = region.trapped().unwrap().as_ptr();
        // SAFETY: both calls are refused; even if they were not, the range is not used afterwards.
        unsafe {
            assert_eq!(libc::munmap(base.cast(), PAGE as usize), -1);
            let moved =
                libc::mremap(base.cast(), PAGE as usize, 2 * PAGE as usize, libc::MREMAP_MAYMOVE);
            assert_eq!(moved, libc::MAP_FAILED);
        }
        storm(&region, 4, 2, 500);
        assert!(region.used_bytes() > 0);
    }
}

#[test]
fn a_system_call_into_a_closed_page_fails_and_loses_nothing_or_works() {
    for kind in modes() {
        let region = open(&SimDevice::new(0, 5), config(kind));
        let memory = region.trapped().unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"a message of 24 bytes...").unwrap();
        let receive = |offset: usize| {
            // SAFETY: the 24 bytes are inside the region, and nobody else uses them.
            let read =
                unsafe { libc::read(reader.as_raw_fd(), memory.as_ptr().add(offset).cast(), 24) };
            if read < 0 { Err(std::io::Error::last_os_error()) } else { Ok(read) }
        };
        if kind == TrapKind::UffdThread {
            assert_eq!(receive(100).unwrap(), 24);
        } else {
            let error = receive(100).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EFAULT), "{kind:?}");
            assert_eq!(region.used_bytes(), 0);
            let prepared = memory.prepare_write(100..124).unwrap();
            assert_eq!(receive(100).unwrap(), 24);
            drop(prepared);
        }
        assert_eq!(region.used_bytes(), PAGE, "{kind:?}");
        let mut found = [0; 24];
        memory.read(100, &mut found);
        assert_eq!(&found, b"a message of 24 bytes...");
    }
}

/// The kernel writes without a trap to a buffer that was pinned while its pages were open. Here it
/// writes to a registered buffer, as DMA would.
#[test]
fn a_registered_buffer_is_tracked_while_it_is_prepared() {
    for kind in modes() {
        let device = SimDevice::new(0, 6);
        let region = open(&device, config(kind));
        let memory = region.trapped().unwrap();
        let (offset, len) = (16 * PAGE, 4 * PAGE);
        let mut ring = match io_uring::IoUring::new(4) {
            Ok(ring) => ring,
            Err(why) => return eprintln!("skipped: io_uring: {why}"),
        };
        let place = memory.as_ptr().wrapping_add(offset as usize);
        let buffer = libc::iovec { iov_base: place.cast(), iov_len: len as usize };
        {
            // Registering pins the pages for writing, which opens them, so it must be prepared,
            // too.
            let _prepared = memory.prepare_write(offset..offset + len).unwrap();
            // SAFETY: the buffer is in the region, which outlives the ring.
            unsafe { ring.submitter().register_buffers(&[buffer]).unwrap() };
        }
        region.checkpoint().unwrap();
        assert_eq!(region.used_bytes(), 0, "{kind:?}");

        let file = tempfile::tempfile().unwrap();
        let mut receive = |byte: u8| {
            rustix::io::pwrite(&file, &vec![byte; len as usize], 0).unwrap();
            let fd = io_uring::types::Fd(file.as_raw_fd());
            let read = io_uring::opcode::ReadFixed::new(fd, place, len as u32, 0).build();
            // SAFETY: the registered buffer stays in its place until the completion below.
            unsafe { ring.submission().push(&read).unwrap() };
            ring.submit_and_wait(1).unwrap();
            ring.completion().next().unwrap().result()
        };
        // This shows the bypass: the bytes change, and the ledger does not say so.
        assert_eq!(receive(1), len as i32);
        assert_eq!(region.used_bytes(), 0, "{kind:?}: the kernel traps pinned pages now?");
        // Prepared pages are dirty before and during the transfer, and after it until they are
        // cleaned.
        let prepared = memory.prepare_write(offset..offset + len).unwrap();
        assert_eq!(region.used_bytes(), len);
        assert_eq!(receive(2), len as i32);
        drop(prepared);
        let expected = crate::support::memory(&region);
        assert_eq!(expected[offset as usize], 2);
        region.checkpoint().unwrap();
        drop(ring);
        drop(region);
        let region = open(&device.power_cycle(6), config(kind));
        assert!(crate::support::memory(&region) == expected, "{kind:?}");
    }
}

#[test]
fn prepared_pages_stay_dirty_under_pressure_and_a_checkpoint_waits_for_them() {
    for kind in modes() {
        let device = SimDevice::new(0, 7);
        let region = open(&device, config(kind));
        let memory = region.trapped().unwrap();
        let at = memory.len_bytes() - 32 * PAGE;
        let prepared = memory.prepare_write(at..at + 32 * PAGE).unwrap();
        let committed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let checkpoint = scope.spawn(|| {
                region.checkpoint().unwrap();
                committed.store(true, Ordering::SeqCst);
            });
            // The rest of the budget is written and cleaned again and again while the checkpoint
            // waits.
            storm(&region, 7, 2, 100);
            assert!(!committed.load(Ordering::SeqCst), "{kind:?}");
            let lane = region.lock(perdura_region::LaneId(0));
            for page in 0..32 {
                assert!(lane.is_dirty(at + page * PAGE, 1), "{kind:?}: page {page} was cleaned");
            }
            drop(lane);
            drop(prepared);
            checkpoint.join().unwrap();
        });
    }
}

#[test]
fn what_cannot_be_prepared_is_refused() {
    for kind in modes() {
        let region = open(&SimDevice::new(0, 8), config(kind));
        let memory = region.trapped().unwrap();
        let asked = memory.prepare_write(0..BUDGET_BYTES + 1).err().unwrap();
        assert!(matches!(asked, RegionError::BeyondBudget { .. }), "{asked}");
        drop(memory.prepare_write(0..0).unwrap());
        drop(memory.prepare_write(0..BUDGET_BYTES).unwrap());
        region.close(1).unwrap();
        let closed = memory.prepare_write(0..8).err().unwrap();
        assert!(matches!(closed, RegionError::Closed), "{closed}");
    }
}

#[test]
fn a_failed_device_refuses_prepared_writes_and_keeps_the_budget() {
    for kind in modes() {
        let device = SimDevice::new(0, 9);
        let region = open(&device, config(kind));
        let memory = region.trapped().unwrap();
        device.power_off();
        assert!(region.checkpoint().is_err());
        let refused = memory.prepare_write(0..8).err().unwrap();
        assert!(matches!(refused, RegionError::Latched { .. }), "{refused}");
        let base = memory.as_ptr() as usize;
        // Stores that fit the budget still succeed. The next one would wait for ever.
        (0..BUDGET_BYTES / PAGE).for_each(|page| store(base, page * PAGE, 1));
        assert_eq!(region.used_bytes(), BUDGET_BYTES);
        let (memory_fd, _) = region.fds();
        let mut byte = [0];
        rustix::io::pread(memory_fd.as_fd(), &mut byte, BUDGET_BYTES - PAGE).unwrap();
        assert_eq!(byte, [1]);
    }
}
