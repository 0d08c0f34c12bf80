//! The volumes of a trace: names to indices, in order of first sight.

use std::collections::HashMap;

use super::Fault;
use super::text::fields::shown;

/// How many volumes a trace may have: beyond that the column is something else, and names would fill memory.
pub(crate) const VOLUMES_MAX: usize = 1 << 20;

/// Numbers below this find their volume without hashing.
const DIRECT: usize = 4096;

/// No volume yet.
const NONE: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(crate) struct Volumes {
    names: Vec<String>,
    by_name: HashMap<Vec<u8>, u32>,
    by_number: Vec<u32>,
}

impl Volumes {
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// The volume of that name.
    pub(crate) fn named(&mut self, name: &[u8]) -> Result<u32, Box<Fault>> {
        if let Some(&volume) = self.by_name.get(name) {
            return Ok(volume);
        }
        if self.names.len() == VOLUMES_MAX {
            return Err(Box::new(Fault::TooManyVolumes { name: shown(name), limit: VOLUMES_MAX }));
        }
        let volume = self.names.len() as u32;
        // Names that are no UTF-8 are escaped, so that different bytes stay different names.
        self.names.push(match std::str::from_utf8(name) {
            Ok(name) => name.to_owned(),
            Err(_) => name.escape_ascii().to_string(),
        });
        self.by_name.insert(name.to_owned(), volume);
        Ok(volume)
    }

    /// The volume with that number for a name.
    #[inline]
    pub(crate) fn numbered(&mut self, number: u64) -> Result<u32, Box<Fault>> {
        match self.by_number.get(number as usize) {
            Some(&volume) if volume != NONE => Ok(volume),
            _ => self.numbered_anew(number),
        }
    }

    #[cold]
    fn numbered_anew(&mut self, number: u64) -> Result<u32, Box<Fault>> {
        let volume = self.named(number.to_string().as_bytes())?;
        if number < DIRECT as u64 {
            if self.by_number.is_empty() {
                self.by_number = vec![NONE; DIRECT];
            }
            self.by_number[number as usize] = volume;
        }
        Ok(volume)
    }
}
