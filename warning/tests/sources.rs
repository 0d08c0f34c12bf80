//! Sources of warnings, as a process meets them.

#![allow(clippy::unwrap_used)] // a test's own failure

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use perdura_warning::{CreatedFile, Signals, Warning, WarningError, WarningSource, Warnings, open};
use rustix::event::{EventfdFlags, eventfd};

fn watched(path: &Path) -> Warnings {
    CreatedFile::open(path).unwrap().into()
}

#[test]
fn a_signal_is_named_and_taken_once() {
    let mut signals = Signals::block().unwrap();
    assert_eq!(signals.take().unwrap(), None);
    // SAFETY: the signal goes to this thread, which blocks it: no handler runs.
    assert_eq!(unsafe { libc::raise(libc::SIGPWR) }, 0);
    let mut warnings = Warnings::from(Box::new(signals) as Box<dyn WarningSource>);
    assert_eq!(warnings.wait().to_string(), "SIGPWR");
    assert_eq!(warnings.take(), None);
}

#[test]
fn a_file_that_is_created_or_moved_there_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("on-battery");
    let mut warnings = watched(&path);
    std::fs::write(dir.path().join("other"), "").unwrap();
    assert_eq!(warnings.take(), None);
    std::fs::write(&path, "").unwrap();
    assert_eq!(warnings.wait().to_string(), format!("{} was created", path.display()));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(warnings.take(), None);
    std::fs::rename(dir.path().join("other"), &path).unwrap();
    std::fs::remove_file(&path).unwrap();
    // It is gone again, and was a warning all the same.
    assert_eq!(warnings.wait().to_string(), format!("{} was created", path.display()));
}

#[test]
fn a_file_that_exists_already_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("on-battery");
    std::fs::write(&path, "").unwrap();
    let Err(error) = open(&format!("file:{}", path.display())) else { panic!("opened") };
    assert!(matches!(error, WarningError::ExistsAlready { .. }), "{error}");
    let Err(error) = open("file:/no/such/directory/x") else { panic!("opened") };
    assert!(error.to_string().starts_with("watch /no/such/directory: "), "{error}");
}

#[test]
fn a_source_that_breaks_is_a_warning_once() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let mut warnings = watched(&inner.join("on-battery"));
    std::fs::remove_dir(&inner).unwrap();
    let told = warnings.wait().to_string();
    assert!(told.starts_with("a source that broke: ") && told.contains("was removed"), "{told}");
    assert_eq!(warnings.take(), None);
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

    fn take(&mut self) -> Result<Option<Warning>, WarningError> {
        let pressed = rustix::io::read(&self.0, &mut [0_u8; 8]).is_ok();
        Ok(pressed.then(|| Warning { told_by: "the button".into() }))
    }
}

#[test]
fn the_first_of_several_sources_that_tells_is_heeded() {
    let dir = tempfile::tempdir().unwrap();
    let button = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let pressed = button.try_clone().unwrap();
    let mut warnings = watched(&dir.path().join("on-battery"));
    warnings.add(Box::new(Button(button)));
    assert_eq!(warnings.descriptors().count(), 2);
    rustix::io::write(&pressed, &1_u64.to_ne_bytes()).unwrap();
    assert_eq!(warnings.wait().to_string(), "the button");
}
