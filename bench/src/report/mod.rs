//! Results: what they hold, as JSON and as a page.

mod result;

pub use result::{Configuration, SideResult, YcsbResult};
