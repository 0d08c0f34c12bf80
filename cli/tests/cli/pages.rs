//! The manual pages and the shell completions that packages have.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::running::{PERDURA, TestDir};

const BOOK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli");

fn said(words: &[&str]) -> String {
    let run = Command::new(PERDURA).args(words).output().unwrap();
    assert!(run.status.success(), "{words:?}: {}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8(run.stdout).unwrap()
}

/// The commands below these words, as the help lists them.
fn commands(words: &[&str]) -> Vec<String> {
    let help = said(&[words, &["-h"]].concat());
    let Some((_, list)) = help.split_once("Commands:\n") else { return Vec::new() };
    let entries = list.lines().take_while(|line| !line.is_empty());
    // A line that goes on with an entry's text is indented by more.
    let names = entries.filter_map(|line| line.strip_prefix("  ").filter(|l| !l.starts_with(' ')));
    let names = names.filter_map(|line| line.split(' ').next()).filter(|name| *name != "help");
    names.map(str::to_owned).collect()
}

/// The long options that a text names.
fn options(text: &str) -> BTreeSet<&str> {
    let is_of_name = |c: char| c.is_ascii_lowercase() || c == '-';
    let starts = text.match_indices("--").map(|(at, _)| &text[at..]);
    let names = starts.map(|rest| &rest[..rest.find(|c| !is_of_name(c)).unwrap_or(rest.len())]);
    names.filter(|name| name.len() > 2).collect()
}

/// Compares the page of a command with its help, and goes on below it. Returns the pages' number.
fn compare(pages: &TestDir, words: &[&str]) -> usize {
    let name = [&["perdura"], words].concat().join("-");
    let page = std::fs::read_to_string(pages.path().join(format!("{name}.1")));
    let page = page.unwrap_or_else(|error| panic!("{name}.1: {error}"));
    // Without the marks of bold and italic text, and of characters that are not markup.
    let mut page = page.replace("\\-", "-");
    for mark in ["\\fB", "\\fI", "\\fR"] {
        page = page.replace(mark, " ");
    }
    let help = said(&[words, &["-h"]].concat());
    for option in options(&help) {
        assert!(options(&page).contains(option), "{name}.1 does not name {option}");
    }
    let below = commands(words);
    1 + below.iter().map(|next| compare(pages, &[words, &[next]].concat())).sum::<usize>()
}

#[test]
fn each_command_has_a_page_that_names_its_options() {
    let pages = TestDir::new();
    said(&["man", pages.path().to_str().unwrap()]);
    let compared = compare(&pages, &[]);
    assert!(compared > 15, "{compared} pages");
    assert_eq!(std::fs::read_dir(pages.path()).unwrap().count(), compared);
}

#[test]
fn bash_completes_commands_and_options() {
    let dir = TestDir::new();
    let file = dir.path().join("perdura");
    std::fs::write(&file, said(&["completions", "bash"])).unwrap();
    for (words, expected) in [
        ("serve --mem", "--memory --memory-dir"),
        ("pla", "plan"),
        ("plan kub", "kubernetes"),
        ("completions z", "zsh"),
    ] {
        let script = "source \"$0\"; COMP_WORDS=(perdura $1); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
            _perdura perdura \"${COMP_WORDS[-1]}\" \"${COMP_WORDS[-2]}\"; echo \"${COMPREPLY[*]}\"";
        let mut bash = Command::new("bash");
        let found = bash.args(["-euc", script]).arg(&file).arg(words).output().unwrap();
        let said = String::from_utf8_lossy(&found.stderr);
        assert_eq!(String::from_utf8_lossy(&found.stdout).trim(), expected, "{words}: {said}");
    }
}

#[test]
fn each_shell_has_completions() {
    for (shell, sign) in [("zsh", "#compdef perdura"), ("fish", "complete -c perdura")] {
        assert!(said(&["completions", shell]).contains(sign), "{shell}");
    }
}

/// The pages of the book are those of this program.
#[test]
fn the_books_pages_of_commands_are_what_the_program_writes() {
    let pages = TestDir::new();
    said(&["man", "--markdown", pages.path().to_str().unwrap()]);
    let read = |dir: &Path| -> BTreeMap<String, String> {
        let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let name = |file: &Path| file.file_name().unwrap().to_string_lossy().into_owned();
        files.map(|file| (name(&file), std::fs::read_to_string(&file).unwrap())).collect()
    };
    let (written, book) = (read(pages.path()), read(Path::new(BOOK)));
    assert_eq!(written.keys().collect::<Vec<_>>(), book.keys().collect::<Vec<_>>());
    for (name, text) in &written {
        let says = "run: rm -r docs/cli; cargo run -- man --markdown docs/cli";
        assert!(book[name] == *text, "docs/cli/{name} is another: {says}");
    }
}
