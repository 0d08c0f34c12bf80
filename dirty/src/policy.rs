//! Policies: which dirty data to clean first. Pure code, which is given numbers and returns a rank.
//!
//! A [`Policy`] gives every dirty *unit* (a page in trap mode, 1 KiB in barrier mode) a rank: the
//! higher, the sooner it is cleaned. The cleaner finds the lowest rank that gives enough bytes
//! ([`floor_rank`]) and copies the units from that rank on in address order. So every policy costs
//! the writer a store or two, and cleaning stays sequential in memory.
//!
//! A policy is one file behind the trait [`Policy`] and one line in `kind.rs`; the region's cleaner
//! and the plan's replay then run the same code. CONTRIBUTING.md has the recipe.

mod clock_pro;
mod fifo;
mod floor;
pub mod hands;
mod kind;
mod least_recently_updated;
pub mod pace;
mod pressure;
mod random;
mod rank;
pub mod sampling;
mod segmented;
pub mod space;

pub use floor::floor_rank;
pub use kind::PolicyKind;
pub use pressure::next_round;
pub(crate) use pressure::{lead, pressure, threshold};
pub use rank::{Mark, Policy, RankedBy, View};
