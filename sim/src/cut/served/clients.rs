//! The clients of a simulated server: what they send, what they were told, and what must therefore
//! be found after a loss.
//!
//! Each client writes keys of its own, so its keys must be as after a number of its commands: at
//! least as many as the replies that anybody has got tell of, at most as many as it has sent. A
//! reply to a read tells of the write that it shows, whoever made it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::super::oracle::{Oracle, Value};
use super::reply::{Reply, parse};

/// Keys of a client, of each kind.
const KEYS: u32 = 4;
/// Bytes of a string to which nothing is appended any more.
const STRING_BYTES_MAX: usize = 16 << 10;

/// All clients of a server.
#[derive(Default)]
pub(super) struct Clients {
    all: Vec<Client>,
    values: u64,
    /// Whether a failed device excuses errors. A reply to a read may show a write then that was
    /// answered by an error.
    pub may_fail: bool,
    /// A reply that nothing explains.
    pub wrong: Option<String>,
    /// Whether the server has gone, so that no more replies come.
    is_over: bool,
}

struct Client {
    stream: UnixStream,
    received: Vec<u8>,
    expected: VecDeque<Expected>,
    /// The keys that each command has changed.
    changes: Vec<Vec<Changed>>,
    /// All keys after all commands.
    now: BTreeMap<Vec<u8>, Arc<Value>>,
    answered: usize,
    /// Commands whose effect must be there.
    floor: usize,
    has_error: bool,
    /// The number of commands after which a string first had a value.
    shown: HashMap<Vec<u8>, usize>,
}

/// A key and its new value; `None` if it is deleted.
type Changed = (Vec<u8>, Option<Arc<Value>>);

/// The reply that a command will have.
enum Expected {
    Written,
    /// A value of another client, or of the same.
    Read {
        of: usize,
    },
}

/// What is known at a moment: for each client the commands whose effect must be there, and those
/// that were sent.
pub(super) type Known = Vec<(usize, usize)>;

impl Clients {
    pub fn connect(&mut self, stream: UnixStream) -> std::io::Result<()> {
        stream.set_nonblocking(true)?;
        self.all.push(Client {
            stream,
            received: Vec::new(),
            expected: VecDeque::new(),
            changes: Vec::new(),
            now: BTreeMap::new(),
            answered: 0,
            floor: 0,
            has_error: false,
            shown: HashMap::new(),
        });
        Ok(())
    }

    pub fn known(&self) -> Known {
        self.all.iter().map(|client| (client.floor, client.changes.len())).collect()
    }

    /// Sends some commands of some clients, as pipelines.
    pub fn send(&mut self, random: &mut Random) -> std::io::Result<()> {
        for number in 0..self.all.len() {
            if random.random_bool(0.5) {
                continue;
            }
            let most = [1, 3, 12][random.random_range(0..3)];
            let mut bytes = Vec::new();
            for _ in 0..random.random_range(1..=most) {
                self.command(number, random, &mut bytes);
            }
            // The buffers of the sockets hold much more than clients send before they are answered.
            self.all[number].stream.write_all(&bytes)?;
        }
        Ok(())
    }

    fn command(&mut self, number: usize, random: &mut Random, out: &mut Vec<u8>) {
        let key = |kind: &str, random: &mut Random| {
            format!("c{number}:{kind}:{}", random.random_range(0..KEYS)).into_bytes()
        };
        let mut changed = Vec::new();
        let mut expected = Expected::Written;
        match random.random_range(0..20) {
            0..8 => {
                let (key, value) = (key("s", random), self.value(random));
                request(out, &[b"SET", &key, &value]);
                changed.push((key, Some(Value::String(value))));
            }
            8..11 => {
                let mut words = vec![b"MSET".to_vec()];
                for at in 0..random.random_range(2..=3) {
                    let (key, value) =
                        (format!("c{number}:s:{at}").into_bytes(), self.value(random));
                    words.extend([key.clone(), value.clone()]);
                    changed.push((key, Some(Value::String(value))));
                }
                request(out, &words.iter().map(Vec::as_slice).collect::<Vec<_>>());
            }
            11..13 => {
                let key = key("s", random);
                request(out, &[b"DEL", &key]);
                changed.push((key, None));
            }
            13 => {
                let (key, tail) = (key("s", random), self.value(random));
                let mut whole = match self.all[number].now.get(&key).map(|value| &**value) {
                    Some(Value::String(old)) if old.len() < STRING_BYTES_MAX => old.clone(),
                    _ => Vec::new(),
                };
                let command: &[u8] = if whole.is_empty() { b"SET" } else { b"APPEND" };
                request(out, &[command, &key, &tail]);
                whole.extend(tail);
                changed.push((key, Some(Value::String(whole))));
            }
            14..16 => {
                let (key, value) = (key("h", random), self.value(random));
                let field = format!("f{}", random.random_range(0..KEYS)).into_bytes();
                request(out, &[b"HSET", &key, &field, &value]);
                let mut fields = match self.all[number].now.get(&key).map(|value| &**value) {
                    Some(Value::Hash(old)) => old.clone(),
                    _ => BTreeMap::new(),
                };
                fields.insert(field, value);
                changed.push((key, Some(Value::Hash(fields))));
            }
            _ => {
                let of = random.random_range(0..self.all.len());
                let key = format!("c{of}:s:{}", random.random_range(0..KEYS)).into_bytes();
                request(out, &[b"GET", &key]);
                expected = Expected::Read { of };
            }
        }
        self.all[number].note(changed, expected);
    }

    /// A value that no other command has.
    fn value(&mut self, random: &mut Random) -> Vec<u8> {
        self.values += 1;
        let len = match random.random_range(0..10) {
            0..6 => 16,
            6..9 => random.random_range(16..600),
            _ => random.random_range(600..5_000),
        };
        let mut value = format!("{:016}", self.values).into_bytes();
        value.resize(len, b'a' + (self.values % 23) as u8);
        value
    }

    /// Takes the last replies: the server goes now.
    pub fn end(&mut self) {
        self.hear();
        self.is_over = true;
    }

    /// Takes all replies that have arrived.
    pub fn hear(&mut self) {
        if self.is_over {
            return;
        }
        for number in 0..self.all.len() {
            if let Err(wrong) = self.hear_one(number) {
                self.wrong.get_or_insert(format!("client {number}: {wrong}"));
            }
        }
    }

    fn hear_one(&mut self, number: usize) -> Result<(), String> {
        let client = &mut self.all[number];
        let mut piece = [0; 16 << 10];
        loop {
            match client.stream.read(&mut piece) {
                Ok(0) => break,
                Ok(len) => client.received.extend_from_slice(&piece[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.to_string()),
            }
        }
        let mut at = 0;
        while let Some((reply, len)) = parse(&self.all[number].received[at..])? {
            at += len;
            self.told(number, reply)?;
        }
        self.all[number].received.drain(..at);
        Ok(())
    }

    fn told(&mut self, number: usize, reply: Reply) -> Result<(), String> {
        let client = &mut self.all[number];
        client.answered += 1;
        let expected = client.expected.pop_front().ok_or("a reply to no command")?;
        match (reply, expected) {
            (Reply::Error(_), _) if self.may_fail => client.has_error = true,
            (Reply::Error(text), _) => return Err(text),
            (_, _) if client.has_error => {}
            (Reply::Done, Expected::Written) => client.floor = client.floor.max(client.answered),
            (Reply::Nothing, Expected::Read { .. }) if !self.may_fail => {
                client.floor = client.floor.max(client.answered);
            }
            (Reply::Bytes(value), Expected::Read { of }) if !self.may_fail => {
                client.floor = client.floor.max(client.answered);
                let writer = &mut self.all[of];
                let shown = writer.shown.get(&value).ok_or("a read of a value never written")?;
                writer.floor = writer.floor.max(*shown);
            }
            (Reply::Nothing | Reply::Bytes(_), Expected::Read { .. }) => {}
            (reply, _) => return Err(format!("{reply:?} is no reply to this command")),
        }
        Ok(())
    }

    /// Checks that each client's keys are as after a number of its commands that is possible.
    pub fn check(&self, found: &Oracle, known: &Known) -> Result<(), String> {
        let mut keys: Vec<BTreeMap<&[u8], &Value>> = vec![BTreeMap::new(); self.all.len()];
        for (name, value) in found.values() {
            let number = name.strip_prefix(b"c").and_then(|rest| rest.first()?.checked_sub(b'0'));
            match number.and_then(|number| keys.get_mut(usize::from(number))) {
                Some(keys) => drop(keys.insert(name, value)),
                None => return Err(format!("key {} is nobody's", String::from_utf8_lossy(name))),
            }
        }
        for (number, (client, found)) in self.all.iter().zip(&keys).enumerate() {
            let (floor, sent) = known.get(number).copied().unwrap_or_default();
            if !client.was_at(floor..=sent, found) {
                return Err(format!(
                    "client {number}: its keys are as after none of {floor} (acknowledged) to \
                     {sent} commands"
                ));
            }
        }
        Ok(())
    }
}

impl Client {
    fn note(&mut self, changed: Vec<(Vec<u8>, Option<Value>)>, expected: Expected) {
        let commands = self.changes.len() + 1;
        let mut kept = Vec::new();
        for (key, value) in changed {
            let value = value.map(Arc::new);
            match &value {
                Some(value) => {
                    if let Value::String(bytes) = &**value {
                        self.shown.entry(bytes.clone()).or_insert(commands);
                    }
                    self.now.insert(key.clone(), Arc::clone(value));
                }
                None => drop(self.now.remove(&key)),
            }
            kept.push((key, value));
        }
        self.changes.push(kept);
        self.expected.push_back(expected);
    }

    fn was_at(
        &self,
        commands: std::ops::RangeInclusive<usize>,
        found: &BTreeMap<&[u8], &Value>,
    ) -> bool {
        let mut state: BTreeMap<&[u8], &Value> = BTreeMap::new();
        for done in 0..=*commands.end() {
            if let Some(last) = done.checked_sub(1) {
                for (key, value) in &self.changes[last] {
                    match value {
                        Some(value) => drop(state.insert(key, value)),
                        None => drop(state.remove(&key[..])),
                    }
                }
            }
            if commands.contains(&done) && state == *found {
                return true;
            }
        }
        false
    }
}

fn request(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}
