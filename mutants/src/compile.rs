//! Makes the woven tree, and compiles it without the mutants that the compiler refuses.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::list::{self, Mutant};
use crate::weave::{self, Woven};

/// The packages whose tests may find a mutant.
pub const PACKAGES: [&str; 8] = [
    "perdura-dirty",
    "perdura-image",
    "perdura-region",
    "perdura-slots",
    "perdura-heap",
    "perdura-store",
    "perdura-server",
    "perdura-sim",
];

/// A test program.
#[derive(Debug, Clone)]
pub struct Program {
    /// Its name, which stays the same when it is compiled again.
    pub name: String,
    pub path: PathBuf,
    pub folder: PathBuf,
}

/// What compiling found.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Built {
    #[serde(skip)]
    pub programs: Vec<Program>,
    /// Keys of mutants that the compiler refuses.
    pub refused: BTreeSet<u64>,
    /// Keys of mutants that cannot lie behind a switch.
    #[serde(skip)]
    pub left_out: BTreeSet<u64>,
}

impl Built {
    /// Whether a mutant is not in the programs.
    pub fn is_left(&self, key: u64) -> bool {
        self.refused.contains(&key) || self.left_out.contains(&key)
    }
}

/// Weaves `mutants` of the tree `from` into the tree `into`, and compiles the tests there.
pub fn compile(from: &Path, into: &Path, mutants: &[Mutant]) -> Result<Built> {
    let state = into.join("target/built.json");
    let mut built: Built = if state.exists() { list::read(&state)? } else { Built::default() };
    for round in 0.. {
        let files = weave_all(from, into, mutants, &mut built)?;
        let (programs, errors) = cargo(into)?;
        if errors.is_empty() {
            built.programs = programs;
            built.refused.retain(|key| mutants.iter().any(|mutant| mutant.key == *key));
            list::write(&state, &built)?;
            return Ok(built);
        }
        let before = built.refused.len();
        for (file, at, text) in &errors {
            let woven = files.get(file).with_context(|| format!("{}: {text}", file.display()))?;
            let around = woven.regions.iter().filter(|(bytes, _)| bytes.contains(at));
            let inner = around.min_by_key(|(bytes, _)| bytes.len());
            // A match that lacks a case is blamed itself: the arm with a switch lies behind.
            let arm = |numbers: &[u32]| mutants[numbers[0] as usize].genre == "MatchArm";
            let behind = woven.regions.iter().find(|(bytes, of)| bytes.start > *at && arm(of));
            let inner = inner.or(behind.filter(|_| text.contains("E0004")));
            let Some((_, numbers)) = inner else {
                bail!("{}, byte {at}, outside of all mutants: {text}", file.display());
            };
            built.refused.extend(numbers.iter().map(|number| mutants[*number as usize].key));
        }
        list::write(&state, &built)?;
        let refused = built.refused.len();
        eprintln!("round {round}: {} errors, {refused} mutants refused", errors.len());
        ensure!(refused > before, "an error stays: {:?}", errors[0]);
    }
    Ok(built)
}

/// Writes all files of the tree that differ. Returns the woven ones.
fn weave_all(
    from: &Path,
    into: &Path,
    mutants: &[Mutant],
    built: &mut Built,
) -> Result<HashMap<PathBuf, Woven>> {
    let mut of: BTreeMap<&str, Vec<(u32, &Mutant)>> = BTreeMap::new();
    for (number, mutant) in (0..).zip(mutants) {
        let chosen = of.entry(&mutant.file).or_default();
        if !built.refused.contains(&mutant.key) {
            chosen.push((number, mutant));
        }
    }
    let key = |number: &u32| mutants[*number as usize].key;
    let mut files = HashMap::new();
    for (file, own) in of {
        let text = std::fs::read_to_string(from.join(file)).with_context(|| file.to_owned())?;
        let woven = weave::weave(&text, &own).with_context(|| file.to_owned())?;
        built.left_out.extend(woven.left_out.iter().map(key));
        write_if_other(&into.join(file), &woven.text)?;
        files.insert(PathBuf::from(file), woven);
    }
    add_switch(from, into)?;
    Ok(files)
}

/// Makes the switch a package of the tree that all woven packages depend on.
fn add_switch(from: &Path, into: &Path) -> Result<()> {
    let read =
        |path: &Path| std::fs::read_to_string(path).with_context(|| path.display().to_string());
    for file in ["Cargo.toml", "src/lib.rs"] {
        let path = into.join("mutant-switch").join(file);
        std::fs::create_dir_all(path.parent().context("a file in no folder")?)?;
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("switch").join(file);
        write_if_other(&path, &read(&here)?)?;
    }
    let root = read(&from.join("Cargo.toml"))?;
    let root = root.replacen("members = [", "members = [\n    \"mutant-switch\",", 1);
    write_if_other(&into.join("Cargo.toml"), &root)?;
    for package in PACKAGES {
        let manifest = Path::new(package.trim_start_matches("perdura-")).join("Cargo.toml");
        let mut text = read(&from.join(&manifest))?;
        text.push_str("\n[dependencies.mutant-switch]\npath = \"../mutant-switch\"\n");
        write_if_other(&into.join(&manifest), &text)?;
    }
    Ok(())
}

/// Leaves a file alone that has this text: cargo compiles what was written.
fn write_if_other(path: &Path, text: &str) -> Result<()> {
    if std::fs::read_to_string(path).is_ok_and(|now| now == text) {
        return Ok(());
    }
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

/// Where an error is, relative to the tree, in bytes, and what it says.
type Wrong = (PathBuf, usize, String);

/// Compiles the tests: the programs, and the errors.
fn cargo(tree: &Path) -> Result<(Vec<Program>, Vec<Wrong>)> {
    let mut command = Command::new("cargo");
    command.args(["build", "--tests", "--keep-going", "--message-format", "json"]);
    command.args(PACKAGES.iter().flat_map(|name| ["-p", name]));
    let done = command.current_dir(tree).stderr(Stdio::inherit()).output()?;
    let (mut programs, mut errors) = (Vec::new(), Vec::new());
    for line in String::from_utf8_lossy(&done.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        if message["reason"] == "compiler-message" && message["message"]["level"] == "error" {
            let said = message["message"]["rendered"].as_str().unwrap_or_default().to_owned();
            let spans = message["message"]["spans"].as_array().cloned().unwrap_or_default();
            for span in spans.iter().filter(|span| span["is_primary"] == true) {
                let file = span["file_name"].as_str().unwrap_or_default();
                let at = span["byte_start"].as_u64().unwrap_or_default() as usize;
                errors.push((PathBuf::from(file), at, said.clone()));
            }
        }
        if let Some(path) = message["executable"].as_str()
            && message["profile"]["test"] == true
        {
            let manifest = Path::new(message["manifest_path"].as_str().unwrap_or_default());
            let folder = manifest.parent().unwrap_or(tree).to_owned();
            let room = folder.file_name().unwrap_or_default().to_string_lossy();
            let target = message["target"]["name"].as_str().unwrap_or_default();
            let name = format!("{room}: {target}");
            programs.push(Program { name, path: path.into(), folder });
        }
    }
    ensure!(done.status.success() || !errors.is_empty(), "cargo failed without an error in code");
    Ok((programs, errors))
}
