//! YAML as a tree that knows its lines. Features that workload files do not need (anchors, aliases,
//! tags, keys that are lists) are refused where they stand rather than half understood; so the tree
//! is no larger than the text, and no deeper than [`DEPTH_MAX`].

use saphyr_parser::{Event, Parser, ScanError};

/// Deepest nesting.
pub const DEPTH_MAX: usize = 16;
/// Longest word, a chain of the most accesses included: each cell of a matrix keeps its words.
pub const WORD_MAX_BYTES: usize = 8 << 10;

/// A value and the line on which it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Line number, from 1.
    pub line: usize,
    /// The value.
    pub value: Value,
}

/// A value in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A word as it was written.
    Word(String),
    /// A list in the file's order.
    List(Vec<Node>),
    /// A map in the file's order; a key may be there twice.
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name of the key.
    pub key: String,
    /// Line of the key, from 1.
    pub line: usize,
    /// Value of the key.
    pub value: Node,
}

/// Why a text is not such a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Line of the fault, from 1.
    pub line: usize,
    /// The fault.
    pub why: String,
}

/// The documents of a text, each as a tree.
///
/// # Errors
/// The first place that is not YAML, or that uses a feature workloads do not need.
pub fn documents(text: &str) -> Result<Vec<Node>, Refused> {
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(no_yaml)?;
        builder.take(event, span.start.line())?;
    }
    Ok(builder.documents)
}

fn no_yaml(error: ScanError) -> Refused {
    Refused { line: error.marker().line(), why: format!("no YAML: {}", error.info()) }
}

/// A list or a map that has begun.
enum Open {
    List(usize, Vec<Node>),
    Map(usize, Vec<Entry>, Option<(String, usize)>),
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    documents: Vec<Node>,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), Refused> {
        let refuse = |why: &str| Err(Refused { line, why: why.to_owned() });
        let plain = |anchor: usize, tagged: bool| match (anchor, tagged) {
            (0, false) => Ok(()),
            (0, true) => refuse("a tag; write the value alone"),
            _ => refuse("an anchor; write values out where they are used"),
        };
        match event {
            Event::Scalar(word, _, anchor, tag) => {
                plain(anchor, tag.is_some())?;
                if word.len() > WORD_MAX_BYTES {
                    return refuse(&format!("a word of more than {WORD_MAX_BYTES} bytes"));
                }
                self.put(Node { line, value: Value::Word(word.into_owned()) })
            }
            Event::SequenceStart(anchor, tag) => {
                plain(anchor, tag.is_some())?;
                self.begin(Open::List(line, Vec::new()), line)
            }
            Event::MappingStart(anchor, tag) => {
                plain(anchor, tag.is_some())?;
                self.begin(Open::Map(line, Vec::new(), None), line)
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open::List(line, list)) => self.put(Node { line, value: Value::List(list) }),
                Some(Open::Map(line, map, _)) => self.put(Node { line, value: Value::Map(map) }),
                None => Ok(()),
            },
            Event::Alias(_) => refuse("an alias; write the value out"),
            _ => Ok(()),
        }
    }

    fn begin(&mut self, open: Open, line: usize) -> Result<(), Refused> {
        if self.open.len() == DEPTH_MAX {
            let why = format!("more than {DEPTH_MAX} levels deep");
            return Err(Refused { line, why });
        }
        self.open.push(open);
        Ok(())
    }

    fn put(&mut self, node: Node) -> Result<(), Refused> {
        match self.open.last_mut() {
            None => self.documents.push(node),
            Some(Open::List(_, list)) => list.push(node),
            Some(Open::Map(_, map, key)) => match (key.take(), node) {
                (Some((name, line)), value) => map.push(Entry { key: name, line, value }),
                (None, Node { line, value: Value::Word(name) }) => *key = Some((name, line)),
                (None, Node { line, .. }) => {
                    let why = "a list or map in the place of a key".to_owned();
                    return Err(Refused { line, why });
                }
            },
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> (usize, String) {
        let refused = documents(text).unwrap_err();
        (refused.line, refused.why)
    }

    #[test]
    fn values_know_their_lines() {
        let documents = documents("a:\n  b: [1, 2]\n  c: \"x\"\n  b: ~\n").unwrap();
        let Value::Map(top) = &documents[0].value else { panic!("{documents:?}") };
        let Value::Map(inner) = &top[0].value.value else { panic!("{documents:?}") };
        let lines: Vec<_> = inner.iter().map(|entry| (entry.key.as_str(), entry.line)).collect();
        assert_eq!(lines, [("b", 2), ("c", 3), ("b", 4)]);
        let Value::List(list) = &inner[0].value.value else { panic!("{inner:?}") };
        assert_eq!(list.len(), 2);
        assert_eq!(inner[1].value.value, Value::Word("x".into()));
    }

    #[test]
    fn what_workloads_do_not_use_is_refused_where_it_stands() {
        assert_eq!(refused("a: 1\nb: &x 2\n").0, 2);
        assert_eq!(refused("a: !!str 1\n").0, 1);
        assert_eq!(refused("a: 1\nb: *x\n").0, 2);
        assert_eq!(refused("a: 1\n[b]: 2\n").0, 2);
        let deep = format!("a: {}1{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX));
        assert!(refused(&deep).1.contains("levels deep"));
        assert_eq!(refused("a: 1\nb: }\n").0, 2);
        let long = format!("a:\n  {}1\n", "0".repeat(WORD_MAX_BYTES));
        assert!(refused(&long).1.contains("more than 8192 bytes"));
    }
}
