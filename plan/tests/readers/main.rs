//! Readers of traces: what they make of each format, and what they say of what is wrong.

mod faults;
mod msr;
mod native;
mod real;
mod support;
