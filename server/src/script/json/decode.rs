//! JSON as values of Lua (`cjson.decode`).

use mlua::Value;

use super::super::bind::{Answer, Arguments, Failure};
use super::super::numbers::parse_prefix;
use super::{DEPTH_MAX, JsonOptions, VALUES_PER_LOOK};

pub(super) fn decode(args: &Arguments<'_>) -> Answer {
    if args.len() != 1 {
        return Err(args.wrong(0, "expected 1 argument"));
    }
    let text = args.string(0)?;
    let text = text.as_bytes();
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        let why = "JSON parser does not support UTF-16 or UTF-32";
        return Err(Failure::Text(why.to_owned()));
    }
    let options = args.state.json.borrow().clone();
    let mut decoder = Decoder { args, text: &text, at: 0, token_at: 0, options, values: 0 };
    let token = decoder.token();
    let value = decoder.value(token, 0)?;
    match decoder.token() {
        Token::End => Ok(vec![value]),
        token => Err(decoder.expected("the end", &token)),
    }
}

enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Text(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Wrong(&'static str),
}

impl Token {
    /// The name in errors, which is that of the original library.
    fn name(&self) -> &'static str {
        match self {
            Self::ObjectBegin => "T_OBJ_BEGIN",
            Self::ObjectEnd => "T_OBJ_END",
            Self::ArrayBegin => "T_ARR_BEGIN",
            Self::ArrayEnd => "T_ARR_END",
            Self::Text(_) => "T_STRING",
            Self::Number(_) => "T_NUMBER",
            Self::Boolean(_) => "T_BOOLEAN",
            Self::Null => "T_NULL",
            Self::Colon => "T_COLON",
            Self::Comma => "T_COMMA",
            Self::End => "T_END",
            Self::Wrong(why) => why,
        }
    }
}

struct Decoder<'a> {
    args: &'a Arguments<'a>,
    text: &'a [u8],
    at: usize,
    /// Where the last token begins, or where it is wrong.
    token_at: usize,
    options: JsonOptions,
    values: u32,
}

impl Decoder<'_> {
    fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(0)
    }

    fn expected(&self, what: &str, found: &Token) -> Failure {
        let (found, at) = (found.name(), self.token_at + 1);
        Failure::Text(format!("Expected {what} but found {found} at character {at}"))
    }

    fn wrong(&mut self, why: &'static str) -> Token {
        self.token_at = self.at;
        Token::Wrong(why)
    }

    fn token(&mut self) -> Token {
        while matches!(self.byte(self.at), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        self.token_at = self.at;
        let byte = self.byte(self.at);
        let single = match byte {
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b',' => Token::Comma,
            b':' => Token::Colon,
            0 => return Token::End,
            b'"' => return self.string(),
            b'-' | b'0'..=b'9' => {
                if !self.options.decode_invalid && self.is_no_json_number() {
                    return self.wrong("invalid number");
                }
                return self.number();
            }
            b'f' | b'i' | b'I' | b'n' | b'N' | b't' | b'+' => return self.word(),
            _ => return self.wrong("invalid token"),
        };
        self.at += 1;
        single
    }

    fn word(&mut self) -> Token {
        let rest = &self.text[self.at..];
        let words: [(&[u8], Token); 3] = [
            (b"true", Token::Boolean(true)),
            (b"false", Token::Boolean(false)),
            (b"null", Token::Null),
        ];
        for (word, token) in words {
            if rest.starts_with(word) {
                self.at += word.len();
                return token;
            }
        }
        if self.options.decode_invalid && self.is_no_json_number() {
            return self.number();
        }
        self.wrong("invalid token")
    }

    /// Whether the text is a number to C, but none to JSON.
    fn is_no_json_number(&self) -> bool {
        let mut at = self.at;
        if self.byte(at) == b'+' {
            return true;
        }
        at += usize::from(self.byte(at) == b'-');
        if self.byte(at) == b'0' {
            let next = self.byte(at + 1);
            return next | 0x20 == b'x' || next.is_ascii_digit();
        }
        if self.byte(at) <= b'9' {
            return false;
        }
        let word = self.text.get(at..at + 3).unwrap_or_default();
        word.eq_ignore_ascii_case(b"inf") || word.eq_ignore_ascii_case(b"nan")
    }

    fn number(&mut self) -> Token {
        match parse_prefix(&self.text[self.at..]) {
            Some((number, len)) => {
                self.at += len;
                Token::Number(number)
            }
            None => self.wrong("invalid number"),
        }
    }

    fn string(&mut self) -> Token {
        self.at += 1;
        let mut text = Vec::new();
        loop {
            let byte = self.byte(self.at);
            match byte {
                b'"' => {
                    self.at += 1;
                    return Token::Text(text);
                }
                0 => return self.wrong("unexpected end of string"),
                b'\\' => {
                    let plain = match self.byte(self.at + 1) {
                        escaped @ (b'"' | b'\\' | b'/') => escaped,
                        b'b' => 8,
                        b't' => b'\t',
                        b'n' => b'\n',
                        b'f' => 12,
                        b'r' => b'\r',
                        b'u' => match self.unicode(&mut text) {
                            Some(len) => {
                                self.at += len;
                                continue;
                            }
                            None => return self.wrong("invalid unicode escape code"),
                        },
                        _ => return self.wrong("invalid escape code"),
                    };
                    text.push(plain);
                    self.at += 2;
                }
                byte => {
                    text.push(byte);
                    self.at += 1;
                }
            }
        }
    }

    /// Appends the character of an escape in UTF-8, and returns the escape's length.
    fn unicode(&self, text: &mut Vec<u8>) -> Option<usize> {
        let hex = |at: usize| {
            let digits = self.text.get(at..at + 4)?;
            digits.iter().try_fold(0u32, |value, digit| {
                char::from(*digit).to_digit(16).map(|digit| value << 4 | digit)
            })
        };
        let (mut code, mut len) = (hex(self.at + 2)?, 6);
        if code & 0xF800 == 0xD800 {
            let is_pair = code & 0x400 == 0
                && self.byte(self.at + 6) == b'\\'
                && self.byte(self.at + 7) == b'u';
            let low = if is_pair { hex(self.at + 8)? } else { return None };
            if low & 0xFC00 != 0xDC00 {
                return None;
            }
            code = 0x10000 + ((code & 0x3FF) << 10 | low & 0x3FF);
            len = 12;
        }
        let character = char::from_u32(code)?;
        text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        Some(len)
    }

    fn value(&mut self, token: Token, depth: i64) -> Result<Value, Failure> {
        self.values += 1;
        if self.values.is_multiple_of(VALUES_PER_LOOK) && self.args.state.is_over() {
            return Err(Failure::Text("the script is over".to_owned()));
        }
        Ok(match token {
            Token::Text(text) => Value::String(self.args.lua.create_string(text)?),
            Token::Number(number) => Value::Number(number),
            Token::Boolean(value) => Value::Boolean(value),
            Token::Null => Value::NULL,
            Token::ObjectBegin => self.object(depth + 1)?,
            Token::ArrayBegin => self.array(depth + 1)?,
            other => return Err(self.expected("value", &other)),
        })
    }

    fn check_depth(&self, depth: i64) -> Result<(), Failure> {
        if depth <= self.options.decode_max_depth.min(DEPTH_MAX) {
            return Ok(());
        }
        Err(Failure::Text(format!(
            "Found too many nested data structures ({depth}) at character {}",
            self.at
        )))
    }

    fn object(&mut self, depth: i64) -> Result<Value, Failure> {
        self.check_depth(depth)?;
        let table = self.args.lua.create_table()?;
        let mut token = self.token();
        if matches!(token, Token::ObjectEnd) {
            return Ok(Value::Table(table));
        }
        loop {
            let Token::Text(key) = token else {
                return Err(self.expected("object key string", &token));
            };
            let key = self.args.lua.create_string(key)?;
            match self.token() {
                Token::Colon => {}
                other => return Err(self.expected("colon", &other)),
            }
            let next = self.token();
            let value = self.value(next, depth)?;
            table.raw_set(key, value)?;
            match self.token() {
                Token::ObjectEnd => return Ok(Value::Table(table)),
                Token::Comma => token = self.token(),
                other => return Err(self.expected("comma or object end", &other)),
            }
        }
    }

    fn array(&mut self, depth: i64) -> Result<Value, Failure> {
        self.check_depth(depth)?;
        let table = self.args.lua.create_table()?;
        let mut token = self.token();
        if matches!(token, Token::ArrayEnd) {
            return Ok(Value::Table(table));
        }
        for at in 1.. {
            let value = self.value(token, depth)?;
            table.raw_set(at, value)?;
            match self.token() {
                Token::ArrayEnd => break,
                Token::Comma => token = self.token(),
                other => return Err(self.expected("comma or array end", &other)),
            }
        }
        Ok(Value::Table(table))
    }
}
