//! Orderings that are weakened, one line at a time, to prove that a model finds it.
//!
//! A planted ordering is a line of the checked code, found by its text. Every access of the line
//! becomes relaxed, and a fence in it is left out. An access that is relaxed anyway is left out.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::Location;
use std::path::Path;
use std::sync::atomic::Ordering::{self, Relaxed};

/// A line of the checked code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    /// The file, from the root of the repository.
    pub file: &'static str,
    /// The number of the line, from 1.
    pub number: u32,
}

/// Where the fence of a sequentially consistent access stands. loom knows such fences, but takes
/// such accesses for acquire and release. A full fence on one side of each access gives what the
/// access promises; two fences would give more. So a model has to hold with either, and a weaker
/// ordering is found if it fails with one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fences {
    /// Behind each store and read-modify-write, as x86-64 compiles them.
    AfterStores,
    /// Before each load and read-modify-write.
    BeforeLoads,
}

thread_local! {
    static WEAKENED: RefCell<Option<Line>> = const { RefCell::new(None) };
    static STRONG: RefCell<BTreeSet<Line>> = const { RefCell::new(BTreeSet::new()) };
    static FENCES: Cell<Fences> = const { Cell::new(Fences::AfterStores) };
}

/// Weakens a line, or none, and places the fences, for the models that this thread runs next.
pub(crate) fn set(weakened: Option<Line>, fences: Fences) {
    WEAKENED.set(weakened);
    FENCES.set(fences);
}

/// Takes the lines that used an ordering stronger than relaxed since the last call.
pub(crate) fn take_strong() -> BTreeSet<Line> {
    STRONG.take()
}

pub(crate) fn fences() -> Fences {
    FENCES.get()
}

/// The ordering of an access at `place` that asks for `order`; `None` if it is left out.
pub(crate) fn order_at(place: &'static Location<'static>, order: Ordering) -> Option<Ordering> {
    let file = place.file().rsplit("../").next().unwrap_or_default();
    let line = Line { file, number: place.line() };
    if WEAKENED.with_borrow(|weakened| weakened.as_ref() == Some(&line)) {
        return if order == Relaxed { None } else { Some(Relaxed) };
    }
    if order != Relaxed {
        STRONG.with_borrow_mut(|strong| strong.insert(line));
    }
    Some(order)
}

/// The text of a file of this repository, without its tests.
pub(crate) fn code(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    let text = std::fs::read_to_string(&path);
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.split("#[cfg(test)]\nmod ").next().unwrap_or_default().to_owned()
}

/// The one line of `file` that contains `text`.
pub(crate) fn line_of(file: &'static str, text: &str) -> Line {
    let code = code(file);
    let mut found = code.lines().zip(1..).filter(|(line, _)| line.contains(text));
    let number = found.next().map(|(_, number)| number);
    assert!(found.next().is_none(), "{file}: several lines have {text:?}");
    let number = number.unwrap_or_else(|| panic!("{file}: no line has {text:?}"));
    Line { file, number }
}
