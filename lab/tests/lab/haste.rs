//! `perdura-lab haste` at its smallest: every part runs, and modelled results say so.

use std::process::{Command, Output};

use serde_json::Value;

fn haste(words: &[&str]) -> Output {
    // The library that is preloaded into programs lies beside this test, not beside the binary.
    let library = std::env::current_exe().unwrap().with_file_name("libperdura_interpose.so");
    Command::new(env!("CARGO_BIN_EXE_perdura-lab"))
        .env("PERDURA_INTERPOSE", library)
        .arg("haste")
        .args(words)
        .output()
        .unwrap()
}

/// Parts that a machine without root or without a Debian package cannot run, and says so.
const MAY_BE_LEFT_OUT: [&str; 3] = ["XDD XFS", "Berkeley-DB Btree", "Berkeley-DB HashTable"];

#[test]
fn every_part_runs_and_says_what_is_modelled() {
    let dir = tempfile::tempdir().unwrap();
    let (json, html) = (dir.path().join("haste.json"), dir.path().join("haste.html"));
    let scratch = dir.path().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let paths = [json.to_str().unwrap(), html.to_str().unwrap(), scratch.to_str().unwrap()];
    let output =
        haste(&["--scale", "tiny", "--json", paths[0], "--html", paths[1], "--dir", paths[2]]);
    let (text, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}\n{error}");
    let result: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let left_out: Vec<&str> = result["not_run"]
        .as_array()
        .unwrap()
        .iter()
        .map(|left| left["what"].as_str().unwrap())
        .collect();
    assert!(left_out.iter().all(|what| MAY_BE_LEFT_OUT.contains(what)), "{text}");
    assert_eq!(
        result["programs"].as_array().unwrap().len()
            + left_out.iter().filter(|what| **what != "XDD XFS").count(),
        4
    );
    assert_eq!(result["kernels"].as_array().unwrap().len(), 7);
    for program in result["programs"].as_array().unwrap() {
        let times = program["times"].as_array().unwrap();
        assert_eq!(times.len(), 7, "{program}");
        let of = |system: &str| {
            let time = times.iter().find(|time| time["system"] == system).unwrap();
            time["medium_s"].as_f64().unwrap()
        };
        assert!(of("disk-raid0") > 10.0 * of("pcie-pcm") && of("pcie-pcm") > 0.0, "{program}");
        assert!(program["requests"][0].as_u64().unwrap() > 0, "{program}");
    }
    assert!(result["raw"].as_array().unwrap().len() >= 7 * 10 * 4);
    assert_eq!(result["claims"].as_array().unwrap().len(), 4);
    let page = std::fs::read_to_string(&html).unwrap();
    for words in
        ["Modelled", "HASTE slides", "Memory-hungry applications", "Share of the memory bus"]
    {
        assert!(page.contains(words), "{words}");
    }
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn words_that_cannot_be_are_refused_with_the_value() {
    for (words, expected) in [
        (&["--scale", "huge"][..], "--scale huge: expected one of small, tiny"),
        (&["--media", "pcie-pcm"], "--disks disk-raid0: expected one of --media, pcie-pcm"),
        (&["--media", "quartz"], "no profile is called \"quartz\""),
        (&["--parts", "raw,all"], "--parts all"),
        (&["--dir", "/nowhere"], "--dir /nowhere: not a directory"),
    ] {
        let output = haste(words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(expected), "{words:?}: {error}");
    }
}
