//! Each block of shell commands on the pages that a user follows is run, and prints what the page
//! shows.
//!
//! The blocks of a page are one script of bash. It has a fresh folder, and a network, processes,
//! `/etc`, `/mnt`, `/run`, `/srv` and `/var/lib` of its own, so that addresses and folders are free
//! and nothing outlives it. Comments that the page's reader does not see say what is different:
//!
//! - `<!-- not run: WHY -->`: the next block cannot be run.
//! - `<!-- first: COMMANDS -->` before a block, `<!-- then: COMMANDS -->` behind it: what must be
//!   there, and what must have come of it.
//! - `<!-- for WORDS: OTHERS -->`: the next block is run with other words. An empty machine has no
//!   64 GiB of memory, and no backup of last year.
//! - `<!-- until: COMMAND -->`: the last command of the next block goes on, in a terminal of its
//!   own, and is ready when COMMAND succeeds.
//!
//! A block of text right behind a block of commands has lines that the commands print, in this
//! order.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use crate::running::{PERDURA, TestDir};

/// Makes the machine of a script, whose folders are made in the current one.
const MACHINE: &str = "ip link set lo up
cp -a /etc etc
for place in /etc /mnt /run /srv /var/lib; do mkdir -p .$place; mount --bind .$place $place; done
export HOME=$PWD/home; mkdir home here; cd here
";

/// Declares a test for each page, which says how many of its blocks are run.
macro_rules! pages {
    ($($test:ident: $page:literal, $blocks:literal;)*) => {
        $(#[test]
        fn $test() {
            run_page($page, $blocks);
        })*

        /// The pages of which blocks are run.
        const PAGES: &[&str] = &[$($page),*];
    };
}

pages! {
    backup_does_what_it_says: "backup", 3;
    devices_do_what_they_say: "devices", 1;
    encryption_does_what_it_says: "encryption", 2;
    the_guard_does_what_it_says: "guard", 3;
    the_heap_does_what_it_says: "heap", 1;
    mapped_files_do_what_they_say: "mapped", 1;
    media_do_what_they_say: "media", 1;
    moving_does_what_it_says: "moving", 4;
    operating_does_what_it_says: "operating", 1;
    packages_do_what_they_say: "packages", 3;
    the_plan_does_what_it_says: "plan", 2;
    protection_does_what_it_says: "protection", 1;
    security_does_what_it_says: "security", 3;
    the_start_does_what_it_says: "start", 5;
    watching_does_what_it_says: "watching", 2;
}

/// A script for bash, and the lines that it must print.
#[derive(Default)]
struct Script {
    commands: String,
    shown: Vec<String>,
    blocks: usize,
}

/// What the comments before a block say of it.
#[derive(Default)]
struct Different<'a> {
    is_left_out: bool,
    words: Vec<(&'a str, &'a str)>,
    until: Option<&'a str>,
}

impl Script {
    fn of(page: &str) -> Self {
        let mut script = Self::default();
        let mut different = Different::default();
        let (mut fence, mut block, mut is_behind_commands) = ("", String::new(), false);
        for line in page.lines().map(str::trim) {
            if let Some(language) = line.strip_prefix("```") {
                if fence == "sh" {
                    is_behind_commands = script.add(&block, &std::mem::take(&mut different));
                    block.clear();
                }
                fence = if fence.is_empty() { language } else { "" };
            } else if fence == "sh" {
                let _ = writeln!(block, "{line}");
            } else if fence == "text" && is_behind_commands {
                script.shown.push(line.to_owned());
            } else if let Some(comment) = line.strip_prefix("<!-- ") {
                script.heed(comment.trim_end_matches(" -->"), &mut different);
            } else if !line.is_empty() {
                is_behind_commands = false;
            }
        }
        script
    }

    /// Heeds a comment, which may say something of the next block.
    fn heed<'a>(&mut self, comment: &'a str, different: &mut Different<'a>) {
        let commands = ["first: ", "then: "].iter().find_map(|kind| comment.strip_prefix(kind));
        if let Some(commands) = commands {
            let _ = writeln!(self.commands, "{commands}");
        } else if let Some(words) = comment.strip_prefix("for ") {
            different.words.push(words.split_once(": ").unwrap());
        } else if let Some(ready) = comment.strip_prefix("until: ") {
            different.until = Some(ready);
        } else if comment.starts_with("not run: ") {
            different.is_left_out = true;
        }
    }

    /// Adds a block of commands, if it can be run, and says so.
    fn add(&mut self, block: &str, different: &Different) -> bool {
        if different.is_left_out {
            return false;
        }
        self.blocks += 1;
        let mut commands = block.to_owned();
        for (words, others) in &different.words {
            assert!(commands.contains(words), "no {words} in\n{block}");
            commands = commands.replace(words, others);
        }
        self.commands += &commands;
        if let Some(ready) = different.until {
            self.commands.truncate(self.commands.trim_end().len());
            // A command that has ended will never be ready.
            let _ = writeln!(self.commands, " &\nuntil {ready}; do kill -0 $!; sleep 0.1; done");
        }
        true
    }

    fn run(&self, name: &str) {
        let dir = TestDir::new();
        let programs = Path::new(PERDURA).parent().unwrap().display();
        let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
        let script = format!("{MACHINE}{}", self.commands);
        let mut bash = Command::new("timeout");
        bash.args(["-k", "1", "60", "unshare", "--net", "--mount", "--pid", "--fork"]);
        bash.args(["--kill-child", "--mount-proc", "bash", "-euo", "pipefail", "-c", &script]);
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

/// Runs the blocks of a page, as many as there must be.
fn run_page(name: &str, blocks: usize) {
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root may give a script a machine of its own");
        return;
    }
    let path = format!("{}/../docs/{name}.md", env!("CARGO_MANIFEST_DIR"));
    let script = Script::of(&std::fs::read_to_string(path).unwrap());
    assert_eq!(script.blocks, blocks, "blocks of {name}.md that are run");
    script.run(name);
}

#[test]
fn other_pages_say_why_their_blocks_are_not_run() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    for path in std::fs::read_dir(docs).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_stem().unwrap().to_str().unwrap();
        if path.extension().is_some_and(|end| end == "md") && !PAGES.contains(&name) {
            let script = Script::of(&std::fs::read_to_string(&path).unwrap());
            assert_eq!(script.commands, "", "{name}.md has commands that no test runs");
        }
    }
}

#[test]
fn a_page_is_a_script() {
    let page = "<!-- first: a -->\n```sh\nb\n```\n<!-- then: c -->\n\n```text\nd\n```\n\
                <!-- not run: e -->\n```sh\nf\n```\n\n```text\ng\n```\n\
                <!-- for 64GiB: 1 -->\n<!-- until: h -->\n   ```sh\n   i \\\n     64GiB\n   ```\n";
    let script = Script::of(page);
    let expected = "a\nb\nc\ni \\\n1 &\nuntil h; do kill -0 $!; sleep 0.1; done\n";
    assert_eq!((script.commands.as_str(), script.blocks), (expected, 2));
    assert_eq!(script.shown, ["d"]);
}
