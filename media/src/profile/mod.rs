//! What a medium and its link are said to be: latency, bandwidth, power, price, each with its
//! source.
//!
//! A profile is a TOML text. What it does not say it takes from the profile it names as its `base`;
//! the link is named or described in place. Every text is validated whole before anything is built
//! on it: unknown keys, missing units, negative numbers and contradictions are errors that name the
//! profile, the key and the value. Built-in profiles lie in `media/profiles/`; each number there
//! has its source beside it (a test holds them to it).

mod builtin;
mod document;
mod error;
mod resolve;
mod server;
#[cfg(test)]
mod tests;

use std::path::Path;

pub use builtin::{links, names};
pub use error::ProfileError;
pub use server::{Modules, Processor, Server};

use crate::units::{Bytes, BytesPerSecond, Picoseconds, Watts};
use document::Document;

/// A medium behind a link, as many modules of it as there are: all that a model needs to know.
#[derive(Clone, Debug, PartialEq)]
pub struct System {
    /// What it is called.
    pub name: String,
    /// What it is, in a sentence.
    pub about: String,
    /// The memory itself.
    pub medium: Medium,
    /// What lies between it and the processor; `None`: the medium alone, as its data sheet has it.
    pub link: Option<Link>,
    /// How many modules (disks, cards, DIMMs) share the addresses.
    pub modules: u32,
    /// What one module holds.
    pub module_capacity: Bytes,
    /// What one module draws.
    pub power: Power,
    /// What it costs, and how long it lasts.
    pub cost: Cost,
    /// The server that it is part of, where measurements of that server were published.
    pub server: Option<Server>,
    /// Where each number is from: key (as in the text, such as `medium.read_latency`) and source.
    pub sources: Vec<(String, String)>,
}

/// One module of a medium.
#[derive(Clone, Debug, PartialEq)]
pub struct Medium {
    /// What is accessed as one: a line, a row buffer's part, a flash page, a sector.
    pub granule: Bytes,
    /// To the first granule of a read.
    pub read_latency: Picoseconds,
    /// To the first granule of a write.
    pub write_latency: Picoseconds,
    /// To a granule behind the last one that was read.
    pub sequential_read_latency: Picoseconds,
    /// To a granule behind the last one that was written.
    pub sequential_write_latency: Picoseconds,
    /// Moving to another place: nearest and farthest. Zero but for disks.
    pub positioning: (Picoseconds, Picoseconds),
    /// Parts of a module that work at the same time.
    pub units: u32,
    /// How much lies on one unit before the next has its turn.
    pub interleave: Bytes,
    /// What one unit reads, granule behind granule.
    pub read_bandwidth: BytesPerSecond,
    /// What one unit writes, granule behind granule.
    pub write_bandwidth: BytesPerSecond,
    /// What one unit reads, each granule somewhere else.
    pub random_read_bandwidth: BytesPerSecond,
    /// What one unit writes, each granule somewhere else.
    pub random_write_bandwidth: BytesPerSecond,
    /// Per unit; a write that finds room in it is done when it is there.
    pub write_buffer: Bytes,
    /// From how many writes at once on a unit they slow each other down, and by what factor.
    pub write_contention: Option<(u32, f64)>,
}

/// What lies between a medium and the processor.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// What it is called.
    pub name: String,
    /// What it is, in a sentence.
    pub about: String,
    /// Bytes to the device.
    pub to_device: BytesPerSecond,
    /// Bytes from the device.
    pub from_device: BytesPerSecond,
    /// Whether both directions share the wires.
    pub half_duplex: bool,
    /// One way; once a request, or once for the lines that are in flight together.
    pub latency: Picoseconds,
    /// Fixed time of each request in the controller.
    pub request: Picoseconds,
    /// The part of that during which the controller takes no other request.
    pub command: Picoseconds,
    /// What is paid for.
    pub pays: Pays,
}

/// How a link asks a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pays {
    /// Once for a request of any length (PCIe, SATA).
    Request,
    /// For each line, so many of them at a time (a memory bus; HASTE slides, "DDR Performance
    /// Trend").
    Line {
        /// A line.
        line: Bytes,
        /// Lines of one request that are waited for together.
        in_flight: u32,
    },
}

/// What one module draws.
#[derive(Clone, Debug, PartialEq)]
pub struct Power {
    /// With nothing to do.
    pub idle: Watts,
    /// With requests now and then.
    pub active: Watts,
    /// With request behind request.
    pub peak: Watts,
    /// Idle time before a request, and what is drawn on average at such intervals; ascending.
    /// Empty: idle between requests, active during them.
    pub by_interval: Vec<(Picoseconds, Watts)>,
}

/// What a medium costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// Year and euro per GB (10^9 B), ascending by year.
    pub eur_per_gb: Vec<(u16, f64)>,
    /// How often a cell may be written; `None`: more often than anybody does.
    pub endurance_writes: Option<f64>,
}

impl System {
    /// A built-in profile by its name, or a file by its path (whatever has a `/` or ends in
    /// `.toml`).
    ///
    /// # Errors
    /// There is none of that name, or the text is no profile: which key, which value, what was
    /// expected.
    pub fn find(text: &str) -> Result<Self, ProfileError> {
        if text.contains('/') || text.ends_with(".toml") {
            return Self::from_file(Path::new(text));
        }
        match builtin::text(text) {
            Some(found) => Self::from_toml(text, found),
            None => Err(ProfileError::NoSuch { name: text.to_owned(), known: names().join(", ") }),
        }
    }

    /// A profile from a file, of at most 1 MiB.
    ///
    /// # Errors
    /// It cannot be read, or it is no profile.
    pub fn from_file(path: &Path) -> Result<Self, ProfileError> {
        let name = path.display().to_string();
        let text = builtin::read(path)
            .map_err(|source| ProfileError::Unreadable { name: name.clone(), source })?;
        Self::from_toml(&name, &text)
    }

    /// A profile from its text; `name` says in errors which.
    ///
    /// # Errors
    /// It is no profile.
    pub fn from_toml(name: &str, text: &str) -> Result<Self, ProfileError> {
        resolve::system(name, &Document::parse(name, text)?)
    }

    /// The same medium behind another link; `none` takes the link away.
    ///
    /// # Errors
    /// There is no link of that name.
    pub fn with_link(mut self, link: &str) -> Result<Self, ProfileError> {
        // The server was measured with its own link.
        self.server = None;
        self.link = if link == "none" { None } else { Some(resolve::link(&self.name, link)?) };
        if let Some(link) = &self.link {
            self.name = format!("{}+{}", self.name, link.name);
        }
        Ok(self)
    }

    /// All modules together.
    #[must_use]
    pub fn capacity(&self) -> Bytes {
        Bytes(self.module_capacity.0.saturating_mul(u64::from(self.modules)))
    }

    /// A year and the price of a GB (10^9 B) in it: of `year`, or the newest before it. `None`:
    /// none is known.
    #[must_use]
    pub fn eur_per_gb(&self, year: u16) -> Option<(u16, f64)> {
        let prices = &self.cost.eur_per_gb;
        prices.iter().rev().find(|(of, _)| *of <= year).copied()
    }
}
