//! Finds the program that `env` starts with certain arguments. Scripts name their interpreter by
//! `env`, and its options can remove `LD_PRELOAD`.
//!
//! Only arguments that surely remove `LD_PRELOAD` are refused. With arguments that this module does
//! not understand (other options, quoted words) the program is started.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use anyhow::{Result, bail};

const PRELOAD: &[u8] = b"LD_PRELOAD";

/// A program and its arguments.
pub type Started = (OsString, Vec<Vec<u8>>);

/// The program that `env` starts with these arguments; `None`: it starts none, or this module
/// cannot tell which.
pub fn started(words: Vec<Vec<u8>>) -> Result<Option<Started>> {
    let mut reading = Reading { words: words.into(), is_moved: false, has_path: false };
    let is_understood = reading.options()?;
    let Some(name) = is_understood.then(|| reading.assignments()).transpose()?.flatten() else {
        return Ok(None);
    };
    let is_relative = name.contains(&b'/') && !name.starts_with(b"/");
    if (reading.is_moved && is_relative) || (reading.has_path && !name.contains(&b'/')) {
        return Ok(None);
    }
    Ok(Some((OsString::from_vec(name), reading.words.into())))
}

struct Reading {
    words: VecDeque<Vec<u8>>,
    /// Whether the program is started in another folder.
    is_moved: bool,
    /// Whether the program is looked for in another `PATH`.
    has_path: bool,
}

impl Reading {
    /// Takes the options off. False: there is an unknown option.
    fn options(&mut self) -> Result<bool> {
        while let Some(word) = self.words.pop_front() {
            let is_known = match word.as_slice() {
                b"--" => return Ok(true),
                b"-" => self.option(b'i', None)?,
                [b'-', b'-', name @ ..] => self.long(name)?,
                [b'-', letters @ ..] => self.short(letters)?,
                _ => {
                    self.words.push_front(word);
                    return Ok(true);
                }
            };
            if !is_known {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn long(&mut self, word: &[u8]) -> Result<bool> {
        let (name, value) = match word.iter().position(|byte| *byte == b'=') {
            Some(at) => (&word[..at], Some(word[at + 1..].to_vec())),
            None => (word, None),
        };
        let letter = match name {
            b"ignore-environment" => b'i',
            b"null" => b'0',
            b"debug" => b'v',
            b"unset" => b'u',
            b"chdir" => b'C',
            b"argv0" => b'a',
            b"split-string" => b'S',
            _ => return Ok(false),
        };
        self.option(letter, value)
    }

    /// Takes the options of a word of letters. The first letter that takes a value takes the rest
    /// of the word.
    fn short(&mut self, letters: &[u8]) -> Result<bool> {
        for (at, letter) in letters.iter().enumerate() {
            let takes_value = b"uCaS".contains(letter);
            let rest = &letters[at + 1..];
            let value = (takes_value && !rest.is_empty()).then(|| rest.to_vec());
            if !self.option(*letter, value)? {
                return Ok(false);
            }
            if takes_value {
                break;
            }
        }
        Ok(true)
    }

    /// Notes the effect of an option. If it takes a value and none is given, the value is the next
    /// word. False: the option is unknown.
    fn option(&mut self, letter: u8, value: Option<Vec<u8>>) -> Result<bool> {
        match letter {
            b'i' => bail!(
                "env -i empties the environment, LD_PRELOAD with it: the program's heap would stay \
                 in ordinary memory; leave -i out, or put `perdura run` behind it"
            ),
            b'0' | b'v' => return Ok(true),
            _ => {}
        }
        let Some(value) = value.or_else(|| self.words.pop_front()) else { return Ok(false) };
        match letter {
            b'u' => self.changes(&value)?,
            b'C' => self.is_moved = true,
            b'a' => {}
            b'S' if value.iter().any(|byte| b"\\'\"$#".contains(byte)) => return Ok(false),
            b'S' => {
                let words = value.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
                words.rev().for_each(|word| self.words.push_front(word.to_vec()));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Takes `NAME=VALUE` off, and then the program's name, if there is one.
    fn assignments(&mut self) -> Result<Option<Vec<u8>>> {
        while let Some(word) = self.words.pop_front() {
            match word.iter().position(|byte| *byte == b'=') {
                Some(at) => self.changes(&word[..at])?,
                None => return Ok(Some(word)),
            }
        }
        Ok(None)
    }

    /// Notes that a variable is removed or gets another value.
    fn changes(&mut self, name: &[u8]) -> Result<()> {
        if name == PRELOAD {
            bail!(
                "env changes LD_PRELOAD: the program's heap would stay in ordinary memory; set it \
                 before `perdura run`, which keeps its value"
            );
        }
        self.has_path |= name == b"PATH";
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The program that these words start, with its arguments; or the text of the refusal.
    fn of(words: &[&str]) -> Result<Option<String>, String> {
        let words = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let found = started(words).map_err(|error| error.to_string())?;
        Ok(found.map(|(name, words)| {
            let words = words.into_iter().map(|word| String::from_utf8(word).unwrap());
            std::iter::once(name.into_string().unwrap()).chain(words).collect::<Vec<_>>().join(" ")
        }))
    }

    #[test]
    fn the_program_is_found_behind_options_and_assignments() {
        let found: &[(&[&str], &str)] = &[
            (&["sh", "-i"], "sh -i"),
            (&["-S -u FOO sh -x", "file"], "sh -x file"),
            (&["-Ssh", "-i"], "sh -i"),
            (&["-vS", "-u FOO --chdir /tmp A=1 B=2 sh"], "sh"),
            (&["--split-string=-vu FOO", "--", "sh"], "sh"),
            (&["-C/tmp", "--unset=FOO", "-a", "name", "/bin/sh", "-i"], "/bin/sh -i"),
            (&["-0", "A==b", "sh"], "sh"),
            (&["bash -x"], "bash -x"),
            (&["PATH=/x", "./sh"], "./sh"),
        ];
        for (words, program) in found {
            assert_eq!(of(words).unwrap().as_deref(), Some(*program), "{words:?}");
        }
    }

    #[test]
    fn what_cannot_be_told_is_left_to_env() {
        let unknown: &[&[&str]] = &[
            &[],
            &["A=1"],
            &["-u"],
            &["-x", "sh"],
            &["--ignore-signal=INT", "-i", "sh"],
            &["-S 'a b'"],
            &["-S ${HOME}/sh"],
            &["-C", "/tmp", "bin/sh"],
            &["PATH=/x", "sh"],
            &["-u", "PATH", "sh"],
        ];
        for words in unknown {
            assert_eq!(of(words), Ok(None), "{words:?}");
        }
    }

    #[test]
    fn what_takes_the_preloaded_library_away_is_refused() {
        for words in [
            &["-i", "sh"][..],
            &["-"],
            &["-vi", "sh"],
            &["--ignore-environment", "sh"],
            &["-S -i sh"],
        ] {
            assert!(of(words).unwrap_err().starts_with("env -i empties"), "{words:?}");
        }
        for words in [&["-u", "LD_PRELOAD", "sh"][..], &["LD_PRELOAD=", "sh"], &["-uLD_PRELOAD"]] {
            assert!(of(words).unwrap_err().starts_with("env changes"), "{words:?}");
        }
    }
}
