//! Small applications of the kinds that pMem was measured with, each over several ways to the same
//! data.
//!
//! An application (`kinds`) is written against `access` only. A way (`ways`) is a heap, plain
//! memory, a RAM disk, mapped files or files on a device. `measure` runs all ways of an application
//! in turn, compares digests of their results, and reports calls, time and memory; `pages` measures
//! the cost of a page by each way.
//!
//! All inputs are made from a seed, and all ways get the same bytes.

pub mod access;
pub mod args;
pub mod error;
pub mod gauge;
pub mod kinds;
pub mod measure;
pub mod pages;
pub mod scratch;
pub mod show;
pub mod ways;

mod sys;
