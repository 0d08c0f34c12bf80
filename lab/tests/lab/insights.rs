//! `perdura-lab access insights` refuses impossible settings before it measures. A small run is
//! tested in the library.

use std::process::Command;

fn refusal(words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perdura-lab"));
    let output = command.args(["access", "insights"]).args(words).output().unwrap();
    assert!(!output.status.success(), "{words:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_cannot_be_is_refused_at_once_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().to_str().unwrap();
    for price in ["0", "-3", "nan", "inf"] {
        let said = refusal(&["--price", price]);
        assert!(said.contains("--price") && said.contains("more than 0"), "{said}");
    }
    assert!(refusal(&["--price", "much"]).contains("--price"));
    assert!(refusal(&["--path-price", "9"]).contains("--path <DIR>"), "a price of nothing");
    let said = refusal(&["--path", folder, "--path-price", "0"]);
    assert!(said.contains("--path-price 0: expected euro, more than 0"), "{said}");
    assert!(refusal(&["--path", "/nowhere"]).contains("--path /nowhere: expected a folder"));
    assert!(refusal(&["--html", folder]).contains("is a directory"));
    let same = dir.path().join("same");
    let same = same.to_str().unwrap();
    assert!(refusal(&["--html", same, "--json", same]).contains("that is the file of"));
    // A folder for the store that cannot be created is refused before minutes of measuring.
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let below = file.join("store");
    let said = refusal(&["--quick", "--dir", below.to_str().unwrap()]);
    assert!(said.contains("store"), "{said}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left");
}
