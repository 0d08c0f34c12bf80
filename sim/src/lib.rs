//! Deterministic exploration of failures: the machine is cut off, and the state after a restart is
//! compared with an oracle.
//!
//! Region, heap and store run here as they do on a real machine, on a simulated device and clock,
//! without threads: a seed decides everything, so a failure is replayed from its seed.

pub mod cut;
pub mod far;
pub mod history;
pub mod order;
