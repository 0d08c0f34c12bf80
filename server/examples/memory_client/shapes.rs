//! The values that are written: types, numbers of keys and elements, sizes, and commands.

/// Keys of one type, with as many elements each.
pub struct Shape {
    pub kind: Kind,
    pub keys: u64,
    pub elements: u64,
    /// Bytes of a string's value, of a list's or set's element, or of a field's value.
    pub bytes: usize,
    pub has_expiry: bool,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    String,
    List,
    Ints,
    Names,
    Hash,
    /// A sorted set whose scores are whole numbers.
    Sorted,
    /// A sorted set whose scores need all digits of a double.
    Fractions,
    Stream,
}

use Kind::{Fractions, Hash, Ints, List, Names, Sorted, Stream, String as Text};

/// All rows of the table.
pub fn all() -> Vec<Shape> {
    let mut all = Vec::new();
    let mut add = |kind, keys, elements, bytes, has_expiry| {
        all.push(Shape { kind, keys, elements, bytes, has_expiry });
    };
    for has_expiry in [false, true] {
        for bytes in [8, 64, 1024] {
            add(Text, 1_000_000, 1, bytes, has_expiry);
        }
    }
    for kind in [List, Ints, Names, Hash, Sorted, Fractions, Stream] {
        for (keys, elements) in [(200_000, 1), (100_000, 10), (10_000, 100), (1, 1_000_000)] {
            for bytes in [8, 64] {
                if bytes == 8 || !matches!(kind, Ints | Fractions) {
                    add(kind, keys, elements, bytes, false);
                }
            }
        }
        add(kind, 100_000, 10, 8, true);
    }
    all
}

impl Shape {
    pub fn name(&self) -> String {
        let Self { keys, elements, bytes, .. } = self;
        let expiry = if self.has_expiry { ", expiry" } else { "" };
        let what = match self.kind {
            Text => return format!("string, {bytes} B{expiry}, {keys} keys"),
            Ints => return format!("set, {elements} integers{expiry}, {keys} keys"),
            Fractions => return format!("zset, {elements} fractions{expiry}, {keys} keys"),
            List => "list",
            Names => "set",
            Hash => "hash",
            Sorted => "zset",
            Stream => "stream",
        };
        format!("{what}, {elements} of {bytes} B{expiry}, {keys} keys")
    }

    /// Appends the command that writes an element of a key.
    pub fn command(&self, key: u64, element: u64, out: &mut Vec<u8>) {
        let (key, number) = (format!("key:{key:012}"), format!("{element:07}"));
        // Names begin with a letter, because a server may store digits as a number.
        let name = format!("{:x<len$}", format!("e{number}"), len = self.bytes);
        let value = format!("{:x<len$}", format!("v{number}"), len = self.bytes);
        // Numbers in no order that a server could use.
        let scattered = element.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match self.kind {
            Text => array(out, &["SET", &key, &value]),
            List => array(out, &["RPUSH", &key, &name]),
            Ints => array(out, &["SADD", &key, &(scattered >> 40).to_string()]),
            Names => array(out, &["SADD", &key, &name]),
            Hash => array(out, &["HSET", &key, &format!("f{number}"), &value]),
            Sorted => array(out, &["ZADD", &key, &(scattered >> 40).to_string(), &name]),
            Fractions => {
                let score = scattered as f64 / 2f64.powi(64);
                array(out, &["ZADD", &key, &score.to_string(), &name]);
            }
            Stream => array(out, &["XADD", &key, "*", "f", &value]),
        }
    }

    /// Appends the command that lets a key expire in twelve days.
    pub fn expiry(&self, key: u64, out: &mut Vec<u8>) {
        array(out, &["EXPIRE", &format!("key:{key:012}"), "1000000"]);
    }
}

/// Appends a write of 1 KiB to a key that is always the same.
pub fn overwriting(out: &mut Vec<u8>) {
    array(out, &["SET", "the same key", &"x".repeat(1024)]);
}

fn array(out: &mut Vec<u8>, words: &[&str]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
}
