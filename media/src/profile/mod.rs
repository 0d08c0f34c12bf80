//! The description of a medium and its link: latency, bandwidth, power, price, each with its
//! source.
//!
//! A profile is a TOML text. Keys that it leaves out come from the profile that it names as its
//! `base`; the link is named or described in place. Every text is validated as a whole before it is
//! used: unknown keys, missing units, negative numbers and contradictions are errors that name the
//! profile, the key and the value. Built-in profiles are in `media/profiles/`; each number there
//! has its source beside it (a test checks that).

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

/// A medium behind a link, with the number of its modules: everything that a model needs.
#[derive(Clone, Debug, PartialEq)]
pub struct System {
    /// Name of the system.
    pub name: String,
    /// The system in a sentence.
    pub about: String,
    /// One module of the medium.
    pub medium: Medium,
    /// The link between the medium and the processor; `None` for the medium alone, as in its data
    /// sheet.
    pub link: Option<Link>,
    /// Number of modules (disks, cards, DIMMs) that share the addresses.
    pub modules: u32,
    /// Bytes of one module.
    pub module_capacity: Bytes,
    /// Power of one module.
    pub power: Power,
    /// Price and endurance.
    pub cost: Cost,
    /// The server of the system, if measurements of that server were published.
    pub server: Option<Server>,
    /// The source of each number: key (as in the text, such as `medium.read_latency`) and source.
    pub sources: Vec<(String, String)>,
}

/// One module of a medium.
#[derive(Clone, Debug, PartialEq)]
pub struct Medium {
    /// Bytes of one access: a line, a part of a row buffer, a flash page, a sector.
    pub granule: Bytes,
    /// Latency until the first granule of a read.
    pub read_latency: Picoseconds,
    /// Latency until the first granule of a write.
    pub write_latency: Picoseconds,
    /// Latency until a granule that follows the last read.
    pub sequential_read_latency: Picoseconds,
    /// Latency until a granule that follows the last write.
    pub sequential_write_latency: Picoseconds,
    /// Shortest and longest time of a move to another place. Zero except for disks.
    pub positioning: (Picoseconds, Picoseconds),
    /// Number of a module's parts that work at the same time.
    pub units: u32,
    /// Bytes on one unit before the next unit has its turn.
    pub interleave: Bytes,
    /// Bandwidth of one unit reading granules in sequence.
    pub read_bandwidth: BytesPerSecond,
    /// Bandwidth of one unit writing granules in sequence.
    pub write_bandwidth: BytesPerSecond,
    /// Bandwidth of one unit reading granules at random places.
    pub random_read_bandwidth: BytesPerSecond,
    /// Bandwidth of one unit writing granules at random places.
    pub random_write_bandwidth: BytesPerSecond,
    /// Write buffer of one unit. A write is done when it is in the buffer.
    pub write_buffer: Bytes,
    /// Number of simultaneous writes on a unit from which they slow each other down, and the
    /// factor.
    pub write_contention: Option<(u32, f64)>,
}

/// The link between a medium and the processor.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Name of the link.
    pub name: String,
    /// The link in a sentence.
    pub about: String,
    /// Bandwidth to the device.
    pub to_device: BytesPerSecond,
    /// Bandwidth from the device.
    pub from_device: BytesPerSecond,
    /// Whether both directions share the wires.
    pub half_duplex: bool,
    /// Latency of one way; once a request, or once for the lines that are in flight together.
    pub latency: Picoseconds,
    /// Fixed time of each request in the controller.
    pub request: Picoseconds,
    /// The part of `request` during which the controller takes no other request.
    pub command: Picoseconds,
    /// The unit that pays the latency.
    pub pays: Pays,
}

/// The unit of transfer that pays a link's latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pays {
    /// Each request, of any length (PCIe, SATA).
    Request,
    /// Each line, with so many in flight at a time (a memory bus; HASTE slides, "DDR Performance
    /// Trend").
    Line {
        /// Bytes of a line.
        line: Bytes,
        /// Lines of one request that are waited for together.
        in_flight: u32,
    },
}

/// Power of one module.
#[derive(Clone, Debug, PartialEq)]
pub struct Power {
    /// Power without requests.
    pub idle: Watts,
    /// Power with requests now and then.
    pub active: Watts,
    /// Power with one request behind the other.
    pub peak: Watts,
    /// Mean power at intervals of idle time before a request; ascending by interval. If empty, a
    /// module draws `idle` between requests and `active` during them.
    pub by_interval: Vec<(Picoseconds, Watts)>,
}

/// Price and endurance of a medium.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// Years and prices in euro per GB (10^9 B), ascending by year.
    pub eur_per_gb: Vec<(u16, f64)>,
    /// Number of times that a cell may be written; `None` if no use reaches it.
    pub endurance_writes: Option<f64>,
}

impl System {
    /// Finds a built-in profile by its name, or a file by its path (a text with a `/` or that ends
    /// in `.toml`).
    ///
    /// # Errors
    /// No profile has the name, or the text is no profile: the error names key, value, and the
    /// values expected.
    pub fn find(text: &str) -> Result<Self, ProfileError> {
        if text.contains('/') || text.ends_with(".toml") {
            return Self::from_file(Path::new(text));
        }
        match builtin::text(text) {
            Some(found) => Self::from_toml(text, found),
            None => Err(ProfileError::NoSuch { name: text.to_owned(), known: names().join(", ") }),
        }
    }

    /// Reads a profile from a file of at most 1 MiB.
    ///
    /// # Errors
    /// The file cannot be read, or is no profile.
    pub fn from_file(path: &Path) -> Result<Self, ProfileError> {
        let name = path.display().to_string();
        let text = builtin::read(path)
            .map_err(|source| ProfileError::Unreadable { name: name.clone(), source })?;
        Self::from_toml(&name, &text)
    }

    /// Reads a profile from its text. Errors name the profile by `name`.
    ///
    /// # Errors
    /// The text is no profile.
    pub fn from_toml(name: &str, text: &str) -> Result<Self, ProfileError> {
        resolve::system(name, &Document::parse(name, text)?)
    }

    /// The same medium behind another link; `none` takes the link away.
    ///
    /// # Errors
    /// No link has the name.
    pub fn with_link(mut self, link: &str) -> Result<Self, ProfileError> {
        // The server was measured with its own link.
        self.server = None;
        self.link = if link == "none" { None } else { Some(resolve::link(&self.name, link)?) };
        if let Some(link) = &self.link {
            self.name = format!("{}+{}", self.name, link.name);
        }
        Ok(self)
    }

    /// Bytes of all modules together.
    #[must_use]
    pub fn capacity(&self) -> Bytes {
        Bytes(self.module_capacity.0.saturating_mul(u64::from(self.modules)))
    }

    /// The year and the price of a GB (10^9 B), of `year` or the newest before. `None` if no price
    /// is known.
    #[must_use]
    pub fn eur_per_gb(&self, year: u16) -> Option<(u16, f64)> {
        let prices = &self.cost.eur_per_gb;
        prices.iter().rev().find(|(of, _)| *of <= year).copied()
    }
}
