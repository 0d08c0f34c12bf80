//! The commands shown in the documentation are commands of the program.

use std::path::Path;
use std::process::Command;

use crate::process::LAB;

/// The program parses each of its command lines in the documentation; `--help` at the end keeps it
/// from running them.
#[test]
fn each_command_of_the_pages_is_understood() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let mut pages: Vec<_> = [docs.clone(), docs.join("measuring")]
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .collect();
    pages.sort();
    let mut understood = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap().replace("\\\n", " ");
        for line in text.lines() {
            let Some(words) = line.strip_prefix("perdura-lab ") else { continue };
            // The rest of the line is a comment, or belongs to another program or to the shell.
            let ends = ["#", "--", "<", "&", "&&", "|", ">"];
            let words = words.split_whitespace().take_while(|word| !ends.contains(word));
            let words: Vec<_> = words.map(|word| word.trim_matches(['"', '\''])).collect();
            if words.first() == Some(&"rivals") {
                continue; // a program that is built apart
            }
            let run = Command::new(LAB).args(&words).arg("--help").output().unwrap();
            let said = String::from_utf8_lossy(&run.stderr);
            assert!(run.status.success(), "{}: {line}\n{said}", page.display());
            understood += 1;
        }
    }
    assert!(understood > 10, "{understood} commands: the pages have lost theirs");
}
