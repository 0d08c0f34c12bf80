//! Commands of a stream or a file, carried out at the target.

use anyhow::{Result, bail};

use super::target::{About, Target, shown};
use super::wire::Words;

/// Where a stream of commands stands.
#[derive(Debug)]
pub struct Follower {
    /// The only database that is taken, if one was asked for.
    only: Option<u64>,
    /// The database that the stream has selected.
    db: u64,
    /// The commands since MULTI, which are carried out together or not at all.
    multi: Option<Vec<Words>>,
    /// Commands that were sent.
    pub commands: u64,
}

impl Follower {
    /// Takes all databases, or one.
    pub fn new(only: Option<u64>) -> Self {
        Self { only, db: 0, multi: None, commands: 0 }
    }

    /// Whether the last command was in the middle of a transaction.
    pub fn is_in_multi(&self) -> bool {
        self.multi.is_some()
    }

    /// Carries out a command, or keeps it until its transaction is whole.
    ///
    /// # Errors
    /// The target refuses an earlier command; the command concerns other databases than the one
    /// that is taken.
    pub fn take(&mut self, words: Words, target: &mut Target) -> Result<()> {
        let name = words[0].to_ascii_lowercase();
        match (&name[..], &mut self.multi) {
            (b"ping" | b"replconf", _) => Ok(()),
            (b"multi", None) => {
                self.multi = Some(Vec::new());
                Ok(())
            }
            (b"exec", Some(queue)) => {
                let queue = std::mem::take(queue);
                self.multi = None;
                self.transaction(queue, target)
            }
            (_, Some(queue)) => {
                queue.push(words);
                Ok(())
            }
            (_, None) => self.send(words, target),
        }
    }

    fn transaction(&mut self, queue: Vec<Words>, target: &mut Target) -> Result<()> {
        // The server loads libraries in transactions of their own. Nothing else in the stream needs
        // them, for the source sends what a function has done, so they may come a moment earlier.
        let (libraries, queue): (Vec<_>, Vec<_>) =
            queue.into_iter().partition(|words| words[0].eq_ignore_ascii_case(b"function"));
        for words in libraries {
            self.send(words, target)?;
        }
        // A transaction of SELECT alone, or of one command, is the same without.
        let commands = queue.iter().filter(|words| !words[0].eq_ignore_ascii_case(b"select"));
        let is_one = commands.count() < 2;
        if !is_one {
            target.push(&[b"MULTI"], || About::Other("MULTI".to_owned()))?;
        }
        for words in queue {
            self.send(words, target)?;
        }
        match is_one {
            true => Ok(()),
            false => target.push(&[b"EXEC"], || About::Other("a transaction".to_owned())),
        }
    }

    fn send(&mut self, words: Words, target: &mut Target) -> Result<()> {
        let name = words[0].to_ascii_lowercase();
        if name == b"select" {
            let db = words.get(1).and_then(|db| std::str::from_utf8(db).ok()?.parse().ok());
            let Some(db) = db else { bail!("SELECT without a number in the stream of commands") };
            self.db = db;
            return Ok(());
        }
        let mut words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        if let Some(only) = self.only {
            let concerns_others = match &name[..] {
                b"swapdb" | b"move" => true,
                b"copy" => words[2..].iter().any(|word| word.eq_ignore_ascii_case(b"db")),
                _ => false,
            };
            if concerns_others {
                bail!(
                    "{} moves keys between databases, and only database {only} is taken: import \
                     without a database in the address",
                    String::from_utf8_lossy(words[0])
                );
            }
            if name == b"flushall" {
                words[0] = b"FLUSHDB";
                self.db = only;
            } else if self.db != only {
                return Ok(());
            }
        }
        target.select(self.db)?;
        self.commands += 1;
        target.push(&words, || {
            let key = words.get(1).map_or(String::new(), |key| format!(" {:?}", shown(key)));
            let command = String::from_utf8_lossy(words[0]);
            About::Other(format!("{command}{key} (database {})", self.db))
        })
    }
}
