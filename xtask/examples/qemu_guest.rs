//! The client inside the guest of `cargo xtask test-qemu`: checks the store that an earlier boot
//! left, then writes until the machine is cut.
//!
//! The host learns the result from lines on the console: `guest: found N`, `guest: acked N`, or
//! `guest: FAILED why`. Write number n sets key n % KEYS to a value that names n and the boot that
//! wrote it. So the whole state after n writes is known. An old value beside a new one is found,
//! and so is a write that an earlier cut had undone and that came back. Only the standard library
//! is used, because the guest has no other.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How many keys there are: few, so that each is overwritten often and the log is compacted.
const KEYS: u64 = 1_000;
const PIPELINE: u64 = 16;
/// How many writes pass between two lines to the console, because a line to the emulated serial
/// port costs about as much as a write.
const WRITES_PER_LINE: u64 = 4 * PIPELINE;
const PATIENCE: Duration = Duration::from_secs(60);

/// Takes two arguments: the address, and the first write of each earlier boot, separated by commas.
fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let address = words.first().map_or("127.0.0.1:6379", String::as_str);
    let starts = words.get(1).map_or("", String::as_str);
    if let Err(error) = run(address, starts) {
        println!("guest: FAILED {error}");
    }
}

fn run(address: &str, starts: &str) -> io::Result<()> {
    let starts: Vec<u64> = starts
        .split(',')
        .filter(|word| !word.is_empty())
        .map(|word| word.parse().map_err(|_| io::Error::other(format!("not a number: {word:?}"))))
        .collect::<io::Result<_>>()?;
    let mut connection = connect(address)?;
    let found = verify(&mut connection, &starts)?;
    println!("guest: found {found}");
    let acked = write(&mut connection, found, starts.len())?;
    println!("guest: acked {acked}");
    println!("guest: ended {acked}");
    Ok(())
}

/// Connects to the server, and tries again while the server is starting.
fn connect(address: &str) -> io::Result<BufReader<TcpStream>> {
    let began = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(BufReader::new(stream));
            }
            Err(error) if began.elapsed() > PATIENCE => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// The number of writes after which the store has this state; an error if there is no such number.
fn verify(connection: &mut BufReader<TcpStream>, starts: &[u64]) -> io::Result<u64> {
    let mut values = Vec::new();
    for key in 0..KEYS {
        connection.get_mut().write_all(request(&["GET", &format!("key:{key}")]).as_bytes())?;
        values.push(bulk_reply(connection)?);
    }
    let number = |value: &String| -> Option<u64> { value.get(..8)?.parse().ok() };
    let newest = values.iter().flatten().filter_map(number).max();
    let count = newest.map_or(0, |n| n + 1);
    for (key, found) in (0..KEYS).zip(&values) {
        let last_write = count.checked_sub(key + 1).map(|rest| key + rest / KEYS * KEYS);
        let expected = last_write.map(|n| {
            let boot = starts.iter().rposition(|start| *start <= n).unwrap_or(0);
            value(n, boot)
        });
        if *found != expected {
            let (found, expected) = (shown(found), shown(&expected));
            let place = format!("key {key} after {count} writes, boots from {starts:?}");
            return Err(io::Error::other(format!("{place}: {found}, expected {expected}")));
        }
    }
    Ok(count)
}

/// Writes from number `from` on until the connection ends, and returns how many writes were
/// acknowledged, counted from 0.
fn write(connection: &mut BufReader<TcpStream>, from: u64, boot: usize) -> io::Result<u64> {
    let mut acked = from;
    let mut line = String::new();
    loop {
        let requests: String = (acked..acked + PIPELINE)
            .map(|n| request(&["SET", &format!("key:{}", n % KEYS), &value(n, boot)]))
            .collect();
        if connection.get_mut().write_all(requests.as_bytes()).is_err() {
            return Ok(acked);
        }
        for _ in 0..PIPELINE {
            line.clear();
            if connection.read_line(&mut line).is_err() || !line.ends_with('\n') {
                return Ok(acked);
            }
            if line != "+OK\r\n" {
                return Err(io::Error::other(format!("write {acked}: {line:?}")));
            }
            acked += 1;
        }
        if (acked - from).is_multiple_of(WRITES_PER_LINE) {
            println!("guest: acked {acked}");
        }
    }
}

/// The value of write `n`. Its length varies, and it spans several grains.
fn value(n: u64, boot: usize) -> String {
    format!("{n:08}/{boot}.").repeat(30 + (n % 70) as usize)
}

fn shown(value: &Option<String>) -> String {
    value.as_ref().map_or("nothing".into(), |v| format!("{:.11}… of {} bytes", v, v.len()))
}

fn request(words: &[&str]) -> String {
    let bulks: String = words.iter().map(|w| format!("${}\r\n{w}\r\n", w.len())).collect();
    format!("*{}\r\n{bulks}", words.len())
}

fn bulk_reply(connection: &mut BufReader<TcpStream>) -> io::Result<Option<String>> {
    let mut line = String::new();
    connection.read_line(&mut line)?;
    match line.trim_end().strip_prefix('$').map(str::parse::<i64>) {
        Some(Ok(-1)) => Ok(None),
        Some(Ok(len @ 0..=65_536)) => {
            let mut bytes = vec![0; len as usize + 2];
            connection.read_exact(&mut bytes)?;
            bytes.truncate(len as usize);
            Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
        }
        _ => Err(io::Error::other(format!("a reply to GET: {line:?}"))),
    }
}
