//! Memory for a key and for an element of each type, of several servers of the Redis protocol.
//!
//! `shapes` says what is written; here each server is started anew for each shape, asked for its
//! memory, loaded, left alone for a moment, and asked again. Before it is asked first, one key is
//! overwritten many times, so that buffers of a fixed size are in use. The differences are divided
//! by the number of elements: `used_memory` as the server's `INFO` says it, the memory that its
//! allocator has taken for that (`allocator_active`), and the resident memory of the process as the
//! kernel says it. A holder, which is another process, has the same pages
//! mapped.
//!
//! Elements come one in each command, and every key gets its first element before any gets its
//! second, as values grow in use. Nothing here is shared with `server` or `bench`.

mod dirty;
mod shapes;

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use shapes::Shape;

type AnyError = Box<dyn Error>;

const HELP: &str = "\
memory_client --directory DIR NAME=PROGRAM... [--only WORD] [--port N] [--memory SIZE]
memory_client --directory DIR NAME=PERDURA --dirty yes

Prints, as rows of a table, bytes for an element (for a key with strings): `used_memory`,
`allocator_active` and resident memory of each server, less what the empty server has. A PROGRAM
whose name ends with `perdura` gets Perdura's options, every other one Redis'. With --only, the rows
whose name has WORD.
With --dirty, bytes that an added element makes dirty instead.";

/// Time in which a checkpoint ends, and Redis resizes its tables.
const REST: Duration = Duration::from_millis(1500);
/// Writes of one key after the start: buffers, whose size does not depend on the data, are in use
/// before the memory is asked for.
const WARMING: usize = 200_000;
/// Commands that are sent before their replies are read.
const AHEAD: usize = 500;

struct Settings {
    directory: PathBuf,
    programs: Vec<(String, String)>,
    only: String,
    is_dirty: bool,
    port: u16,
    memory: String,
}

fn main() -> Result<(), AnyError> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let settings = parse(&words).map_err(|wrong| format!("{wrong}\n\n{HELP}"))?;
    if let (true, [(_, program), ..]) = (settings.is_dirty, &settings.programs[..]) {
        return dirty::print(&settings, program);
    }
    print!("| elements |");
    settings.programs.iter().for_each(|(name, _)| print!(" {name}: used | active | resident |"));
    println!("\n|---|{}", "---|---|---|".repeat(settings.programs.len()));
    for shape in shapes::all() {
        if !shape.name().contains(&settings.only) {
            continue;
        }
        print!("| {} |", shape.name());
        for (_, program) in &settings.programs {
            let [used, active, resident] = measure(&settings, program, &shape)?;
            print!(" {used:.1} | {active:.1} | {resident:.1} |");
            std::io::stdout().flush()?;
        }
        println!();
    }
    Ok(())
}

fn parse(words: &[String]) -> Result<Settings, String> {
    let mut settings = Settings {
        directory: PathBuf::new(),
        programs: Vec::new(),
        only: String::new(),
        is_dirty: false,
        port: 7450,
        memory: "2GiB".into(),
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if let Some((name, program)) = word.split_once('=') {
            settings.programs.push((name.into(), program.into()));
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{word} has no value"))?;
        match word.as_str() {
            "--directory" => settings.directory = value.into(),
            "--dirty" => settings.is_dirty = value == "yes",
            "--only" => settings.only.clone_from(value),
            "--port" => settings.port = value.parse().map_err(|_| format!("{value} is no port"))?,
            "--memory" => settings.memory.clone_from(value),
            other => return Err(format!("there is no option {other}")),
        }
    }
    match settings.programs.is_empty() || settings.directory.as_os_str().is_empty() {
        true => Err("expected a directory and a server".into()),
        false => Ok(settings),
    }
}

/// Bytes for an element, of `used_memory`, of `allocator_active` and resident.
fn measure(settings: &Settings, program: &str, shape: &Shape) -> Result<[f64; 3], AnyError> {
    let server = Server::start(settings, program)?;
    let mut stream = BufReader::new(TcpStream::connect(&server.address)?);
    let (mut bytes, mut commands) = (Vec::new(), 0);
    for _ in 0..WARMING {
        shapes::overwriting(&mut bytes);
        commands += 1;
        if commands >= AHEAD {
            exchange(&mut stream, &mut bytes, &mut commands)?;
        }
    }
    exchange(&mut stream, &mut bytes, &mut commands)?;
    std::thread::sleep(REST);
    let before = server.memory(&mut stream)?;
    load(&mut stream, shape)?;
    std::thread::sleep(REST);
    let after = server.memory(&mut stream)?;
    let elements = (shape.keys * shape.elements) as f64;
    Ok([0, 1, 2].map(|which| (after[which] as f64 - before[which] as f64) / elements))
}

/// Writes all elements of a shape.
fn load(stream: &mut BufReader<TcpStream>, shape: &Shape) -> Result<(), AnyError> {
    let (mut bytes, mut commands) = (Vec::new(), 0);
    for element in 0..shape.elements {
        for key in 0..shape.keys {
            shape.command(key, element, &mut bytes);
            commands += 1;
            if shape.has_expiry && element + 1 == shape.elements {
                shape.expiry(key, &mut bytes);
                commands += 1;
            }
            if commands >= AHEAD {
                exchange(stream, &mut bytes, &mut commands)?;
            }
        }
    }
    exchange(stream, &mut bytes, &mut commands)
}

/// Sends commands and reads a reply for each.
fn exchange(
    stream: &mut BufReader<TcpStream>,
    bytes: &mut Vec<u8>,
    commands: &mut usize,
) -> Result<(), AnyError> {
    stream.get_mut().write_all(bytes)?;
    for _ in 0..*commands {
        reply(stream)?;
    }
    bytes.clear();
    *commands = 0;
    Ok(())
}

/// A reply that is no array.
fn reply(stream: &mut BufReader<TcpStream>) -> Result<Vec<u8>, AnyError> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    match line.bytes().next() {
        Some(b'+' | b':') => Ok(Vec::new()),
        Some(b'$') => {
            let len: usize = line[1..].trim_end().parse()?;
            let mut body = vec![0; len + 2];
            stream.read_exact(&mut body)?;
            Ok(body)
        }
        _ => Err(format!("the server answers {line:?}").into()),
    }
}

/// A server that was started here, with data of its own.
struct Server {
    child: Child,
    address: String,
    data: PathBuf,
}

impl Server {
    fn start(settings: &Settings, program: &str) -> Result<Self, AnyError> {
        let data = settings.directory.join("memory-client");
        // Files of an earlier run are no part of this one.
        let _ = std::fs::remove_dir_all(&data);
        std::fs::create_dir_all(&data)?;
        let mut command = Command::new(program);
        match program.ends_with("perdura") {
            true => command.args(["serve", "--memory", &settings.memory, "--holder-wait", "1s"]),
            false => command.args(["--save", ""]),
        };
        command.arg("--dir").arg(&data).arg("--port").arg(settings.port.to_string());
        let address = format!("127.0.0.1:{}", settings.port);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut server = Self { child, address, data };
        let began = Instant::now();
        while TcpStream::connect(&server.address).is_err() {
            if let Some(status) = server.child.try_wait()? {
                return Err(format!("{command:?} has ended: {status}").into());
            }
            if began.elapsed() > Duration::from_secs(120) {
                return Err(format!("{command:?} does not listen").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Bytes that the server says are used, and resident bytes of its process.
    fn memory(&self, stream: &mut BufReader<TcpStream>) -> Result<[u64; 3], AnyError> {
        stream.get_mut().write_all(b"INFO memory\r\n")?;
        let info = String::from_utf8(reply(stream)?)?;
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let resident_kib = field(&status, "VmRSS:").ok_or("the kernel says no VmRSS")?;
        let used = field(&info, "used_memory:").ok_or("INFO says no used_memory")?;
        let active = field(&info, "allocator_active:").ok_or("INFO says no allocator_active")?;
        Ok([used, active, resident_kib << 10])
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A server that has ended by itself is no failure of a measurement that is over.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

/// The number behind a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}
