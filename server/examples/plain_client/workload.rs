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

/// Elements that [`Batch::renewing`] adds with one command.
pub const RENEWED: usize = 10;
const LIST: &[u8] = b"mylist";
const SET: &[u8] = b"myset";
const SORTED: &[u8] = b"myzset";

impl Batch {
    /// The batch of a cell's measurement.
    pub fn measured(cell: &Cell, keys: u32) -> Self {
        let mut batch = Self { bytes: Vec::new(), holes: Vec::new() };
        (0..cell.pipeline).for_each(|_| batch.add(&cell.command, cell.value_bytes, keys, b'w'));
        batch
    }

    /// A batch of one command that writes what the cell's commands read or overwrite; `None` if
    /// they find what they need, or if each round has to begin anew.
    pub fn filling(cell: &Cell, keys: u32) -> Option<Self> {
        let command = match &cell.command[..] {
            "GET" | "MSET" => "SET",
            same @ ("SET" | "INCR" | "HSET" | "HSET10" | "ZADD") => same,
            _ => return None,
        };
        let mut batch = Self { bytes: Vec::new(), holes: Vec::new() };
        batch.add(command, cell.value_bytes, keys, b'v');
        Some(batch)
    }

    /// The first commands of a round: a command that removes the key, and one that gives it ten
    /// elements more, which is to be sent for so many elements.
    pub fn renewing(cell: &Cell) -> Option<[Self; 2]> {
        let mut both = [0, 1].map(|_| Self { bytes: Vec::new(), holes: Vec::new() });
        let [removing, adding] = &mut both;
        let value = vec![b'v'; cell.value_bytes];
        let (value, member) = ([Text(&value)], [Text(b"element:"), Number(12, u32::MAX)]);
        let (score, (name, key)) = (
            [Number(6, 1_000_000)],
            match &cell.command[..] {
                "LPUSH" | "RPUSH" | "LPOP" | "RPOP" => ("RPUSH", LIST),
                command if command.starts_with("LRANGE") => ("RPUSH", LIST),
                "SADD" | "SPOP" => ("SADD", SET),
                "ZPOPMIN" => ("ZADD", SORTED),
                _ => return None,
            },
        );
        removing.array(&[&[Text(b"DEL")], &[Text(key)]]);
        let element: &[&[Part<'_>]] = match name {
            "RPUSH" => &[&value],
            "SADD" => &[&member],
            _ => &[&score, &member],
        };
        let head: [&[Part<'_>]; 2] = [&[Text(name.as_bytes())], &[Text(key)]];
        adding.array(&[&head[..], &element.repeat(RENEWED)].concat());
        Some(both)
    }

    fn add(&mut self, command: &str, value_bytes: usize, keys: u32, letter: u8) {
        let (size, letters) = (format!("string{value_bytes}:"), vec![letter; value_bytes]);
        let (size, value) = (size.as_bytes(), [Text(&letters)]);
        let key = [Text(size), Number(12, keys)];
        match command {
            "PING_INLINE" => self.bytes.extend_from_slice(b"PING\r\n"),
            "PING_MBULK" => self.array(&[&[Text(b"PING")]]),
            "LPUSH" | "RPUSH" => self.array(&[&[Text(command.as_bytes())], &[Text(LIST)], &value]),
            "LPOP" | "RPOP" => self.array(&[&[Text(command.as_bytes())], &[Text(LIST)]]),
            "SADD" => {
                let member = [Text(b"element:"), Number(12, keys)];
                self.array(&[&[Text(b"SADD")], &[Text(SET)], &member]);
            }
            "SPOP" => self.array(&[&[Text(b"SPOP")], &[Text(SET)]]),
            "ZPOPMIN" => self.array(&[&[Text(b"ZPOPMIN")], &[Text(SORTED)]]),
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
            command if command.starts_with("LRANGE_") => {
                let last = command["LRANGE_".len()..].parse::<u32>().map_or(0, |len| len - 1);
                let last = last.to_string();
                let range: [&[Part<'_>]; 2] = [&[Text(b"0")], &[Text(last.as_bytes())]];
                self.array(&[&[Text(b"LRANGE")], &[Text(LIST)], range[0], range[1]]);
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
    /// A number from 0 to 1, without 0.
    pub fn part(&mut self) -> f64 {
        (f64::from(self.below(u32::MAX)) + 1.0) / f64::from(u32::MAX)
    }

    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((word ^ (word >> 31)) >> 32) * u64::from(end) / (1 << 32)) as u32
    }
}
