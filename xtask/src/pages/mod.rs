//! The lint of pages: checks that the Markdown files agree with the code.
//!
//! It checks links and anchors, the lengths of lines, paths that pages and comments name, the table
//! of rooms against the manifests, the page of locks against the code, the book's table of contents,
//! the first program for Rust, the list of packages, and that each file of code is compiled. All mistakes are reported at once,
//! each with its file and line.

mod locks;
mod markdown;
mod modules;
mod paths;
mod rooms;
mod summary;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::deps;
use markdown::Page;
pub use summary::SUMMARY;

/// The largest number of columns in a line of prose.
const COLUMNS_MAX: usize = 100;

/// The mistakes that were found, as lines to be printed.
type Wrong = Vec<String>;

/// Checks all pages of the repository.
pub fn check() -> Result<()> {
    let tree = Tree::of(&root())?;
    let pages = tree.pages()?;
    let mut wrong = Wrong::new();
    for page in &pages {
        // An entry of the contents is one line, however long.
        if page.path != Path::new(SUMMARY) {
            lengths(page, &mut wrong);
        }
        links(page, &pages, &tree, &mut wrong);
        // The recipes of that page name files that their reader is to create.
        if page.path != Path::new("CONTRIBUTING.md") {
            paths::in_page(page, &tree, &mut wrong);
        }
    }
    paths::in_code(&tree, &mut wrong)?;
    modules::check(&tree, &mut wrong)?;
    let page = |name: &str| {
        let found = pages.iter().find(|page| page.path == Path::new(name));
        found.with_context(|| format!("{name} is missing"))
    };
    rooms::check(page("docs/architecture.md")?, &tree, &mut wrong)?;
    locks::check(page("docs/concurrency.md")?, &tree, &mut wrong)?;
    summary::check(page(SUMMARY)?, &tree, &mut wrong);
    packages(page("CONTRIBUTING.md")?, &mut wrong);
    examples(page("docs/rust.md")?, &tree, &mut wrong)?;
    if !wrong.is_empty() {
        bail!("pages and code are wrong:\n{}", wrong.join("\n"));
    }
    Ok(())
}

/// The root folder of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default()
}

/// The files of the repository that git tracks, or would track because no rule ignores them.
pub struct Tree {
    root: PathBuf,
    files: BTreeSet<PathBuf>,
}

impl Tree {
    pub fn of(root: &Path) -> Result<Self> {
        let listed = Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("git ls-files")?;
        if !listed.status.success() {
            bail!("git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
        }
        let files = String::from_utf8_lossy(&listed.stdout).lines().map(PathBuf::from).collect();
        let mut tree = Self { root: root.to_owned(), files };
        // A file that was deleted is listed until the deletion is committed.
        tree.files.retain(|file| tree.root.join(file).is_file());
        Ok(tree)
    }

    /// Whether the path is a file, or a folder with files.
    fn has(&self, path: &Path) -> bool {
        self.files.contains(path) || self.files.iter().any(|file| file.starts_with(path))
    }

    pub fn has_file(&self, path: &Path) -> bool {
        self.files.contains(path)
    }

    /// The files whose paths end with `end`.
    fn ending<'t>(&'t self, end: &'t str) -> impl Iterator<Item = &'t Path> {
        let files = self.files.iter().map(PathBuf::as_path);
        files.filter(move |file| file.to_string_lossy().ends_with(end))
    }

    pub fn text(&self, path: &Path) -> Result<String> {
        std::fs::read_to_string(self.root.join(path)).with_context(|| path.display().to_string())
    }

    pub fn pages(&self) -> Result<Vec<Page>> {
        self.ending(".md").map(|path| Ok(Page::parse(path, &self.text(path)?))).collect()
    }
}

fn lengths(page: &Page, wrong: &mut Wrong) {
    for (number, line) in page.prose() {
        let columns = line.chars().count();
        // A single word, such as a link, cannot be broken, nor can a quoted command.
        let quoted = line.trim_end_matches([':', '.', ',']).strip_prefix('`');
        let is_command = quoted.is_some_and(|rest| rest.find('`') == Some(rest.len() - 1));
        if columns > COLUMNS_MAX && !is_command && line.split_whitespace().count() > 1 {
            let path = page.path.display();
            wrong.push(format!("{path}:{number}: {columns} columns; {COLUMNS_MAX} are the most"));
        }
    }
}

fn links(page: &Page, pages: &[Page], tree: &Tree, wrong: &mut Wrong) {
    let folder = page.path.parent().unwrap_or(Path::new(""));
    for (number, link) in page.links() {
        if link.contains("://") || link.starts_with("mailto:") {
            continue;
        }
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let at = format!("{}:{number}", page.path.display());
        let Some(target) = resolve(folder, file, &page.path) else {
            wrong.push(format!("{at}: the link {link} leads out of the repository"));
            continue;
        };
        if !tree.has(&target) {
            wrong.push(format!("{at}: the link {link} leads to no file"));
        } else if !anchor.is_empty() {
            let target = pages.iter().find(|page| page.path == target);
            if !target.is_some_and(|target| target.anchors.iter().any(|known| known == anchor)) {
                wrong.push(format!("{at}: the link {link} names no heading"));
            }
        }
    }
}

/// The file that a link leads to, as a path from the repository's root. A link without a file leads
/// to its own page.
pub fn resolve(folder: &Path, file: &str, page: &Path) -> Option<PathBuf> {
    if file.is_empty() {
        return Some(page.to_owned());
    }
    let mut at = folder.to_owned();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." if at.pop() => {}
            ".." => return None,
            part => at.push(part),
        }
    }
    Some(at)
}

/// Checks that the page's program is in the library's documentation, whose tests run it.
fn examples(page: &Page, tree: &Tree, wrong: &mut Wrong) -> Result<()> {
    let library = tree.text(Path::new("perdura/src/lib.rs"))?;
    let shown = page.section("Ten lines");
    let program = shown.iter().skip_while(|line| **line != "```rust").skip(1);
    let program = program.take_while(|line| **line != "```");
    let program: String =
        program.map(|line| format!("{}\n", format!("//! {line}").trim())).collect();
    if program.is_empty() || !library.contains(&program) {
        let page = page.path.display();
        wrong.push(format!("{page}: the program is not in perdura/src/lib.rs, whose tests run it"));
    }
    Ok(())
}

/// Checks that the page names each package that `cargo xtask deps` installs, and no other.
fn packages(page: &Page, wrong: &mut Wrong) {
    let path = page.path.display();
    let section = page.section("What the tests need");
    let named: BTreeSet<&str> = section
        .iter()
        .filter(|line| !line.starts_with("```"))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .filter(|word| !word.contains(' ') && !word.contains('/'))
        .collect();
    let installed: BTreeSet<&str> = deps::names().collect();
    for missing in installed.difference(&named) {
        wrong.push(format!("{path}: \"What the tests need\" lacks the package {missing}"));
    }
    for unknown in named.difference(&installed) {
        wrong.push(format!("{path}: `cargo xtask deps` does not install {unknown}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_resolved_from_its_pages_folder() {
        let resolve =
            |file| resolve(Path::new("docs/measuring"), file, Path::new("docs/format.md"));
        assert_eq!(resolve("../format.md"), Some("docs/format.md".into()));
        assert_eq!(resolve("./flush.md"), Some("docs/measuring/flush.md".into()));
        assert_eq!(resolve(""), Some("docs/format.md".into()));
        assert_eq!(resolve("../../../x.md"), None);
    }

    #[test]
    fn what_is_wrong_with_a_page_is_told_with_its_line() {
        let long = "word ".repeat(30);
        let text = format!(
            "# A\n\n[a](b.md) [c](#d)\n{long}\n`long {long}` {long}\n| {long} |\n`{long}`."
        );
        let pages = [Page::parse(Path::new("a.md"), &text)];
        let tree = Tree { root: PathBuf::new(), files: BTreeSet::from(["a.md".into()]) };
        let mut wrong = Wrong::new();
        lengths(&pages[0], &mut wrong);
        links(&pages[0], &pages, &tree, &mut wrong);
        assert_eq!(
            wrong,
            [
                "a.md:4: 150 columns; 100 are the most",
                "a.md:5: 308 columns; 100 are the most",
                "a.md:3: the link b.md leads to no file",
                "a.md:3: the link #d names no heading",
            ]
        );
    }
}
