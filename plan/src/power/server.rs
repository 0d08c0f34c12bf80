//! The times and energies of a server's flush: of all memory, and of a bounded part of it.

use std::time::Duration;

use perdura_dirty::geometry::Geometry;
use perdura_dirty::promise::largest_within;
use perdura_region::{Config, OpenError};
use serde::Serialize;

use super::{Battery, BatteryError, Cells};

/// How dirty bytes lie on the SSD after an emergency flush.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// Only the dirty bytes, as in the paper's arithmetic.
    Plain,
    /// The dirty bytes in an image as `perdura serve` promises it: with tables, checksums, and the
    /// half-done frames of a killed process, all at their worst.
    Image(#[serde(skip)] Geometry),
}

impl Layout {
    /// The layout of a server with so much memory.
    ///
    /// # Errors
    /// No image can have that memory.
    pub fn of_server(memory_bytes: u64) -> Result<Self, OpenError> {
        Ok(Self::Image(Config::new(memory_bytes, 0).geometry()?))
    }

    fn written_bytes(self, dirty_bytes: u64) -> u64 {
        match self {
            Self::Plain => dirty_bytes,
            Self::Image(geometry) => geometry.warned_bytes(dirty_bytes),
        }
    }
}

/// A machine that flushes, with its memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Server {
    /// The memory that must not be lost, bytes.
    pub memory_bytes: u64,
    /// The rate at which dirty bytes reach the SSD in an emergency, bytes a second.
    pub flush_bytes_per_s: u64,
    /// The rate at which an image is read again, bytes a second.
    pub load_bytes_per_s: u64,
    /// The power drawn during a flush, watts.
    pub watts: f64,
    /// The time kept for all but the writing, seconds.
    pub reserve_s: f64,
    /// The bytes that a flush writes in addition to the dirty bytes.
    pub layout: Layout,
}

impl Server {
    /// The paper's (Viyojit, sections 2.2 and 8): 32 modules of 128 GB, 4 GB/s, 300 W; it counts no
    /// reserve.
    pub const PAPER: Self = Self {
        memory_bytes: 4096 * 1_000_000_000,
        flush_bytes_per_s: 4_000_000_000,
        load_bytes_per_s: 4_000_000_000,
        watts: 300.0,
        reserve_s: 0.0,
        layout: Layout::Plain,
    };

    /// The time to flush `dirty_bytes`, reserve included, seconds.
    pub fn flush_s(&self, dirty_bytes: u64) -> f64 {
        let written_bytes = self.layout.written_bytes(dirty_bytes);
        written_bytes as f64 / self.flush_bytes_per_s.max(1) as f64 + self.reserve_s
    }

    /// The dirty bytes that can be flushed within a warning.
    pub fn budget_for_grace(&self, grace_s: f64) -> u64 {
        let time = Duration::try_from_secs_f64((grace_s - self.reserve_s).max(0.0));
        let time = time.unwrap_or(Duration::MAX);
        largest_within(self.flush_bytes_per_s, time, |bytes| self.layout.written_bytes(bytes))
    }

    /// Dirty bytes that a battery of a rating can carry through a flush.
    ///
    /// # Errors
    /// The errors of [`Cells::reliable_share`].
    pub fn budget_for_battery(
        &self,
        cells: &Cells,
        rated_joules: f64,
    ) -> Result<u64, BatteryError> {
        Ok(self.budget_for_grace(cells.reliable_joules(rated_joules)? / self.watts))
    }

    /// The time and battery for a flush of at most `dirty_bytes` dirty bytes.
    ///
    /// # Errors
    /// The errors of [`Cells::reliable_share`].
    pub fn backup(&self, dirty_bytes: u64, cells: &Cells) -> Result<Backup, BatteryError> {
        let flush_s = self.flush_s(dirty_bytes);
        Ok(Backup { dirty_bytes, flush_s, battery: cells.battery_for(flush_s * self.watts)? })
    }

    /// All memory against `budget_bytes` of it.
    ///
    /// # Errors
    /// The errors of [`Cells::reliable_share`].
    pub fn compare(&self, budget_bytes: u64, cells: &Cells) -> Result<Comparison, BatteryError> {
        Ok(Comparison {
            all_memory: self.backup(self.memory_bytes, cells)?,
            budget: self.backup(budget_bytes.min(self.memory_bytes), cells)?,
            load_s: self.memory_bytes as f64 / self.load_bytes_per_s.max(1) as f64,
        })
    }
}

/// A machine whose memory is not known yet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// The rate at which dirty bytes reach the SSD in an emergency, bytes a second.
    pub flush_bytes_per_s: u64,
    /// The rate at which an image is read again, bytes a second.
    pub load_bytes_per_s: u64,
    /// The power drawn during a flush, watts.
    pub watts: f64,
    /// The time kept for all but the writing, seconds.
    pub reserve_s: f64,
    /// The server proves the rate itself, and may find it so many times slower, 1 or more: what a
    /// limit allows is reckoned with that.
    pub rate_margin: f64,
    /// The cells of its battery.
    pub cells: Cells,
    /// The limit of a flush.
    pub limit: Limit,
}

/// The limit of a flush.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// There is no limit: the plan computes the battery.
    Open,
    /// A warning of so many seconds.
    Grace(f64),
    /// A battery of so many joules, as rated.
    Battery(f64),
}

impl Machine {
    /// The machine with so much memory.
    pub fn server(&self, memory_bytes: u64, layout: Layout) -> Server {
        let Self { flush_bytes_per_s, load_bytes_per_s, watts, reserve_s, .. } = *self;
        Server { memory_bytes, flush_bytes_per_s, load_bytes_per_s, watts, reserve_s, layout }
    }

    /// Most that may be dirty, if something limits it, at the rate less its margin. `server` is
    /// this machine with its memory.
    ///
    /// # Errors
    /// The errors of [`Cells::reliable_share`].
    pub fn budget_max(&self, server: &Server) -> Result<Option<u64>, BatteryError> {
        let flush_bytes_per_s = (server.flush_bytes_per_s as f64 / self.rate_margin) as u64;
        let server = Server { flush_bytes_per_s, ..*server };
        Ok(match self.limit {
            Limit::Open => None,
            Limit::Grace(grace_s) => Some(server.budget_for_grace(grace_s)),
            Limit::Battery(joules) => Some(server.budget_for_battery(&self.cells, joules)?),
        })
    }
}

/// The time and the battery for a flush. Every figure is modelled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Backup {
    /// The most bytes that may be dirty.
    pub dirty_bytes: u64,
    /// The time of the flush, reserve included, seconds: the warning that it needs, and the time of
    /// a shutdown.
    pub flush_s: f64,
    /// The battery for a flush.
    pub battery: Battery,
}

/// A flush of all memory beside one of a bounded part. Every figure is modelled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Comparison {
    /// The whole memory, as it is backed up today.
    pub all_memory: Backup,
    /// A bounded dirty set.
    pub budget: Backup,
    /// The time to read all memory from the SSD again after a restart, seconds. A program that
    /// needs all of it before its first answer waits so long; Perdura answers while it loads.
    pub load_s: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_server_needs_307_kj_17_minutes_and_over_25_phone_cells() {
        let plan = Server::PAPER.compare(Server::PAPER.memory_bytes / 100 * 11, &Cells::paper());
        let plan = plan.unwrap();
        let all = plan.all_memory;
        assert_eq!(all.battery.needed_joules, 307_200.0);
        assert!((all.flush_s / 60.0 - 17.07).abs() < 0.01);
        assert!((plan.load_s / 60.0 - 17.07).abs() < 0.01);
        // "about 10x the volume of a typical smart phone battery", before anything is taken off.
        assert!((10.0..12.0).contains(&(all.battery.needed_joules / Cells::PHONE_JOULES)));
        // "over 25x" after half is kept and cells are 30 % less dense; "over 250 $".
        assert!((25.0..35.0).contains(&all.battery.phone_cells), "{}", all.battery.phone_cells);
        assert!((all.battery.usd - 250.0).abs() < 0.5);
        // A budget of 11 % takes 11 % of it.
        assert!((plan.budget.battery.rated_joules / all.battery.rated_joules - 0.11).abs() < 1e-3);
    }

    #[test]
    fn a_budget_for_a_warning_is_flushed_within_it() {
        let server = Server { reserve_s: 2.0, ..Server::PAPER };
        let budget_bytes = server.budget_for_grace(30.0);
        assert!(budget_bytes.abs_diff(28 * 4_000_000_000) <= 4096);
        assert!(server.flush_s(budget_bytes) <= 30.0);
        assert_eq!(server.budget_for_grace(1.0), 0);
        let cells = Cells::default();
        let battery = server.backup(budget_bytes, &cells).unwrap().battery;
        let back = server.budget_for_battery(&cells, battery.rated_joules).unwrap();
        assert!(back.abs_diff(budget_bytes) <= 2 * 4096);
    }
    #[test]
    fn an_image_takes_longer_than_its_dirty_bytes() {
        let memory_bytes = 64 << 30;
        let layout = Layout::of_server(memory_bytes).unwrap();
        let server = Server { memory_bytes, layout, ..Server::PAPER };
        let plain = Server { layout: Layout::Plain, ..server };
        let more = server.flush_s(8 << 30) / plain.flush_s(8 << 30);
        assert!((1.1..1.2).contains(&more), "{more}");
        let budget_bytes = server.budget_for_grace(10.0);
        assert!(budget_bytes < plain.budget_for_grace(10.0));
        assert!(server.flush_s(budget_bytes) <= 10.0);
    }
}
