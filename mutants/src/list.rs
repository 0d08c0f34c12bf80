//! The list of mutants, as `cargo mutants --list --json` writes it, and what became of each.

use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// A place in a file; both numbers begin at one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Span {
    pub start: Place,
    pub end: Place,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Function {
    pub function_name: String,
}

/// One mutant, as cargo-mutants describes it. Its number is its place in the list.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Mutant {
    pub name: String,
    pub package: String,
    pub file: String,
    pub function: Option<Function>,
    pub span: Span,
    pub replacement: String,
    pub genre: String,
}

/// Reads a list.
pub fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// Writes a list, whole or not at all.
pub fn write(path: &Path, value: &impl Serialize) -> Result<()> {
    let new = path.with_extension("new");
    std::fs::write(&new, serde_json::to_vec(value)?)?;
    Ok(std::fs::rename(&new, path)?)
}
