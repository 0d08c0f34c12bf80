//! Numbers in as few bytes as they need: seven bits in each byte, lowest first. Reading them checks
//! every byte.

/// Appends a number.
#[inline]
pub fn put(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// The name of what is wrong with bytes, and the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub what: &'static str,
    pub at: usize,
}

/// Reads numbers in order.
#[derive(Clone, Debug)]
pub struct Numbers<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Numbers<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Goes on where another reader stood.
    pub fn from(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// The place at which the reader stands.
    pub fn at(&self) -> usize {
        self.at
    }

    pub fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub fn wrong(&self, what: &'static str) -> Wrong {
        Wrong { what, at: self.at }
    }

    /// The next number, in its shortest form only: the same numbers are the same bytes.
    #[inline]
    pub fn take(&mut self) -> Result<u64, Wrong> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let Some(&byte) = self.bytes.get(self.at) else {
                return Err(self.wrong("a number is cut off"));
            };
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits || (byte == 0 && shift > 0) {
                return Err(self.wrong("a number is too large or too long"));
            }
            self.at += 1;
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.wrong("a number is too long"))
    }

    /// The next bytes, as many as the number before them says.
    pub fn take_bytes(&mut self) -> Result<&'a [u8], Wrong> {
        let len = self.take()?;
        let left = &self.bytes[self.at..];
        let taken = usize::try_from(len).ok().and_then(|len| left.get(..len));
        let Some(taken) = taken else { return Err(self.wrong("a length is beyond the end")) };
        self.at += taken.len();
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back() {
        let numbers: Vec<u64> = (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit]).collect();
        let mut bytes = Vec::new();
        numbers.iter().for_each(|n| put(&mut bytes, *n));
        put(&mut bytes, u64::MAX);
        let mut read = Numbers::new(&bytes);
        for number in numbers {
            assert_eq!(read.take(), Ok(number));
        }
        assert_eq!(read.take(), Ok(u64::MAX));
        assert!(read.is_empty() && read.take().is_err());
    }

    #[test]
    fn long_forms_and_large_numbers_are_refused() {
        for bytes in [
            &[0x80, 0][..],
            &[0xff; 10],
            &[0x80],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
        ] {
            assert!(Numbers::new(bytes).take().is_err(), "{bytes:?}");
        }
        assert!(Numbers::new(&[5, 1]).take_bytes().is_err());
    }
}
