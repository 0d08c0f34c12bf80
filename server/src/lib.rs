//! Perdura room: server.
