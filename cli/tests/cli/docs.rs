//! Each block of shell commands on the pages that a user follows is run, and prints what the page
//! shows.
//!
//! The blocks of a page are one script of bash, in a fresh folder and with a network and processes
//! of its own, so that addresses are free and nothing outlives it. Comments that the page's reader
//! does not see say what is different: `<!-- not run: WHY -->` before a block, and
//! `<!-- first: COMMANDS -->` for what must be running. A block of text behind a block of commands
//! has lines that the commands print, in this order.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use crate::running::{PERDURA, TestDir};

/// The pages, and how many of their blocks are run.
const PAGES: [(&str, usize); 3] = [("start", 5), ("protection", 1), ("operating", 1)];

/// A script for bash, and the lines that it must print.
#[derive(Default)]
struct Script {
    commands: String,
    shown: Vec<String>,
    blocks: usize,
}

impl Script {
    fn of(page: &str) -> Self {
        let mut script = Self::default();
        let (mut is_run, mut fence) = (true, "");
        for line in page.lines().map(str::trim) {
            if let Some(language) = line.strip_prefix("```") {
                if fence == "sh" {
                    is_run = true;
                }
                fence = if fence.is_empty() { language } else { "" };
                script.blocks += usize::from(fence == "sh" && is_run);
            } else if line.starts_with("<!-- not run: ") {
                is_run = false;
            } else if let Some(first) = line.strip_prefix("<!-- first: ") {
                let _ = writeln!(script.commands, "{}", first.trim_end_matches(" -->"));
            } else if fence == "sh" && is_run {
                let _ = writeln!(script.commands, "{line}");
            } else if fence == "text" {
                script.shown.push(line.to_owned());
            }
        }
        script
    }

    fn run(&self, name: &str) {
        let dir = TestDir::new();
        let programs = Path::new(PERDURA).parent().unwrap().display();
        let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
        let script = format!("ip link set lo up\n{}", self.commands);
        let mut bash = Command::new("timeout");
        bash.args(["-k", "1", "60", "unshare", "--net", "--pid", "--fork", "--kill-child"]);
        bash.args(["--mount-proc", "bash", "-euo", "pipefail", "-c", &script]);
        let output = bash.current_dir(dir.path()).env("PATH", path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {}\n{said}\n{complained}", output.status);
        let mut printed = said.lines();
        for line in &self.shown {
            let is_printed = printed.any(|print| print.contains(line));
            assert!(is_printed, "{name}: no `{line}`, or not in its place\n{said}\n{complained}");
        }
    }
}

#[test]
fn the_commands_of_the_pages_do_what_the_pages_say() {
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root may give a script a network of its own");
        return;
    }
    for (name, blocks) in PAGES {
        let path = format!("{}/../docs/{name}.md", env!("CARGO_MANIFEST_DIR"));
        let script = Script::of(&std::fs::read_to_string(path).unwrap());
        assert_eq!(script.blocks, blocks, "blocks of {name}.md that are run");
        script.run(name);
    }
}

#[test]
fn blocks_that_are_not_run_are_left_out_and_others_are_kept_in_order() {
    let page = "<!-- first: a -->\n```sh\nb\n```\n\n```text\nc\n```\n<!-- not run: d -->\n```sh\ne\n```\n\
                ```toml\nf\n```\n   ```sh\n   g\n   ```\n";
    let script = Script::of(page);
    assert_eq!((script.commands.as_str(), script.blocks), ("a\nb\ng\n", 2));
    assert_eq!(script.shown, ["c"]);
}
