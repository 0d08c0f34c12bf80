//! Page writes of a live program, as a trace.
