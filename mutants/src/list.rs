//! The list of mutants, as `cargo mutants --list --json` writes it.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use anyhow::{Context, Result, ensure};
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
    pub span: Span,
}

/// One mutant, as cargo-mutants describes it. Its number is its place in the list, which changes
/// with the list.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Mutant {
    pub name: String,
    pub package: String,
    pub file: String,
    pub function: Option<Function>,
    pub span: Span,
    pub replacement: String,
    pub genre: String,
    /// What is found out about a mutant is kept under its key, which stays the same as long as the
    /// text of its function does.
    #[serde(skip)]
    pub key: u64,
}

/// Reads the list of the mutants of the tree `from`.
pub fn mutants(path: &Path, from: &Path) -> Result<Vec<Mutant>> {
    let mut all: Vec<Mutant> = read(path)?;
    let mut texts: HashMap<String, String> = HashMap::new();
    for mutant in &mut all {
        if !texts.contains_key(&mutant.file) {
            let text = std::fs::read_to_string(from.join(&mutant.file))
                .with_context(|| mutant.file.clone())?;
            texts.insert(mutant.file.clone(), text);
        }
        mutant.key = key(mutant, &texts[&mutant.file]);
    }
    let mut keys: Vec<u64> = all.iter().map(|mutant| mutant.key).collect();
    keys.sort_unstable();
    ensure!(keys.windows(2).all(|two| two[0] != two[1]), "two mutants are the same");
    Ok(all)
}

fn key(mutant: &Mutant, file: &str) -> u64 {
    let Mutant { function, span, .. } = mutant;
    let (first, last) = match function {
        Some(function) => (function.span.start.line, function.span.end.line),
        None => (span.start.line, span.end.line),
    };
    let mut hasher = DefaultHasher::new();
    for line in file.lines().skip(first - 1).take(last + 1 - first) {
        line.trim().hash(&mut hasher);
    }
    let name = function.as_ref().map(|function| &function.function_name);
    let place = (span.start.line - first, span.start.column);
    (&mutant.file, name, place, &mutant.genre, &mutant.replacement).hash(&mut hasher);
    hasher.finish()
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
