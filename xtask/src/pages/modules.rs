//! Checks that each file of code is compiled: it is the root of a target, or other code names it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{Tree, Wrong, resolve};

/// The folders in which each file, and each folder's `main.rs`, is the root of a program.
const PROGRAMS: [&str; 4] = ["tests", "examples", "benches", "src/bin"];

pub fn check(tree: &Tree, wrong: &mut Wrong) -> Result<()> {
    let manifests = tree.ending("Cargo.toml").map(|path| Ok((path, tree.text(path)?)));
    let manifests = manifests.collect::<Result<Vec<_>>>()?;
    let code = tree.ending(".rs").map(|path| Ok((path, tree.text(path)?)));
    let code = code.collect::<Result<Vec<_>>>()?;
    for orphan in orphans(&manifests, &code) {
        let orphan = orphan.display();
        wrong.push(format!("{orphan}: not compiled: no `mod`, path, include or manifest names it"));
    }
    Ok(())
}

/// The files that are the root of no target and that no other code names.
fn orphans<'p>(manifests: &[(&Path, String)], code: &[(&'p Path, String)]) -> Vec<&'p Path> {
    let packages: BTreeSet<&Path> =
        manifests.iter().filter_map(|(path, _)| path.parent()).collect();
    let begins = code.iter().filter(|(path, _)| begins_target(path, &packages));
    let mut named: BTreeSet<PathBuf> = begins.map(|(path, _)| path.to_path_buf()).collect();
    for (path, text) in manifests {
        named.extend(quoted(path, text, &["path = \""]));
    }
    for (path, text) in code {
        named.extend(quoted(path, text, &["#[path = \"", "include!(\"", "include_str!(\""]));
    }
    let mut modules = BTreeSet::new();
    for (path, text) in code {
        // The modules of a mod.rs, and of a file that a target or a path names, lie beside the
        // file.
        let is_beside = named.contains(*path) || path.ends_with("mod.rs");
        let folder = if is_beside { path.parent().map(Path::to_owned) } else { None };
        let folder = folder.unwrap_or_else(|| path.with_extension(""));
        modules.extend(declared(text).map(|module| folder.join(module)));
    }
    let is_reached = |path: &Path| {
        let module = if path.ends_with("mod.rs") {
            path.parent().map(Path::to_owned).unwrap_or_default()
        } else {
            path.with_extension("")
        };
        named.contains(path) || modules.contains(&module)
    };
    code.iter().map(|(path, _)| *path).filter(|path| !is_reached(path)).collect()
}

/// Whether the file is the root of a library or program that cargo finds by its place.
fn begins_target(path: &Path, packages: &BTreeSet<&Path>) -> bool {
    let Some(package) = path.ancestors().skip(1).find(|folder| packages.contains(folder)) else {
        return false;
    };
    let inside = path.strip_prefix(package).unwrap_or(path);
    if ["build.rs", "src/lib.rs", "src/main.rs"].iter().any(|first| inside == Path::new(first)) {
        return true;
    }
    PROGRAMS.iter().filter_map(|folder| inside.strip_prefix(folder).ok()).any(|program| {
        let parts = program.components().count();
        parts == 1 || (parts == 2 && program.ends_with("main.rs"))
    })
}

/// The files of code that `text` names in quotation marks after one of `openings`.
fn quoted(path: &Path, text: &str, openings: &[&str]) -> Vec<PathBuf> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let found = openings.iter().flat_map(|opening| text.split(opening).skip(1));
    let names =
        found.filter_map(|rest| rest.split('"').next()).filter(|name| name.ends_with(".rs"));
    names.filter_map(|name| resolve(folder, name, path)).collect()
}

/// The modules that a file declares and whose code is in other files.
fn declared(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let mut words = line.trim().strip_suffix(';')?.split(' ').rev();
        let name = words.next()?;
        (words.next()? == "mod" && words.all(|word| word.starts_with("pub"))).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_no_code_names_is_found() {
        let manifests = [
            (Path::new("a/Cargo.toml"), String::new()),
            (Path::new("fuzz/Cargo.toml"), "path = \"targets/x.rs\"\n".into()),
        ];
        let code = [
            ("a/build.rs", ""),
            ("a/src/lib.rs", "mod one;\n    pub(crate) mod two;\n// mod three;\nmod four {}\n"),
            ("a/src/one.rs", "#[cfg(test)]\nmod tests;\n"),
            ("a/src/one/tests.rs", ""),
            ("a/src/one/lost.rs", "mod lost;\n"),
            ("a/src/two/mod.rs", "#[path = \"../elsewhere.rs\"]\nmod e;\npub mod deep;\n"),
            ("a/src/two/deep.rs", ""),
            ("a/src/elsewhere.rs", ""),
            ("a/src/three.rs", ""),
            ("a/src/four.rs", ""),
            ("a/src/bin/program.rs", "mod one;\n"),
            ("a/tests/top.rs", "mod shared;\ninclude!(\"all/cases.rs\");\n"),
            ("a/tests/shared/mod.rs", ""),
            ("a/tests/all/main.rs", "mod part;\n"),
            ("a/tests/all/part.rs", ""),
            ("a/tests/all/cases.rs", ""),
            ("a/tests/all/lost.rs", ""),
            ("fuzz/targets/x.rs", ""),
            ("fuzz/targets/y.rs", ""),
        ];
        let code = code.map(|(path, text)| (Path::new(path), text.to_owned()));
        let lost = [
            "a/src/one/lost.rs",
            "a/src/three.rs",
            "a/src/four.rs",
            "a/tests/all/lost.rs",
            "fuzz/targets/y.rs",
        ];
        assert_eq!(orphans(&manifests, &code), lost.map(Path::new));
    }
}
