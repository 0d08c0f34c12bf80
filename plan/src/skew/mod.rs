//! The paper's analysis of a trace (Viyojit, section 3): how much is written in the worst interval, and how skewed writes are.
