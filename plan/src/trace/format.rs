//! The formats: their names on the command line, and what each is.

use std::fmt;

/// A format of traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// This project's own binary traces.
    Ptrace,
    /// MSR Cambridge CSV.
    Msr,
}

impl Format {
    /// All of them, in the order in which they are shown.
    pub const ALL: &[Format] = &[Format::Ptrace, Format::Msr];

    /// Its name, as `--format` takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Ptrace => "ptrace",
            Format::Msr => "msr",
        }
    }

    /// The format of that name.
    pub fn parse(name: &str) -> Option<Format> {
        Format::ALL.iter().copied().find(|format| format.name() == name)
    }

    /// What it is, in a line.
    pub const fn describe(self) -> &'static str {
        match self {
            Format::Ptrace => "binary, as perdura plan record writes it",
            Format::Msr => {
                "MSR Cambridge CSV: time (Windows, 100 ns), host, disk, Read or Write, offset, bytes, response time"
            }
        }
    }

    /// All names, for messages.
    pub(crate) fn names() -> String {
        Format::ALL.iter().map(|format| format.name()).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Format {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.name())
    }
}
