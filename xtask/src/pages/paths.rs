//! Checks that the paths which pages and comments name exist in this repository.

use std::path::Path;

use anyhow::Result;

use super::markdown::Page;
use super::{Tree, Wrong};

/// Checks the words in backticks that begin with a folder of the repository, such as `heap/tests`.
pub fn in_page(page: &Page, tree: &Tree, wrong: &mut Wrong) {
    for (number, quoted) in page.quoted() {
        for path in expanded(quoted) {
            if begins_in(tree, &path) && !tree.has(Path::new(path.trim_end_matches('/'))) {
                let page = page.path.display();
                wrong.push(format!("{page}:{number}: there is no `{path}`"));
            }
        }
    }
}

/// Checks the pages that comments and messages of the code name, such as docs/format.md.
pub fn in_code(tree: &Tree, wrong: &mut Wrong) -> Result<()> {
    for file in tree.ending(".rs") {
        let text = tree.text(file)?;
        for (line, number) in text.lines().zip(1..) {
            for (at, _) in line.match_indices("docs/") {
                let is_a_part = line[..at].ends_with(|c: char| c.is_alphanumeric());
                let is_path = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '.');
                let path: String = line[at..].chars().take_while(is_path).collect();
                let path = path.trim_end_matches(['.', '/']);
                if !is_a_part && path.ends_with(".md") && !tree.has(Path::new(path)) {
                    wrong.push(format!("{}:{number}: there is no {path}", file.display()));
                }
            }
        }
    }
    Ok(())
}

/// Whether the text looks like a path that begins in a folder of the repository.
fn begins_in(tree: &Tree, text: &str) -> bool {
    let is_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '.');
    match text.split_once('/') {
        Some((first, rest)) => {
            let is_inside = !first.is_empty() && !rest.is_empty();
            is_inside && text.chars().all(is_path) && tree.has(Path::new(first))
        }
        None => false,
    }
}

/// Expands braces: `a/{b,c}.rs` becomes `a/b.rs` and `a/c.rs`.
fn expanded(text: &str) -> Vec<String> {
    match text.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
        Some((before, (names, after))) => {
            names.split(',').map(|name| format!("{before}{name}{after}")).collect()
        }
        None => vec![text.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_braces_are_paths_of_their_own() {
        assert_eq!(expanded("a/{b,c}.rs"), ["a/b.rs", "a/c.rs"]);
        assert_eq!(expanded("a/b.rs"), ["a/b.rs"]);
    }
}
