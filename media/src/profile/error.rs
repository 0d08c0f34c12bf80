//! What can be wrong with a profile.

use std::io;

/// A text that is no profile, or no text at all. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// No built-in profile is called so.
    #[error("no profile is called \"{name}\"; there are {known}; a path of a TOML file works, too")]
    NoSuch {
        /// As given.
        name: String,
        /// Those that exist.
        known: String,
    },
    /// No link is called so.
    #[error("profile {profile}: no link is called \"{name}\"; there are none, {known}")]
    NoSuchLink {
        /// Where it was asked for.
        profile: String,
        /// As given.
        name: String,
        /// Those that exist.
        known: String,
    },
    /// The file cannot be read.
    #[error("profile {name} cannot be read: {source}")]
    Unreadable {
        /// Path.
        name: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// It is no TOML, or has keys that no profile has.
    #[error("profile {name}: {source}")]
    Syntax {
        /// Which profile.
        name: String,
        /// Place and cause.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// A value is not what its key wants.
    #[error("profile {name}: {key} = {value}: {expected}")]
    Value {
        /// Which profile.
        name: String,
        /// Table and key.
        key: String,
        /// As given.
        value: String,
        /// What would do.
        expected: String,
    },
    /// A key that must be there is not, and no base has it.
    #[error("profile {name}: {key} is missing: {expected}")]
    Missing {
        /// Which profile.
        name: String,
        /// Table and key.
        key: String,
        /// What is wanted.
        expected: &'static str,
    },
}
