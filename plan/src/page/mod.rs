//! The pages of `plan`: what was counted in traces, and which memory to buy.

mod media;
mod trace;

pub use media::media_page;
pub use trace::trace_page;
