//! `perdura plan media` as people call it.

use std::process::{Command, Output};

fn plan(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_perdura"))
        .args(["plan", "media"])
        .args(words)
        .output()
        .unwrap()
}

#[test]
fn a_plan_is_a_table_a_json_and_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let (json, html) = (dir.path().join("plan.json"), dir.path().join("plan.html"));
    let output = plan(&[
        "--year",
        "2010",
        "--json",
        json.to_str().unwrap(),
        "--html",
        html.to_str().unwrap(),
    ]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for role in ["primary: holds", "cache: holds", "hybrid: holds", "Cheapest by capacity:"] {
        assert!(text.contains(role), "{role} is not in\n{text}");
    }
    let plan: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(plan["label"], "modelled");
    assert_eq!(plan["conclusions"].as_array().unwrap().len(), 3);
    assert!(plan["candidates"].as_array().unwrap().len() > 10);
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains("Modelled") && page.ends_with("</html>\n") && !page.contains("http://"));
}

#[test]
fn a_profile_of_ones_own_can_be_planned_with() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    std::fs::write(&path, "base = \"nvme-flash\"\n[cost]\neur_per_gb = { 2024 = 0.01 }\n").unwrap();
    let output = plan(&["--media", &format!("{},disk-raid0", path.display())]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("mine.toml"), "{text}");
}

#[test]
fn a_file_that_is_no_recording_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("in");
    std::fs::write(&path, vec![7u8; 1 << 20]).unwrap();
    let output = plan(&["--recording", path.to_str().unwrap()]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && error.contains("not a recording"), "{error}");
}

#[test]
fn loads_and_profiles_that_cannot_be_are_refused_with_the_value() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bad.toml");
    std::fs::write(&path, "base = \"pcm\"\n[medium]\nread_latency = \"-1ns\"\n").unwrap();
    let bad = path.to_str().unwrap();
    let cases: [(&[&str], &str); 7] = [
        (&["--iops", "-3"], "-3"),
        (&["--reads", "1.5"], "read share of 1.5"),
        (&["--locality", "90"], "--locality 90: expected two percentages"),
        (&["--media", "quartz"], "no profile is called \"quartz\""),
        (&["--media", bad], "medium.read_latency = -1ns"),
        (&["--capacity", "0"], "capacity (B) of 0"),
        (&["--json", "/nowhere/plan.json"], "/nowhere/plan.json"),
    ];
    for (words, expected) in cases {
        let output = plan(words);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(expected), "{words:?}: {error}");
    }
}
