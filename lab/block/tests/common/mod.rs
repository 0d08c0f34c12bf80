//! A server in this process, and a small client that can also violate the protocol.
#![allow(dead_code)] // each test file uses its part
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use perdura_block::Disk;
use perdura_block::nbd::wire::{self, command, option};
use perdura_block::nbd::{Address, Export, Listener, Report, Server, Settings, Stop};
use perdura_media::RealClock;

pub const PATIENCE: Duration = Duration::from_secs(20);

/// A server with a socket of its own. Dropping it stops the server.
pub struct Served {
    _folder: tempfile::TempDir,
    pub path: PathBuf,
    pub stop: Arc<Stop>,
    thread: Option<JoinHandle<Report>>,
}

impl Served {
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self::with(disk, Settings::default())
    }

    pub fn with(disk: Arc<dyn Disk>, settings: Settings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = Listener::bind(&Address::Unix(path.clone()), false).unwrap();
        let stop = Arc::new(Stop::new().unwrap());
        let export = Export { name: "disk".to_owned(), disk };
        let server = Server::new(export, settings, Arc::new(RealClock), Arc::clone(&stop));
        let thread = std::thread::spawn(move || server.serve(vec![listener]).unwrap());
        Self { _folder: folder, path, stop, thread: Some(thread) }
    }

    /// A connection on which nothing was sent yet.
    pub fn socket(&self) -> UnixStream {
        let socket = UnixStream::connect(&self.path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    pub fn client(&self) -> Client {
        Client::choose(self.socket(), true)
    }

    pub fn simple_client(&self) -> Client {
        Client::choose(self.socket(), false)
    }

    pub fn end(mut self) -> Report {
        self.stop.set().unwrap();
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.set().unwrap();
        if let Some(thread) = self.thread.take() {
            // A panic of the server fails the test, too, unless the test is panicking already.
            let _ = thread.join();
        }
    }
}

pub fn option_bytes(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = wire::OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

pub fn request_bytes(number: u16, flags: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = wire::REQUEST_MAGIC.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(number.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

/// A client that has finished the handshake.
pub struct Client {
    pub socket: UnixStream,
    structured: bool,
    cookie: u64,
    pub capacity_bytes: u64,
    pub flags: u16,
}

/// A server's answer: the request's cookie, and the data or the number of the error.
pub type Answer = (u64, Result<Vec<u8>, u32>);

impl Client {
    pub fn choose(mut socket: UnixStream, structured: bool) -> Self {
        let mut greeting = [0; 18];
        socket.read_exact(&mut greeting).unwrap();
        socket.write_all(&3u32.to_be_bytes()).unwrap();
        if structured {
            socket.write_all(&option_bytes(option::STRUCTURED_REPLY, b"")).unwrap();
            read_option_reply(&mut socket);
        }
        socket.write_all(&option_bytes(option::EXPORT_NAME, b"disk")).unwrap();
        let mut chosen = [0; 10];
        socket.read_exact(&mut chosen).unwrap();
        let capacity_bytes = u64::from_be_bytes(chosen[..8].try_into().unwrap());
        let flags = u16::from_be_bytes(chosen[8..].try_into().unwrap());
        Self { socket, structured, cookie: 0, capacity_bytes, flags }
    }

    /// Sends a request without waiting, and returns its cookie.
    pub fn send(&mut self, number: u16, flags: u16, offset: u64, len: u32, data: &[u8]) -> u64 {
        self.cookie += 1;
        let mut bytes = request_bytes(number, flags, self.cookie, offset, len);
        bytes.extend(data);
        self.socket.write_all(&bytes).unwrap();
        self.cookie
    }

    /// Receives the next answer, of whichever request. `read_len` is the length of a successful
    /// read's data.
    pub fn answer(&mut self, read_len: usize) -> Answer {
        let magic = u32::from_be_bytes(self.take());
        if magic == wire::SIMPLE_REPLY_MAGIC {
            let (error, cookie) =
                (u32::from_be_bytes(self.take()), u64::from_be_bytes(self.take()));
            if error != 0 {
                return (cookie, Err(error));
            }
            return (cookie, Ok(self.take_long(if self.structured { 0 } else { read_len })));
        }
        assert_eq!(magic, wire::CHUNK_MAGIC);
        let (flags, kind) = (u16::from_be_bytes(self.take()), u16::from_be_bytes(self.take()));
        let (cookie, len) = (u64::from_be_bytes(self.take()), u32::from_be_bytes(self.take()));
        assert_eq!(flags, wire::chunk::FLAG_DONE);
        let payload = self.take_long(len as usize);
        match kind {
            wire::chunk::OFFSET_DATA => (cookie, Ok(payload[8..].to_vec())),
            wire::chunk::ERROR => {
                let text = u16::from_be_bytes(payload[4..6].try_into().unwrap());
                assert_eq!(payload.len(), 6 + usize::from(text));
                (cookie, Err(u32::from_be_bytes(payload[..4].try_into().unwrap())))
            }
            other => panic!("chunk of type {other}"),
        }
    }

    /// Sends a request and receives its answer.
    pub fn ask(
        &mut self,
        number: u16,
        flags: u16,
        offset: u64,
        len: u32,
        data: &[u8],
    ) -> Result<Vec<u8>, u32> {
        let cookie = self.send(number, flags, offset, len, data);
        let is_read = number == command::READ;
        let (of, result) = self.answer(if is_read { len as usize } else { 0 });
        assert_eq!(of, cookie);
        result
    }

    pub fn read(&mut self, offset: u64, len: u32) -> Result<Vec<u8>, u32> {
        self.ask(command::READ, 0, offset, len, b"")
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<Vec<u8>, u32> {
        self.ask(command::WRITE, 0, offset, data.len() as u32, data)
    }

    fn take<const LEN: usize>(&mut self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        self.socket.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn take_long(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.socket.read_exact(&mut bytes).unwrap();
        bytes
    }
}

/// Receives a reply to an option: its kind and its data.
pub fn read_option_reply(socket: &mut UnixStream) -> (u32, Vec<u8>) {
    let mut header = [0; 20];
    socket.read_exact(&mut header).unwrap();
    assert_eq!(header[..8], wire::OPTION_REPLY_MAGIC.to_be_bytes());
    let mut data = vec![0; u32::from_be_bytes(header[16..].try_into().unwrap()) as usize];
    socket.read_exact(&mut data).unwrap();
    (u32::from_be_bytes(header[12..16].try_into().unwrap()), data)
}

/// Waits until the server has closed the connection, and returns the bytes received before.
pub fn until_closed(socket: &mut UnixStream) -> Vec<u8> {
    let mut said = Vec::new();
    let mut room = [0; 4096];
    loop {
        match socket.read(&mut room) {
            Ok(0) => return said,
            Ok(len) => said.extend(&room[..len]),
            // The server closed with unread bytes from this client.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return said,
            Err(error) => panic!("not closed: {error}"),
        }
    }
}
