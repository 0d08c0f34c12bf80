//! `perdura plan kubernetes`: the manifest is one, and its numbers keep the promise.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn plan(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perdura"));
    command.args(["plan", "kubernetes", "--memory", "4GiB"]).args(words).output().unwrap()
}

/// The documents of a manifest, read by a program that is not ours.
fn documents(manifest: &[u8]) -> Option<Vec<Value>> {
    use std::io::Write;
    let script = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.stdin))))";
    let mut python = Command::new("/usr/bin/python3")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    python.stdin.take().unwrap().write_all(manifest).unwrap();
    let output = python.wait_with_output().unwrap();
    if String::from_utf8_lossy(&output.stderr).contains("No module named 'yaml'") {
        eprintln!("SKIPPED: python3-yaml is missing");
        return None;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn the_manifest_has_the_numbers_that_the_promise_needs() {
    let words = ["--flush-rate", "125MiB/s", "--termination", "60s", "--storage-class", "fast.ssd"];
    let numbers = plan(&[&words[..], &["--json"]].concat());
    let numbers: Value = serde_json::from_slice(&numbers.stdout).unwrap();
    let pod = &numbers["pod"];
    let output = plan(&words);
    let Some(documents) = documents(&output.stdout) else { return };
    let [service, set] = documents.as_slice() else { panic!("{documents:?}") };
    assert_eq!((&service["kind"], &set["kind"]), (&"Service".into(), &"StatefulSet".into()));
    let spec = &set["spec"]["template"]["spec"];
    let container = &spec["containers"][0];
    assert_eq!(spec["terminationGracePeriodSeconds"], 60);
    assert_eq!(container["lifecycle"]["preStop"]["exec"]["command"][1], "5");
    let args = container["args"].as_array().unwrap();
    assert!(args.contains(&"--grace=54s".into()), "{args:?}");
    // Without it, or TLS, a server refuses an address that others reach.
    assert!(args.contains(&"--allow-plaintext".into()), "{args:?}");
    assert_eq!(pod["warning_s"], 54);
    let flush_s = pod["flush_s"].as_f64().unwrap();
    assert!((51.5..=52.0).contains(&flush_s) || pod["budget_bytes"] == 4u64 << 30, "{pod}");
    let limit = &container["resources"]["limits"]["memory"];
    assert_eq!(limit, "4365Mi");
    assert_eq!(*limit, container["resources"]["requests"]["memory"]);
    let claim = &set["spec"]["volumeClaimTemplates"][0]["spec"];
    assert_eq!(claim["storageClassName"], "fast.ssd");
    let storage = claim["resources"]["requests"]["storage"].as_str().unwrap();
    let storage: u64 = storage.strip_suffix("Mi").unwrap().parse().unwrap();
    assert!((12_000..32_000).contains(&storage), "{storage} Mi");
    // `serve` understands what the pod tells it, up to the password, which is missing here.
    let words: Vec<_> = args.iter().map(|word| word.as_str().unwrap()).collect();
    let served = Command::new(env!("CARGO_BIN_EXE_perdura")).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&served.stderr);
    assert!(!served.status.success() && said.contains("password"), "{said}");
}

#[test]
fn the_manifest_in_the_packages_is_what_their_page_says_is_printed() {
    let page = include_str!("../../../docs/packages.md");
    let kept = include_str!("../../../packaging/kubernetes/perdura.yaml");
    let line = page.lines().find(|line| line.starts_with("perdura plan kubernetes ")).unwrap();
    let printed =
        Command::new(env!("CARGO_BIN_EXE_perdura")).args(line.split(' ').skip(1)).output();
    assert_eq!(String::from_utf8(printed.unwrap().stdout).unwrap(), kept, "{line}");
    for number in ["memory: 17268Mi", "storage: 88297Mi", "--grace=54s"] {
        let shown = number.rsplit(' ').next().unwrap();
        assert!(kept.contains(number) && page.contains(shown), "{number}");
    }
}

#[test]
fn a_budget_says_how_long_the_end_must_be() {
    let words = ["--flush-rate", "125MiB/s", "--budget", "1GiB", "--json"];
    let numbers: Value = serde_json::from_slice(&plan(&words).stdout).unwrap();
    let pod = &numbers["pod"];
    assert_eq!(pod["budget_bytes"], 1u64 << 30);
    let needed_s = pod["flush_s"].as_f64().unwrap() + pod["reserve_s"].as_f64().unwrap();
    let warning_s = pod["warning_s"].as_f64().unwrap();
    assert!(needed_s <= warning_s && needed_s > warning_s - 1.2, "{pod}");
    assert_eq!(pod["termination_s"].as_f64().unwrap(), warning_s + 6.0);
}

#[test]
fn what_cannot_be_is_refused() {
    let rate = ["--flush-rate", "125MiB/s"];
    for (words, why) in [
        (&["--termination", "6s"][..], "nothing is left for the server"),
        (&["--name", "Perdura"], "--name Perdura"),
        (&["--image", "x\n- y"], "--image"),
        (&["--storage-class", "\"a\""], "--storage-class"),
        (&["--budget", "64KiB"], "below the smallest"),
    ] {
        let output = plan(&[&rate[..], words].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{said}");
    }
    let output = plan(&[]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--flush-rate"));
}
