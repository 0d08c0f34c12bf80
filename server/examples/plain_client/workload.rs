//! The bytes of the commands: a batch is made once, and before each sending only the digits of its
//! keys are drawn anew, so that the client costs little beside the servers.

use crate::settings::Cell;

/// A batch of commands whose keys are drawn anew each time.
pub struct Batch {
    bytes: Vec<u8>,
    holes: Vec<Hole>,
}

/// Digits in a batch, for a number below `end`.
struct Hole {
    at: usize,
    digits: usize,
    end: u32,
}

/// A part of an argument.
enum Part<'a> {
    Text(&'a [u8]),
    /// So many digits of a number below the bound.
    Number(usize, u32),
}

use Part::{Number, Text};

impl Batch {
    /// The batch of a cell's measurement.
    pub fn measured(cell: &Cell, keys: u32) -> Self {
        let mut batch = Self { bytes: Vec::new(), holes: Vec::new() };
        (0..cell.pipeline).for_each(|_| batch.add(&cell.command, cell.value_bytes, keys, b'w'));
        batch
    }

    /// A batch of one command that writes what the cell's commands read or overwrite.
    pub fn filling(cell: &Cell, keys: u32) -> Self {
        let mut batch = Self { bytes: Vec::new(), holes: Vec::new() };
        let command = match &cell.command[..] {
            "GET" | "MSET" => "SET",
            other => other,
        };
        batch.add(command, cell.value_bytes, keys, b'v');
        batch
    }

    fn add(&mut self, command: &str, value_bytes: usize, keys: u32, letter: u8) {
        let (size, letters) = (format!("string{value_bytes}:"), vec![letter; value_bytes]);
        let (size, value) = (size.as_bytes(), [Text(&letters)]);
        let key = [Text(size), Number(12, keys)];
        match command {
            "SET" => self.array(&[&[Text(b"SET")], &key, &value]),
            "GET" => self.array(&[&[Text(b"GET")], &key]),
            "MSET" => {
                let pairs: Vec<&[Part<'_>]> = [&key[..], &value].repeat(10);
                self.array(&[&[&[Text(b"MSET")][..]], &pairs[..]].concat());
            }
            "INCR" => self.array(&[&[Text(b"INCR")], &[Text(b"counter:"), Number(12, keys)]]),
            "HSET" => {
                let field = [Text(b"field:"), Number(12, keys)];
                self.array(&[&[Text(b"HSET")], &[Text(b"one hash")], &field, &value]);
            }
            "HSET10" => {
                let hash = [Text(b"hash"), Text(size), Number(12, keys / 10)];
                let field = [Text(b"field"), Number(1, 10)];
                self.array(&[&[Text(b"HSET")], &hash, &field, &value]);
            }
            _ => {
                let member = [Text(b"member:"), Number(12, keys)];
                let score = [Number(6, 1_000_000)];
                self.array(&[&[Text(b"ZADD")], &[Text(b"one set")], &score, &member]);
            }
        }
    }

    /// Appends a command of these arguments.
    fn array(&mut self, arguments: &[&[Part<'_>]]) {
        self.bytes.extend_from_slice(format!("*{}\r\n", arguments.len()).as_bytes());
        arguments.iter().for_each(|argument| self.argument(argument));
    }

    fn argument(&mut self, parts: &[Part<'_>]) {
        let len_of = |part: &Part<'_>| match part {
            Text(text) => text.len(),
            Number(digits, _) => *digits,
        };
        let len: usize = parts.iter().map(len_of).sum();
        self.bytes.extend_from_slice(format!("${len}\r\n").as_bytes());
        for part in parts {
            match part {
                Text(text) => self.bytes.extend_from_slice(text),
                Number(digits, end) => {
                    let (at, digits, end) = (self.bytes.len(), *digits, *end);
                    self.holes.push(Hole { at, digits, end });
                    self.bytes.resize(at + digits, b'0');
                }
            }
        }
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// The batch with numbers drawn at random.
    pub fn drawn(&mut self, random: &mut Random) -> &[u8] {
        for hole in &self.holes {
            write_digits(&mut self.bytes[hole.at..hole.at + hole.digits], random.below(hole.end));
        }
        &self.bytes
    }

    /// The batch with the last of its numbers counted up and the others drawn. The number before a
    /// last number of one digit goes on with the digits that do not fit.
    pub fn counted(&mut self, random: &mut Random, number: u32) -> &[u8] {
        self.drawn(random);
        let mut left = number;
        for hole in self.holes.iter().rev() {
            write_digits(&mut self.bytes[hole.at..hole.at + hole.digits], left % hole.end);
            left /= hole.end;
            if hole.digits > 1 {
                break;
            }
        }
        &self.bytes
    }
}

fn write_digits(place: &mut [u8], mut number: u32) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((word ^ (word >> 31)) >> 32) * u64::from(end) / (1 << 32)) as u32
    }
}
