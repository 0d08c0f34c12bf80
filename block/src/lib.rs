//! A modelled medium as a block device: the path of a request through a driver.

pub mod path;
