//! Watching a server over HTTP: what is said there is what INFO says; strict parsers, a real
//! Prometheus and a real browser understand it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use perdura_watch::{ABSENT_IF_NEGATIVE, Fields, Kind, LEFT_OUT, ROWS, descriptions};
use serde_json::Value;

use crate::guarding::GuardProcess;
use crate::running::*;

const SETTINGS: [&str; 4] = ["--memory", "64MiB", "--checkpoint", "100ms"];

/// A server that is watched, and the port for that.
pub fn watched(dir: &Path, extra: &[&str]) -> (Server, u16) {
    let port = free_port();
    let http = format!("127.0.0.1:{port}");
    let server = Server::start(dir, &[&SETTINGS, &["--http", &http][..], extra].concat());
    (server, port)
}

/// The answer to a request: its code, its headers and its body.
fn request(port: u16, head: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "{head}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (headers, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let code = headers.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    (code, headers.to_ascii_lowercase(), body.to_owned())
}

fn get(port: u16, path: &str) -> String {
    let (code, headers, body) =
        request(port, &format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}"));
    assert_eq!(code, 200, "{path}: {headers}\n{body}");
    body
}

/// The samples without labels.
fn samples(metrics: &str) -> BTreeMap<&str, f64> {
    let lines = metrics.lines().filter(|line| !line.starts_with('#') && !line.contains('{'));
    lines.filter_map(|line| line.split_once(' ')).map(|(n, v)| (n, v.parse().unwrap())).collect()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

pub fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}

/// Calls commands of several kinds, with errors.
pub fn use_it(server: &Server) {
    let mut client = server.client();
    for n in 0..200 {
        assert_eq!(client.ask(&["SET", &key(n), &value(n)]), "+OK");
        assert_eq!(client.ask(&["GET", &key(n)]), value(n));
    }
    for words in [&["GET", "nothing"][..], &["LPUSH", "key:1", "x"], &["NONSENSE"]] {
        client.ask(words);
    }
}

#[test]
fn the_metrics_are_the_figures_of_info_and_none_is_forgotten() {
    let dir = TestDir::new();
    let (server, port) = watched(dir.path(), &[]);
    use_it(&server);
    let mut client = server.client();
    // A figure may change between two questions: what lies between two answers is right.
    let mut wrong = Vec::new();
    for _ in 0..50 {
        let before = get(port, "/metrics");
        let info = client.ask(&["INFO"]);
        let after = get(port, "/metrics");
        let (before, after, fields) = (samples(&before), samples(&after), Fields::of(&info));
        let is_wrong = |row: &&perdura_watch::Row| {
            let name = format!("{}{}", row.name, row.kind.suffix());
            let number = fields.number(row.field);
            let number = number.filter(|n| *n >= 0.0 || !ABSENT_IF_NEGATIVE.contains(&row.field));
            match (number, before.get(&*name), after.get(&*name)) {
                (None, None, None) => false,
                (Some(number), Some(a), Some(b)) => {
                    let number = number / row.divisor;
                    let near = number.abs() * 1e-9;
                    number < a.min(*b) - near || number > a.max(*b) + near
                }
                _ => true,
            }
        };
        // The request of the client that asks for INFO is in its memory only while it asks.
        let is_steady = |row: &&perdura_watch::Row| row.field != "mem_clients_normal";
        let rows = ROWS.iter().filter(is_steady);
        wrong = rows.filter(is_wrong).map(|row| row.name).collect();
        if wrong.is_empty() {
            break;
        }
    }
    assert_eq!(wrong, [] as [&str; 0], "these differ from INFO");
    let info = client.ask(&["INFO"]);
    let numbers = info.lines().filter_map(|line| line.split_once(':'));
    let numbers = numbers.filter(|(_, value)| value.trim().parse::<f64>().is_ok());
    let is_known = |name: &str| {
        ROWS.iter().any(|row| row.field == name)
            || LEFT_OUT.iter().any(|(begin, _)| name.starts_with(begin))
    };
    let forgotten: Vec<_> = numbers.map(|(name, _)| name).filter(|name| !is_known(name)).collect();
    assert_eq!(forgotten, [] as [&str; 0], "these are in no metric, and not left out on purpose");
    let text = get(port, "/metrics");
    for part in [
        "perdura_promise_holds 1\n",
        "perdura_holder 1\n",
        "perdura_commands_total{command=\"set\"} 200\n",
        "perdura_command_duration_seconds_count{command=\"set\"} 200\n",
        "perdura_commands_failed_total{command=\"lpush\"} 1\n",
        "perdura_keys{db=\"0\"} 200\n",
        "perdura_errors_total{error=\"WRONGTYPE\"} 1\n",
    ] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
    assert!(text.ends_with("# EOF\n") && !text.contains("command=\"hset\""));
}

#[test]
fn strict_parsers_of_both_formats_take_the_metrics() {
    let dir = TestDir::new();
    let (server, port) = watched(dir.path(), &[]);
    use_it(&server);
    let open = get(port, "/metrics");
    if has("promtool") {
        let head = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain";
        let (_, headers, text) = request(port, head);
        assert!(headers.contains("content-type: text/plain; version=0.0.4"), "{headers}");
        assert_eq!(said_by("promtool", &["check", "metrics"], &text), "");
    }
    let parse = "import sys\n\
        from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse\n\
        print(sum(len(family.samples) for family in parse(sys.stdin.read())))";
    if Path::new("/usr/lib/python3/dist-packages/prometheus_client").exists() {
        let count = said_by("/usr/bin/python3", &["-c", parse], &open);
        let lines = open.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(count.trim().parse::<usize>().unwrap(), lines);
    } else {
        println!("skipped: python3-prometheus-client is not installed");
    }
}

/// What a program says to an input.
fn said_by(program: &str, words: &[&str], input: &str) -> String {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let (said, error) = (String::from_utf8_lossy(&output.stdout), output.stderr);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&error));
    format!("{said}{}", String::from_utf8_lossy(&error))
}

#[test]
fn requests_change_nothing_and_come_from_nobody_elses_page() {
    let dir = TestDir::new();
    let (server, port) = watched(dir.path(), &[]);
    let asked = |head: &str| request(port, head);
    let (code, headers, page) = asked("GET / HTTP/1.1\r\nHost: localhost");
    assert!(code == 200 && page.starts_with("<!doctype html>") && page.len() < 300_000);
    assert!(headers.contains("content-security-policy: default-src 'none'; script-src 'sha256-"));
    let (code, headers, body) = asked("HEAD /metrics HTTP/1.1\r\nHost: localhost");
    assert!(code == 200 && body.is_empty(), "{body}");
    let content_type = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert!(headers.contains(content_type) && headers.contains("x-content-type-options: nosniff"));
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        let head = format!("{method} /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0");
        assert_eq!(asked(&head).0, 405, "{method}");
    }
    assert_eq!(asked("GET /metrics HTTP/1.1\r\nHost: evil.example").0, 421);
    assert_eq!(asked("GET /api/now HTTP/1.1\r\nHost: evil.example:80").0, 421);
    assert_eq!(asked("GET /else HTTP/1.1\r\nHost: localhost").0, 404);
    assert_eq!(asked("GET /api/history?after=x HTTP/1.1\r\nHost: localhost").0, 400);
    assert_eq!(asked("GET /healthz HTTP/1.1\r\nHost: 10.1.2.3").2, "alive\n");
    assert_eq!(asked("GET /readyz HTTP/1.1\r\nHost: any.example").2, "ready\n");
    let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}", "x".repeat(100_000));
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let _ = stream.write_all(long.as_bytes());
    // Far more connections than there may be: later ones are answered all the same.
    let idle: Vec<_> = (0..200).map(|_| TcpStream::connect(("127.0.0.1", port))).collect();
    wait_until("an answer", || {
        let head = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let mut answer = String::new();
        let stream = TcpStream::connect(("127.0.0.1", port));
        let asked = stream.and_then(|mut stream| {
            stream.write_all(head.as_bytes())?;
            stream.read_to_string(&mut answer)
        });
        asked.is_ok() && answer.ends_with("alive\n")
    });
    drop(idle);
    assert_eq!(server.client().ask(&["DBSIZE"]), ":0");
}

#[test]
fn beyond_this_machine_a_password_or_a_word_is_needed() {
    let dir = TestDir::new();
    let data = dir.path().to_str().unwrap();
    let output = |words: &[&str]| {
        let all = [&["serve", "--dir", data], words].concat();
        let output = Command::new(PERDURA).args(all).output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let port = free_port().to_string();
    let base = ["--port", port.as_str(), "--http"];
    let refused = output(&[&base[..], &["0.0.0.0:0"]].concat());
    assert!(refused.contains("--http-password-file FILE, or --http-open"), "{refused}");
    let refused = output(&[&base[..], &["nonsense"]].concat());
    assert!(refused.contains("--http nonsense: expected ADDRESS:PORT"), "{refused}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was made");
    let password = dir.path().join("password");
    fs::write(&password, "secret\n").unwrap();
    let words = ["--http-password-file", password.to_str().unwrap()];
    let (_server, port) = watched(&dir.path().join("data"), &words);
    let asked = |header: &str| {
        request(port, &format!("GET /metrics HTTP/1.1\r\nHost: db.example.org{header}")).0
    };
    assert_eq!(asked(""), 401);
    assert_eq!(asked("\r\nAuthorization: Basic cGVyZHVyYTp3cm9uZw=="), 401);
    assert_eq!(asked("\r\nAuthorization: Basic cGVyZHVyYTpzZWNyZXQ="), 200);
}

#[test]
fn a_server_whose_ssd_has_failed_is_not_ready_and_says_why_everywhere() {
    let dir = TestDir::new();
    let (server, port) = watched(dir.path(), &[]);
    use_it(&server);
    if !fail_the_device(&server) {
        return;
    }
    let (code, _, body) = request(port, "GET /readyz HTTP/1.1\r\nHost: localhost");
    assert!(code == 503 && body.starts_with("the SSD has failed: "), "{body}");
    let metrics = get(port, "/metrics");
    assert!(metrics.contains("perdura_device_failed 1\n"));
    assert!(metrics.contains("perdura_promise_holds 0\n"));
    let now: Value = serde_json::from_str(&get(port, "/api/now")).unwrap();
    let connect = format!("127.0.0.1:{}", server.port);
    let status = Command::new(PERDURA).args(["status", "--json", "--connect", &connect]).output();
    let status: Value = serde_json::from_slice(&status.unwrap().stdout).unwrap();
    assert_eq!(
        (&now["status"]["broken_by"], &status["holds"]),
        (&status["broken_by"], &false.into())
    );
    assert_eq!(request(port, "GET /healthz HTTP/1.1\r\nHost: localhost").0, 200);
}

/// Makes every write to the image fail: the process may make no file longer than a byte.
pub fn fail_the_device(server: &Server) -> bool {
    let pid = server.child.id().to_string();
    let limited = Command::new("prlimit").args(["--pid", &pid, "--fsize=1:1"]).status();
    if !limited.is_ok_and(|status| status.success()) {
        println!("skipped: prlimit does not work here");
        return false;
    }
    let mut client = server.client();
    let mut n = 0;
    wait_until("the failure", || {
        n += 1;
        client.ask(&["SET", &key(n % 200), &value(n)]);
        server.figure("latched") == 1
    });
    true
}

#[test]
fn the_page_of_docs_lists_every_metric() {
    let page = repository().join("docs/watching.md");
    let text = fs::read_to_string(&page).unwrap();
    let table = metrics_table();
    if std::env::var_os("PERDURA_WRITE_DOCS").is_some() {
        let (before, rest) = text.split_once(BEGIN).unwrap();
        let (_, after) = rest.split_once(END).unwrap();
        fs::write(&page, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    } else {
        assert!(text.contains(&table), "PERDURA_WRITE_DOCS=1 makes the test write the table");
    }
}

const BEGIN: &str = "<!-- metrics: written by a test -->\n";
const END: &str = "<!-- metrics end -->\n";

fn metrics_table() -> String {
    let mut text =
        String::from("| metric | kind | labels | in `INFO` | |\n|---|---|---|---|---|\n");
    for (name, kind, labels, field, help) in descriptions() {
        let labels = labels.split(", ").filter(|label| !label.is_empty());
        let labels: Vec<_> = labels.map(|label| format!("`{label}`")).collect();
        let field = if field.is_empty() { String::new() } else { format!("`{field}`") };
        let (kind, labels) = (kind.name(), labels.join(", "));
        text += &format!("| `{name}` | {kind} | {labels} | {field} | {help} |\n");
    }
    text
}

/// The names of metrics in a text of rules or panels.
fn names_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|mark: char| !(mark.is_ascii_alphanumeric() || mark == '_'));
    words.filter(|word| word.starts_with("perdura_")).map(str::to_owned).collect()
}

#[test]
fn rules_and_dashboard_ask_for_metrics_that_exist() {
    let mut known = BTreeSet::new();
    for (name, kind, ..) in descriptions() {
        if kind == Kind::Histogram {
            known.extend(["_bucket", "_count", "_sum"].map(|end| format!("{name}{end}")));
        }
        known.insert(name);
    }
    for file in ["prometheus/alerts.yml", "prometheus/alerts.test.yml", "grafana/perdura.json"] {
        let text = fs::read_to_string(repository().join("packaging").join(file)).unwrap();
        let asked = names_in(&text);
        assert!(asked.len() > 10, "{file}: {asked:?}");
        let unknown: Vec<_> = asked.difference(&known).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
        if file.ends_with("json") {
            let _: Value = serde_json::from_str(&text).unwrap();
        }
    }
    if has("promtool") {
        let folder = repository().join("packaging/prometheus");
        for words in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts.test.yml"]] {
            let output = Command::new("promtool").args(words).current_dir(&folder).output();
            let output = output.unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}{error}");
        }
    }
}

/// A process that is killed at the end.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_real_prometheus_scrapes_a_server_and_its_alerts_fire() {
    if !has("prometheus") {
        return;
    }
    let dir = TestDir::new();
    let power = dir.path().join("power");
    fs::write(&power, "steady\n").unwrap();
    let warning = format!("file:{}", power.display());
    let (server, port) = watched(&dir.path().join("data"), &["--warning", &warning]);
    use_it(&server);
    // Our rules, without their patience.
    let rules = fs::read_to_string(repository().join("packaging/prometheus/alerts.yml")).unwrap();
    let rules: String = rules
        .lines()
        .filter(|line| !line.trim().starts_with("for: "))
        .map(|l| format!("{l}\n"))
        .collect();
    fs::write(dir.path().join("alerts.yml"), rules).unwrap();
    let config = format!(
        "global: {{scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}}\n\
         rule_files: [alerts.yml]\nscrape_configs:\n  - job_name: perdura\n    static_configs: \
         [{{targets: ['127.0.0.1:{port}']}}]\n"
    );
    fs::write(dir.path().join("prometheus.yml"), config).unwrap();
    let prometheus_port = free_port();
    let prometheus = Command::new("prometheus")
        .arg(format!("--config.file={}", dir.path().join("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", dir.path().join("tsdb").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{prometheus_port}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _prometheus = Ended(prometheus);
    let ask = |query: &str| -> Value {
        let Ok(stream) = TcpStream::connect(("127.0.0.1", prometheus_port)) else {
            return Value::Null;
        };
        drop(stream);
        let path = format!("/api/v1/query?query={query}");
        let (_, _, body) =
            request(prometheus_port, &format!("GET {path} HTTP/1.0\r\nHost: localhost"));
        serde_json::from_str(&body).unwrap_or_default()
    };
    let value = |query: &str| ask(query)["data"]["result"][0]["value"][1].clone();
    let fires = |alert: &str| {
        value(&format!("ALERTS%7Balertname=%22{alert}%22,alertstate=%22firing%22%7D")) == "1"
    };
    wait_until("a scrape", || value("perdura_commands_total%7Bcommand=%22set%22%7D") == "200");
    assert_eq!(value("up"), "1");
    assert_eq!(value("perdura_power_state%7Bperdura_power_state=%22steady%22%7D"), "1");
    assert_eq!(value("perdura_command_duration_seconds_count%7Bcommand=%22get%22%7D"), "201");
    assert!(!fires("PerduraOnBattery") && !fires("PerduraDeviceFailed"));
    fs::write(&power, "on-battery\n").unwrap();
    wait_until("PerduraOnBattery", || fires("PerduraOnBattery"));
    assert!(!fires("PerduraPowerLow") && !fires("PerduraPromiseBroken"));
    if fail_the_device(&server) {
        wait_until("PerduraDeviceFailed", || fires("PerduraDeviceFailed"));
        wait_until("PerduraPromiseBroken", || fires("PerduraPromiseBroken"));
    }
}

#[test]
fn the_tenants_of_a_guard_are_shown_and_a_guard_that_is_gone_is_missed() {
    let mut guard = GuardProcess::start();
    let other = guard.serve("other");
    let socket = guard.socket.to_str().unwrap().to_owned();
    let (_server, port) = watched(&guard.data("own"), &["--guard", &socket]);
    let tenants = || {
        let now: Value = serde_json::from_str(&get(port, "/api/now")).unwrap();
        now["tenants"].clone()
    };
    wait_until("both tenants", || {
        let (tenants, other) = (tenants(), guard.data("other"));
        let regions = tenants["regions"].as_array().map_or(&[][..], |regions| regions);
        regions.len() == 2
            && regions.iter().any(|region| region["name"] == *other.to_str().unwrap())
    });
    let text = get(port, "/metrics");
    let name = guard.data("other");
    let sample = format!("perdura_tenant_running{{tenant=\"{}\"}} 1\n", name.display());
    assert!(text.contains(&sample) && text.contains("perdura_guard_answers 1\n"), "{text}");
    drop(other);
    guard.kill_both();
    wait_until("silence", || get(port, "/metrics").contains("perdura_guard_answers 0\n"));
    assert!(tenants()["error"].is_string());
}
