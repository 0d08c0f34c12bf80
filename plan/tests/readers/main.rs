//! Readers of traces: what they make of each format, and what they say of what is wrong.

#![allow(clippy::unwrap_used)]

mod faults;
mod formats;
mod headers;
mod msr;
mod native;
mod packed;
mod parquet;
mod plain;
mod real;
mod support;
mod tables;
