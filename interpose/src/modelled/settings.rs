//! Settings from environment variables. `perdura-lab run` sets them, and has checked them.
//!
//! - `PERDURA_FILES_AT`: absolute paths of the files and directories to serve, one a line.
//! - `PERDURA_FILES_MEDIA`: the medium, a built-in name or the path of a profile. Without it
//!   requests are only recorded.
//! - `PERDURA_FILES_LINK`: the link to put the medium behind.
//! - `PERDURA_FILES_RECORD`: the file to record requests in. The first process that opens a served
//!   file records.
//! - `PERDURA_FILES_RECORD_STEPS`: most requests to record; by default 4 Mi, which take 96 MiB.
//! - `PERDURA_FILES_REPORT`: `1` reports the served requests on standard error at the end.
//! - `PERDURA_FILES_REPORT_JSON`: a file to which each process adds a line of JSON.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use perdura_media::System;

const RECORD_STEPS: u64 = 4 << 20;

/// The files to serve, their medium, and the reports.
pub struct Settings {
    /// Files, and directories with all their files.
    pub at: Vec<PathBuf>,
    /// The medium whose time is modelled; `None` for no waits.
    pub system: Option<System>,
    pub record: Option<PathBuf>,
    pub record_steps: u64,
    pub report: bool,
    pub report_json: Option<PathBuf>,
}

impl Settings {
    /// Reads the settings. An error names the variable and its value.
    pub fn of(get: impl Fn(&str) -> Option<OsString>) -> Result<Self, String> {
        let word = |name: &str| get(name).filter(|word| !word.is_empty());
        let text = |name: &str| match word(name).map(OsString::into_string) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text)),
            Some(Err(bytes)) => Err(format!("{name}={}: not UTF-8", bytes.display())),
        };
        let at = word("PERDURA_FILES_AT").unwrap_or_default().into_vec();
        let at = at.split(|byte| *byte == b'\n').filter(|path| !path.is_empty());
        let at = at.map(|path| PathBuf::from(OsStr::from_bytes(path))).collect();
        let mut system = None;
        if let Some(name) = text("PERDURA_FILES_MEDIA")? {
            let wrong = |error| format!("PERDURA_FILES_MEDIA={name}: {error}");
            let mut found = System::find(&name).map_err(wrong)?;
            if let Some(link) = text("PERDURA_FILES_LINK")? {
                let wrong = |error| format!("PERDURA_FILES_LINK={link}: {error}");
                found = found.with_link(&link).map_err(wrong)?;
            }
            system = Some(found);
        }
        let record_steps = match text("PERDURA_FILES_RECORD_STEPS")? {
            None => RECORD_STEPS,
            Some(number) => number.trim().parse().map_err(|_| {
                format!("PERDURA_FILES_RECORD_STEPS={number}: expected a number of requests")
            })?,
        };
        Ok(Self {
            at,
            system,
            record: word("PERDURA_FILES_RECORD").map(PathBuf::from),
            record_steps,
            report: word("PERDURA_FILES_REPORT").is_some_and(|word| word == "1"),
            report_json: word("PERDURA_FILES_REPORT_JSON").map(PathBuf::from),
        })
    }

    /// Whether a file of this absolute path is served.
    pub fn serves(&self, path: &OsStr) -> bool {
        let path = path.as_bytes();
        self.at.iter().any(|at| {
            let rest = path.strip_prefix(at.as_os_str().as_bytes());
            rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[(&str, &str)]) -> Result<Settings, String> {
        let words: Vec<(String, OsString)> = words
            .iter()
            .map(|(name, word)| (format!("PERDURA_FILES_{name}"), word.into()))
            .collect();
        Settings::of(|name| {
            words.iter().find(|(found, _)| found == name).map(|(_, word)| word.clone())
        })
    }

    #[test]
    fn a_directory_serves_what_is_in_it_and_a_file_itself() {
        let settings = of(&[("AT", "/shm/base\n/one/file")]).unwrap();
        let serves = |path: &str| settings.serves(OsStr::new(path));
        assert!(serves("/shm/base/a") && serves("/shm/base/b/c") && serves("/one/file"));
        assert!(!serves("/shm/base2/a") && !serves("/shm") && !serves("/one/file2") && !serves(""));
        assert!(!of(&[]).unwrap().serves(OsStr::new("/anything")));
    }

    #[test]
    fn what_cannot_be_is_named_with_its_value() {
        let wrong = |words: &[(&str, &str)]| of(words).err().unwrap();
        assert!(wrong(&[("RECORD_STEPS", "many")]).contains("RECORD_STEPS=many"));
        assert!(wrong(&[("MEDIA", "no-such-medium")]).contains("MEDIA=no-such-medium"));
        assert!(wrong(&[("MEDIA", "pcm"), ("LINK", "string")]).contains("LINK=string"));
    }
}
