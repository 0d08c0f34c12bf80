//! A real Redis server beside the tested one.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A Redis server that the test has started. It is killed by its process id when dropped.
pub struct Redis {
    child: Child,
    pub addr: SocketAddr,
}

impl Redis {
    /// Starts one; `None`: `redis-server` is not installed.
    pub fn start() -> Option<Self> {
        // A port that was free may be taken when Redis binds it. Then that Redis ends, and another
        // port is tried.
        for _ in 0..10 {
            match Self::start_once() {
                Ok(Some(redis)) => return Some(redis),
                Ok(None) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
                Err(error) => panic!("redis-server does not start: {error}"),
            }
        }
        panic!("no port for redis-server in 10 attempts")
    }

    /// `Ok(None)`: another try may help; `Err`: there is none to start.
    fn start_once() -> Result<Option<Self>, std::io::Error> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let args = ["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--port"];
        let child = Command::new("redis-server")
            .args(args)
            .arg(port.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut redis = Self { child, addr: SocketAddr::from(([127, 0, 0, 1], port)) };
        let own = format!("process_id:{}\r\n", redis.child.id());
        let deadline = Instant::now() + Duration::from_secs(20);
        while redis.child.try_wait()?.is_none() {
            assert!(Instant::now() < deadline, "redis-server does not listen");
            if first_reply(redis.addr).is_ok_and(|text| text.contains(&own)) {
                return Ok(Some(redis));
            }
            std::thread::yield_now();
        }
        Ok(None)
    }
}

/// The first bytes of the reply to INFO from the server at `addr`.
fn first_reply(addr: SocketAddr) -> std::io::Result<String> {
    let mut stream = std::net::TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(b"INFO server\r\nQUIT\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
