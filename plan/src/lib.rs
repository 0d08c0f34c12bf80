//! Plans: what to buy and how to set it, from numbers. Everything here is modelled; nothing is measured.

pub mod media;
