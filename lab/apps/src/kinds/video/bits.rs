//! Bits, and numbers in Exp-Golomb codes, in which small numbers are short.

/// A writer of bits. The highest bit of a byte comes first.
#[derive(Debug, Default)]
pub struct Bits {
    bytes: Vec<u8>,
    pending: u64,
    pending_bits: u32,
}

impl Bits {
    pub fn put(&mut self, value: u32, bits: u32) {
        self.pending = self.pending << bits | u64::from(value);
        self.pending_bits += bits;
        while self.pending_bits >= 8 {
            self.pending_bits -= 8;
            self.bytes.push((self.pending >> self.pending_bits) as u8);
        }
    }

    pub fn put_number(&mut self, number: u32) {
        let bits = (number + 1).ilog2();
        self.put(0, bits);
        self.put(number + 1, bits + 1);
    }

    /// Maps 0, 1, -1, 2, -2 to 0, 1, 2, 3, 4 and writes that.
    pub fn put_signed(&mut self, number: i32) {
        let twice = 2 * number.unsigned_abs();
        self.put_number(if number > 0 { twice - 1 } else { twice });
    }

    /// All bytes; the last one is filled up.
    pub fn finish(mut self) -> Vec<u8> {
        if self.pending_bits > 0 {
            self.put(0, 8 - self.pending_bits);
        }
        self.bytes
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A reader of bits.
    pub struct Reader<'a> {
        pub bytes: &'a [u8],
        pub at: usize,
    }

    impl Reader<'_> {
        pub fn bit(&mut self) -> u32 {
            let bit = self.bytes[self.at / 8] >> (7 - self.at % 8) & 1;
            self.at += 1;
            u32::from(bit)
        }

        pub fn number(&mut self) -> u32 {
            let mut bits = 0;
            while self.bit() == 0 {
                bits += 1;
            }
            (0..bits).fold(1, |number, _| number << 1 | self.bit()) - 1
        }

        pub fn signed(&mut self) -> i32 {
            let number = self.number() as i32;
            if number % 2 == 1 { (number + 1) / 2 } else { -number / 2 }
        }

        pub fn skip_to_byte(&mut self) {
            self.at = self.at.next_multiple_of(8);
        }
    }

    #[test]
    fn numbers_are_read_as_they_were_written() {
        let mut bits = Bits::default();
        for number in 0..2000 {
            bits.put_number(number);
            bits.put_signed(number as i32 - 1000);
        }
        let bytes = bits.finish();
        let mut reader = Reader { bytes: &bytes, at: 0 };
        for number in 0..2000 {
            assert_eq!(reader.number(), number);
            assert_eq!(reader.signed(), number as i32 - 1000);
        }
    }
}
