//! `perdura plan battery` as people call it.

use std::process::{Command, Output};

fn battery(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_perdura"))
        .args(["plan", "battery"])
        .args(words)
        .output()
        .unwrap()
}

fn json(words: &[&str]) -> serde_json::Value {
    let output = battery(&[words, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_papers_server_is_the_default_and_its_figures_come_out() {
    let plan = json(&["--reserve", "0s", "--fade", "0%"]);
    let all = &plan["modelled"]["all_memory"];
    assert_eq!(all["battery"]["needed_joules"], 307_200.0);
    assert_eq!(all["flush_s"], 1024.0);
    assert!(all["battery"]["phone_cells"].as_f64().unwrap() > 25.0);
    let text = String::from_utf8(battery(&[]).stdout).unwrap();
    assert!(text.contains("modelled") && text.contains("17m"), "{text}");
}

#[test]
fn a_warning_or_a_battery_says_what_may_be_dirty() {
    let dirty =
        |words: &[&str]| json(words)["modelled"]["budget"]["dirty_bytes"].as_f64().unwrap() / 4e9;
    assert!((dirty(&["--grace", "30s"]) - 28.0).abs() < 0.01);
    // 50 Wh are 180 kJ; half of it after a fifth has faded is 72 kJ: 240 s at 300 W.
    assert!((dirty(&["--battery", "50Wh"]) - 238.0).abs() < 0.01);
}

#[test]
fn what_cannot_be_is_refused_with_what_to_do() {
    let refused = |words: &[&str], part: &str| {
        let output = battery(words);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.contains(part), "{words:?}: {text}");
    };
    refused(&["--grace", "30s", "--budget", "50%"], "allows 104.31 GiB");
    refused(&["--memory", "1GB", "--budget", "2GB"], "is more than the memory");
    refused(&["--depth-of-discharge", "0%"], "expected 0.01 to 1");
    refused(&["--memory", "many"], "--memory many");
    refused(&["--flush-rate", "0B/s"], "--flush-rate");
    refused(&["--years", "30"], "nothing of the battery is left");
}
