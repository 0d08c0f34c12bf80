//! Perdura room: heap.
