//! Filling memory from the image. `table` sorts the extents of a frame by their place in the
//! region, `newest` finds the newest copy of each grain, `loading` has the state of what is
//! pending, `window` reads frames and places grains, `compressed` decodes, and `drive` loads
//! segments, blocks or everything, in the `order` of what was hot; `give_way` lets those who wait
//! go first.

mod buffers;
mod compressed;
mod drive;
mod give_way;
mod loading;
mod newest;
mod order;
mod table;
mod window;

pub use loading::{Loading, Target};
pub(crate) use table::{Parts, Table, Tally};
