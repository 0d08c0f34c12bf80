//! The words of a command that a script gives.

use crate::resp::{Args, Span};

/// Words in one buffer, which is used again for the next command.
#[derive(Debug, Default)]
pub(crate) struct Words {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl Words {
    /// Forgets all words. The memory of a huge command is given back.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
        self.bytes.shrink_to(64 << 10);
        self.spans.shrink_to(1024);
    }

    /// Appends a word. False: the command is too long.
    #[must_use]
    pub fn push(&mut self, word: &[u8]) -> bool {
        let start = self.bytes.len();
        if start + word.len() > u32::MAX as usize {
            return false;
        }
        self.spans.push(Span::new(start, word.len()));
        self.bytes.extend_from_slice(word);
        true
    }

    /// Appends a whole number as a word. False: the command is too long.
    #[must_use]
    pub fn push_int(&mut self, int: i64) -> bool {
        use std::io::Write;
        let start = self.bytes.len();
        // Writing to a vector does not fail.
        let _ = write!(self.bytes, "{int}");
        self.spans.push(Span::new(start, self.bytes.len() - start));
        self.bytes.len() <= u32::MAX as usize
    }

    /// The words as a command's arguments.
    pub fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }
}
