//! Tests of the parts of a region, through a region: what writes, compacts, commits and writes
//! ahead.

mod checkpoint;
mod compact;
mod prezero;
mod seal;
