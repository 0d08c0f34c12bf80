//! Parses the parts of a Markdown page that the lint reads: headings, links, prose and code.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The part of a page to which a line belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Prose,
    Heading,
    Table,
    Code,
}

/// A Markdown page, line by line.
pub struct Page {
    pub path: PathBuf,
    /// The anchors of the headings, as GitHub makes them.
    pub anchors: Vec<String>,
    lines: Vec<(Kind, String)>,
}

impl Page {
    pub fn parse(path: &Path, text: &str) -> Self {
        let (mut lines, mut anchors) = (Vec::new(), Vec::new());
        let mut seen = BTreeMap::<String, usize>::new();
        let mut in_code = false;
        for line in text.lines() {
            let start = line.trim_start();
            let kind = if start.starts_with("```") {
                in_code = !in_code;
                Kind::Code
            } else if in_code {
                Kind::Code
            } else if start.starts_with('|') {
                Kind::Table
            } else if heading(line).is_some() {
                Kind::Heading
            } else {
                Kind::Prose
            };
            if kind == Kind::Heading {
                let anchor = anchor(heading(line).unwrap_or_default());
                let before = seen.entry(anchor.clone()).or_default();
                anchors.push(match *before {
                    0 => anchor,
                    n => format!("{anchor}-{n}"),
                });
                *before += 1;
            }
            lines.push((kind, line.to_owned()));
        }
        Self { path: path.to_owned(), anchors, lines }
    }

    /// The lines that are neither in a table nor in a block of code, with their numbers from 1.
    pub fn prose(&self) -> impl Iterator<Item = (usize, &str)> {
        self.numbered(|kind| matches!(kind, Kind::Prose | Kind::Heading))
    }

    /// The targets of links, with their lines' numbers.
    pub fn links(&self) -> impl Iterator<Item = (usize, &str)> {
        self.numbered(|kind| kind != Kind::Code).flat_map(|(number, line)| {
            link_targets(line).into_iter().map(move |target| (number, target))
        })
    }

    /// The words in backticks outside blocks of code, with their lines' numbers.
    pub fn quoted(&self) -> impl Iterator<Item = (usize, &str)> {
        self.numbered(|kind| kind != Kind::Code).flat_map(|(number, line)| {
            line.split('`').skip(1).step_by(2).map(move |quoted| (number, quoted))
        })
    }

    /// The rows of tables as trimmed cells, with their lines' numbers.
    pub fn rows(&self) -> impl Iterator<Item = (usize, Vec<&str>)> {
        self.numbered(|kind| kind == Kind::Table).map(|(number, line)| {
            let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
            (number, inner.split('|').map(str::trim).collect())
        })
    }

    /// The lines below the heading `title`, up to the next heading.
    pub fn section(&self, title: &str) -> Vec<&str> {
        let is_it =
            |(kind, line): &&(Kind, String)| *kind == Kind::Heading && heading(line) == Some(title);
        let Some(begin) = self.lines.iter().position(|line| is_it(&line)) else {
            return Vec::new();
        };
        let below = self.lines[begin + 1..].iter();
        below.take_while(|line| line.0 != Kind::Heading).map(|line| line.1.as_str()).collect()
    }

    fn numbered(&self, wanted: impl Fn(Kind) -> bool) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.lines.iter().zip(1..);
        let lines = lines.filter(move |((kind, _), _)| wanted(*kind));
        lines.map(|((_, line), number)| (number, line.as_str()))
    }
}

/// The text of a heading; `None` if the line is no heading.
fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    (text.len() < line.len()).then_some(text)?.strip_prefix(' ').map(str::trim)
}

/// The anchor that GitHub gives a heading: lower case, blanks as hyphens, without punctuation.
fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The targets of the links in a line: the text in `](...)`, outside backticks.
fn link_targets(line: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    let outside = |at: usize| line[..at].matches('`').count().is_multiple_of(2);
    for (at, _) in line.match_indices("](") {
        if outside(at)
            && let Some(len) = line[at + 2..].find(')')
        {
            targets.push(&line[at + 2..at + 2 + len]);
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_links_and_sections_are_found() {
        let text = "# One: `two` three\n[a](b.md#c) `[x](y)`\n## One\n```\n# no\n[d](e)\n```\n\
                    | [f](g) | h |\n## One\nlast\n";
        let page = Page::parse(Path::new("p.md"), text);
        assert_eq!(page.anchors, ["one-two-three", "one", "one-1"]);
        assert_eq!(page.links().collect::<Vec<_>>(), [(2, "b.md#c"), (8, "g")]);
        assert_eq!(page.rows().collect::<Vec<_>>(), [(8, vec!["[f](g)", "h"])]);
        assert_eq!(page.section("One").len(), 5);
        assert_eq!(page.prose().count(), 5);
    }
}
