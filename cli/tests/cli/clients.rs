//! Clients that people use: redis-cli, redis-benchmark, redis-py. A test whose client is missing
//! says that it is skipped.

use std::process::{Command, Output};

use crate::running::*;

const PYTHON: &str = r#"
import sys, redis
r = redis.Redis(port=int(sys.argv[1]))
assert r.ping()
assert r.set("a", b"\x00\xff", ex=100) and r.get("a") == b"\x00\xff" and 0 < r.ttl("a") <= 100
with r.pipeline(transaction=True) as p:
    p.incr("n").incr("n").hset("h", mapping={"x": 1, "y": 2}).hgetall("h")
    assert p.execute() == [1, 2, 2, {b"x": b"1", b"y": b"2"}]
assert r.mset({f"k{i}": i for i in range(500)}) and r.dbsize() == 503
assert len(set(r.scan_iter(match="k*", count=50))) == 500
assert r.setrange("s", 3, "abc") == 6 and r.getrange("s", 0, -1) == b"\x00\x00\x00abc"
try:
    r.lpush("a", 1)
    raise SystemExit("a missing command was accepted")
except redis.exceptions.ResponseError:
    pass
print("ok")
"#;

/// Runs a program; `None`: it is not installed.
fn run(program: &str, args: &[&str]) -> Option<Output> {
    match Command::new(program).args(args).output() {
        Ok(output) => Some(output),
        Err(error) => {
            eprintln!("skipped: {program}: {error}");
            None
        }
    }
}

#[test]
fn redis_cli_and_redis_benchmark_work() {
    let dir = TestDir::new();
    let server = Server::start(dir.path(), &["--memory", "256MiB", "--budget", "11%"]);
    let port = server.port.to_string();
    if let Some(output) = run("redis-cli", &["-p", &port, "INFO", "server"]) {
        assert!(String::from_utf8_lossy(&output.stdout).contains("redis_version"), "{output:?}");
    }
    let words = ["-p", &port, "-t", "set,get,incr,hset,mset", "-n", "20000", "-P", "8", "-q"];
    if let Some(output) = run("redis-benchmark", &words) {
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("MSET"), "{said}");
        assert!(!said.contains("ERR"), "{said}");
    }
}

#[test]
fn redis_py_works() {
    let dir = TestDir::new();
    let server = Server::start(dir.path(), &["--memory", "64MiB", "--budget", "4MiB"]);
    // Debian's package of the client is for Debian's Python.
    let python = if std::path::Path::new("/usr/bin/python3").exists() {
        "/usr/bin/python3"
    } else {
        "python3"
    };
    let Some(output) = run(python, &["-c", PYTHON, &server.port.to_string()]) else { return };
    let wrong = String::from_utf8_lossy(&output.stderr);
    if wrong.contains("No module named 'redis'") {
        eprintln!("skipped: redis-py is not installed");
        return;
    }
    assert!(output.status.success(), "{wrong}");
}
