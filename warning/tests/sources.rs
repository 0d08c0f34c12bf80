//! Sources of warnings, as a process meets them.

#![allow(clippy::unwrap_used)] // a test's own failure

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use perdura_warning::{
    Reading, Signals, State, StatusFile, WarningError, WarningSource, Warnings, open,
};
use rustix::event::{EventfdFlags, eventfd};

fn watched(path: &Path) -> Warnings {
    StatusFile::open(path).unwrap().into()
}

#[test]
fn each_signal_is_news_and_the_end_stays() {
    let mut signals = Signals::block().unwrap();
    assert_eq!(signals.take().unwrap(), None);
    let mut warnings = Warnings::from(Box::new(signals) as Box<dyn WarningSource>);
    assert_eq!(warnings.look().state, State::Steady);
    for _ in 0..2 {
        // SAFETY: the signal goes to this thread, which blocks it: no handler runs.
        assert_eq!(unsafe { libc::raise(libc::SIGPWR) }, 0);
        assert_eq!(warnings.news().unwrap().to_string(), "SIGPWR");
        assert_eq!(warnings.news(), None);
        assert_eq!(warnings.wait_for(State::Ending).to_string(), "SIGPWR");
    }
}

#[test]
fn a_file_that_is_made_empty_or_moved_there_is_the_end() {
    let dir = tempfile::tempdir().unwrap();
    for moved in [false, true] {
        let (path, other) = (dir.path().join("on-battery"), dir.path().join("other"));
        let mut warnings = watched(&path);
        std::fs::write(&other, "").unwrap();
        assert_eq!(warnings.look().state, State::Steady);
        match moved {
            true => std::fs::rename(&other, &path).unwrap(),
            false => drop(std::fs::File::create(&path).unwrap()),
        }
        let end = warnings.wait_for(State::Ending);
        assert_eq!(end.to_string(), path.display().to_string());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(warnings.look().state, State::Ending, "an end is never taken back");
    }
}

#[test]
fn a_file_says_how_the_power_is_in_its_first_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("power");
    let mut warnings = watched(&path);
    for (text, state) in [
        ("on-battery 5m\n", State::OnBattery),
        ("low\nsince noon\n", State::Low),
        ("steady", State::Steady),
        ("on-battery", State::OnBattery),
    ] {
        std::fs::write(&path, text).unwrap();
        assert_eq!(warnings.look().state, state, "{text:?}");
    }
    // What nobody understands is no contact; and contact that was lost on battery is worse.
    std::fs::write(&path, "fine").unwrap();
    let lost = warnings.look();
    assert_eq!((lost.state, lost.confidence), (State::Low, perdura_warning::Confidence::Lost));
    assert!(lost.told_by.contains("says \"fine\""), "{lost}");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(warnings.look().state, State::Steady);
    // Half a line is not read before its writer has closed the file.
    let mut writer = std::fs::File::create(&path).unwrap();
    assert_eq!(warnings.look().state, State::Steady);
    std::io::Write::write_all(&mut writer, b"on-battery 1m").unwrap();
    drop(writer);
    assert_eq!(warnings.look().state, State::OnBattery);
    // A file that is there at the start is read then.
    assert_eq!(watched(&path).look().state, State::OnBattery);
}

#[test]
fn a_file_that_says_the_end_already_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("on-battery");
    for text in ["", "ending"] {
        std::fs::write(&path, text).unwrap();
        let Err(error) = open(&format!("file:{}", path.display())) else { panic!("opened") };
        assert!(matches!(error, WarningError::EndsAlready { .. }), "{error}");
    }
    let Err(error) = open("file:/no/such/directory/x") else { panic!("opened") };
    assert!(error.to_string().starts_with("watch /no/such/directory: "), "{error}");
}

#[test]
fn a_source_that_breaks_is_the_end_once_and_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let mut warnings = watched(&inner.join("on-battery"));
    std::fs::remove_dir(&inner).unwrap();
    let told = warnings.wait_for(State::Ending).to_string();
    assert!(told.starts_with("a source that broke: ") && told.contains("was removed"), "{told}");
    assert_eq!(warnings.news(), None);
    assert_eq!(warnings.look().state, State::Ending);
}

#[test]
fn an_unknown_source_is_named_with_those_there_are() {
    for text in ["smoke-signals", "smoke:signals", "file", ""] {
        let Err(error) = open(text) else { panic!("{text}") };
        let said = error.to_string();
        assert!(said.contains(&format!("{text:?}")) && said.contains("file:PATH"), "{said}");
    }
}

/// A source that a test sets off.
struct Button(std::os::fd::OwnedFd);

impl WarningSource for Button {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn take(&mut self) -> Result<Option<Reading>, WarningError> {
        let pressed = rustix::io::read(&self.0, &mut [0_u8; 8]).is_ok();
        Ok(pressed.then(|| Reading::new(State::Low, "the button")))
    }
}

#[test]
fn the_most_pessimistic_of_several_sources_counts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("power");
    let button = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let pressed = button.try_clone().unwrap();
    let mut warnings = watched(&path);
    warnings.add(Box::new(Button(button)));
    assert_eq!(warnings.descriptors().count(), 2);
    std::fs::write(&path, "on-battery 1m").unwrap();
    assert_eq!(warnings.look().state, State::OnBattery);
    rustix::io::write(&pressed, &1_u64.to_ne_bytes()).unwrap();
    assert_eq!(warnings.wait_for(State::Low).to_string(), "the button");
    std::fs::write(&path, "steady").unwrap();
    assert_eq!(warnings.news().unwrap().to_string(), "the button");
    std::fs::write(&path, "ending").unwrap();
    assert_eq!(warnings.look().to_string(), format!("{}: ending", path.display()));
}
