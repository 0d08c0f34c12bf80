//! Clients: what they send, and how they hear the answers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::broken::Broken;
use super::model::{Answer, End, Key, Op};
use super::record::{Event, Moments};

/// Keys of numbers, each by itself.
pub(super) const NUMBERS: [Key; 2] = [Key::Number(0), Key::Number(1)];
/// Keys that transactions connect.
pub(super) const TOGETHER: [Key; 3] = [Key::Number(2), Key::Number(3), Key::List(0)];
/// A list by itself, and two between which elements are moved.
pub(super) const LISTS: [Key; 3] = [Key::List(1), Key::List(2), Key::List(3)];

/// A list to which nothing is pushed while clients work.
pub(super) const LAST: Key = Key::List(4);

/// A client, which waits for the answer to each command.
pub(super) struct Client {
    pub number: usize,
    stream: TcpStream,
    reader: BufReader<TcpStream>,
    pub prefix: String,
}

impl Client {
    pub fn connect(addr: SocketAddr, number: usize) -> io::Result<Self> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let reader = BufReader::new(stream.try_clone()?);
        Ok(Self { number, stream, reader, prefix: String::new() })
    }

    /// Sends a command, and notes it with its answer.
    pub fn call(&mut self, op: Op, moments: &Moments) -> Result<Event, Broken> {
        let lines = op.lines(&self.prefix);
        let bytes: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let called = moments.next();
        self.stream.write_all(bytes.as_bytes())?;
        // Those before EXEC are told that they are queued.
        for _ in 1..lines.len() {
            self.line()?;
        }
        let line = self.line()?;
        let heard = self.answer(&line)?;
        let returned = moments.next();
        let Some(answer) = heard else {
            let (client, command) = (self.number, op.to_string());
            return Err(Broken::Answer { client, command, heard: line });
        };
        Ok(Event { client: self.number, op, answer, called, returned })
    }

    /// The number of clients that wait for data.
    pub fn blocked(&mut self) -> Result<usize, Broken> {
        self.stream.write_all(b"INFO clients\r\n")?;
        let line = self.line()?;
        let text = self.bulk(&line)?.unwrap_or_default();
        let count = text
            .split("blocked_clients:")
            .nth(1)
            .and_then(|rest| rest.split("\r\n").next().and_then(|number| number.parse().ok()));
        let (client, command) = (self.number, "INFO clients".to_owned());
        count.ok_or(Broken::Answer { client, command, heard: text })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// The text that a line with a length begins.
    fn bulk(&mut self, line: &str) -> io::Result<Option<String>> {
        let Some(len) = line.strip_prefix('$').and_then(|len| len.parse::<usize>().ok()) else {
            return Ok(None);
        };
        let mut bytes = vec![0; len + 2];
        self.reader.read_exact(&mut bytes)?;
        bytes.truncate(len);
        Ok(String::from_utf8(bytes).ok())
    }

    /// The answer that a line begins; `None` for an error, or what is no answer to any command.
    fn answer(&mut self, line: &str) -> io::Result<Option<Answer>> {
        Ok(match (line, line.as_bytes().first()) {
            ("+OK", _) => Some(Answer::Ok),
            ("$-1" | "*-1", _) => Some(Answer::Null),
            (_, Some(b':')) => line[1..].parse().ok().map(Answer::Int),
            (_, Some(b'$')) => self.bulk(line)?.and_then(|text| match text.parse() {
                Ok(number) => Some(Answer::Text(number)),
                Err(_) => Key::parse(text.strip_prefix(&self.prefix)?).map(Answer::Key),
            }),
            (_, Some(b'*')) => {
                let len: usize = line[1..].parse().unwrap_or(0);
                let mut answers = Vec::new();
                for _ in 0..len {
                    let line = self.line()?;
                    answers.push(self.answer(&line)?);
                }
                answers.into_iter().collect::<Option<Vec<_>>>().map(Answer::Many)
            }
            _ => None,
        })
    }
}

/// The commands of one client in one round, at least so many.
pub(super) fn draw(random: &mut Random, client: usize, count: usize) -> Vec<Op> {
    let mut draw = Draw { random, next: 1000 * (client as i64 + 1) };
    let mut ops = Vec::new();
    while ops.len() < count {
        match draw.random.random_range(0..10) {
            0..3 => {
                let key = draw.one_of(&NUMBERS);
                ops.push(draw.on_number(key));
            }
            3..7 => ops.push(draw.on_lists()),
            7 => {
                let key = draw.one_of(&TOGETHER);
                ops.push(draw.on_one(key));
            }
            _ => draw.transaction(&mut ops),
        }
    }
    ops
}

struct Draw<'r> {
    random: &'r mut Random,
    /// A number that nobody else sets or pushes.
    next: i64,
}

impl Draw<'_> {
    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.random.random_range(0..all.len())]
    }

    fn end(&mut self) -> End {
        self.one_of(&[End::Left, End::Right])
    }

    fn new_number(&mut self) -> i64 {
        self.next += 1;
        self.next
    }

    fn on_number(&mut self, key: Key) -> Op {
        match self.random.random_range(0..8) {
            0..3 => Op::Get(key),
            3..5 => Op::Set(key, self.new_number()),
            5..7 => Op::Incr(key),
            _ => Op::Del(key),
        }
    }

    fn on_list(&mut self, key: Key) -> Op {
        match self.random.random_range(0..8) {
            0..4 => {
                let count = self.one_of(&[1, 1, 2, 3]);
                let elements = (0..count).map(|_| self.new_number()).collect();
                Op::Push(key, self.end(), elements)
            }
            4..6 => Op::Pop(key, self.end()),
            6 => Op::Len(key),
            _ => Op::Range(key),
        }
    }

    fn on_one(&mut self, key: Key) -> Op {
        match key {
            Key::Number(_) => self.on_number(key),
            Key::List(_) => self.on_list(key),
        }
    }

    /// Milliseconds, of which some are too short for any push.
    fn wait_ms(&mut self) -> u32 {
        self.random.random_range(1..8)
    }

    fn on_lists(&mut self) -> Op {
        let [alone, one, other] = LISTS;
        match self.random.random_range(0..10) {
            0..2 => self.on_list(alone),
            2 => Op::WaitPop(vec![alone], self.end(), self.wait_ms()),
            3..6 => {
                let key = self.one_of(&[one, other]);
                self.on_list(key)
            }
            6..8 => {
                let keys = self.one_of(&[&[one][..], &[one, other], &[other, one]]).to_vec();
                Op::WaitPop(keys, self.end(), self.wait_ms())
            }
            _ => {
                let (from, to) = self.one_of(&[(one, other), (other, one), (one, one)]);
                Op::WaitMove(from, self.end(), to, self.end(), self.wait_ms())
            }
        }
    }

    fn transaction(&mut self, ops: &mut Vec<Op>) {
        if self.random.random_bool(0.7) {
            let count = self.random.random_range(1..=2);
            ops.push(Op::Watch((0..count).map(|_| self.one_of(&TOGETHER)).collect()));
            if self.random.random() {
                let key = self.one_of(&TOGETHER);
                ops.push(self.on_one(key));
            }
        }
        let count = self.random.random_range(1..=3);
        let queued = (0..count).map(|_| match self.random.random_range(0..6) {
            0 => Op::WaitPop(vec![TOGETHER[2]], self.end(), self.wait_ms()),
            _ => {
                let key = self.one_of(&TOGETHER);
                self.on_one(key)
            }
        });
        let queued = queued.collect();
        ops.push(Op::Exec(queued));
    }
}
