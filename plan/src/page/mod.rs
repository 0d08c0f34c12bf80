//! The HTML pages of `plan trace` and `plan media`.

mod media;
mod trace;

pub use media::media_page;
pub use trace::trace_page;
