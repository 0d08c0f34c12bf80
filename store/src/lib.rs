//! Perdura room: store.
