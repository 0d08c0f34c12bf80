mod refused_calls;
mod small_disk;

use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;

use tempfile::TempDir;

use super::*;
use crate::device::Completion;

const BLOCK: usize = BLOCK_BYTES as usize;
const MIB: u64 = 1 << 20;

const COMBINATIONS: [(Engine, Direct); 6] = [
    (Engine::Auto, Direct::Auto),
    (Engine::Auto, Direct::Off),
    (Engine::Uring, Direct::Auto),
    (Engine::Uring, Direct::Off),
    (Engine::Pwrite, Direct::Auto),
    (Engine::Pwrite, Direct::Off),
];

/// Runs `body` on a new 1 MiB device for every combination that this machine grants.
fn each_combination(body: impl Fn(&FileDevice, PathBuf)) {
    for (engine, direct) in COMBINATIONS {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("image");
        let mode = OpenMode::Create { capacity_bytes: MIB };
        match FileDevice::open(&path, mode, engine, direct) {
            Ok(device) => body(&device, path),
            Err(DeviceError::Io { op: "io_uring_setup", source, .. }) => {
                println!("skipped {engine:?}, {direct:?}: io_uring refused: {source}");
            }
            Err(error) => panic!("{engine:?}, {direct:?}: {error}"),
        }
    }
}

fn new_device(dir: &TempDir, engine: Engine, direct: Direct) -> FileDevice {
    let mode = OpenMode::Create { capacity_bytes: MIB };
    FileDevice::open(&dir.path().join("image"), mode, engine, direct).unwrap()
}

fn filled(byte: u8, blocks: usize) -> BlockBuf {
    let mut buf = BlockBuf::zeroed(blocks * BLOCK);
    buf.fill(byte);
    buf
}

#[test]
fn reads_made_together_each_get_their_bytes_or_their_own_error() {
    each_combination(|device, path| {
        let file = File::options().write(true).open(path).unwrap();
        for block in 0..256_u64 {
            file.write_all_at(&vec![block as u8; BLOCK], block * BLOCK_BYTES).unwrap();
        }
        // More than one ring has room for, in no order, of one and of several blocks.
        let places = (0..150_u64).map(|i| (i * 97 % 250, 1 + i as usize % 3));
        let mut bufs: Vec<_> = places.map(|(at, blocks)| (at, filled(0xee, blocks))).collect();
        let mut reads: Vec<_> =
            bufs.iter_mut().map(|(at, buf)| ReadAt::new(*at * BLOCK_BYTES, &mut *buf)).collect();
        device.read_many(&mut reads);
        assert!(reads.iter().all(|read| read.result.is_ok()), "{}", device.describe());
        for (at, buf) in &bufs {
            for (block, bytes) in buf.chunks(BLOCK).enumerate() {
                assert!(bytes.iter().all(|byte| *byte == (*at as usize + block) as u8));
            }
        }
        let (mut good, mut bad) = (filled(0, 1), filled(0, 1));
        let mut reads = [ReadAt::new(BLOCK_BYTES * 7, &mut good), ReadAt::new(MIB, &mut bad)];
        device.read_many(&mut reads);
        assert!(reads[0].result.is_ok() && reads[0].buf[0] == 7);
        assert!(matches!(reads[1].result, Err(DeviceError::OutOfRange { .. })));
    });
}

fn submit(
    queue: &mut Box<dyn WriteQueue>,
    token: u64,
    offset_bytes: u64,
    buf: &BlockBuf,
) -> Result<(), DeviceError> {
    // SAFETY: the tests keep their buffers, unchanged, beyond their queues.
    unsafe { queue.submit(token, offset_bytes, buf.as_ptr(), buf.len()) }
}

#[test]
fn what_is_written_can_be_read_and_is_in_the_file() {
    each_combination(|device, path| {
        device.write_at(8192, &filled(7, 2)).unwrap();
        device.flush().unwrap();
        device.write_durable_at(16384, &filled(7, 1)).unwrap();
        let mut back = filled(0, 4);
        device.read_at(4096, &mut back).unwrap();
        assert_eq!((back[0], &back[BLOCK..]), (0, &*filled(7, 3)), "{}", device.describe());
        let mut byte = [0];
        File::open(path).unwrap().read_exact_at(&mut byte, 8192).unwrap();
        assert_eq!(byte, [7]);
    });
}

#[test]
fn a_queue_completes_every_write_once() {
    each_combination(|device, _| {
        let buffers: Vec<BlockBuf> = (0..64).map(|byte| filled(byte, 1)).collect();
        let mut queue = device.queue(8).unwrap();
        let mut out: Vec<Completion> = Vec::new();
        for (token, buf) in (0u64..).zip(&buffers) {
            if queue.outstanding() == 8 {
                queue.wait(3, &mut out).unwrap();
            }
            submit(&mut queue, token, token * BLOCK_BYTES, buf).unwrap();
        }
        queue.wait(usize::MAX, &mut out).unwrap();
        assert_eq!(queue.outstanding(), 0);
        let mut tokens: Vec<u64> = out.iter().map(|completion| completion.token).collect();
        tokens.sort_unstable();
        assert_eq!(tokens, (0..64).collect::<Vec<_>>());
        assert!(out.iter().all(|completion| completion.result.is_ok()));
        let mut back = filled(0, 64);
        device.read_at(0, &mut back).unwrap();
        assert!(back.chunks(BLOCK).zip(&buffers).all(|(block, buf)| *block == **buf));
    });
}

#[test]
fn waiting_for_nothing_does_not_block() {
    each_combination(|device, _| {
        let buf = filled(1, 1);
        let mut queue = device.queue(1).unwrap();
        let mut out = Vec::new();
        queue.wait(5, &mut out).unwrap();
        assert!(out.is_empty());
        submit(&mut queue, 0, 0, &buf).unwrap();
        while queue.outstanding() > 0 {
            queue.wait(0, &mut out).unwrap();
        }
        assert_eq!(out.len(), 1);
    });
}

#[test]
fn dropping_a_queue_waits_for_its_writes() {
    each_combination(|device, _| {
        let buf = filled(5, 16);
        let mut queue = device.queue(16).unwrap();
        for index in 0..16 {
            submit(&mut queue, index, index * 16 * BLOCK_BYTES, &buf).unwrap();
        }
        drop(queue);
        let mut back = filled(0, 256);
        device.read_at(0, &mut back).unwrap();
        assert!(back.iter().all(|byte| *byte == 5), "{}", device.describe());
    });
}

#[test]
fn a_queue_outlives_the_handle_it_came_from() {
    let dir = TempDir::new().unwrap();
    let device = new_device(&dir, Engine::Auto, Direct::Auto);
    let buf = filled(3, 1);
    let mut queue = device.queue(1).unwrap();
    drop(device);
    submit(&mut queue, 0, 0, &buf).unwrap();
    drop(queue);
    assert_eq!(std::fs::read(dir.path().join("image")).unwrap()[0], 3);
}

#[test]
fn a_queue_may_be_finished_by_another_thread() {
    each_combination(|device, _| {
        let buf = filled(4, 16);
        let mut queue = std::thread::scope(|scope| {
            let submitter = scope.spawn(|| {
                let mut queue = device.queue(16).unwrap();
                for index in 0..16 {
                    submit(&mut queue, index, index * 16 * BLOCK_BYTES, &buf).unwrap();
                }
                queue
            });
            submitter.join().unwrap()
        });
        let mut out = Vec::new();
        queue.wait(16, &mut out).unwrap();
        assert!(out.iter().all(|completion| completion.result.is_ok()), "{out:?}");
        let mut back = filled(0, 256);
        device.read_at(0, &mut back).unwrap();
        assert!(back.iter().all(|byte| *byte == 4), "{}", device.describe());
    });
}

#[test]
fn growing_reserves_and_never_shrinks() {
    each_combination(|device, path| {
        device.grow(2 * MIB + 1).unwrap();
        assert_eq!(device.capacity_bytes(), 2 * MIB + BLOCK_BYTES);
        device.grow(MIB).unwrap();
        device.grow(0).unwrap();
        assert_eq!(device.capacity_bytes(), 2 * MIB + BLOCK_BYTES);
        let size_bytes = std::fs::metadata(path).unwrap().len();
        assert_eq!(size_bytes, device.capacity_bytes());
        device.write_at(2 * MIB, &filled(1, 1)).unwrap();
    });
}

#[test]
fn where_space_cannot_be_reserved_zeros_are_written() {
    let dir = TempDir::new().unwrap();
    let device = new_device(&dir, Engine::Pwrite, Direct::Auto);
    shared::fill_with_zeros(&device.shared.file, MIB, 3 * MIB + BLOCK_BYTES).unwrap();
    let bytes = std::fs::read(dir.path().join("image")).unwrap();
    assert_eq!(bytes.len() as u64, 3 * MIB + BLOCK_BYTES);
    assert!(bytes.iter().all(|byte| *byte == 0));
}

#[test]
fn accesses_beyond_the_end_are_refused_and_leave_the_queue_usable() {
    each_combination(|device, _| {
        let read = device.read_at(MIB, &mut filled(0, 1)).unwrap_err();
        assert!(matches!(read, DeviceError::OutOfRange { offset_bytes: MIB, .. }), "{read}");
        let buf = filled(1, 1);
        let mut queue = device.queue(1).unwrap();
        let huge = u64::MAX - (BLOCK_BYTES - 1);
        let error = submit(&mut queue, 0, huge, &buf).unwrap_err();
        assert!(matches!(error, DeviceError::OutOfRange { .. }), "{error}");
        assert_eq!(queue.outstanding(), 0);
        submit(&mut queue, 1, 0, &buf).unwrap();
    });
}

#[test]
fn growth_by_another_holder_is_noticed() {
    let dir = TempDir::new().unwrap();
    let device = new_device(&dir, Engine::Pwrite, Direct::Auto);
    let fd = device.as_fd().try_clone_to_owned().unwrap();
    let holder = FileDevice::from_fd(fd, Engine::Auto).unwrap();
    assert_eq!(holder.is_direct(), device.is_direct());
    holder.grow(2 * MIB).unwrap();
    device.write_at(MIB, &filled(1, 1)).unwrap();
    assert_eq!(device.capacity_bytes(), 2 * MIB);
}

#[test]
fn the_lock_is_exclusive_and_stays_with_the_description() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("image");
    let device = new_device(&dir, Engine::Pwrite, Direct::Off);
    assert!(device.try_lock().unwrap());
    let rival = FileDevice::open(&path, OpenMode::Existing, Engine::Pwrite, Direct::Off).unwrap();
    assert!(!rival.try_lock().unwrap());
    let fd = device.as_fd().try_clone_to_owned().unwrap();
    drop(device);
    assert!(!rival.try_lock().unwrap(), "a holder of the description keeps the lock");
    drop(fd);
    // A process that another test starts holds all descriptors from its fork to its exec.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !rival.try_lock().unwrap() {
        assert!(std::time::Instant::now() < until, "the lock outlives its last descriptor");
        std::thread::yield_now();
    }
}

#[test]
fn what_is_opened_to_read_is_read_and_shared_and_never_written() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("image");
    std::fs::write(&path, vec![9; BLOCK]).unwrap();
    let open = |mode| FileDevice::open(&path, mode, Engine::Pwrite, Direct::Off).unwrap();
    let (reader, other, writer) =
        (open(OpenMode::ReadOnly), open(OpenMode::ReadOnly), open(OpenMode::Existing));
    assert!(reader.try_lock_shared().unwrap() && other.try_lock_shared().unwrap());
    assert!(!writer.try_lock().unwrap(), "readers have it");
    let mut read = filled(0, 1);
    reader.read_at(0, &mut read).unwrap();
    assert_eq!(read[..], filled(9, 1)[..]);
    let refused = [reader.write_at(0, &filled(1, 1)), reader.grow(2 * MIB)];
    for result in refused {
        assert!(matches!(result, Err(DeviceError::Io { .. })), "{result:?}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), vec![9; BLOCK]);
    let error = FileDevice::open(
        Path::new("/nonexistent/image"),
        OpenMode::ReadOnly,
        Engine::Pwrite,
        Direct::Off,
    );
    let said = error.unwrap_err().to_string();
    assert!(said.starts_with("open failed: No such file"), "{said}");
}

#[test]
fn a_failed_flush_latches_clones_and_queues() {
    each_combination(|device, _| {
        let buf = filled(1, 1);
        let mut queue = device.queue(1).unwrap();
        let failed = device.shared.latch.set(refusal("flush", Errno::IO));
        assert!(matches!(failed, DeviceError::Io { op: "flush", .. }));
        device.shared.latch.set(refusal("flush", Errno::NOSPC));
        let results = [
            device.clone().flush(),
            device.clone().write_at(0, &buf),
            device.grow(2 * MIB),
            submit(&mut queue, 0, 0, &buf),
        ];
        for result in results {
            let Err(DeviceError::Latched { first }) = result else { panic!("{result:?}") };
            assert!(first.contains("flush") && first.contains("os error 5"), "{first}");
        }
        device.read_at(0, &mut filled(0, 1)).unwrap();
    });
}

#[test]
fn creating_refuses_an_existing_file_and_leaves_it_alone() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("image");
    std::fs::write(&path, b"precious").unwrap();
    let mode = OpenMode::Create { capacity_bytes: MIB };
    let error = FileDevice::open(&path, mode, Engine::Auto, Direct::Auto).unwrap_err();
    assert!(matches!(error, DeviceError::Io { op: "open", .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[test]
fn an_existing_file_is_opened_at_its_whole_blocks() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("image");
    std::fs::write(&path, vec![9; 3 * BLOCK + 100]).unwrap();
    let device = FileDevice::open(&path, OpenMode::Existing, Engine::Auto, Direct::Auto).unwrap();
    assert_eq!(device.capacity_bytes(), 3 * BLOCK_BYTES);
}

#[test]
fn new_files_are_private_to_their_owner() {
    let dir = TempDir::new().unwrap();
    let _device = new_device(&dir, Engine::Pwrite, Direct::Off);
    let mode = std::fs::metadata(dir.path().join("image")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn what_is_no_storage_is_refused() {
    for path in ["/dev/null", "/", "/nonexistent/image"] {
        let result =
            FileDevice::open(Path::new(path), OpenMode::Existing, Engine::Auto, Direct::Off);
        assert!(matches!(result, Err(DeviceError::Io { op: "open", .. })), "{path}: {result:?}");
    }
}

#[test]
fn the_description_says_what_was_refused() {
    let dir = TempDir::new().unwrap();
    let device = new_device(&dir, Engine::Pwrite, Direct::Off);
    assert_eq!(device.describe(), "pwrite, buffered");
    let mut shared = Arc::into_inner(device.shared).unwrap();
    shared.buffering = Buffering::Buffered { refused: Some(Errno::INVAL) };
    shared.engine = Engine::Auto;
    shared.uring_refused = AtomicI32::new(Errno::PERM.raw_os_error());
    let device = FileDevice { shared: Arc::new(shared) };
    let expected = "pwrite (io_uring refused: EPERM), buffered (O_DIRECT refused: EINVAL)";
    assert_eq!(device.describe(), expected);
    assert_eq!(errno_name(Errno::from_raw_os_error(200)), "errno 200");
}

#[test]
fn o_direct_is_granted_here_or_reported() {
    let dir = TempDir::new().unwrap();
    let device = new_device(&dir, Engine::Pwrite, Direct::Auto);
    let described = device.describe();
    assert_eq!(device.is_direct(), described.ends_with("+ O_DIRECT"), "{described}");
}

#[test]
fn a_refused_o_direct_falls_back_and_is_reported() {
    // Procfs stands for the file systems that refuse it.
    let open = |direct| {
        let path = Path::new("/proc/self/oom_score_adj");
        FileDevice::open(path, OpenMode::Existing, Engine::Pwrite, direct)
    };
    let refused = open(Direct::On);
    assert!(matches!(refused, Err(DeviceError::Io { op: "O_DIRECT", .. })), "{refused:?}");
    let described = open(Direct::Auto).unwrap().describe();
    assert_eq!(described, "pwrite, buffered (O_DIRECT refused: EINVAL)");
}

#[test]
#[should_panic(expected = "offset 512 is not a multiple")]
fn an_unaligned_offset_is_our_own_mistake() {
    let dir = TempDir::new().unwrap();
    let _ = new_device(&dir, Engine::Pwrite, Direct::Off).write_at(512, &filled(1, 1));
}

#[test]
#[should_panic(expected = "length 100 is not a multiple")]
fn an_unaligned_length_is_our_own_mistake() {
    let dir = TempDir::new().unwrap();
    let _ = new_device(&dir, Engine::Pwrite, Direct::Off).write_at(0, &filled(1, 1)[..100]);
}

#[test]
#[should_panic(expected = "buffer address")]
fn an_unaligned_buffer_is_our_own_mistake() {
    let dir = TempDir::new().unwrap();
    let buf = filled(1, 2);
    let _ = new_device(&dir, Engine::Pwrite, Direct::Off).write_at(0, &buf[512..512 + BLOCK]);
}
