//! Another program, started with a library loaded before its own.

mod check;
mod env_words;
mod preload;

pub use preload::{become_program, set, with_library};
