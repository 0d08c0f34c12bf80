//! Makes commands from a seed: the words of a template are filled in, and sometimes it is cut short
//! or made longer.

use rand::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::payloads::{bad_payload, payload};
use crate::script_templates::SCRIPTS;

pub type Words = Vec<Vec<u8>>;

/// Draws commands by seed.
pub struct Generator {
    pub random: Xoshiro256PlusPlus,
    pub in_multi: bool,
    pub templates: &'static [&'static str],
    /// The last ID that was made for a large stream.
    pub last_ms: u64,
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
const MEMBERS: [&str; 9] = [
    "a",
    "b",
    "ab",
    "m",
    "",
    "z",
    "0",
    "a b\r\nc",
    "x123456789012345678901234567890123456789012345678901234567890123456789",
];
const ELEMENTS: [&str; 16] = [
    "a",
    "b",
    "a",
    "",
    "0",
    "7",
    "-1",
    "007",
    "4096",
    "-40000",
    "8388608",
    "9223372036854775807",
    "9223372036854775808",
    "a b\r\nc",
    "x123456789012345678901234567890123456789012345678901234567890123456789",
    "hello",
];
const SET_MEMBERS: [&str; 16] = [
    "a",
    "b",
    "ab",
    "",
    "1",
    "2",
    "3",
    "-7",
    "40000",
    "9223372036854775807",
    "9223372036854775808",
    "01",
    "z",
    "a b\r\nc",
    "x12345678901234567890123456789012345678901234567890123456789012345",
    "+5",
];
const INTS: [&str; 8] =
    ["1", "2", "-3", "40000", "-40000", "5000000000", "-9223372036854775808", "0"];
// -0 is left out, because Redis keeps it in large sets only.
const SCORES: [&str; 21] = [
    "0",
    "1",
    "2",
    "1",
    "-1",
    "0.1",
    "2.5",
    "inf",
    "-Inf",
    "+infinity",
    "1e17",
    "123456789012345678",
    "0x10",
    "1e-5",
    ".5",
    "nan",
    "abc",
    "",
    " 1",
    "1e400",
    "5e-324",
];
const BOUNDS: [&str; 20] = [
    "-inf", "+inf", "inf", "-inf", "+inf", "0", "1", "(1", "2", "(2", "-1", "(0.1", "2.5", "abc",
    "", "(", " 1", "nan", "(inf", "0x10",
];
const LEX_BOUNDS: [&str; 12] = ["-", "+", "-", "+", "[a", "(a", "[m", "(z", "[", "(", "abc", "++"];
// Sums of these are exact in binary. Of others Redis shows the rounding, and this server does not.
const FLOATS: [&str; 9] = ["0.5", "1", "-2.5", "abc", "3.0e3", "0", "", " 1", "100.125"];

const IDS: [&str; 16] = [
    "0",
    "0-0",
    "0-1",
    "1",
    "2-0",
    "3-1",
    "4",
    "5-5",
    "7-0",
    "9",
    "18446744073709551615-18446744073709551614",
    "007-01",
    "-",
    "abc",
    "1-1-1",
    "",
];
/// Rules about a user.
const RULES: [&str; 52] = [
    "on",
    "off",
    "nopass",
    "resetpass",
    ">pw",
    "<pw",
    "#abc",
    "reset",
    "~*",
    "~a*",
    "~k*",
    "%R~a*",
    "%R~*",
    "%W~b",
    "%RW~h?",
    "%X~a",
    "%R",
    "~a b",
    "allkeys",
    "resetkeys",
    "&a*",
    "&*",
    "&b",
    "allchannels",
    "resetchannels",
    "+@all",
    "-@all",
    "+get",
    "-get",
    "+set",
    "-set",
    "+@read",
    "-@read",
    "+@write",
    "-@write",
    "-@dangerous",
    "+@slow",
    "-@fast",
    "+@bogus",
    "+bogus",
    "+config|get",
    "-config|set",
    "+config",
    "-client",
    "+select|0",
    "+select|1",
    "+select|",
    "",
    "(~b* +get)",
    "(%W~* +@write)",
    "bogus",
    "+config|get|x",
];

impl Generator {
    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of.choose(&mut self.random).unwrap()
    }

    /// Words of a template, those of sorted sets in capitals (see below): k key, f field, v value,
    /// n number, t unix time (T in ms, u U not past), d float, i index, p pattern.
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
                "Z" => self.one(&["z1", "z1", "z2", "z3", "z4", "a", "h1"]),
                "M" => self.one(&MEMBERS),
                "S" => self.one(&SCORES),
                "W" => self.one(&["1", "2", "0.5", "inf", "abc"]),
                "B" => self.one(&BOUNDS),
                "L" => self.one(&LEX_BOUNDS),
                "O" => self.one(&["nx", "XX", "gt", "Lt", "ch", "INCR"]),
                "A" => self.one(&["sum", "MIN", "max", "bogus"]),
                "y" => self.one(&["l1", "l1", "l2", "l3", "a", "h1"]),
                "Q" => self.one(&ELEMENTS),
                // Elements of large lists.
                "J" => return vec![b'g'; self.random.random_range(0..300)],
                "K" => return vec![b'h'; self.random.random_range(0..9_000)],
                "g" => self.one(&["g1", "g1", "g2", "g3", "nokey", "a"]),
                "l" => return self.degrees(180.0),
                "m" => return self.degrees(85.0),
                "j" => return format!("p{}", self.random.random_range(0..300)).into_bytes(),
                "r" => self.one(&["0", "1", "100", "250.5", "1000", "6000", "20000", "-1", "abc"]),
                "c" => self.one(&["m", "KM", "ft", "mi", "km", "x"]),
                "e" => self.one(&["asc", "DESC", "withdist", "withhash", "withcoord"]),
                "b" => self.one(&["b1", "b1", "b2", "b3", "nokey", "s1"]),
                "x" => self.one(&["p1", "p1", "p2", "p3", "b1", "nokey", "s1"]),
                "D" => self.one(&["u8", "i8", "u1", "i64", "u63", "i5", "u13", "i33", "u64", "x8"]),
                "F" => self.one(&["0", "1", "7", "100", "#0", "#3", "#40", "-1", "#-1", "abc"]),
                "G" => return self.random.random_range(0..2_000).to_string().into_bytes(),
                "H" => return format!("e{}", self.random.random_range(0..50_000)).into_bytes(),
                "V" => self.one(&["0", "1", "-1", "5", "-9", "100", "300", "-70000", "abc"]),
                "Y" => self.one(&["s1", "s1", "s2", "s3", "s4", "a", "h1"]),
                "E" => self.one(&SET_MEMBERS),
                "I" => self.one(&INTS),
                // Streams, and IDs that exist, that do not, and that are none.
                "aa" => self.one(&["x1", "x1", "x1", "x2", "x3", "a", "h1"]),
                "ab" => self.one(&IDS),
                "ac" => return self.rising_id(),
                "ad" => {
                    self.one(&["-", "+", "3-0", "(3-0", "(5", "7", "6-2", "(-", "(", "(+", "x"])
                }
                "ae" => self.one(&["g1", "g1", "g2", "nosuch"]),
                "af" => self.one(&["alice", "alice", "bob", ""]),
                "ag" => {
                    self.last_ms += self.random.random_range(0..3);
                    return format!("{}-*", self.last_ms).into_bytes();
                }
                "ah" => {
                    return self.random.random_range(0..self.last_ms + 9).to_string().into_bytes();
                }
                "ai" => return (self.last_ms / 2).to_string().into_bytes(),
                "aj" => {
                    let ms = self.last_ms.saturating_sub(self.random.random_range(0..900));
                    return format!("{ms}-0").into_bytes();
                }
                "ak" => self.one(&["g2", "nosuch", "nosuch", "nosuch"]),
                // A member of a large set, and a score of few.
                "N" => return format!("m{}", self.random.random_range(0..900)).into_bytes(),
                "P" => return format!("{}", self.random.random_range(1..250)).into_bytes(),
                "@" => self.one(SCRIPTS),
                "R" => return format!("({}", self.random.random_range(1..250)).into_bytes(),
                "PAYLOAD" => return payload(&mut self.random),
                "BADLOAD" => return bad_payload(&mut self.random),
                "z" => self.one(&["u1", "u1", "u2", "u3"]),
                "h" => self.one(&RULES),
                other => other,
            }
            .as_bytes()
            .to_vec()
        };
        template.split(' ').map(fill).collect()
    }

    /// An ID that is mostly behind those made before.
    fn rising_id(&mut self) -> Vec<u8> {
        self.last_ms += u64::from(self.random.random_bool(0.4));
        let ms = self.last_ms % 12;
        match self.random.random_range(0..4) {
            0 => format!("{ms}"),
            1 => format!("{ms}-{}", self.random.random_range(0..4)),
            _ => format!("{ms}-*"),
        }
        .into_bytes()
    }

    /// A place's coordinate: sometimes one beyond what there is.
    fn degrees(&mut self, max: f64) -> Vec<u8> {
        let range = if self.random.random_bool(0.03) { max * 1.2 } else { max };
        let wide = self.random.random_bool(0.5);
        let number = self.random.random_range(-range..range) / if wide { 1.0 } else { 40.0 };
        format!("{number:.6}").into_bytes()
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
            let template = *self.templates.choose(&mut self.random).unwrap();
            // Inside EXEC, replies without an order could not be told from the others.
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

/// Cut short or made longer, these have replies that depend on the connection, on chance, on layout
/// or on what else a server does; or they end the server.
fn is_incomparable(words: &Words) -> bool {
    let words: Vec<&str> =
        words.iter().map(|w| std::str::from_utf8(w).unwrap_or("binary")).collect();
    match words[..] {
        // An ID that is made from the time.
        ["xadd", ref rest @ ..] if rest.contains(&"*") => true,
        // Redis 7.0 has no WITHSCORE.
        ["zrank" | "zrevrank", _, _, _, ..] => true,
        // How long ago, of entries that are there.
        ["xpending", _, _, .., count] | ["xpending", _, _, .., count, _] if words.len() > 6 => {
            count != "0" && !words.contains(&"nosuch") && !words.contains(&"100000000")
        }
        ["xpending", _, _, _, _, count] => count != "0",
        // Redis 7.2 has other words for a list of streams with an ID too few.
        ["xread" | "xreadgroup", ref rest @ ..] => rest
            .iter()
            .position(|word| *word == "streams")
            .is_some_and(|at| (rest.len() - at) % 2 == 0),
        ["xinfo", "stream", key] => key != "nokey" && key != "k",
        ["xinfo", "consumers", ..] => !words.contains(&"none"),
        ["xinfo", "stream", _, "full", ..] => words.len() != 5,
        ["hello"] | ["scan", _] | ["hscan" | "zscan" | "sscan", _, _] => true,
        // Redis 7.0 carries out options before it has seen the others; 7.2 does not.
        ["hello", "2" | "3", ref rest @ ..]
            if rest.len() > 3 || (rest.len() > 2 && rest.contains(&"setname")) =>
        {
            true
        }
        ["hello", "2" | "3", ref rest @ ..] => {
            !rest.contains(&"bogus") && rest != ["auth", "default"] && rest != ["setname"]
        }
        // Redis 7.0 takes this rank, and 7.2 refuses it.
        ["lpos", ref rest @ ..] => rest.windows(2).any(|w| w == ["rank", "-9223372036854775808"]),
        // With a word more these may name a key that is there, or the order of a set.
        ["migrate", .., "keys", "nokey", last] => last != "nokey2",
        ["migrate", .., "nokey", "nokey2", _] => true,
        ["sort" | "sort_ro", key, ref rest @ ..] => {
            let is_own = |two: &[&str]| two[0] == "by" && !two[1].contains('*');
            !matches!(key, "l1" | "z1") && rest.windows(2).any(is_own)
        }
        ["spop", key] | ["srandmember", key] => key != "nokey",
        ["spop" | "srandmember", key, count] => {
            key != "nokey" && !matches!(count, "0" | "1000" | "2000")
        }
        ["hrandfield" | "zrandmember", key] => key != "nokey",
        ["hrandfield" | "zrandmember", key, count] => key != "nokey" && count != "0",
        ["acl", "genpass"] | ["acl", "cat" | "list" | "getuser" | "log", ..]
            if words != ["acl", "cat"] =>
        {
            !matches!(words[2..], ["bogus" | "nouser" | "abc" | "0" | "reset" | "x", ..])
        }
        ["client", "id" | "list" | "info"] | ["command"] | ["command", _] => true,
        ["command", "docs" | "info", ref names @ ..] => names != ["nosuch"],
        ["memory", _] | ["slowlog", "get" | "len"] | ["object", "help"] => true,
        ["memory", "usage", key, ..] if words.len() != 4 => key != "nokey",
        // Redis 7.0 has its own words for a script that is given for another.
        ["script", "load"] | ["function", "load"] => true,
        ["info" | "time" | "lastsave" | "save" | "bgsave" | "randomkey" | "shutdown"] => true,
        ["bgsave", "schedule"] | ["shutdown", "save" | "nosave"] => true,
        ["scan" | "hscan" | "zscan" | "sscan", .., "count", n] => n != "1000" && n != "0",
        _ => false,
    }
}

fn is_unordered(template: &str) -> bool {
    const NAMES: [&str; 20] = [
        "sdiff",
        "sinter",
        "smembers",
        "spop",
        "srandmember",
        "sscan",
        "sunion",
        "hgetall",
        "hkeys",
        "hvals",
        "keys",
        "scan",
        "hscan",
        "zscan",
        "expiretime",
        "pexpiretime",
        "command",
        "config",
        "dump",
        // Not allowed there, on purpose.
        "migrate",
    ];
    NAMES.contains(&template.split(' ').next().unwrap())
}
