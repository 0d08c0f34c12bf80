//! Loads and stores of measured memory in the machine's own instructions, and the memory itself.
//!
//! Each access is a few lines of assembly: a compiler would leave out a load whose value nobody
//! uses, and choose other instructions than those that are asked for.

pub mod pages;
pub mod portable;
#[cfg(target_arch = "x86_64")]
pub mod x86;
