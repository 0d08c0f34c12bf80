//! Perdura room: region.
