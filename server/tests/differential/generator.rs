//! Seeded commands: a template, its words filled in, now and then cut short or made longer.

use rand::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::templates::TEMPLATES;

pub type Words = Vec<Vec<u8>>;

/// Draws commands by seed.
pub struct Generator {
    pub random: Xoshiro256PlusPlus,
    pub in_multi: bool,
}

const KEYS: [&str; 8] = ["a", "b", "c", "key:1", "key:2", "h1", "h2", ""];
const FIELDS: [&str; 5] = ["f", "g", "field:3", "", "n"];
const VALUES: [&str; 16] = [
    "",
    "0",
    "1",
    "-1",
    "10",
    "9223372036854775807",
    "-9223372036854775808",
    "3.25",
    "0.125",
    "abc",
    "x123456789012345678901234567890123456789012345678901234567890123456789",
    "a b\r\nc",
    "01",
    " 1",
    "1.5",
    "hello",
];
const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "-1",
    "2",
    "5",
    "-3",
    "100",
    "9223372036854775807",
    "-9223372036854775808",
    "abc",
    "1.5",
    "",
    "9223372036854775808",
    "-100",
];
const TIMES: [&str; 7] =
    ["4102444800", "4102444801", "4102444899", "abc", "9223372036854775807", "1", "-1"];
// Sums of these are exact in binary: Redis shows the rounding of others, this server does not.
const FLOATS: [&str; 9] = ["0.5", "1", "-2.5", "abc", "3.0e3", "0", "", " 1", "100.125"];

impl Generator {
    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of.choose(&mut self.random).unwrap()
    }

    /// Words of a template: k key, f field, v value, n number, t unix time (T in ms, u U not past), d float, i index, p pattern.
    fn fill(&mut self, template: &str) -> Words {
        let fill = |word: &str| {
            match word {
                "k" => self.one(&KEYS),
                "f" => self.one(&FIELDS),
                "v" => self.one(&VALUES),
                "n" => self.one(&NUMBERS),
                "t" => self.one(&TIMES),
                "T" => self.one(&["4102444800000", "4102444800999", "1", "abc"]),
                // A key set with a time that is past stays counted in Redis's DBSIZE for a while.
                "u" => self.one(&["4102444800", "4102444801", "abc", "9223372036854775807", "-1"]),
                "U" => self.one(&["4102444800000", "4102444800999", "abc", "-1"]),
                "d" => self.one(&FLOATS),
                "i" => self.one(&["0", "1", "1", "15", "16", "-1", "abc"]),
                "p" => self.one(&["*", "k*", "[ab]", "h?", "", "key:[^1]"]),
                "q" => self.one(&["100000000", "0", "-1", "abc", "9223372036854775807"]),
                "o" => {
                    self.one(&["nx", "XX", "gt", "Lt", "keepttl", "GET", "persist", "ex", "100"])
                }
                "w" => self.one(&[
                    "ohmytext",
                    "mynewtext",
                    "",
                    "abcabcabcabc",
                    "xbcyabz",
                    "aaaa",
                    "aab",
                ]),
                "s" => self.one(&["100", "0", "-1", "abc", "9223372036854775807"]),
                other => other,
            }
            .as_bytes()
            .to_vec()
        };
        template.split(' ').map(fill).collect()
    }

    pub fn command(&mut self) -> Words {
        if self.in_multi && self.random.random_bool(0.2) {
            self.in_multi = false;
            let end = self.one(&["exec", "exec", "exec", "discard"]);
            return self.fill(end);
        }
        if !self.in_multi && self.random.random_bool(0.02) {
            self.in_multi = true;
            return self.fill("multi");
        }
        let template = loop {
            let template = *TEMPLATES.choose(&mut self.random).unwrap();
            // Inside EXEC replies without an order could not be told apart.
            if !(self.in_multi && is_unordered(template)) {
                break template;
            }
        };
        let mut words = self.fill(template);
        if self.random.random_bool(0.02) {
            words.pop();
        }
        if self.random.random_bool(0.02) {
            words.push(self.one(&VALUES).as_bytes().to_vec());
        }
        if words.is_empty() || is_incomparable(&words) { self.fill("ping") } else { words }
    }
}

/// Cut short or made longer, these have replies that depend on the connection, on chance, on layout or on
/// what else a server does; or they end the server.
fn is_incomparable(words: &Words) -> bool {
    let words: Vec<&str> = words.iter().map(|w| std::str::from_utf8(w).unwrap()).collect();
    match words[..] {
        ["hello"] | ["scan", _] | ["hscan", _, _] => true,
        ["hello", "2" | "3", ref rest @ ..] => {
            !rest.contains(&"bogus") && rest != ["auth", "default"] && rest != ["setname"]
        }
        ["hrandfield", key] => key != "nokey",
        ["hrandfield", key, count] => key != "nokey" && count != "0",
        ["client", "id" | "list" | "info"] | ["command"] | ["command", _] => true,
        ["command", "docs" | "info", ref names @ ..] => names != ["nosuch"],
        ["memory", _] | ["slowlog", "get" | "len"] | ["object", "help"] => true,
        ["memory", "usage", key, ..] if words.len() != 4 => key != "nokey",
        ["info" | "time" | "lastsave" | "save" | "bgsave" | "randomkey" | "shutdown"] => true,
        ["bgsave", "schedule"] | ["shutdown", "save" | "nosave"] => true,
        [.., "count", n] => n != "1000" && n != "0",
        _ => false,
    }
}

fn is_unordered(template: &str) -> bool {
    const NAMES: [&str; 10] = [
        "hgetall",
        "hkeys",
        "hvals",
        "keys",
        "scan",
        "hscan",
        "expiretime",
        "pexpiretime",
        "command",
        "config",
    ];
    NAMES.contains(&template.split(' ').next().unwrap())
}
