//! Many strings in one piece of memory, for values of unknown origin may have very many.

/// Strings in their order.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Strings {
    bytes: Vec<u8>,
    /// Where each string ends.
    ends: Vec<u64>,
}

impl Strings {
    /// No strings.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string at `index`.
    ///
    /// # Panics
    /// If there are no more than `index` strings.
    pub fn get(&self, index: usize) -> &[u8] {
        let from = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[from as usize..self.ends[index] as usize]
    }

    /// The strings.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        (0..self.len()).map(|index| self.get(index))
    }

    /// The strings two by two: fields and their values.
    pub fn pairs(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> + Clone {
        (0..self.len() / 2).map(|index| (self.get(2 * index), self.get(2 * index + 1)))
    }

    /// Adds a string.
    pub fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len() as u64);
    }

    /// Adds the string that `f` writes behind the bytes it gets; none if it fails.
    pub(crate) fn push_with<E>(
        &mut self,
        f: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let before = self.bytes.len();
        let done = f(&mut self.bytes);
        match done {
            Ok(()) => self.ends.push(self.bytes.len() as u64),
            Err(_) => self.bytes.truncate(before),
        }
        done
    }
}

impl<S: AsRef<[u8]>> FromIterator<S> for Strings {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Self {
        let mut all = Self::new();
        strings.into_iter().for_each(|string| all.push(string.as_ref()));
        all
    }
}

impl std::fmt::Debug for Strings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(|s| s.escape_ascii().to_string())).finish()
    }
}
