//! Bytes compared with a plain array, and times with the model.

use proptest::prelude::*;

use super::*;

fn emulator(name: &str, pace: Pace) -> Emulator {
    Emulator::anonymous(&System::find(name).unwrap(), 1 << 20, pace).unwrap()
}

proptest! {
    #[test]
    fn what_is_read_is_what_was_written(
        operations in prop::collection::vec(
            (0u8..3, 0u64..(1 << 20), 0usize..20_000, any::<u8>()),
            1..60,
        ),
    ) {
        let emulator = emulator("pcie-pcm", Pace::Virtual);
        let mut naive = vec![0u8; 1 << 20];
        for (kind, offset, len, byte) in operations {
            let fits = offset as usize + len <= naive.len();
            let range = offset as usize..(offset as usize + len).min(naive.len());
            match kind {
                0 => {
                    prop_assert_eq!(emulator.write(offset, &vec![byte; len]).is_ok(), fits);
                    if fits { naive[range].fill(byte); }
                }
                1 => {
                    prop_assert_eq!(emulator.discard(offset, len as u64).is_ok(), fits);
                    if fits { naive[range].fill(0); }
                }
                _ => {
                    let mut found = vec![1; len];
                    prop_assert_eq!(emulator.read(offset, &mut found).is_ok(), fits);
                    if fits { prop_assert_eq!(&found[..], &naive[range]); }
                }
            }
        }
    }
}

#[test]
fn virtual_time_moves_only_by_waiting() {
    let emulator = emulator("nand", Pace::Virtual);
    let due = emulator.read(0, &mut [0; 4096]).unwrap();
    assert!(!emulator.is_due(due) && emulator.now().ps() == 0);
    assert_eq!(emulator.until_due_ns(due), 25_000);
    emulator.wait(due);
    assert!(emulator.is_due(due) && emulator.now() == due);
    emulator.pass_ps(7);
    assert_eq!(emulator.now().ps(), due.ps() + 7);
}

#[test]
fn real_waits_last_at_least_the_modelled_time_by_the_systems_clock() {
    use crate::clock::{Clock, RealClock};
    let emulator = emulator("nand", Pace::Real);
    for _ in 0..20 {
        let from_ns = RealClock.now_ns();
        let due = emulator.write(4096, &[7; 4096]).unwrap();
        emulator.wait(due);
        let passed_ns = RealClock.now_ns() - from_ns;
        // The clocks are calibrated to better than a thousandth of the 200 us.
        assert!(passed_ns >= 199_800, "{passed_ns}");
    }
}

#[test]
fn bytes_of_a_file_are_the_files() {
    use std::os::unix::fs::FileExt;
    let file = tempfile::tempfile().unwrap();
    file.set_len(1 << 16).unwrap();
    let emulator =
        Emulator::over_file(&System::find("pcm").unwrap(), &file, Pace::Virtual).unwrap();
    emulator.write(100, b"durable").unwrap();
    let mut found = [0; 7];
    file.read_exact_at(&mut found, 100).unwrap();
    assert_eq!(&found, b"durable");
    emulator.discard(0, 1 << 16).unwrap();
    file.read_exact_at(&mut found, 100).unwrap();
    assert_eq!(found, [0; 7]);
}

#[test]
fn a_capacity_that_is_none_is_refused() {
    let system = System::find("pcm").unwrap();
    for capacity in [0, 4097, u64::MAX] {
        let refused = Emulator::anonymous(&system, capacity, Pace::Virtual);
        assert!(matches!(refused, Err(EmulatorError::Capacity { .. })), "{capacity}");
    }
}

#[test]
fn lateness_is_added_up_and_joined() {
    let mut all = TimingError::default();
    assert_eq!(all.error(), None);
    all.count(1_000, 20);
    all.add(&TimingError { requests: 1, modelled_ps: 1_000, late_ps: 60, late_max_ps: 60 });
    assert_eq!((all.requests, all.late_max_ps, all.error()), (2, 60, Some(0.04)));
}
