//! Tests of the readers of traces: the records that they read, and the errors that they report.

#![allow(clippy::unwrap_used)]

mod faults;
mod formats;
mod headers;
mod kept_inputs;
mod msr;
mod native;
mod packed;
mod parquet;
mod plain;
mod real;
mod support;
mod tables;
