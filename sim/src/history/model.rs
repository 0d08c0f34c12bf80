//! The naive sequential model: commands, one after the other, on maps and vectors.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

/// A key of numbers or of lists. A key never changes its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    Number(u8),
    List(u8),
}

/// The end of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Left,
    Right,
}

/// A command of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op {
    Get(Key),
    Set(Key, i64),
    Incr(Key),
    Del(Key),
    Push(Key, End, Vec<i64>),
    Pop(Key, End),
    Len(Key),
    Range(Key),
    /// BLPOP or BRPOP, with the longest wait in milliseconds; 0: it has no end.
    WaitPop(Vec<Key>, End, u32),
    /// BLMOVE.
    WaitMove(Key, End, Key, End, u32),
    Watch(Vec<Key>),
    /// MULTI, the commands, and EXEC. What counts is the moment of EXEC.
    Exec(Vec<Op>),
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Ok,
    Null,
    Int(i64),
    /// The name of a key.
    Key(Key),
    /// A number or an element, which is sent as text.
    Text(i64),
    Many(Vec<Answer>),
}

/// What the commands have made of the keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Model {
    numbers: BTreeMap<Key, i64>,
    /// No list is empty.
    lists: BTreeMap<Key, VecDeque<i64>>,
    /// The keys that each client watches.
    watched: BTreeMap<usize, BTreeSet<Key>>,
    /// The clients of whose watched keys one has changed.
    is_stale: BTreeSet<usize>,
}

impl Model {
    /// Carries out a client's command.
    pub fn apply(&mut self, client: usize, op: &Op) -> Answer {
        match op {
            Op::Get(key) => self.numbers.get(key).map_or(Answer::Null, |n| Answer::Text(*n)),
            Op::Set(key, number) => {
                self.numbers.insert(*key, *number);
                self.changed(*key);
                Answer::Ok
            }
            Op::Incr(key) => {
                let number = self.numbers.entry(*key).or_default();
                *number += 1;
                let answer = Answer::Int(*number);
                self.changed(*key);
                answer
            }
            Op::Del(key) => {
                let was_there =
                    self.numbers.remove(key).is_some() || self.lists.remove(key).is_some();
                if was_there {
                    self.changed(*key);
                }
                Answer::Int(i64::from(was_there))
            }
            Op::Push(key, end, elements) => {
                elements.iter().for_each(|element| self.push(*key, *end, *element));
                self.len(*key)
            }
            Op::Pop(key, end) => self.pop(*key, *end).map_or(Answer::Null, Answer::Text),
            Op::Len(key) => self.len(*key),
            Op::Range(key) => {
                let elements = self.lists.get(key).into_iter().flatten();
                Answer::Many(elements.copied().map(Answer::Text).collect())
            }
            Op::WaitPop(keys, end, _) => {
                let popped = keys.iter().find_map(|key| Some((*key, self.pop(*key, *end)?)));
                popped.map_or(Answer::Null, |(key, element)| {
                    Answer::Many(vec![Answer::Key(key), Answer::Text(element)])
                })
            }
            Op::WaitMove(from, from_end, to, to_end, _) => match self.pop(*from, *from_end) {
                None => Answer::Null,
                Some(element) => {
                    self.push(*to, *to_end, element);
                    Answer::Text(element)
                }
            },
            Op::Watch(keys) => {
                self.watched.entry(client).or_default().extend(keys);
                Answer::Ok
            }
            Op::Exec(ops) => {
                self.watched.remove(&client);
                if self.is_stale.remove(&client) {
                    return Answer::Null;
                }
                Answer::Many(ops.iter().map(|op| self.apply(client, op)).collect())
            }
        }
    }

    fn len(&self, key: Key) -> Answer {
        Answer::Int(self.lists.get(&key).map_or(0, VecDeque::len) as i64)
    }

    fn push(&mut self, key: Key, end: End, element: i64) {
        let list = self.lists.entry(key).or_default();
        match end {
            End::Left => list.push_front(element),
            End::Right => list.push_back(element),
        }
        self.changed(key);
    }

    fn pop(&mut self, key: Key, end: End) -> Option<i64> {
        let list = self.lists.get_mut(&key)?;
        let element = match end {
            End::Left => list.pop_front(),
            End::Right => list.pop_back(),
        };
        if list.is_empty() {
            self.lists.remove(&key);
        }
        self.changed(key);
        element
    }

    fn changed(&mut self, key: Key) {
        let watching = self.watched.iter().filter(|(_, keys)| keys.contains(&key));
        self.is_stale.extend(watching.map(|(client, _)| *client));
    }
}

impl Op {
    /// The keys that the command names.
    pub fn keys(&self) -> Vec<Key> {
        match self {
            Self::Get(key) | Self::Set(key, _) | Self::Incr(key) | Self::Del(key) => vec![*key],
            Self::Push(key, ..) | Self::Pop(key, _) | Self::Len(key) | Self::Range(key) => {
                vec![*key]
            }
            Self::WaitPop(keys, ..) | Self::Watch(keys) => keys.clone(),
            Self::WaitMove(from, _, to, ..) => vec![*from, *to],
            Self::Exec(ops) => ops.iter().flat_map(Self::keys).collect(),
        }
    }

    /// The lines that a client sends for it, with this prefix before the names of keys.
    pub fn lines(&self, prefix: &str) -> Vec<String> {
        let name = |key: &Key| format!("{prefix}{key}");
        let names = |keys: &[Key]| keys.iter().map(name).collect::<Vec<_>>().join(" ");
        let line = match self {
            Self::Get(key) => format!("GET {}", name(key)),
            Self::Set(key, number) => format!("SET {} {number}", name(key)),
            Self::Incr(key) => format!("INCR {}", name(key)),
            Self::Del(key) => format!("DEL {}", name(key)),
            Self::Push(key, end, elements) => {
                let elements: Vec<_> = elements.iter().map(i64::to_string).collect();
                format!("{}PUSH {} {}", end.letter(), name(key), elements.join(" "))
            }
            Self::Pop(key, end) => format!("{}POP {}", end.letter(), name(key)),
            Self::Len(key) => format!("LLEN {}", name(key)),
            Self::Range(key) => format!("LRANGE {} 0 -1", name(key)),
            Self::WaitPop(keys, end, ms) => {
                format!("B{}POP {} {}", end.letter(), names(keys), seconds(*ms))
            }
            Self::WaitMove(from, from_end, to, to_end, ms) => {
                let ends = format!("{} {}", from_end.word(), to_end.word());
                format!("BLMOVE {} {} {ends} {}", name(from), name(to), seconds(*ms))
            }
            Self::Watch(keys) => format!("WATCH {}", names(keys)),
            Self::Exec(ops) => {
                let queued = ops.iter().flat_map(|op| op.lines(prefix));
                return ["MULTI".to_owned()]
                    .into_iter()
                    .chain(queued)
                    .chain(["EXEC".to_owned()])
                    .collect();
            }
        };
        vec![line]
    }
}

fn seconds(ms: u32) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

impl End {
    fn letter(self) -> char {
        match self {
            Self::Left => 'L',
            Self::Right => 'R',
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Left => "LEFT",
            Self::Right => "RIGHT",
        }
    }
}

impl Key {
    /// The key of this name.
    pub fn parse(name: &str) -> Option<Self> {
        let number = name.get(1..)?.parse().ok()?;
        match name.as_bytes()[0] {
            b'n' => Some(Self::Number(number)),
            b'l' => Some(Self::List(number)),
            _ => None,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "n{number}"),
            Self::List(number) => write!(f, "l{number}"),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines("").join("; "))
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => f.write_str("OK"),
            Self::Null => f.write_str("null"),
            Self::Int(number) => write!(f, ":{number}"),
            Self::Key(key) => write!(f, "{key}"),
            Self::Text(number) => write!(f, "{number}"),
            Self::Many(answers) => {
                f.write_str("[")?;
                for (at, answer) in answers.iter().enumerate() {
                    let comma = if at > 0 { ", " } else { "" };
                    write!(f, "{comma}{answer}")?;
                }
                f.write_str("]")
            }
        }
    }
}
