//! Checks that docs/concurrency.md names every struct and static of the product that holds a lock
//! or a lock-free word, and that each test which the page names exists.
//!
//! A struct counts if the text of its fields has the name of a lock or an atomic that is not
//! borrowed. The check reads text and knows no types, so it may ask for a row that is not needed.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use super::markdown::Page;
use super::{Tree, Wrong};

/// The rooms whose locks the page lists.
const ROOMS: [&str; 17] = [
    "media",
    "dirty",
    "image",
    "region",
    "heap",
    "slots",
    "store",
    "server",
    "plan",
    "sim",
    "perdura",
    "capi",
    "interpose",
    "cli",
    "python",
    "warning",
    "terminal",
];
const LOCKS: [&str; 7] =
    ["Mutex", "RwLock", "Condvar", "OnceLock", "Waited", "FaultLock", "Ranked"];

pub fn check(page: &Page, tree: &Tree, wrong: &mut Wrong) -> Result<()> {
    let named: BTreeSet<&str> = page.quoted().map(|(_, quoted)| quoted).collect();
    let mut functions = BTreeSet::new();
    for path in tree.ending(".rs") {
        let text = tree.text(path)?;
        functions.extend(text.split("fn ").skip(1).map(|rest| word(rest).to_owned()));
        if is_listed(path) {
            for holder in holders(&text) {
                if !named.contains(holder.as_str()) {
                    let path = path.display();
                    wrong.push(format!("docs/concurrency.md lacks `{holder}` of {path}"));
                }
            }
        }
    }
    for (number, quoted) in page.quoted() {
        let is_test = quoted.matches('_').count() > 2 && !quoted.contains(['/', ' ', ':']);
        if is_test && !functions.contains(quoted) {
            wrong.push(format!("docs/concurrency.md:{number}: there is no test `{quoted}`"));
        }
    }
    Ok(())
}

/// Whether the file is code of a listed room, and not of its tests.
fn is_listed(path: &Path) -> bool {
    let text = path.to_string_lossy();
    let is_test = text.ends_with("tests.rs") || text.contains("/tests/");
    !is_test && ROOMS.iter().any(|room| text.starts_with(&format!("{room}/src/")))
}

/// The structs and statics of a file that hold a lock or an atomic, without those of its tests.
fn holders(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let code: Vec<&str> =
        text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let code = code.join("\n");
    let mut holders = Vec::new();
    for (keyword, end) in [("struct ", ['}', ';']), ("static ", ['=', ';'])] {
        for (at, _) in code.match_indices(keyword) {
            let is_word = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            // `'static` is a lifetime and no item.
            if !is_word || code[..at].ends_with('\'') {
                continue;
            }
            let rest = &code[at + keyword.len()..];
            let body = &rest[..rest.find(end).unwrap_or(rest.len())];
            if body.split([',', '(', '{', ':']).any(holds) {
                holders.push(word(rest).to_owned());
            }
        }
    }
    holders
}

/// Whether a part of a type names a lock or an atomic that is owned.
fn holds(part: &str) -> bool {
    let part = part.trim();
    !part.starts_with(['&', '*'])
        && part
            .split(|c: char| !c.is_alphanumeric())
            .any(|word| LOCKS.contains(&word) || word.starts_with("Atomic") && word != "Atomic")
}

/// The identifier that the text begins with.
fn word(text: &str) -> &str {
    let is_end = |c: char| !c.is_alphanumeric() && c != '_';
    &text[..text.find(is_end).unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_and_statics_with_locks_are_found_and_borrowed_ones_are_not() {
        let text = "pub struct A<T> { // Mutex\n    a: CachePadded<AtomicU64>,\n}\n\
                    struct B(Mutex<u8>);\nstruct C<'a> { b: &'a AtomicU8 }\n\
                    static D: OnceLock<u8> = OnceLock::new();\n\
                    struct E { e: &'static str }\n#[cfg(test)]\nmod tests { struct F(Mutex<()>); }";
        assert_eq!(holders(text), ["A", "B", "D"]);
    }
}
