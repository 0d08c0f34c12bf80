//! Checks the links of a folder of HTML pages: files and anchors exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::pages::resolve;

/// The files of the folder, and what its pages have in their tags.
pub struct Site {
    files: BTreeSet<PathBuf>,
    pages: BTreeMap<PathBuf, Tags>,
}

/// The links and the anchors of a page.
#[derive(Debug, Default, PartialEq)]
struct Tags {
    links: Vec<String>,
    anchors: BTreeSet<String>,
}

impl Site {
    pub fn read(folder: &Path) -> Result<Self> {
        let mut files = BTreeSet::new();
        find(folder, Path::new(""), &mut files)?;
        let mut pages = BTreeMap::new();
        for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "html")) {
            pages.insert(file.clone(), Tags::of(&fs::read_to_string(folder.join(file))?));
        }
        Ok(Self { files, pages })
    }

    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    pub fn links(&self) -> usize {
        self.pages.values().map(|page| page.links.len()).sum()
    }

    /// A line for each link that leads to no file, or to no anchor of its page.
    pub fn broken(&self) -> Vec<String> {
        let links = self.pages.iter().flat_map(|(path, tags)| {
            tags.links.iter().filter(|link| !self.leads(path, link)).map(move |link| (path, link))
        });
        links.map(|(path, link)| format!("{}: {link}", path.display())).collect()
    }

    fn leads(&self, page: &Path, link: &str) -> bool {
        let is_outside = ["https://", "http://", "mailto:", "data:", "javascript:"];
        if is_outside.iter().any(|start| link.starts_with(start)) {
            return true;
        }
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let file = file.split('?').next().unwrap_or_default();
        let folder = page.parent().unwrap_or(Path::new(""));
        let Some(target) = resolve(folder, file, page) else { return false };
        let index = target.join("index.html");
        let target = if self.files.contains(&index) { index } else { target };
        let has_anchor = || self.pages.get(&target).is_some_and(|it| it.anchors.contains(anchor));
        self.files.contains(&target) && (anchor.is_empty() || has_anchor())
    }
}

fn find(root: &Path, below: &Path, files: &mut BTreeSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            find(root, &path, files)?;
        } else {
            files.insert(path);
        }
    }
    Ok(())
}

impl Tags {
    /// Reads the attributes of all tags, but not what scripts have between theirs.
    fn of(html: &str) -> Self {
        let mut tags = Self::default();
        let mut rest = html;
        while let Some((_, begin)) = rest.split_once('<') {
            if let Some(comment) = begin.strip_prefix("!--") {
                rest = comment.split_once("-->").map_or("", |(_, after)| after);
                continue;
            }
            rest = tags.read(begin);
            if begin.starts_with("script") {
                rest = rest.split_once("</script").map_or("", |(_, after)| after);
            }
        }
        tags
    }

    /// Reads a tag behind its `<`; returns what comes after it.
    fn read<'t>(&mut self, mut rest: &'t str) -> &'t str {
        while let Some(at) = rest.find(['=', '>']) {
            let name = rest[..at].rsplit(char::is_whitespace).next().unwrap_or_default();
            let is_end = rest[at..].starts_with('>');
            rest = &rest[at + 1..];
            if is_end {
                return rest;
            }
            let Some(quoted) = rest.strip_prefix('"') else { continue };
            let Some((value, after)) = quoted.split_once('"') else { return "" };
            rest = after;
            match name {
                "href" | "src" => self.links.push(value.replace("&amp;", "&")),
                "id" | "name" => {
                    self.anchors.insert(value.to_owned());
                }
                _ => {}
            }
        }
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_anchors_are_those_of_tags_outside_scripts_and_comments() {
        let html = "<h1 id=\"a\" class=\"x\">A = b</h1><a title=\"1 > 0\" href=\"b.html#c\">href=\"no\"\
                    </a><script src=\"s.js\">var x = '<a href=\"no\">';</script><!-- <a href=\"no\"> \
                    --><img async src=\"p.svg\">";
        let tags = Tags::of(html);
        assert_eq!(tags.links, ["b.html#c", "s.js", "p.svg"]);
        assert_eq!(tags.anchors, BTreeSet::from(["a".to_owned()]));
    }

    #[test]
    fn a_missing_file_and_a_missing_anchor_are_broken() {
        let page = |path: &str, html: &str| (PathBuf::from(path), Tags::of(html));
        let links = "<a href=\"../b.html#x\"><a href=\"#y\"><a href=\"c.html\"><a href=\"https://e\">\
                     <a href=\"../d/\"><a href=\"../../e\">";
        let pages = BTreeMap::from([page("a/a.html", links), page("b.html", "<p id=\"x\">")]);
        let files = ["a/a.html", "b.html", "d/index.html"].map(PathBuf::from).into();
        let broken = Site { files, pages }.broken();
        assert_eq!(broken, ["a/a.html: #y", "a/a.html: c.html", "a/a.html: ../../e"]);
    }
}
