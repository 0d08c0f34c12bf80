//! Follows the recipes of CONTRIBUTING.md to the letter on one copy of the sources, and runs the
//! commands that each recipe names.
//!
//! The copy stays in the target directory, so that a second run compiles only the crates that the
//! recipes change. Its packages of others are compiled once for it and for the fresh project of
//! `perdura/tests/fresh_project.rs`: the profiles of both are the same.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const PAGE: &str = include_str!("../../CONTRIBUTING.md");

const COMMAND: &str = "Add a command to `perdura`";
const POLICY: &str = "Add a cleaning policy";
const PROFILE: &str = "Add a media profile";
const WARNING: &str = "Add a source of warnings";
const RECIPES: [&str; 4] = [COMMAND, POLICY, PROFILE, WARNING];

/// A step that a recipe asks of its reader.
#[derive(Debug)]
enum Step {
    Create { path: String, text: String },
    AddBelow { path: String, line: String, text: String },
    Run { commands: String },
}

/// The steps under a heading.
fn steps(heading: &str) -> Vec<Step> {
    let heading = format!("\n### {heading}\n");
    let (_, recipe) = PAGE.split_once(&heading).unwrap_or_else(|| panic!("no recipe{heading}"));
    let recipe = recipe.split("\n### ").next().unwrap();
    let recipe = recipe.split("\n## ").next().unwrap();
    let mut steps = Vec::new();
    let (mut sentence, mut block) = (String::new(), None::<String>);
    for line in recipe.lines() {
        match (&mut block, line.starts_with("```")) {
            (None, true) => block = Some(String::new()),
            (None, false) if line.is_empty() => {}
            (None, false) => sentence = line.to_owned(),
            (Some(text), false) => *text += &format!("{line}\n"),
            (Some(text), true) => {
                steps.push(step(&sentence, std::mem::take(text)));
                block = None;
            }
        }
    }
    assert!(steps.iter().any(|step| matches!(step, Step::Run { .. })), "{heading} runs nothing");
    steps
}

/// The step that a block and the sentence before it describe.
fn step(sentence: &str, text: String) -> Step {
    let quoted: Vec<&str> = sentence.split('`').skip(1).step_by(2).collect();
    match (sentence.split(' ').next(), &quoted[..]) {
        (Some("Create"), [path]) => Step::Create { path: (*path).into(), text },
        (Some("In"), [path, line]) => {
            Step::AddBelow { path: (*path).into(), line: (*line).into(), text }
        }
        (Some("Run:"), []) => Step::Run { commands: text },
        _ => panic!("what is to be done with the block after {sentence:?}?"),
    }
}

/// All files of the working tree by their paths, with their contents.
fn sources() -> BTreeMap<PathBuf, Vec<u8>> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(workspace)
        .output()
        .unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8(listed.stdout).unwrap();
    let names = names.split_terminator('\0').map(PathBuf::from);
    // A file that cannot be read was deleted, and the deletion is not committed yet.
    names.filter_map(|name| fs::read(workspace.join(&name)).ok().map(|text| (name, text))).collect()
}

/// Applies one step to the sources.
fn change(sources: &mut BTreeMap<PathBuf, Vec<u8>>, step: &Step) {
    match step {
        Step::Run { .. } => {}
        Step::Create { path, text } => {
            let before = sources.insert(path.into(), text.clone().into_bytes());
            assert!(before.is_none(), "{path} exists already");
        }
        Step::AddBelow { path, line, text } => {
            let file = sources.get_mut(Path::new(path)).unwrap_or_else(|| panic!("no {path}"));
            let before = String::from_utf8(std::mem::take(file)).unwrap();
            let place = format!("\n{line}\n");
            let Some((above, below)) = before.split_once(&place) else {
                panic!("{path} has no line {line:?}: does the recipe say what is there by now?");
            };
            assert!(!below.contains(&place), "{path} has {line:?} twice");
            *file = format!("{above}{place}{text}{below}").into_bytes();
        }
    }
}

/// The folder of the copy, to which all recipes were applied.
fn copy() -> &'static Path {
    static COPY: OnceLock<PathBuf> = OnceLock::new();
    COPY.get_or_init(|| {
        let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("recipes");
        let mut wanted = sources();
        for heading in RECIPES {
            steps(heading).iter().for_each(|step| change(&mut wanted, step));
        }
        remove_others(&copy, Path::new(""), &wanted);
        for (name, text) in wanted {
            let to = copy.join(name);
            // Only changed files are written, because cargo compiles what was written.
            if fs::read(&to).ok().as_ref() != Some(&text) {
                fs::create_dir_all(to.parent().unwrap()).unwrap();
                fs::write(&to, text).unwrap();
            }
        }
        copy
    })
}

/// Removes the files of an earlier copy that are not wanted any more.
fn remove_others(copy: &Path, folder: &Path, wanted: &BTreeMap<PathBuf, Vec<u8>>) {
    let Ok(entries) = fs::read_dir(copy.join(folder)) else { return };
    for entry in entries.map(Result::unwrap) {
        let name = folder.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => remove_others(copy, &name, wanted),
            false if !wanted.contains_key(&name) => fs::remove_file(copy.join(&name)).unwrap(),
            false => {}
        }
    }
}

fn follow(heading: &str) {
    assert!(RECIPES.contains(&heading));
    for step in steps(heading) {
        if let Step::Run { commands } = step {
            commands.lines().for_each(|command| run(copy(), command));
        }
    }
}

fn run(copy: &Path, command: &str) {
    let mut words = command.split(' ');
    assert_eq!(words.next(), Some("cargo"), "{command}");
    let words: Vec<&str> = words.collect();
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .arg("--offline")
        .args(&words)
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside"))
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
        .env("CARGO_PROFILE_TEST_OPT_LEVEL", "0")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_PROFILE_TEST_DEBUG", "0")
        .current_dir(copy)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}:\n{said}");
    let out = String::from_utf8_lossy(&output.stdout);
    let is_test = words.first() == Some(&"test");
    assert!(!is_test || out.contains("test result: ok."), "{command}:\n{out}");
}

#[test]
fn a_command_is_added_by_its_recipe() {
    follow(COMMAND);
}

#[test]
fn a_cleaning_policy_is_added_by_its_recipe() {
    follow(POLICY);
}

#[test]
fn a_media_profile_is_added_by_its_recipe() {
    follow(PROFILE);
}

#[test]
fn a_source_of_warnings_is_added_by_its_recipe() {
    follow(WARNING);
}
