//! A real redis-server beside the program, and what all keys of a server hold.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::running::free_port;

/// A redis-server, killed when dropped.
pub struct Redis {
    child: Child,
    pub port: u16,
}

impl Redis {
    /// Starts one in a directory; `None` where none is installed.
    pub fn start(dir: &Path, options: &[&str]) -> Option<Self> {
        Self::start_with_password(dir, options, "")
    }

    /// Starts one whose password is among the options.
    pub fn start_with_password(dir: &Path, options: &[&str], password: &str) -> Option<Self> {
        let port = free_port();
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
            .arg(dir)
            .args(options)
            .stdout(Stdio::null())
            .spawn();
        let child = match child {
            Ok(child) => child,
            Err(error) => {
                println!("skipped: redis-server: {error}");
                return None;
            }
        };
        let redis = Self { child, port };
        let began = Instant::now();
        let answers = |mut talk: Talk| {
            if !password.is_empty() {
                talk.ask_words(&["AUTH", password]);
            }
            talk.ask("PING") == ["PONG"]
        };
        while !Talk::try_connect(port).is_some_and(answers) {
            assert!(began.elapsed() < Duration::from_secs(20), "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(redis)
    }

    pub fn talk(&self) -> Talk {
        Talk::try_connect(self.port).unwrap()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client that reads any reply as its texts, in their order.
pub struct Talk(BufReader<TcpStream>);

impl Talk {
    pub fn try_connect(port: u16) -> Option<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Some(Self(BufReader::new(stream)))
    }

    /// Sends words that have blanks between them.
    pub fn ask(&mut self, line: &str) -> Vec<String> {
        self.ask_words(&line.split(' ').collect::<Vec<_>>())
    }

    pub fn ask_words(&mut self, words: &[&str]) -> Vec<String> {
        self.send(words);
        self.reply().unwrap_or_default()
    }

    pub fn send(&mut self, words: &[&str]) {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        let _ = self.0.get_mut().write_all(request.as_bytes());
    }

    /// `None`: the connection has ended.
    pub fn reply(&mut self) -> Option<Vec<String>> {
        let mut texts = Vec::new();
        self.read(&mut texts)?;
        Some(texts)
    }

    fn read(&mut self, texts: &mut Vec<String>) -> Option<()> {
        let mut line = String::new();
        if self.0.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let (kind, rest) = line.trim_end().split_at(1);
        match (kind, rest.parse::<i64>()) {
            ("*", Ok(count)) => (0..count).try_for_each(|_| self.read(texts)),
            ("$", Ok(len @ 0..)) => {
                let mut bytes = vec![0; len as usize + 2];
                self.0.read_exact(&mut bytes).ok()?;
                bytes.truncate(len as usize);
                texts.push(bytes.escape_ascii().to_string());
                Some(())
            }
            ("-", _) => {
                texts.push(line.trim_end().to_owned());
                Some(())
            }
            _ => {
                texts.push(rest.to_owned());
                Some(())
            }
        }
    }
}

/// The value and the expiry of every key of a database.
pub fn everything(port: u16, db: u32) -> BTreeMap<String, Vec<String>> {
    let mut talk = Talk::try_connect(port).unwrap();
    talk.ask(&format!("SELECT {db}"));
    let keys = talk.ask("KEYS *");
    let mut all = BTreeMap::new();
    for key in keys {
        let kind = talk.ask_words(&["TYPE", &key]).concat();
        let mut value = match kind.as_str() {
            "string" => talk.ask_words(&["GET", &key]),
            "list" => talk.ask_words(&["LRANGE", &key, "0", "-1"]),
            "zset" => talk.ask_words(&["ZRANGE", &key, "0", "-1", "WITHSCORES"]),
            "set" => {
                let mut members = talk.ask_words(&["SMEMBERS", &key]);
                members.sort();
                members
            }
            "hash" => {
                let fields = talk.ask_words(&["HGETALL", &key]);
                let mut pairs: Vec<_> = fields.chunks(2).map(<[String]>::to_vec).collect();
                pairs.sort();
                pairs.concat()
            }
            "stream" => {
                let mut all = talk.ask_words(&["XRANGE", &key, "-", "+"]);
                // How many entries a group has read Redis 7.0 does not tell its replicas.
                let groups = talk.ask_words(&["XINFO", "GROUPS", &key]);
                let fields = groups
                    .chunks(2)
                    .filter(|field| !matches!(field[0].as_str(), "entries-read" | "lag"));
                all.extend(fields.flatten().cloned());
                all.extend(talk.ask_words(&["XPENDING", &key, "readers"]));
                all
            }
            other => panic!("{key} is a {other}"),
        };
        value.insert(0, kind);
        value.extend(talk.ask_words(&["PEXPIRETIME", &key]));
        all.insert(key, value);
    }
    all
}
