//! The mappings of a process, read from `/proc/PID/maps`.

use std::fs::File;
use std::io::{self, Read, Seek};

/// A mapping of a process, as `/proc/PID/maps` lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Area {
    /// The address of the first byte.
    pub start: u64,
    /// The address behind the last byte.
    pub end: u64,
    /// Whether it may be written.
    pub writable: bool,
    /// Whether code in it may run.
    pub executable: bool,
    /// Whether its pages are those of the file, for every process that maps it.
    pub shared: bool,
    /// The place in the file at which it begins, bytes.
    pub file_offset: u64,
    /// The device of the file.
    pub device: (u32, u32),
    /// The inode of the file; that of memory without a file is 0.
    pub inode: u64,
    /// The path of the file, `[heap]` and its like, or nothing.
    pub name: String,
}

/// The error that the kernel gives for a program that is gone (`ESRCH`).
const GONE: i32 = libc::ESRCH;

/// The mappings of one program: of a process until it ends or becomes another program.
#[derive(Debug)]
pub struct Maps {
    file: File,
}

impl Maps {
    /// Opens the mappings of the program that runs now.
    pub fn open(pid: i32) -> io::Result<Self> {
        Ok(Self { file: File::open(format!("/proc/{pid}/maps"))? })
    }

    /// Reads all mappings in the order of addresses; none once the program is gone.
    pub fn read(&mut self) -> io::Result<Vec<Area>> {
        let mut text = Vec::new();
        self.file.rewind()?;
        match self.file.read_to_end(&mut text) {
            Err(error) if error.raw_os_error() == Some(GONE) => text.clear(),
            read => drop(read?),
        }
        // Names are bytes; a name that is no text is shown with replacement characters.
        let text = String::from_utf8_lossy(&text);
        text.lines().map(|line| parse(line).ok_or_else(|| unknown(line))).collect()
    }
}

fn unknown(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a line of /proc/PID/maps: {line}"))
}

fn parse(line: &str) -> Option<Area> {
    let mut rest = line;
    let mut word = || {
        let (word, behind) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = behind;
        word
    };
    let (range, rights, offset, device, inode) = (word(), word(), word(), word(), word());
    let (start, end) = range.split_once('-')?;
    let (major, minor) = device.split_once(':')?;
    let rights = rights.as_bytes();
    let hex = |digits| u64::from_str_radix(digits, 16).ok();
    Some(Area {
        start: hex(start)?,
        end: hex(end)?,
        writable: *rights.get(1)? == b'w',
        executable: *rights.get(2)? == b'x',
        shared: *rights.get(3)? == b's',
        file_offset: hex(offset)?,
        device: (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?),
        inode: inode.parse().ok()?,
        name: rest.trim_start().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_with_and_without_a_name() {
        let anon = parse("7f00-8f00 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!(
            (anon.start, anon.end, anon.writable, anon.shared),
            (0x7f00, 0x8f00, true, false)
        );
        assert_eq!(anon.name, "");
        let line = "7f2a1000-7f2a2000 r-xs 0001f000 fd:01 1310722    /tmp/a file (deleted)";
        let file = parse(line).unwrap();
        assert_eq!((file.writable, file.executable, file.shared), (false, true, true));
        assert_eq!((file.file_offset, file.device, file.inode), (0x1f000, (0xfd, 1), 1_310_722));
        assert_eq!(file.name, "/tmp/a file (deleted)");
    }

    #[test]
    fn what_is_no_line_is_an_error() {
        for line in ["", "7f00 rw-p", "zz-8f00 rw-p 0 00:00 0", "7f00-8f00 rw 0 00:00 0"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn our_own_mappings_are_in_order_and_have_a_stack() {
        let areas = Maps::open(std::process::id() as i32).unwrap().read().unwrap();
        assert!(areas.is_sorted_by(|one, next| one.end <= next.start));
        assert!(areas.iter().any(|area| area.name == "[stack]" && area.writable));
    }
}
