//! The volumes of a trace: their names, and their numbers in the order of first use.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

use super::Fault;
use super::text::fields::shown;

/// How many volumes a trace may have: beyond that the column is something else, and names would
/// fill memory.
pub(crate) const VOLUMES_MAX: usize = 1 << 20;

/// Volumes with numbers below this are found without hashing.
const DIRECT: usize = 4096;

/// How many names are remembered so that they are found without the map.
const CACHED: usize = 64;

/// Marks a place that has no volume yet.
const NONE: u32 = u32::MAX;

/// A name that was found before: what its ends come to, how long it is, and its volume.
#[derive(Debug, Clone, Copy)]
struct Cached {
    ends: u64,
    len: usize,
    volume: u32,
}

#[derive(Debug)]
pub(crate) struct Volumes {
    names: Vec<String>,
    /// Names that are not UTF-8, as they stand in the trace.
    raw: HashMap<u32, Box<[u8]>>,
    /// Hashed places of volumes: open addressing, at most half full. A name is kept once, since
    /// there may be many.
    by_name: Vec<u32>,
    by_number: Vec<u32>,
    cached: [Cached; CACHED],
}

impl Default for Volumes {
    fn default() -> Volumes {
        Volumes {
            names: Vec::new(),
            raw: HashMap::new(),
            by_name: vec![NONE; 16],
            by_number: Vec::new(),
            cached: [Cached { ends: 0, len: 0, volume: NONE }; CACHED],
        }
    }
}

impl Volumes {
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// The number of the volume of this name, which is new where the name is.
    #[inline]
    pub(crate) fn named(&mut self, name: &[u8]) -> Result<u32, Box<Fault>> {
        let (ends, len) = (ends(name), name.len());
        let place =
            ((ends ^ len as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize % CACHED;
        let cached = self.cached[place];
        if (cached.ends, cached.len) == (ends, len)
            && cached.volume != NONE
            && (len < 8 || self.raw(cached.volume) == name)
        {
            return Ok(cached.volume);
        }
        let volume = self.named_anew(name)?;
        self.cached[place] = Cached { ends, len, volume };
        Ok(volume)
    }

    fn named_anew(&mut self, name: &[u8]) -> Result<u32, Box<Fault>> {
        let place = self.place(name);
        if self.by_name[place] != NONE {
            return Ok(self.by_name[place]);
        }
        if self.names.len() == VOLUMES_MAX {
            return Err(Box::new(Fault::TooManyVolumes { name: shown(name), limit: VOLUMES_MAX }));
        }
        let volume = self.names.len() as u32;
        match std::str::from_utf8(name) {
            Ok(name) => self.names.push(name.to_owned()),
            // Escaped, so that different bytes stay different names.
            Err(_) => {
                self.names.push(name.escape_ascii().to_string());
                self.raw.insert(volume, name.into());
            }
        }
        self.by_name[place] = volume;
        if 2 * self.names.len() > self.by_name.len() {
            self.by_name = vec![NONE; 4 * self.names.len()];
            for volume in 0..=volume {
                let place = self.place(self.raw(volume));
                self.by_name[place] = volume;
            }
        }
        Ok(volume)
    }

    /// A volume's name as it stands in the trace.
    fn raw(&self, volume: u32) -> &[u8] {
        let name = || self.names[volume as usize].as_bytes();
        match self.raw.is_empty() {
            true => name(),
            false => self.raw.get(&volume).map_or_else(name, |raw| &raw[..]),
        }
    }

    /// The place at which the name's volume is remembered, or would be.
    fn place(&self, name: &[u8]) -> usize {
        let places = self.by_name.len();
        let mut place = xxh3_64(name) as usize % places;
        while self.by_name[place] != NONE && self.raw(self.by_name[place]) != name {
            place = (place + 1) % places;
        }
        place
    }

    /// The number of the volume whose name is this number.
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

/// The first and last bytes of a name, where names of volumes differ; of a short one all of it.
#[inline]
fn ends(name: &[u8]) -> u64 {
    match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        (Some(first), Some(last)) => {
            u64::from_le_bytes(*first) ^ u64::from_le_bytes(*last).rotate_left(29)
        }
        _ => name.iter().fold(0, |ends, &byte| ends << 8 | u64::from(byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbered_in_order_of_first_sight_however_many_there_are() {
        let mut volumes = Volumes::default();
        let name = |n: u32| format!("host-{}_{n}", n % 3);
        for round in 0..3 {
            for n in 0..1000 {
                assert_eq!(volumes.named(name(n).as_bytes()).unwrap(), n, "round {round}");
            }
        }
        assert_eq!(volumes.numbered(7).unwrap(), 1000);
        assert_eq!(volumes.named(b"7").unwrap(), 1000);
        assert_eq!(volumes.numbered(7).unwrap(), 1000);
        assert_eq!(volumes.numbered(1 << 40).unwrap(), 1001);
        assert_eq!(volumes.named(b"\xff").unwrap(), 1002);
        assert_eq!(volumes.names()[1000..], ["7", "1099511627776", "\\xff"]);
    }
}
