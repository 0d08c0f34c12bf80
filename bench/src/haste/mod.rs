//! `bench haste`: what fast non-volatile memories do to I/O-intensive work (HASTE, UCSD).
//!
//! `kernels` are the memory-hungry applications, with their data in capacity memory on a medium.

pub mod kernels;
