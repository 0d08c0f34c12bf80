//! The mistakes in profiles.

use std::io;

/// Why a text is no profile, or cannot be read. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// No built-in profile has this name.
    #[error("no profile is called \"{name}\"; there are {known}; a path of a TOML file works, too")]
    NoSuch {
        /// The name as given.
        name: String,
        /// Names of the built-in profiles.
        known: String,
    },
    /// No link has this name.
    #[error("profile {profile}: no link is called \"{name}\"; there are none, {known}")]
    NoSuchLink {
        /// The profile that asked for the link.
        profile: String,
        /// The name as given.
        name: String,
        /// Names of the links.
        known: String,
    },
    /// The file cannot be read.
    #[error("profile {name} cannot be read: {source}")]
    Unreadable {
        /// Path of the file.
        name: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The text is not TOML, or has keys that no profile has.
    #[error("profile {name}: {source}")]
    Syntax {
        /// Name of the profile.
        name: String,
        /// Place and cause.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// A value does not fit its key.
    #[error("profile {name}: {key} = {value}: {expected}")]
    Value {
        /// Name of the profile.
        name: String,
        /// Table and key.
        key: String,
        /// The value as given.
        value: String,
        /// The values that would fit.
        expected: String,
    },
    /// A required key is missing here and in all bases.
    #[error("profile {name}: {key} is missing: {expected}")]
    Missing {
        /// Name of the profile.
        name: String,
        /// Table and key.
        key: String,
        /// The expected value.
        expected: &'static str,
    },
}
