//! The commands on the README and the pages exist and work.

use std::path::Path;
use std::process::Command;

use crate::running::{PERDURA, Server, TestDir};

const README: &str = include_str!("../../../README.md");

/// The lines of a page's blocks of shell commands, without their comments.
fn commands(page: &str) -> Vec<String> {
    let blocks = page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let text = blocks.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
    let lines = text.lines().map(|line| line.split(" #").next().unwrap().trim());
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// Runs the commands of the README as they are, but on a free port, in a folder of the test and
/// with little memory.
#[test]
fn the_two_commands_of_the_readme_serve_and_pass_a_drill() {
    let shown = commands(README);
    let [serve, drill] = shown.as_slice() else {
        panic!("the README shows commands that this test does not know: {shown:#?}");
    };
    assert_eq!(serve, "cargo run --release -- serve");
    let dir = TestDir::new();
    let server = Server::start(dir.path(), &["--memory", "256MiB"]);
    assert_eq!(server.client().ask(&["PING"]), "+PONG");

    let drill = drill.strip_prefix("cargo run --release -- ").unwrap();
    let drill = drill.replace(":6379", &format!(":{}", server.port));
    let drilled = Command::new(PERDURA).args(drill.split_whitespace()).output().unwrap();
    let said = String::from_utf8(drilled.stdout).unwrap();
    assert!(drilled.status.success() && said.contains("PASS"), "{said}");
}

/// The program understands each line of the pages that calls it. `--help` at the end keeps it from
/// carrying the line out.
#[test]
fn each_command_of_the_pages_is_understood() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let mut pages: Vec<_> = [docs.clone(), docs.join("measuring"), docs.join("decisions")]
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .collect();
    pages.sort();
    let mut understood = 0;
    for page in pages {
        for line in commands(&std::fs::read_to_string(&page).unwrap()) {
            let Some(words) = line.strip_prefix("perdura ") else { continue };
            // The words behind this belong to another program, or to the shell.
            let ends = ["--", "<", "&", "&&", "|", ">"];
            let words = words.split_whitespace().take_while(|word| !ends.contains(word));
            let words = words.map(|word| word.trim_matches(['"', '\'']));
            let run = Command::new(PERDURA).args(words).arg("--help").output().unwrap();
            let said = String::from_utf8_lossy(&run.stderr);
            assert!(run.status.success(), "{}: {line}\n{said}", page.display());
            understood += 1;
        }
    }
    assert!(understood > 10, "{understood} commands: the pages have lost theirs");
}

/// Each option that a page names beside a command, between backticks, is one of that command.
#[test]
fn options_that_sentences_name_exist() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let folders = [docs.join(".."), docs.clone(), docs.join("measuring"), docs.join("decisions")];
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let pages = files.map(|entry| entry.unwrap().path());
    let mut checked = 0;
    for page in pages.filter(|path| path.extension().is_some_and(|end| end == "md")) {
        let text = std::fs::read_to_string(&page).unwrap();
        for quoted in text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)) {
            let Some(words) = quoted.strip_prefix("perdura ") else { continue };
            let words = words.split_whitespace().take_while(|word| *word != "--");
            let words: Vec<&str> = words.map(|word| word.trim_matches(['[', ']'])).collect();
            let command = docs.join("cli").join(format!("{}.md", words[0]));
            let Ok(options) = std::fs::read_to_string(command) else { continue };
            for option in words.iter().filter(|word| word.starts_with("--")) {
                let option = option.split('=').next().unwrap();
                let is_known =
                    ["`", " ", ","].map(|end| options.contains(&format!("{option}{end}")));
                assert!(
                    is_known.contains(&true),
                    "{}: `perdura {}`",
                    page.display(),
                    words.join(" ")
                );
                checked += 1;
            }
        }
    }
    assert!(checked > 30, "{checked} options: the pages have lost theirs");
}
