//! Plans: how much battery or which memory to buy, and how to set it, from numbers and from traces.
//! Figures that follow from a model are labelled as modelled.

pub mod media;
pub mod page;
pub mod pod;
pub mod power;
pub mod record;
pub mod report;
pub mod shards;
pub mod sizing;
pub mod skew;
pub mod trace;
