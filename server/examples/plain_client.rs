//! A client of any server that speaks the Redis protocol, which shares no code with `bench`.
//!
//! One thread has all connections, in turn: it reads the replies to a connection's last batch and
//! sends the next one. So all batches but one are under way at any time. A latency runs from the
//! sending of a batch to its last reply, and so contains the turns of the other connections.

use std::cmp::Ordering;
use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const HELP: &str = "\
plain_client ADDRESS=PID... [OPTION VALUE]...

Measures servers in turn and prints operations a second, latencies and the servers' own processor
time. ADDRESS is host:port, PID the server's process. Ratios refer to the last server.

  --command set|get   the command                                  [set]
  --value N           bytes of a value                             [1024]
  --keys N            keys, of 16 B, each as likely                [1000000]
  --clients N         connections                                  [50]
  --pipeline N        commands of a batch                          [16]
  --rounds N          rounds; each measures every server once      [5]
  --seconds S         length of one measurement, seconds           [2]
  --fill yes|no       whether all keys are written first           [yes]

Build with --release.";

type AnyError = Box<dyn Error>;

fn main() -> Result<(), AnyError> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let settings = match Settings::parse(&words) {
        Ok(settings) => settings,
        Err(wrong) => return Err(format!("{wrong}\n\n{HELP}").into()),
    };
    let mut sides = Vec::new();
    for (address, pid) in &settings.servers {
        let side = Side::connect(&settings, address, *pid)?;
        sides.push(side);
    }
    if settings.fill {
        for side in &mut sides {
            side.fill(&settings)?;
        }
    }
    for round in 0..=settings.rounds {
        let mut turn: Vec<usize> = (0..sides.len()).collect();
        if round % 2 == 1 {
            turn.reverse();
        }
        for index in turn {
            // The other servers' checkpoints of what was written last end in this time.
            std::thread::sleep(Duration::from_millis(300));
            let one = sides[index].measure(&settings)?;
            if round > 0 {
                sides[index].rounds.push(one);
            }
        }
    }
    print(&settings, &sides);
    Ok(())
}

fn print(settings: &Settings, sides: &[Side]) {
    println!(
        "{} of {} B, {} keys, {} clients, pipeline {}, {} rounds of {} s",
        settings.command,
        settings.value_bytes,
        settings.keys,
        settings.clients,
        settings.pipeline,
        settings.rounds,
        settings.seconds
    );
    let Some(last) = sides.last() else { return };
    for side in sides {
        let of = |figure: fn(&One) -> f64| spread(side.rounds.iter().map(figure).collect());
        let against = |figure: fn(&One) -> f64| {
            let pairs = side.rounds.iter().zip(&last.rounds);
            spread(pairs.map(|(one, other)| figure(one) / figure(other)).collect())
        };
        let (rate, cpu) = (of(|one| one.ops_per_s / 1e3), of(|one| one.cpu_us_per_op));
        let [p50, p99, p999] =
            [of(|one| one.p50_ms)[1], of(|one| one.p99_ms)[1], of(|one| one.p999_ms)[1]];
        let (rates, cpus) = (against(|one| one.ops_per_s), against(|one| one.cpu_us_per_op));
        println!(
            "{:22} {:6.0} k/s ({:.0} to {:.0}), ratio {:.2} ({:.2} to {:.2}); {:.2} us of \
             processor time an operation, ratio {:.2}; p50 {p50:.2}, p99 {p99:.2}, p99.9 \
             {p999:.2} ms",
            side.address, rate[1], rate[0], rate[2], rates[1], rates[0], rates[2], cpu[1], cpus[1]
        );
    }
    println!("medians of the rounds (least to most)");
}

/// What the words of the command line say.
struct Settings {
    servers: Vec<(String, u32)>,
    command: String,
    value_bytes: usize,
    keys: u32,
    clients: usize,
    pipeline: usize,
    rounds: usize,
    seconds: f64,
    fill: bool,
}

impl Settings {
    fn parse(words: &[String]) -> Result<Self, String> {
        let mut settings = Self {
            servers: Vec::new(),
            command: "SET".into(),
            value_bytes: 1024,
            keys: 1_000_000,
            clients: 50,
            pipeline: 16,
            rounds: 5,
            seconds: 2.0,
            fill: true,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if let Some((address, pid)) = word.split_once('=') {
                settings.servers.push((address.into(), number(pid)?));
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{word} has no value"))?;
            match word.as_str() {
                "--command" => settings.command = one_of(value, &["set", "get"])?.to_uppercase(),
                "--value" => settings.value_bytes = number(value)?,
                "--keys" => settings.keys = number(value)?,
                "--clients" => settings.clients = number(value)?,
                "--pipeline" => settings.pipeline = number(value)?,
                "--rounds" => settings.rounds = number(value)?,
                "--seconds" => settings.seconds = number(value)?,
                "--fill" => settings.fill = one_of(value, &["yes", "no"])? == "yes",
                other => return Err(format!("there is no option {other}")),
            }
        }
        let counts = [settings.clients, settings.pipeline, settings.rounds, settings.keys as usize];
        if settings.servers.is_empty() || counts.contains(&0) || settings.seconds <= 0.0 {
            return Err("expected servers, and numbers that begin at 1".into());
        }
        Ok(settings)
    }
}

/// A server, its connections, and its measurements.
struct Side {
    address: String,
    pid: u32,
    connections: Vec<Connection>,
    random: Random,
    rounds: Vec<One>,
}

struct One {
    ops_per_s: f64,
    cpu_us_per_op: f64,
    p50_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
}

impl Side {
    fn connect(settings: &Settings, address: &str, pid: u32) -> Result<Self, AnyError> {
        let open = |_| Connection::open(address);
        let connections = (0..settings.clients).map(open).collect::<Result<_, _>>()?;
        Ok(Self { address: address.into(), pid, connections, random: Random(3), rounds: vec![] })
    }

    /// Writes every key once.
    fn fill(&mut self, settings: &Settings) -> Result<(), AnyError> {
        let value = vec![b'v'; settings.value_bytes];
        let connection = &mut self.connections[0];
        let mut batch = Vec::new();
        for first in (0..settings.keys).step_by(64) {
            let last = settings.keys.min(first + 64);
            batch.clear();
            (first..last).for_each(|number| command(&mut batch, "SET", number, Some(&value)));
            connection.send(&batch)?;
            connection.receive((last - first) as usize)?;
        }
        Ok(())
    }

    fn measure(&mut self, settings: &Settings) -> Result<One, AnyError> {
        let value = vec![b'w'; settings.value_bytes];
        let value = (settings.command == "SET").then_some(&value[..]);
        let mut batch = Vec::new();
        let mut draw = |random: &mut Random| {
            batch.clear();
            for _ in 0..settings.pipeline {
                command(&mut batch, &settings.command, random.below(settings.keys), value);
            }
            std::mem::take(&mut batch)
        };
        let length = Duration::from_secs_f64(settings.seconds);
        let (cpu_before, began) = (cpu_us(self.pid)?, Instant::now());
        let (mut sent_at, mut took_ms) = (Vec::new(), Vec::new());
        for connection in &mut self.connections {
            sent_at.push(Instant::now());
            connection.send(&draw(&mut self.random))?;
        }
        let mut is_over = false;
        while !is_over {
            is_over = began.elapsed() >= length;
            for (connection, sent_at) in self.connections.iter_mut().zip(&mut sent_at) {
                connection.receive(settings.pipeline)?;
                took_ms.push(sent_at.elapsed().as_secs_f64() * 1e3);
                if !is_over {
                    *sent_at = Instant::now();
                    connection.send(&draw(&mut self.random))?;
                }
            }
        }
        let operations = (took_ms.len() * settings.pipeline) as f64;
        let (took_s, cpu) = (began.elapsed().as_secs_f64(), cpu_us(self.pid)? - cpu_before);
        took_ms.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
        let part = |part: f64| took_ms[(took_ms.len() as f64 * part) as usize];
        Ok(One {
            ops_per_s: operations / took_s,
            cpu_us_per_op: cpu as f64 / operations,
            p50_ms: part(0.5),
            p99_ms: part(0.99),
            p999_ms: part(0.999),
        })
    }
}

/// Appends a command to a batch.
fn command(batch: &mut Vec<u8>, word: &str, number: u32, value: Option<&[u8]>) {
    let key = format!("key:{number:012}");
    let parts = if value.is_some() { 3 } else { 2 };
    let head = format!("*{parts}\r\n${}\r\n{word}\r\n${}\r\n{key}\r\n", word.len(), key.len());
    batch.extend_from_slice(head.as_bytes());
    if let Some(value) = value {
        batch.extend_from_slice(format!("${}\r\n", value.len()).as_bytes());
        batch.extend_from_slice(value);
        batch.extend_from_slice(b"\r\n");
    }
}

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    fn open(address: &str) -> Result<Self, AnyError> {
        let stream = TcpStream::connect(address).map_err(|e| format!("{address}: {e}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    fn send(&mut self, batch: &[u8]) -> Result<(), AnyError> {
        Ok(self.stream.write_all(batch)?)
    }

    /// Waits for so many replies.
    fn receive(&mut self, replies: usize) -> Result<(), AnyError> {
        let (mut at, mut left) = (0, replies);
        let mut piece = [0; 64 << 10];
        while left > 0 {
            match reply_bytes(&self.buffer[at..])? {
                Some(bytes) => (at, left) = (at + bytes, left - 1),
                None => match self.stream.read(&mut piece)? {
                    0 => return Err("the server has closed the connection".into()),
                    read => self.buffer.extend_from_slice(&piece[..read]),
                },
            }
        }
        self.buffer.drain(..at);
        Ok(())
    }
}

/// Bytes of the first reply: a simple string, or a string of bytes. `None` if it is not whole yet.
fn reply_bytes(bytes: &[u8]) -> Result<Option<usize>, AnyError> {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let line = &bytes[..end];
    match line.first() {
        Some(b'+') => Ok(Some(end + 2)),
        Some(b'$') => match std::str::from_utf8(&line[1..])?.parse::<i64>()? {
            -1 => Err("a key is not there: run with --fill yes".into()),
            len => Ok(Some(end + 4 + usize::try_from(len)?).filter(|all| *all <= bytes.len())),
        },
        _ => Err(format!("the server answers {:?}", String::from_utf8_lossy(line)).into()),
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((word ^ (word >> 31)) >> 32) * u64::from(end) / (1 << 32)) as u32
    }
}

/// Processor time of a process, in microseconds, in steps of 10 ms.
fn cpu_us(pid: u32) -> Result<u64, AnyError> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let behind = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = behind.split_whitespace().collect();
    let [user, system] = [fields[11].parse::<u64>()?, fields[12].parse::<u64>()?];
    Ok((user + system) * 10_000)
}

/// Least, median and most.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
    [values[0], values[values.len() / 2], values[values.len() - 1]]
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{word:?} is not such a number"))
}

fn one_of(word: &str, words: &[&str]) -> Result<String, String> {
    match words.contains(&word) {
        true => Ok(word.into()),
        false => Err(format!("{word:?} is not one of {}", words.join(", "))),
    }
}
