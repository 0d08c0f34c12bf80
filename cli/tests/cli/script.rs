//! Runs each block of shell commands on a page, and looks for what the page shows of its output.
//!
//! The blocks of a page are one script of bash. It has a fresh folder, and a network, processes,
//! `/dev/shm`, `/etc`, `/mnt`, `/run`, `/srv` and `/var/lib` of its own, so that addresses and
//! folders are free and nothing outlives it. Comments that the page's reader does not see say what
//! is different:
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

/// Makes the machine of a script, with its folders in the current one. The files of `/etc` are
/// copied to memory: ext4 takes long to make a thousand files where others were just deleted.
const MACHINE: &str = "ip link set lo up
mkdir etc; mount -t tmpfs none etc; cp -a /etc/. etc
for place in /etc /mnt /run /srv /var/lib; do mkdir -p .$place; mount --bind .$place $place; done
mount -t tmpfs none /dev/shm
export HOME=$PWD/home; mkdir home here; cd here
";

/// A script for bash, and the lines that it must print.
#[derive(Default)]
pub struct Script {
    pub commands: String,
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
    pub fn of(page: &str) -> Self {
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

    fn run(&self, name: &str, program: &str) {
        let dir = tempfile::tempdir().unwrap();
        let programs = Path::new(program).parent().unwrap().display();
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

/// Runs the blocks of a page, as many as there must be, with a program and those beside it.
pub fn run_page(name: &str, blocks: usize, program: &str) {
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root may give a script a machine of its own");
        return;
    }
    let path = format!("{}/../docs/{name}.md", env!("CARGO_MANIFEST_DIR"));
    let script = Script::of(&std::fs::read_to_string(path).unwrap());
    assert_eq!(script.blocks, blocks, "blocks of {name}.md that are run");
    script.run(name, program);
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
