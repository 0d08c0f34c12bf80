//! The log: plain lines without escape codes where there is no terminal, or JSON.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::running::*;

/// What a server and its holder log from start to end.
fn log_of(words: &[&str]) -> String {
    let dir = TestDir::new();
    let port = free_port();
    let mut command = Command::new(PERDURA);
    command.args(["serve", "--memory", "64MiB", "--listen", &format!("127.0.0.1:{port}"), "--dir"]);
    command.arg(dir.path()).args(words).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.env_remove("PERDURA_LOG").spawn().unwrap();
    wait_until("an answer", || Client::try_connect(port).is_ok());
    let mut client = Client::connect(port);
    assert_eq!(client.ask(&["PING"]), "+PONG");
    signal_process(child.id(), "TERM");
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn without_a_terminal_the_log_has_plain_lines_and_no_escape_codes() {
    let log = log_of(&[]);
    assert!(log.contains(" INFO perdura::serve: intake stopped; flushing commands="), "{log}");
    assert!(!log.contains('\u{1b}'), "{log:?}");
}

#[test]
fn a_log_in_json_has_an_object_in_each_line() {
    let log = log_of(&["--log-format", "json"]);
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let stopped = lines.iter().find(|line| line["message"] == "intake stopped; flushing").unwrap();
    assert_eq!((&stopped["level"], &stopped["target"]), (&"INFO".into(), &"perdura::serve".into()));
    assert!(stopped["commands"].is_u64() && stopped["timestamp"].is_string(), "{stopped}");
    let output = Command::new(PERDURA).args(["serve", "--log-format", "xml"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("--log-format xml: expected one of plain, json"), "{said}");
}

#[test]
fn a_terminal_gets_colours_unless_they_are_refused() {
    // It logs a line, and ends.
    let words = format!("{PERDURA} sim cut --cuts 1 --seed 1");
    let said = |refuse: bool| {
        let mut command = Command::new("script");
        command.args(["-qec", &words, "/dev/null"]).env("PERDURA_LOG", "loud=very");
        command.env_remove("NO_COLOR").stdin(Stdio::null());
        if refuse {
            command.env("NO_COLOR", "1");
        }
        let output = command.output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (Some(coloured), Some(plain)) = (said(false), said(true)) else {
        println!("skipped: script(1) is not here");
        return;
    };
    assert!(coloured.contains("is ignored") && coloured.contains('\u{1b}'), "{coloured:?}");
    assert!(plain.contains("is ignored") && !plain.contains('\u{1b}'), "{plain:?}");
}
