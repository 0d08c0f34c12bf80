//! TLS between processes: our own commands and other programs as clients.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::real_redis::{Redis, everything};
use crate::running::*;

fn file(name: &str) -> String {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../server/tests/certificates");
    dir.join(name).to_str().unwrap().to_owned()
}

/// A server that speaks TLS at one port, and none at the other.
struct Sealed {
    server: Server,
    tls_port: u16,
    dir: TestDir,
}

impl Sealed {
    fn start() -> Self {
        Self::start_with(&file("server.pem"), &file("server.key"))
    }

    fn start_with(cert: &str, key: &str) -> Self {
        Self::start_by(Command::new(PERDURA), cert, key)
    }

    /// Starts one whose log is appended to a file.
    fn start_logging(cert: &str, key: &str, log: &Path) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", "log=$1; shift; exec \"$@\" 2>>\"$log\"", "sh"]).arg(log).arg(PERDURA);
        Self::start_by(shell, cert, key)
    }

    fn start_by(program: Command, cert: &str, key: &str) -> Self {
        let (dir, tls_port) = (TestDir::new(), free_port());
        let (listen, authority) = (format!("127.0.0.1:{tls_port}"), file("authority.pem"));
        let options = ["--tls-cert-file", cert, "--tls-key-file", key];
        let others = ["--tls-ca-cert-file", &authority, "--tls-listen", &listen];
        let memory = ["--memory", "256MiB", "--no-holder"];
        let server = Server::start_by(
            program,
            &dir.path().join("data"),
            &[&options[..], &others, &memory].concat(),
        );
        Self { server, tls_port, dir }
    }

    /// Runs one of our commands with a good certificate.
    fn asked(&self, words: &[&str]) -> Output {
        let credentials = ["--cert", &file("client.pem"), "--key", &file("client.key")];
        self.asked_by(words, &[&["--cacert", &file("authority.pem")], &credentials[..]].concat())
    }

    fn asked_by(&self, words: &[&str], credentials: &[&str]) -> Output {
        Command::new(PERDURA).args(words).args(credentials).output().unwrap()
    }

    fn url(&self) -> String {
        format!("rediss://localhost:{}", self.tls_port)
    }

    fn place(&self) -> String {
        format!("127.0.0.1:{}", self.tls_port)
    }

    /// `redis-cli` with TLS; `None` where there is none.
    fn redis_cli(&self, words: &[&str]) -> Option<Command> {
        let mut tool = Command::new("redis-cli");
        let help = tool.arg("--help").output().ok()?;
        let help = [help.stdout, help.stderr].concat();
        if !String::from_utf8_lossy(&help).contains("--tls") {
            return None;
        }
        let mut tool = Command::new("redis-cli");
        tool.args(["-h", "127.0.0.1", "-p", &self.tls_port.to_string(), "--tls"]);
        tool.args(["--cacert", &file("authority.pem"), "--cert", &file("client.pem")]);
        tool.args(["--key", &file("client.key")]).args(words);
        Some(tool)
    }
}

fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn refused(output: &Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn our_own_commands_ask_a_server_by_tls_and_move_its_data() {
    let sealed = Sealed::start();
    let (url, place) = (sealed.url(), sealed.place());
    assert_eq!(sealed.server.client().ask(&["SET", "a", &"b".repeat(200_000)]), "+OK");
    let text = succeeded(&sealed.asked(&["status", "--connect", &url]));
    let host = url.trim_start_matches("rediss://");
    assert!(text.starts_with(&format!("{host}: the promise holds")), "{text}");
    succeeded(&sealed.asked(&["status", "--connect", &place, "--tls"]));
    let text = succeeded(&sealed.asked(&["drill", "--no-fill", "--connect", &place, "--tls"]));
    assert!(text.contains("flushed "), "{text}");
    let dump = sealed.dir.path().join("dump.rdb");
    let dump = dump.to_str().unwrap();
    let text = succeeded(&sealed.asked(&["export", dump, "--from", &place, "--tls"]));
    assert!(text.contains(": 1 keys"), "{text}");
    let text = succeeded(&sealed.asked(&["import", dump, "--to", &url, "--flush"]));
    assert!(text.starts_with("imported 1 keys"), "{text}");
    assert_eq!(sealed.server.client().ask(&["STRLEN", "a"]), ":200000");
}

#[test]
fn who_connects_to_the_wrong_port_or_without_what_is_asked_for_is_told_what_to_do() {
    let sealed = Sealed::start();
    let (url, place) = (sealed.url(), sealed.place());
    let authority = ["--cacert", &file("authority.pem")];
    let status = |address: &str, options: &[&str]| {
        let output = sealed.asked_by(&["status", "--connect", address], options);
        assert_eq!(output.status.code(), Some(2), "the store could not be asked");
        refused(&output)
    };
    let foreign = ["--cert", &file("foreign.pem"), "--key", &file("foreign.key")];
    let plain = format!("127.0.0.1:{}", sealed.server.port);
    for (error, part) in [
        (status(&place, &[]), "add --tls"),
        (status(&place, &authority), "add --tls"),
        (status(&plain, &["--tls", "--insecure"]), "no TLS is spoken there"),
        (status(&url, &["--cacert", &file("stranger.pem")]), "--cacert FILE"),
        (status(&url, &authority), "--cert FILE and --key FILE"),
        (status(&url, &[&authority[..], &foreign].concat()), "refused the connection"),
        (status(&url, &["--cacert", &file("no-such-file")]), "--cacert "),
        (status(&url, &["--cacert", &file("server.key")]), "there is no certificate in it"),
    ] {
        assert!(error.contains(part), "{part} in {error}");
    }
    let dump = sealed.dir.path().join("dump.rdb");
    let error =
        refused(&sealed.asked_by(&["export", dump.to_str().unwrap(), "--from", &place], &[]));
    assert!(error.contains("add --tls"), "{error}");
    let client = ["--cert", &file("client.pem"), "--key", &file("client.key"), "--insecure"];
    succeeded(&sealed.asked_by(&["status", "--connect", &url], &client));
}

#[test]
fn data_of_a_redis_are_imported_and_followed_by_tls() {
    let (sealed, data) = (Sealed::start(), tempfile::tempdir().unwrap());
    let tls_port = free_port().to_string();
    let (cert, key, authority) = (file("server.pem"), file("server.key"), file("authority.pem"));
    let files =
        ["--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-ca-cert-file", &authority];
    // Redis' programs are built with TLS, or without, together.
    if sealed.redis_cli(&[]).is_none() {
        println!("skipped: no Redis with TLS is installed");
        return;
    }
    let options = [&["--tls-port", &tls_port, "--requirepass", "geheim"], &files[..]].concat();
    let Some(redis) = Redis::start_with_password(data.path(), &options, "geheim") else { return };
    let mut talk = redis.talk();
    assert_eq!(talk.ask("AUTH geheim"), ["OK"]);
    for n in 0..2000 {
        talk.ask_words(&["SET", &format!("k{n}"), &"v".repeat(n)]);
    }
    let source = format!("rediss://:geheim@localhost:{tls_port}");
    let words = ["import", &source, "--to", &sealed.place(), "--tls", "--promote", "--pause", "0s"];
    let text = succeeded(&sealed.asked(&words));
    assert!(text.starts_with("imported 2000 keys"), "{text}");
    assert!(text.contains("promoted at offset"), "{text}");
    assert_eq!(everything(sealed.server.port, 0).len(), 2000);
    assert_eq!(sealed.server.client().ask(&["STRLEN", "k1999"]), ":1999");
}

#[test]
fn a_new_certificate_is_read_at_sighup() {
    let files = tempfile::tempdir().unwrap();
    let (cert, key) = (files.path().join("cert.pem"), files.path().join("key.pem"));
    let put = |name: &str| {
        std::fs::copy(file(&format!("{name}.key")), &key).unwrap();
        std::fs::copy(file(&format!("{name}.pem")), &cert).unwrap();
    };
    put("expired");
    let log = files.path().join("log");
    let sealed = Sealed::start_logging(cert.to_str().unwrap(), key.to_str().unwrap(), &log);
    let warnings = || {
        let log = std::fs::read_to_string(&log).unwrap();
        log.lines().filter(|line| line.contains("WARN") && line.contains("has expired at")).count()
    };
    wait_until("the warning", || warnings() == 1);
    assert!(sealed.server.figure("tls_certificate_not_after") < 1_800_000_000);
    let words = ["status", "--connect", &sealed.url()];
    assert!(refused(&sealed.asked(&words)).contains("has expired"));
    sealed.server.signal("HUP");
    wait_until("another warning", || warnings() == 2);
    put("renewed");
    assert!(refused(&sealed.asked(&words)).contains("has expired"));
    sealed.server.signal("HUP");
    wait_until("the new certificate", || sealed.asked(&words).status.success());
    assert!(sealed.server.figure("tls_certificate_not_after") > 4_000_000_000);
    assert_eq!(warnings(), 2);
    // Half of a renewal changes nothing.
    std::fs::copy(file("server.key"), &key).unwrap();
    sealed.server.signal("HUP");
    for _ in 0..20 {
        succeeded(&sealed.asked(&words));
    }
}

#[test]
fn redis_cli_takes_a_dump_and_monitors_by_tls() {
    let sealed = Sealed::start();
    let dump = sealed.dir.path().join("dump.rdb");
    let Some(mut sync) = sealed.redis_cli(&["--rdb", dump.to_str().unwrap()]) else {
        println!("skipped: no redis-cli with TLS is installed");
        return;
    };
    let mut client = sealed.server.client();
    for n in 0..2000 {
        client.ask(&["SET", &format!("k{n}"), &"v".repeat(n)]);
    }
    succeeded(&sync.output().unwrap());
    let text = succeeded(&sealed.asked(&[
        "import",
        dump.to_str().unwrap(),
        "--to",
        &sealed.url(),
        "--flush",
    ]));
    assert!(text.starts_with("imported 2000 keys"), "{text}");

    let seen = sealed.dir.path().join("seen");
    let mut monitor = sealed.redis_cli(&["MONITOR"]).unwrap();
    let mut monitor =
        monitor.stdin(Stdio::null()).stdout(std::fs::File::create(&seen).unwrap()).spawn().unwrap();
    let text = || std::fs::read_to_string(&seen).unwrap();
    wait_until("MONITOR", || {
        client.ask(&["ECHO", "seen by others"]);
        text().contains("\"seen by others\"")
    });
    monitor.kill().unwrap();
    monitor.wait().unwrap();
}

#[test]
fn redis_py_speaks_tls_with_us_and_a_value_of_100_mb_comes_and_goes() {
    let sealed = Sealed::start();
    let script = "\
import sys
try:
    import redis
except ImportError:
    print('skipped')
    sys.exit()
port, authority, cert, key = sys.argv[1:]
files = {'ssl_ca_certs': authority, 'ssl_certfile': cert, 'ssl_keyfile': key}
r = redis.Redis(port=int(port), ssl=True, **files)
value = bytes(range(250)) * 400000
assert r.set('large', value)
assert r.get('large') == value
p = r.pipeline(transaction=True)
for n in range(1000):
    p.incr('n')
assert p.execute()[-1] == 1000
s = r.pubsub()
s.subscribe('c')
assert s.get_message(timeout=10)['type'] == 'subscribe'
r.publish('c', 'm')
assert s.get_message(timeout=10)['data'] == b'm'
print('done')
";
    let files = [file("authority.pem"), file("client.pem"), file("client.key")];
    // The distribution's Python has the distribution's redis-py.
    let mut python = Command::new("/usr/bin/python3");
    let port = sealed.tls_port.to_string();
    let Ok(output) = python.args(["-c", script, &port]).args(files).output() else {
        println!("skipped: no python3");
        return;
    };
    let text = succeeded(&output);
    assert!(["done\n", "skipped\n"].contains(&&*text), "{text}");
    print!("{text}");
}
