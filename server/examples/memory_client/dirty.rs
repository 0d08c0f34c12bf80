//! Bytes that an added element makes dirty, of a Perdura: what its `INFO` counts as `dirtied_bytes`
//! over a thousand commands that begin with nothing dirty, divided by a thousand.

use std::io::{BufReader, Write};
use std::net::TcpStream;

use crate::shapes::{Kind, Shape};
use crate::{AnyError, REST, Server, Settings, exchange, field, load, reply};

const COMMANDS: u64 = 1000;
const KINDS: [(Kind, &str); 6] = [
    (Kind::List, "RPUSH"),
    (Kind::Ints, "SADD of integers"),
    (Kind::Names, "SADD"),
    (Kind::Hash, "HSET"),
    (Kind::Sorted, "ZADD"),
    (Kind::Stream, "XADD"),
];

/// Prints a table: values that have ten elements, a hundred, and a hundred thousand.
pub fn print(settings: &Settings, program: &str) -> Result<(), AnyError> {
    println!("| bytes of an element | ten elements | a hundred | a hundred thousand |");
    println!("|---|---|---|---|");
    for (kind, command) in KINDS {
        let sizes: &[usize] = if let Kind::Ints = kind { &[8] } else { &[8, 64, 1024] };
        for &bytes in sizes {
            print!("| {command}, {bytes} |");
            for (keys, elements) in [(COMMANDS, 10), (COMMANDS, 100), (1, 100_000)] {
                let shape = Shape { kind, keys, elements, bytes, has_expiry: false };
                print!(" {:.0} |", measure(settings, program, &shape)?);
                std::io::stdout().flush()?;
            }
            println!();
        }
    }
    Ok(())
}

fn measure(settings: &Settings, program: &str, shape: &Shape) -> Result<f64, AnyError> {
    let server = Server::start(settings, program)?;
    let mut stream = BufReader::new(TcpStream::connect(&server.address)?);
    load(&mut stream, shape)?;
    // A checkpoint comes each second, and everything is clean then.
    std::thread::sleep(2 * REST);
    let before = dirtied(&mut stream)?;
    let (mut bytes, mut commands) = (Vec::new(), COMMANDS as usize);
    for nth in 0..COMMANDS {
        // Each command meets another key if there are as many, and always a new element.
        shape.command(nth % shape.keys, shape.elements + nth / shape.keys, &mut bytes);
    }
    exchange(&mut stream, &mut bytes, &mut commands)?;
    Ok((dirtied(&mut stream)? - before) as f64 / COMMANDS as f64)
}

fn dirtied(stream: &mut BufReader<TcpStream>) -> Result<u64, AnyError> {
    stream.get_mut().write_all(b"INFO perdura\r\n")?;
    let info = String::from_utf8(reply(stream)?)?;
    Ok(field(&info, "dirtied_bytes:").ok_or("INFO says no dirtied_bytes")?)
}
