//! Filling memory from the image: `table` sorts what a frame holds by its place in the region,
//! `newest` finds the newest copy of each grain, `loading` knows what is pending, `window` reads
//! and places, `compressed` decodes, and `drive` says who loads what.

mod buffers;
mod compressed;
mod drive;
mod loading;
mod newest;
mod table;
mod window;

pub use loading::{Loading, Target};
pub use table::{Parts, Table, Tally};
