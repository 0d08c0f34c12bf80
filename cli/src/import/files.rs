//! Dumps and append-only files.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use perdura_rdb::Reader;
use perdura_terminal::LateBar;

use super::follow::Follower;
use super::keys::{Taken, VALUE_BYTES_MAX, take};
use super::target::Target;
use super::wire::{Commands, Next};

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 256 << 10;

/// The end of an append-only file, which may be cut off within a command.
#[derive(Debug, Default)]
pub struct Tail {
    /// Bytes of a command or of a transaction that is not whole.
    pub cut_bytes: u64,
}

/// Whether bytes begin a dump.
fn is_dump(path: &Path) -> Result<bool> {
    let mut head = Vec::new();
    File::open(path)?.take(5).read_to_end(&mut head)?;
    Ok(head == b"REDIS")
}

/// Takes the files at a path: a dump, an append-only file, or a directory of such.
pub fn import(
    path: &Path,
    only: Option<u64>,
    target: &mut Target,
    taken: &mut Taken,
) -> Result<(Follower, Tail)> {
    let place = || path.display().to_string();
    let mut follower = Follower::new(only);
    let about = fs::metadata(path).with_context(place)?;
    let files = if about.is_dir() { manifest(path)? } else { vec![path.to_owned()] };
    let mut tail = Tail::default();
    let last = files.len().saturating_sub(1);
    for (number, file) in files.iter().enumerate() {
        let place = || file.display().to_string();
        tail = one(file, &mut follower, only, target, taken).with_context(place)?;
        if tail.cut_bytes > 0 && number < last {
            bail!("{}: the end is cut off, and it is not the last file", place());
        }
    }
    Ok((follower, tail))
}

/// Takes one file: a dump, commands, or a dump with commands behind.
fn one(
    path: &Path,
    follower: &mut Follower,
    only: Option<u64>,
    target: &mut Target,
    taken: &mut Taken,
) -> Result<Tail> {
    let bar = LateBar::new("import");
    let file = File::open(path)?;
    let all = file.metadata()?.len();
    let mut offset = 0;
    let mut commands = Commands::default();
    let mut file: Box<dyn Read> = Box::new(BufReader::with_capacity(PIECE_BYTES, file));
    if is_dump(path)? {
        let mut reader = Reader::new(file, VALUE_BYTES_MAX)?;
        take(&mut reader, only, target, taken, |done, keys| {
            bar.bytes_of("keys", keys, done, all);
            Ok(())
        })?;
        offset = reader.offset();
        let (behind, rest) = reader.into_rest();
        commands.feed(&behind);
        file = rest;
    }
    // Where the last command ended that was carried out.
    let mut whole = offset;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        loop {
            let before = offset;
            match commands.next_command().with_context(|| format!("at byte {before}"))? {
                Next::Incomplete => break,
                Next::Nothing(len) => offset += len,
                Next::Command(words, len) => {
                    offset += len;
                    follower.take(words, target)?;
                }
            }
            if !follower.is_in_multi() {
                whole = offset;
            }
            bar.bytes_of("commands", follower.commands, offset, all);
        }
        let len = file.read(&mut piece)?;
        if len == 0 {
            break;
        }
        commands.feed(&piece[..len]);
    }
    target.finish()?;
    bar.finish();
    Ok(Tail { cut_bytes: offset + commands.left() as u64 - whole })
}

/// The files that a directory's manifest names: the base, then the later ones in their order.
fn manifest(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut manifests = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "manifest") {
            manifests.push(path);
        }
    }
    let [path] = &manifests[..] else {
        bail!(
            "{}: {} files end in .manifest; expected the directory of append-only files of a Redis \
             7, which has one",
            dir.display(),
            manifests.len()
        );
    };
    let place = || path.display().to_string();
    let text = fs::read_to_string(path).with_context(place)?;
    let (mut base, mut later) = (None, Vec::new());
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words = unquoted(line).with_context(|| format!("{}: {line:?}", place()))?;
        let value = |name: &str| {
            let at = words.iter().position(|word| word == name)?;
            words.get(at + 1).cloned()
        };
        let (Some(file), Some(seq), Some(kind)) = (value("file"), value("seq"), value("type"))
        else {
            bail!("{}: {line:?} names no file, seq and type", place());
        };
        if file.contains('/') || file == ".." {
            bail!("{}: {file:?} is in another directory", place());
        }
        let seq: u64 = seq.parse().with_context(|| format!("{}: seq {seq:?}", place()))?;
        match &kind[..] {
            "b" if base.is_none() => base = Some(dir.join(file)),
            "i" => later.push((seq, dir.join(file))),
            // Files that a rewrite has replaced.
            "h" => {}
            _ => bail!("{}: {line:?} has an unknown type, or is a second base", place()),
        }
    }
    later.sort();
    let files: Vec<PathBuf> =
        base.into_iter().chain(later.into_iter().map(|(_, path)| path)).collect();
    if files.is_empty() {
        bail!("{} names no file", place());
    }
    Ok(files)
}

/// The words of a line, with quotes and escapes taken away.
fn unquoted(line: &str) -> Result<Vec<String>> {
    let (mut words, mut letters) = (Vec::new(), line.chars().peekable());
    while let Some(first) = letters.next() {
        if first == ' ' {
            continue;
        }
        let mut word = String::new();
        if first == '"' {
            loop {
                match letters.next() {
                    Some('"') => break,
                    Some('\\') => match letters.next() {
                        Some(letter @ ('"' | '\\' | ' ')) => word.push(letter),
                        other => bail!("the escape {other:?} is not known"),
                    },
                    Some(letter) => word.push(letter),
                    None => bail!("a quote that does not end"),
                }
            }
        } else {
            word.push(first);
            while let Some(letter) = letters.next_if(|letter| *letter != ' ') {
                word.push(letter);
            }
        }
        words.push(word);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_names_its_files_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let text = "file a.2.incr.aof seq 2 type i\nfile \"a b.1.base.rdb\" seq 1 type b\n\
                    file a.1.incr.aof seq 1 type i\nfile old seq 1 type h\n";
        fs::write(path("appendonly.aof.manifest"), text).unwrap();
        let files = manifest(dir.path()).unwrap();
        let names = ["a b.1.base.rdb", "a.1.incr.aof", "a.2.incr.aof"];
        assert_eq!(files, names.map(path));
        for bad in ["file ../x seq 1 type i\n", "file x type i\n", "file x seq 1 type q\n", ""] {
            fs::write(path("appendonly.aof.manifest"), bad).unwrap();
            assert!(manifest(dir.path()).is_err(), "{bad:?}");
        }
    }
}
