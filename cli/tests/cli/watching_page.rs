//! The live page in a real Chromium, driven through the protocol of WebDriver.
//!
//! `PERDURA_PICTURES=DIR` keeps pictures of what was seen.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::running::*;
use crate::watching::{fail_the_device, has, use_it, watched};

/// A browser without a window.
struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";
const LEFT: &str = "\u{e012}";

impl Browser {
    fn open(url: &str) -> Self {
        let port = free_port();
        let driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut browser = Self { driver, port, session: String::new() };
        wait_until("chromedriver", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        let words =
            ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--lang=en"];
        let wish = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": words },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let begun = browser.call("POST", "/session", &wish);
        browser.session = begun["sessionId"].as_str().unwrap().to_owned();
        browser.post("url", json!({ "url": url }));
        browser
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let body = body.to_string();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close");
        write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        // The driver leaves the connection open.
        let mut answer = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(answer.read_line(&mut head).unwrap(), 0, "{head}");
        }
        let head = head.to_ascii_lowercase();
        let length = head.split("content-length:").nth(1).unwrap_or_else(|| panic!("{head}"));
        let length = length.split("\r\n").next().unwrap().trim().parse().unwrap();
        let mut body = vec![0; length];
        answer.read_exact(&mut body).unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert!(head.starts_with("http/1.1 200"), "{path}: {body}");
        body["value"].clone()
    }

    fn post(&self, what: &str, body: Value) -> Value {
        self.call("POST", &format!("/session/{}/{what}", self.session), &body)
    }

    /// The value of an expression on the page.
    fn value(&self, expression: &str) -> Value {
        let script = format!("return {expression}");
        self.post("execute/sync", json!({ "script": script, "args": [] }))
    }

    fn text(&self, expression: &str) -> String {
        self.value(expression).as_str().unwrap_or_default().to_owned()
    }

    fn wait_for(&self, expression: &str) {
        wait_until(expression, || self.value(expression) == true);
    }

    fn press(&self, key: &str) {
        let actions =
            [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })];
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.post("actions", json!({ "actions": [keyboard] }));
    }

    /// Makes the window of this size, on a machine that prefers this theme.
    fn be(&self, width: u32, height: u32, theme: &str) {
        let command = |name: &str, params: Value| {
            self.post("goog/cdp/execute", json!({ "cmd": name, "params": params }));
        };
        let (ratio, is_phone) = if width < 500 { (2, true) } else { (1, false) };
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": ratio,
            "mobile": is_phone });
        command("Emulation.setDeviceMetricsOverride", size);
        let features = json!([{ "name": "prefers-color-scheme", "value": theme }]);
        command("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Keeps a picture of the whole page, if pictures are wanted.
    fn picture(&self, name: &str) {
        let Some(folder) = std::env::var_os("PERDURA_PICTURES") else { return };
        let params = json!({ "captureBeyondViewport": true });
        let taken = self
            .post("goog/cdp/execute", json!({ "cmd": "Page.captureScreenshot", "params": params }));
        let path = std::path::Path::new(&folder).join(format!("{name}.png"));
        let decode = Command::new("base64")
            .arg("-d")
            .stdin(Stdio::piped())
            .stdout(std::fs::File::create(path).unwrap())
            .spawn();
        let mut decode = decode.unwrap();
        decode.stdin.take().unwrap().write_all(taken["data"].as_str().unwrap().as_bytes()).unwrap();
        assert!(decode.wait().unwrap().success());
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let path = format!("/session/{}", self.session);
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                self.call("DELETE", &path, &json!({}))
            }));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

#[test]
fn the_page_shows_the_promise_to_everybody_and_asks_nobody_else() {
    if !has("chromedriver") {
        return;
    }
    let dir = TestDir::new();
    let (server, port) = watched(dir.path(), &[]);
    use_it(&server);
    let browser = Browser::open(&format!("http://127.0.0.1:{port}/"));
    browser.wait_for("document.body.dataset.state === 'live'");
    assert_eq!(browser.text("document.querySelector('#verdict').innerText"), "The promise holds.");
    let gauge = browser.text("document.querySelector('#gauge').getAttribute('aria-label')");
    assert!(gauge.contains(" of 30s; a full budget takes "), "{gauge}");
    let cards = browser.text("document.querySelector('#cards').innerText");
    for words in ["Dirty", "of a budget of 64 MiB", "Flush rate", "Stalls", "Holder", "Keys\n200"] {
        assert!(cards.contains(words), "{words} in {cards}");
    }
    let commands = browser.text("document.querySelector('#commands').innerText");
    assert!(commands.contains("get") && commands.contains("p99"), "{commands}");
    assert_eq!(browser.value("document.querySelectorAll('#heat rect').length"), 256);
    assert_eq!(browser.value("document.querySelector('#tenants').hidden"), true);

    // By keys alone: the link that skips, the theme, the times and the curves.
    browser.press(TAB);
    assert_eq!(browser.text("document.activeElement.className"), "skip");
    browser.press(TAB);
    assert_eq!(browser.text("document.activeElement.id"), "theme");
    let background = "getComputedStyle(document.body).backgroundColor";
    browser.be(1280, 900, "light");
    let by_system = browser.text(background);
    assert_eq!(by_system, "rgb(255, 255, 255)");
    browser.be(1280, 900, "dark");
    assert_ne!(browser.text(background), by_system);
    browser.press(ENTER);
    assert_eq!(browser.text("document.documentElement.dataset.theme"), "light");
    assert_eq!(browser.text(background), by_system);
    browser.press(ENTER);
    browser.press(ENTER);
    assert_eq!(browser.text("document.documentElement.dataset.theme"), "system");
    browser.press(TAB);
    browser.press(TAB);
    browser.press(ENTER);
    let pressed = "document.querySelector('[aria-pressed=true]').innerText";
    assert_eq!(browser.text(pressed), "15 min");
    browser.press(TAB);
    browser.press(TAB);
    browser.wait_for("document.querySelector('#charts path.line').getAttribute('d') !== ''");
    browser.press(LEFT);
    let read = browser.text("document.querySelector('#o-safe').innerText");
    assert!(read.contains("time to be safe ") && read.contains("warning 30s"), "{read}");
    let unnamed = "[...document.querySelectorAll('button, a, [tabindex], [role]')].filter(node => \
                   !(node.innerText || node.getAttribute('aria-label') || \
                   node.getAttribute('aria-labelledby'))).length";
    assert_eq!(browser.value(unnamed), 0);

    // On a phone nothing is cut off, and only tables are wider.
    for theme in ["light", "dark"] {
        browser.be(1280, 900, theme);
        browser.picture(theme);
    }
    browser.be(360, 740, "dark");
    let width = browser.value("document.scrollingElement.scrollWidth").as_u64().unwrap();
    assert!(width <= 360, "{width}");
    browser.picture("phone-dark");

    // What it has asked for, and what the browser has refused.
    let asked = browser.value(
        "performance.getEntriesByType('resource').filter(one => \
         !one.name.startsWith(location.origin)).map(one => one.name)",
    );
    assert_eq!(asked, json!([]));
    let log = browser.post("se/log", json!({ "type": "browser" }));
    assert_eq!(log, json!([]), "the browser complains");

    // Trouble is said in words, and so is silence.
    if fail_the_device(&server) {
        browser.wait_for("document.querySelector('#verdict').innerText.includes('BROKEN')");
        let verdict = browser.text("document.querySelector('#verdict').innerText");
        assert!(verdict.contains("the SSD failed: "), "{verdict}");
        assert_eq!(browser.text("document.title"), "BROKEN – Perdura");
        browser.picture("phone-trouble");
    }
    drop(server);
    browser.wait_for("document.body.dataset.state === 'old'");
    let verdict = browser.text("document.querySelector('#verdict').innerText");
    assert!(verdict.contains("does not answer"), "{verdict}");
}
