//! Every way to a file, compared with the file's bytes.

use std::io::Write;

use perdura_media::BlockBuf;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::*;

const BLOCK: usize = 4096;
const BLOCKS: usize = 16;

fn ways(path: &Path) -> Vec<FilePath> {
    let open = |way| match FilePath::open(path, way) {
        Ok(path) => Some(path),
        Err(FilePathError::Ring { way, source }) => {
            println!("skipped: {way} is refused here: {source}");
            None
        }
        Err(error) => panic!("{error}"),
    };
    FileWay::ALL.into_iter().filter_map(open).collect()
}

#[test]
fn what_one_way_writes_every_way_reads() {
    // On the disk that has the build, and on tmpfs.
    for dir in [std::env::current_dir().unwrap(), PathBuf::from("/dev/shm")] {
        let mut file = tempfile::NamedTempFile::new_in(&dir).unwrap();
        file.write_all(&vec![0; BLOCK * BLOCKS]).unwrap();
        let mut random = Random::seed_from_u64(5);
        for writer in 0..ways(file.path()).len() {
            // Opened anew: a mapping shows bytes that others wrote past the page cache only when it
            // is read again.
            let mut writers = ways(file.path());
            let mut buf = BlockBuf::zeroed(BLOCK);
            random.fill(&mut buf[..]);
            let offset = random.random_range(0..BLOCKS) * BLOCK;
            writers[writer].write(offset as u64, &buf).unwrap();
            drop(writers);
            file.as_file().sync_all().unwrap();
            for mut reader in ways(file.path()) {
                let mut found = BlockBuf::zeroed(BLOCK);
                reader.read(offset as u64, &mut found).unwrap();
                assert!(found[..] == buf[..], "{}, {}", reader.way(), reader.how());
            }
        }
    }
}

#[test]
fn what_lies_beyond_the_end_is_refused_by_every_way() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&vec![0; BLOCK * 2]).unwrap();
    for mut way in ways(file.path()) {
        let mut buf = BlockBuf::zeroed(BLOCK);
        for offset in [2 * BLOCK as u64, u64::MAX - 7] {
            let error = way.read(offset, &mut buf).unwrap_err();
            assert!(matches!(error, DeviceError::OutOfRange { .. }), "{}: {error}", way.way());
        }
    }
    let error = FilePath::open(Path::new("/dev/shm/not/there"), FileWay::Pread).unwrap_err();
    assert!(error.to_string().contains("open of /dev/shm/not/there failed"), "{error}");
}
