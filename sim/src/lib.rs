//! Perdura room: sim.
