//! ATA's commands about power, through the kernel's SCSI layer: ATA PASS-THROUGH (16) of SAT,
//! CHECK POWER MODE and STANDBY IMMEDIATE of ACS.
//!
//! CHECK POWER MODE does not turn a medium that stands still.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::error::DriveError;
use super::power::AtaMode;
use crate::sys::ScsiAnswer;

const NEEDS: &str = "CAP_SYS_RAWIO";
const CHECK_POWER_MODE: u8 = 0xE5;
const STANDBY_IMMEDIATE: u8 = 0xE0;
const PASS_THROUGH_16: u8 = 0x85;
/// Byte 1: the protocol "non-data".
const NON_DATA: u8 = 3 << 1;
/// Byte 2: the registers come back also if nothing failed.
const REGISTERS_WANTED: u8 = 1 << 5;
/// Bits of the status register: error, and a fault of the device.
const FAILED: u8 = 0x21;
/// Time that a drive has: to stand still it first writes its cache.
const PATIENCE_MS: u32 = 30_000;

/// The registers that a drive answers with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Registers {
    pub count: u8,
    pub status: u8,
}

/// The power mode that the drive is in.
pub(super) fn mode(path: &Path) -> Result<AtaMode, DriveError> {
    let registers = send(path, "CHECK POWER MODE", CHECK_POWER_MODE)?;
    Ok(AtaMode::from_count(registers.count))
}

/// Lets the drive stand still until the next read or write.
pub(super) fn stand_by(path: &Path) -> Result<(), DriveError> {
    send(path, "STANDBY IMMEDIATE", STANDBY_IMMEDIATE).map(drop)
}

/// The command for an ATA command without data.
pub(super) fn command(ata: u8) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[0] = PASS_THROUGH_16;
    bytes[1] = NON_DATA;
    bytes[2] = REGISTERS_WANTED;
    bytes[14] = ata;
    bytes
}

fn send(path: &Path, what: &'static str, ata: u8) -> Result<Registers, DriveError> {
    let failed = |source| DriveError::system(what, path.to_owned(), NEEDS, source);
    // Not blocking: a drive is opened without a look at its medium.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
    let answer =
        crate::sys::scsi_without_data(&file, &command(ata), PATIENCE_MS).map_err(failed)?;
    let registers = registers(&answer).map_err(|why| DriveError::Ata { what, why })?;
    match registers.status & FAILED {
        0 => Ok(registers),
        _ => Err(DriveError::Ata { what, why: format!("its status is {:#04x}", registers.status) }),
    }
}

/// The registers in an answer; else what came instead.
pub(super) fn registers(answer: &ScsiAnswer) -> Result<Registers, String> {
    let refused = || {
        let ScsiAnswer { status, host_status, driver_status, sense } = answer;
        let key = match sense.first().map(|code| code & 0x7F) {
            Some(0x72 | 0x73) => sense.get(1..4).map(|s| (s[0] & 0xF, s[1], s[2])),
            Some(0x70 | 0x71) => sense.get(..14).map(|s| (s[2] & 0xF, s[12], s[13])),
            _ => None,
        };
        match key {
            Some((key, code, more)) => format!("sense {key:x}/{code:02x}/{more:02x}"),
            None => format!(
                "SCSI status {status:#04x}, host {host_status:#04x}, driver {driver_status:#04x}"
            ),
        }
    };
    // Sense 1/00/1D means "these are the registers". Others may come with registers, too.
    let found = match answer.sense.first().map(|code| code & 0x7F) {
        Some(0x72) => descriptor(&answer.sense),
        Some(0x70) if answer.sense.get(12..14) == Some(&[0x00, 0x1D]) => fixed(&answer.sense),
        _ => None,
    };
    found.ok_or_else(refused)
}

/// The registers in sense data of descriptors: the ATA Status Return descriptor.
fn descriptor(sense: &[u8]) -> Option<Registers> {
    let end = 8 + usize::from(*sense.get(7)?);
    let mut rest = sense.get(8..end.min(sense.len()))?;
    while let [kind, len, ..] = *rest {
        let one = rest.get(..2 + usize::from(len))?;
        if kind == 0x09 && len >= 0x0C {
            return Some(Registers { count: one[5], status: one[13] });
        }
        rest = &rest[one.len()..];
    }
    None
}

/// The registers in sense data of the fixed form: error, status, device, count as "information".
fn fixed(sense: &[u8]) -> Option<Registers> {
    Some(Registers { count: *sense.get(6)?, status: *sense.get(4)? })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
mod tests {
    use super::*;

    fn answer(sense: &[u8]) -> ScsiAnswer {
        ScsiAnswer { status: 2, host_status: 0, driver_status: 8, sense: sense.to_vec() }
    }

    /// The answer that Linux gives to a command, with these registers.
    fn linux(count: u8, status: u8) -> Vec<u8> {
        let mut sense = vec![0x72, 0x01, 0x00, 0x1D, 0, 0, 0, 14, 0x09, 12];
        sense.extend([0, 0, 0, count, 0, 0, 0, 0, 0, 0, 0xA0, status]);
        sense
    }

    #[test]
    fn commands_have_the_bytes_of_the_specification() {
        let expected = |ata| [0x85, 6, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ata, 0];
        assert_eq!(command(CHECK_POWER_MODE), expected(0xE5));
        assert_eq!(command(STANDBY_IMMEDIATE), expected(0xE0));
    }

    #[test]
    fn the_count_register_says_the_mode() {
        let mode = |count| {
            let found = registers(&answer(&linux(count, 0x50))).unwrap();
            AtaMode::from_count(found.count).to_string()
        };
        assert_eq!(mode(0x00), "standby");
        assert_eq!(mode(0x01), "standby");
        assert_eq!(mode(0x80), "idle");
        assert_eq!(mode(0x83), "idle");
        assert_eq!(mode(0xFF), "active or idle");
        assert_eq!(mode(0x40), "standby, with its flash awake");
        assert_eq!(mode(0x55), "unknown (0x55)");
    }

    #[test]
    fn registers_are_found_behind_another_descriptor_and_in_the_fixed_form() {
        let mut sense = linux(0x80, 0x50);
        sense.splice(8..8, [0x00, 0x02, 0xFF, 0xFF]);
        sense[7] = 18;
        let expected = Registers { count: 0x80, status: 0x50 };
        assert_eq!(registers(&answer(&sense)), Ok(expected));
        let fixed = [0x70, 0, 1, 0x00, 0x50, 0xA0, 0x80, 10, 0, 0, 0, 0, 0x00, 0x1D, 0, 0, 0, 0];
        assert_eq!(registers(&answer(&fixed)), Ok(expected));
    }

    #[test]
    fn an_answer_without_registers_is_a_refusal_with_what_came_instead() {
        let why = |sense: &[u8]| registers(&answer(sense)).unwrap_err();
        // A drive that knows no ATA: illegal request, invalid command.
        assert_eq!(why(&[0x72, 0x05, 0x20, 0x00, 0, 0, 0, 0]), "sense 5/20/00");
        let fixed = [0x70, 0, 5, 0, 0x50, 0, 0xFF, 10, 0, 0, 0, 0, 0x20, 0x00, 0, 0, 0, 0];
        assert_eq!(why(&fixed), "sense 5/20/00");
        assert_eq!(why(&[]), "SCSI status 0x02, host 0x00, driver 0x08");
        let mut cut = linux(0xFF, 0x50);
        cut.truncate(21);
        assert_eq!(why(&cut), "sense 1/00/1d");
        assert_eq!(why(&[0x72]), "SCSI status 0x02, host 0x00, driver 0x08");
    }
}
