//! `cargo xtask book`: the pages as a book in target/book, whose links are checked.
//!
//! mdBook builds it from a copy of the pages that keeps their places, so that a link is right in
//! the repository and in the book. Files that pages link to are copied, too, README.md is the first
//! page, and the table of contents, docs/SUMMARY.md, gets the paths from the copy's root.

mod html;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::pages::{self, SUMMARY, Tree};
use crate::run::{run, target};

/// The mdBook that builds the book.
const VERSION: &str = "0.5.4";

/// Builds the book and checks its links.
pub fn build() -> Result<()> {
    pages::check()?;
    let target = target()?;
    let (stage, book) = (target.join("book-pages"), target.join("book"));
    lay_out(&Tree::of(&pages::root())?, &stage)?;
    let tool = tool(&target)?;
    run(Command::new(tool).arg("build").arg(&stage).arg("--dest-dir").arg(&book))?;
    fs::remove_dir_all(&stage)?;
    let site = html::Site::read(&book)?;
    let wrong = site.broken();
    if !wrong.is_empty() {
        bail!("links of the book are wrong:\n{}", wrong.join("\n"));
    }
    eprintln!("xtask: {} pages, {} links: {}", site.pages(), site.links(), book.display());
    Ok(())
}

/// Copies the pages, and what they link to, into the folder from which mdBook builds.
fn lay_out(tree: &Tree, stage: &Path) -> Result<()> {
    if stage.exists() {
        fs::remove_dir_all(stage)?;
    }
    let source = stage.join("src");
    let pages = tree.pages()?;
    let mut copied = BTreeSet::<PathBuf>::new();
    let is_of_book = |path: &Path| {
        path.starts_with("docs")
            || ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(Path::new).contains(&path)
    };
    for page in pages.iter().filter(|page| is_of_book(&page.path)) {
        copied.insert(page.path.clone());
        let folder = page.path.parent().unwrap_or(Path::new(""));
        let files = page.links().map(|(_, link)| link.split('#').next().unwrap_or_default());
        copied.extend(files.filter_map(|file| pages::resolve(folder, file, &page.path)));
    }
    copied.remove(Path::new(SUMMARY));
    for file in copied.iter().filter(|file| tree.has_file(file)) {
        let text = tree.text(file)?;
        // A README is the first page of its folder, whose name mdBook changes, but not the links.
        let is_page = file.extension().is_some_and(|end| end == "md");
        let text = if is_page { text.replace("README.md)", "index.md)") } else { text };
        write(&source.join(file), &text)?;
    }
    write(&source.join("SUMMARY.md"), &from_the_root(&tree.text(Path::new(SUMMARY))?))?;
    write(&stage.join("book.toml"), &tree.text(Path::new("docs/book.toml"))?)
}

/// The table of contents with the paths of its links from the repository's root.
fn from_the_root(summary: &str) -> String {
    let line = |line: &str| match line.rsplit_once("](") {
        Some((title, path)) => match path.strip_prefix("../") {
            Some(path) => format!("{title}]({path}\n"),
            None => format!("{title}](docs/{path}\n"),
        },
        None => format!("{line}\n"),
    };
    summary.lines().map(line).collect()
}

fn write(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().context("a file without a folder")?;
    fs::create_dir_all(folder).and_then(|()| fs::write(path, text))?;
    Ok(())
}

/// mdBook in the target folder, installed if it is not there.
fn tool(target: &Path) -> Result<PathBuf> {
    let place = target.join("tools");
    let program = place.join("bin/mdbook");
    let has_it = Command::new(&program).arg("--version").output();
    if has_it.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains(VERSION)) {
        return Ok(program);
    }
    let words = ["install", "mdbook", "--version", VERSION, "--locked", "--debug", "--force"];
    let mut install = Command::new("cargo");
    install.args(words).args(["--no-default-features", "--features", "search", "--root"]);
    // Its own outputs are of no further use.
    let outputs = place.join("build");
    run(install.arg(&place).env("CARGO_TARGET_DIR", &outputs))?;
    fs::remove_dir_all(outputs)?;
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_contents_leads_to_the_pages_from_the_root() {
        let summary = "# Summary\n[P](../README.md)\n- [A (b)](plan.md)\n  - [C](cli/plan.md)\n";
        let expected =
            "# Summary\n[P](README.md)\n- [A (b)](docs/plan.md)\n  - [C](docs/cli/plan.md)\n";
        assert_eq!(from_the_root(summary), expected);
    }
}
