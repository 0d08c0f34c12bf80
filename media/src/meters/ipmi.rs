//! The power of the whole machine, from its management controller: DCMI's Get Power Reading over
//! IPMI (Data Center Manageability Interface 1.5, 6.6.1), by the kernel's `ipmi_devintf`.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Look, Meter};
use crate::units::Watts;

/// A controller answers in tens of milliseconds, and averages over seconds anyway.
const EVERY_NS: u64 = 5_000_000_000;
const PATIENCE: Duration = Duration::from_secs(1);
/// Longest message of IPMI in Linux.
const MESSAGE_BYTES: usize = 272;
/// The function "group extension", the group DCMI, and its command Get Power Reading.
const GROUP_EXTENSION: u8 = 0x2C;
const DCMI: u8 = 0xDC;
const GET_POWER_READING: u8 = 0x02;
/// The mode "system power statistics"; two bytes behind it are reserved.
const STATISTICS: [u8; 4] = [DCMI, 0x01, 0x00, 0x00];
/// Completion codes of a controller that knows nothing of this command.
const UNKNOWN_COMMAND: u8 = 0xC1;

/// Names of the device's file on different systems.
const FILES: [&str; 3] = ["ipmi0", "ipmi/0", "ipmidev/0"];

pub(super) struct Controller {
    path: PathBuf,
    file: Option<File>,
    /// Number of the last request.
    number: i32,
    /// The answer that ends all questions.
    is_unable: bool,
}

/// The machine's controller, if there is one.
pub(super) fn find(dev: &Path) -> io::Result<Vec<Box<dyn Meter>>> {
    let mut found = Vec::<Box<dyn Meter>>::new();
    if let Some(path) = FILES.iter().map(|name| dev.join(name)).find(|path| path.exists()) {
        found.push(Box::new(Controller { path, file: None, number: 0, is_unable: false }));
    }
    Ok(found)
}

impl Meter for Controller {
    fn source(&self) -> &str {
        "ipmi:dcmi"
    }

    fn every_ns(&self) -> u64 {
        EVERY_NS
    }

    fn look(&mut self) -> Result<Look, String> {
        let unable = "the management controller knows no DCMI power readings";
        if self.is_unable {
            return Err(unable.into());
        }
        let answer = self.ask().map_err(|error| format!("{}: {error}", self.path.display()))?;
        match decode(&answer) {
            Ok(watts) => Ok(Look::Power(watts)),
            Err(Refusal::Code(UNKNOWN_COMMAND)) => {
                self.is_unable = true;
                Err(unable.into())
            }
            Err(refusal) => Err(refusal.to_string()),
        }
    }
}

impl Controller {
    fn ask(&mut self) -> io::Result<Vec<u8>> {
        let file = match self.file.take() {
            Some(file) => file,
            None => File::options().read(true).write(true).open(&self.path)?,
        };
        self.number = self.number.wrapping_add(1);
        let mut question = STATISTICS;
        let (number, command) = (self.number, GET_POWER_READING);
        crate::sys::ipmi_send(&file, number, GROUP_EXTENSION, command, &mut question)?;
        let began = Instant::now();
        loop {
            let left = PATIENCE.saturating_sub(began.elapsed());
            if left.is_zero() {
                // The late answer would come to this file: the next question uses another.
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer for a second"));
            }
            let left = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()).max(1) };
            let mut waits = [PollFd::new(&file, PollFlags::IN)];
            match poll(&mut waits, Some(&left)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            let mut answer = vec![0; MESSAGE_BYTES];
            let (of, len) = crate::sys::ipmi_receive(&file, &mut answer)?;
            if of == i64::from(number) {
                answer.truncate(len);
                self.file = Some(file);
                return Ok(answer);
            }
        }
    }
}

/// Why an answer has no power in it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the management controller refused, completion code {0:#04x}")]
    Code(u8),
    #[error("the management controller does not measure now")]
    Inactive,
    #[error("the management controller's answer has another form: {0:02x?}")]
    Form(Vec<u8>),
}

/// The power in an answer: completion code, group, power now, least, most and mean (two bytes
/// each, watts), time (4), period (4), state.
pub(super) fn decode(answer: &[u8]) -> Result<Watts, Refusal> {
    match answer {
        [0, DCMI, low, high, rest @ ..] if rest.len() >= 15 => match rest[14] & 1 << 6 {
            0 => Err(Refusal::Inactive),
            _ => Ok(Watts(f64::from(u16::from_le_bytes([*low, *high])))),
        },
        [code, ..] if *code != 0 => Err(Refusal::Code(*code)),
        other => Err(Refusal::Form(other.to_vec())),
    }
}
