//! What of a region's memory is not on the SSD yet: the ledger that says so, the locks and traps by
//! which every write is noticed before it happens, the budget that bounds it, and the policies that
//! choose what is cleaned first.
//!
//! Nothing here knows the image or the SSD: a write that needs either (because its old bytes are
//! still owed to a closing epoch, or were not loaded yet) goes through a trait.

pub mod announce;
pub mod budget;
pub mod cache_padded;
pub mod count;
pub mod error;
pub mod event_count;
pub mod extent;
pub mod floor;
pub mod gathered;
pub mod geometry;
pub mod heat;
pub mod hints;
pub mod huge_pages;
pub mod kind;
pub mod lanes;
pub mod ledger;
pub mod locations;
pub mod memory;
pub mod observed;
pub mod planted;
pub mod policy;
pub mod promise;
pub mod rate;
pub mod stats;
pub mod summary;
pub mod sys;
pub mod tracked;
pub mod tracking;
pub mod waited;
pub mod written;
