//! A server in this process, and a client that reads whole replies.
#![allow(clippy::unwrap_used)]
#![allow(dead_code)] // each test file uses its own part

mod gate;
mod open;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use perdura_server::{Listener, Report, ServeError, ServerConfig, StopFlag, run};

#[allow(unused_imports)] // as above
pub use gate::{Gate, GatedFlush};
#[allow(unused_imports)] // as above
pub use open::{Opened, attach, open, open_on, open_planted, open_with_budget};

/// A running server, which is stopped when it is dropped.
pub struct Running {
    pub addr: SocketAddr,
    pub store: Arc<perdura_store::Store>,
    stop: Arc<StopFlag>,
    thread: Option<JoinHandle<Result<Report, ServeError>>>,
}

/// A configuration with any free port.
pub fn config() -> ServerConfig {
    ServerConfig { bind: vec!["127.0.0.1:0".parse().unwrap()], ..ServerConfig::default() }
}

pub fn start(config: ServerConfig) -> Running {
    start_with(config, open())
}

pub fn start_with(config: ServerConfig, opened: Opened) -> Running {
    let listener = Listener::bind(&config).unwrap();
    let addr = listener.local_addr().unwrap();
    let stop = Arc::new(StopFlag::new().unwrap());
    let flag = Arc::clone(&stop);
    let store = Arc::clone(&opened.store);
    let thread =
        std::thread::spawn(move || run(listener, &opened.store, &config, &*opened.clock, &flag));
    Running { addr, store, stop, thread: Some(thread) }
}

impl Running {
    pub fn client(&self) -> Client {
        Client::connect(self.addr)
    }

    pub fn stop(mut self) -> Report {
        self.stop.trigger();
        self.thread.take().unwrap().join().unwrap().unwrap()
    }

    /// Tells the server to stop, and does not wait.
    pub fn trigger(&self) {
        self.stop.trigger();
    }

    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end of a server that ends by itself.
    pub fn join(mut self) -> Report {
        self.thread.take().unwrap().join().unwrap().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.trigger();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

/// A client whose calls wait for the reply.
pub struct Client {
    pub stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    pub fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Self { stream, reader }
    }

    pub fn send(&mut self, args: &[&[u8]]) {
        self.stream.write_all(&frame(args)).unwrap();
    }

    /// Sends a line; false if the server has gone.
    pub fn write(&mut self, line: &str) -> bool {
        self.stream.write_all(format!("{line}\r\n").as_bytes()).is_ok()
    }

    /// Sends a command, given as words, and returns the reply as text.
    pub fn call(&mut self, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.send(&words);
        self.reply_text()
    }

    pub fn call_bytes(&mut self, args: &[&[u8]]) -> Vec<u8> {
        self.send(args);
        self.reply()
    }

    pub fn reply_text(&mut self) -> String {
        String::from_utf8_lossy(&self.reply()).replace("\r\n", " ").trim_end().to_owned()
    }

    /// The bytes of one whole reply; empty at the end of the stream.
    pub fn reply(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.read_value(&mut out);
        out
    }

    fn read_value(&mut self, out: &mut Vec<u8>) {
        let from = out.len();
        self.reader.read_until(b'\n', out).unwrap();
        let Some(marker) = out.get(from).copied() else { return };
        let number = || -> i64 {
            std::str::from_utf8(&out[from + 1..]).unwrap().trim_end().parse().unwrap()
        };
        match marker {
            b'$' | b'=' => {
                let len = number();
                if len >= 0 {
                    let at = out.len();
                    out.resize(at + len as usize + 2, 0);
                    self.reader.read_exact(&mut out[at..]).unwrap();
                }
            }
            b'*' | b'~' | b'%' | b'>' => {
                let len = number() * if marker == b'%' { 2 } else { 1 };
                for _ in 0..len {
                    self.read_value(out);
                }
            }
            b'+' | b'-' | b':' | b',' | b'_' | b'#' => {}
            other => panic!("not a reply: {:?} in {out:?}", other as char),
        }
    }

    /// Whether a reply has begun to arrive.
    pub fn hears_now(&mut self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let heard = self.reader.fill_buf().is_ok_and(|bytes| !bytes.is_empty());
        self.stream.set_nonblocking(false).unwrap();
        heard
    }

    /// Whether no byte of a reply comes for 50 ms.
    pub fn hears_nothing(&mut self) -> bool {
        self.stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let heard = self.reader.fill_buf().map(<[u8]>::len);
        self.stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        heard.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// Reads one line, or nothing if the server has closed the connection.
    pub fn rest_of_one(&mut self) -> String {
        let mut line = String::new();
        // A reset instead of an orderly end is an end as well.
        let _ = self.reader.read_line(&mut line);
        line
    }

    /// Reads everything until the server closes the connection.
    pub fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        // A reset instead of an orderly end is an end as well.
        let _ = self.reader.read_to_end(&mut rest);
        String::from_utf8_lossy(&rest).into_owned()
    }
}

pub fn frame(args: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
    out
}
