//! NVMe's commands about power: which states a drive has, which it is in, another one (NVM Express
//! Base Specification 1.4, figures 247, 248 and 276).
//!
//! In a non-operational state a drive answers administrative commands, and stays in that state; it
//! leaves it by itself for its last operational state as soon as it is given a read or a write.

use std::fs::File;
use std::path::Path;

use super::error::DriveError;
use crate::sys::NvmeCommand;
use crate::units::Watts;

const NEEDS: &str = "CAP_SYS_ADMIN";
const SET_FEATURES: u8 = 0x09;
const GET_FEATURES: u8 = 0x0A;
const IDENTIFY: u8 = 0x06;
/// Identify's word 10: the data structure of the controller.
const OF_CONTROLLER: u32 = 0x01;
/// The feature Power Management.
const POWER_MANAGEMENT: u32 = 0x02;
const IDENTIFY_BYTES: usize = 4096;
/// Where the number of the last power state is.
const LAST_STATE_AT: usize = 263;
/// Where the descriptors of power states begin, and how long each is.
const STATES_AT: usize = 2048;
const STATE_BYTES: usize = 32;
/// Most states that a drive can have.
const STATES_MAX: usize = 32;

/// A power state of a drive, as its maker describes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NvmeState {
    /// The most power that the drive takes in this state, if the maker tells.
    pub watts_max: Option<Watts>,
    /// Whether reads and writes are done in this state.
    pub is_operational: bool,
    /// Most time to enter the state, microseconds.
    pub enter_us: u32,
    /// Most time to leave the state, microseconds.
    pub leave_us: u32,
}

/// The power states of a drive, at least one; each next one takes no more power.
#[derive(Debug, Clone, PartialEq)]
pub struct NvmeStates(Vec<NvmeState>);

impl NvmeStates {
    /// The states in what a controller answers to Identify; `None` if that has none or too many.
    pub fn decode(identified: &[u8]) -> Option<Self> {
        let count = usize::from(*identified.get(LAST_STATE_AT)?) + 1;
        if count > STATES_MAX {
            return None;
        }
        let state = |index: usize| {
            let from = STATES_AT + index * STATE_BYTES;
            let bytes = identified.get(from..from + STATE_BYTES)?;
            let word = |at: usize| bytes[at..at + 4].try_into().map(u32::from_le_bytes).ok();
            let flags = bytes[3];
            let watts_per_unit = if flags & 1 == 0 { 0.01 } else { 0.0001 };
            let power = u16::from_le_bytes([bytes[0], bytes[1]]);
            Some(NvmeState {
                watts_max: (power != 0).then(|| Watts(f64::from(power) * watts_per_unit)),
                is_operational: flags & 2 == 0,
                enter_us: word(4)?,
                leave_us: word(8)?,
            })
        };
        (0..count).map(state).collect::<Option<Vec<_>>>().map(Self)
    }

    /// How many states there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The state with this number.
    pub fn get(&self, number: u8) -> Option<&NvmeState> {
        self.0.get(usize::from(number))
    }

    /// The state to sleep in: the last one that does no reads and writes, because a drive leaves
    /// that by itself; else the last of all. `None` if that is the first, because there is no
    /// other.
    pub fn deepest(&self) -> Option<u8> {
        let quiet = self.0.iter().rposition(|state| !state.is_operational);
        let last = quiet.unwrap_or(self.0.len() - 1);
        u8::try_from(last).ok().filter(|number| *number > 0)
    }
}

/// A command of the administrative queue: its code, its words 10 and 11, its bytes of data.
pub(super) fn command(opcode: u8, word10: u32, word11: u32, data_bytes: u32) -> NvmeCommand {
    NvmeCommand {
        opcode,
        data_len: data_bytes,
        cdw10: word10,
        cdw11: word11,
        timeout_ms: 5_000,
        ..NvmeCommand::default()
    }
}

/// The power states of the drive with this controller.
pub(super) fn states(path: &Path) -> Result<NvmeStates, DriveError> {
    let what = "Identify Controller";
    let mut data = vec![0; IDENTIFY_BYTES];
    send(path, what, command(IDENTIFY, OF_CONTROLLER, 0, IDENTIFY_BYTES as u32), &mut data)?;
    NvmeStates::decode(&data).ok_or_else(|| {
        let why = format!("{what} names {} power states", usize::from(data[LAST_STATE_AT]) + 1);
        DriveError::Unsupported { why }
    })
}

/// The number of the power state that the drive is in.
pub(super) fn state(path: &Path) -> Result<u8, DriveError> {
    let what = "Get Features (Power Management)";
    let answer = send(path, what, command(GET_FEATURES, POWER_MANAGEMENT, 0, 0), &mut [])?;
    Ok((answer & 0x1F) as u8)
}

/// Puts the drive into a power state until another is asked for, or the drive is without power.
pub(super) fn set_state(path: &Path, number: u8) -> Result<(), DriveError> {
    let what = "Set Features (Power Management)";
    let command = command(SET_FEATURES, POWER_MANAGEMENT, u32::from(number), 0);
    send(path, what, command, &mut []).map(drop)
}

fn send(
    path: &Path,
    what: &'static str,
    command: NvmeCommand,
    data: &mut [u8],
) -> Result<u32, DriveError> {
    let failed = |source| DriveError::system(what, path.to_owned(), NEEDS, source);
    let file = File::open(path).map_err(failed)?;
    match crate::sys::nvme_admin(&file, command, data).map_err(failed)? {
        (0, answer) => Ok(answer),
        // The rest are hints: whether there is more about it, whether to try again.
        (status, _) => Err(DriveError::Nvme { what, status: status & 0x7FF }),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
mod tests {
    use super::*;

    /// What a drive answers to Identify whose states have this power, flags and latencies.
    fn identified(states: &[(u16, u8)]) -> Vec<u8> {
        let mut bytes = vec![0xEE; IDENTIFY_BYTES];
        bytes[263] = states.len() as u8 - 1;
        for (index, (power, flags)) in states.iter().enumerate() {
            let at = 2048 + 32 * index;
            bytes[at..at + 2].copy_from_slice(&power.to_le_bytes());
            bytes[at + 3] = *flags;
            bytes[at + 4..at + 8].copy_from_slice(&(1000 + index as u32).to_le_bytes());
            bytes[at + 8..at + 12].copy_from_slice(&(2000 + index as u32).to_le_bytes());
        }
        bytes
    }

    #[test]
    fn states_have_the_power_and_kind_that_the_makers_table_says() {
        // A desktop drive: 8.49 W, 4.48 W, 3.18 W, then 40 mW and 5 mW in ten-thousandths.
        let table = [(849, 0), (448, 0), (318, 0), (400, 3), (50, 3)];
        let states = NvmeStates::decode(&identified(&table)).unwrap();
        let watts = |number| states.get(number).unwrap().watts_max.unwrap().0;
        assert_eq!(states.count(), 5);
        assert!((watts(0) - 8.49).abs() < 1e-9 && (watts(3) - 0.04).abs() < 1e-9);
        assert!((watts(4) - 0.005).abs() < 1e-9);
        let kinds: Vec<_> = (0..5).map(|n| states.get(n).unwrap().is_operational).collect();
        assert_eq!(kinds, [true, true, true, false, false]);
        let fourth = states.get(3).unwrap();
        assert_eq!((fourth.enter_us, fourth.leave_us), (1003, 2003));
        assert_eq!(states.get(5), None);
        assert_eq!(states.deepest(), Some(4));
    }

    #[test]
    fn the_deepest_state_is_one_that_the_drive_leaves_by_itself_if_it_has_such() {
        let deepest =
            |table: &[(u16, u8)]| NvmeStates::decode(&identified(table)).unwrap().deepest();
        assert_eq!(deepest(&[(2500, 0)]), None, "there is only one");
        assert_eq!(deepest(&[(2500, 0), (1200, 0), (900, 0)]), Some(2));
        assert_eq!(deepest(&[(2500, 0), (400, 3), (900, 0)]), Some(1));
    }

    #[test]
    fn power_that_the_maker_does_not_tell_is_not_zero_watts() {
        let states = NvmeStates::decode(&identified(&[(0, 0)])).unwrap();
        assert_eq!(states.get(0).unwrap().watts_max, None);
    }

    #[test]
    fn an_answer_with_more_states_than_there_can_be_or_too_short_is_none() {
        let mut bytes = identified(&[(1, 0)]);
        bytes[263] = 32;
        assert_eq!(NvmeStates::decode(&bytes), None);
        bytes[263] = 31;
        assert_eq!(NvmeStates::decode(&bytes).unwrap().count(), 32);
        assert_eq!(NvmeStates::decode(&bytes[..2048 + 31 * 32]), None);
        assert_eq!(NvmeStates::decode(&[]), None);
    }

    /// The bytes that the kernel is given, for the fields that are not zero.
    fn bytes(command: NvmeCommand) -> Vec<(usize, u8)> {
        let bytes = command.bytes().into_iter().enumerate();
        bytes.filter(|(_, byte)| *byte != 0).collect()
    }

    #[test]
    fn commands_have_the_bytes_of_the_specification() {
        // Code at 0, bytes of data at 36, word 10 at 40, word 11 at 44, milliseconds at 64.
        let time = [(64, 0x88), (65, 0x13)];
        let with = |more: &[(usize, u8)]| [more, &time].concat();
        let identify = command(IDENTIFY, OF_CONTROLLER, 0, 4096);
        assert_eq!(bytes(identify), with(&[(0, 0x06), (37, 0x10), (40, 0x01)]));
        let get = command(GET_FEATURES, POWER_MANAGEMENT, 0, 0);
        assert_eq!(bytes(get), with(&[(0, 0x0A), (40, 0x02)]));
        let set = command(SET_FEATURES, POWER_MANAGEMENT, 4, 0);
        assert_eq!(bytes(set), with(&[(0, 0x09), (40, 0x02), (44, 0x04)]));
    }
}
