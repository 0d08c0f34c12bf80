//! Checks that the book's table of contents, docs/SUMMARY.md, has each page below docs/ once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::markdown::Page;
use super::{Tree, Wrong, resolve};

pub const SUMMARY: &str = "docs/SUMMARY.md";

/// A line of the table whose file is missing is found as every link is.
pub fn check(summary: &Page, tree: &Tree, wrong: &mut Wrong) {
    let mut named = BTreeSet::<PathBuf>::new();
    for (number, link) in summary.links() {
        if let Some(page) = resolve(Path::new("docs"), link, &summary.path)
            && !named.insert(page)
        {
            wrong.push(format!("{SUMMARY}:{number}: {link} was named before"));
        }
    }
    let pages = tree.ending(".md").filter(|page| page.starts_with("docs") && *page != summary.path);
    for missing in pages.filter(|page| !named.contains(*page)) {
        wrong.push(format!("{SUMMARY}: no line names {}", missing.display()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_no_line_names_and_one_that_two_name_are_wrong() {
        let text = "- [a](plan.md)\n- [b](../b.md)\n- [again](./plan.md)\n";
        let summary = Page::parse(Path::new(SUMMARY), text);
        let files = [SUMMARY, "docs/plan.md", "docs/cli/plan.md", "docs/a.svg", "b.md", "e.md"];
        let files = files.iter().map(PathBuf::from).collect();
        let mut wrong = Wrong::new();
        check(&summary, &Tree { root: PathBuf::new(), files }, &mut wrong);
        assert_eq!(
            wrong,
            [
                "docs/SUMMARY.md:3: ./plan.md was named before",
                "docs/SUMMARY.md: no line names docs/cli/plan.md",
            ]
        );
    }
}
