//! HyperLogLogs in Redis' own bytes: how many different elements were added, about, in 12 KiB.
//!
//! ```text
//! 0  "HYLL"    4  encoding u8: 0 dense, 1 sparse    5  zero, 3 bytes
//! 8  the number counted last u64; its highest bit says that registers have changed since
//! 16 dense: 16,384 registers of 6 bits, the first in the lowest bits; sparse: see `sparse.rs`
//! ```
//! The bytes are those that Redis has after the same additions, so that values can be moved.

mod estimate;
mod hash;
mod sparse;

pub(crate) use estimate::Histogram;

/// Number of registers.
pub(crate) const REGISTERS: usize = 1 << INDEX_BITS;
/// Bits of an element's hash that pick its register.
const INDEX_BITS: u32 = 14;
/// Bits of an element's hash of which the zeros are counted.
const COUNTED_BITS: u32 = 64 - INDEX_BITS;
/// Bits of a register.
const REGISTER_BITS: usize = 6;
const HEAD: usize = 16;
const DENSE_BYTES: usize = HEAD + REGISTERS * REGISTER_BITS / 8;
const MAGIC: &[u8; 4] = b"HYLL";
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
/// Redis' default of `hll-sparse-max-bytes`.
pub(crate) const SPARSE_BYTES_MAX_DEFAULT: u64 = 3000;

/// The registers do not add up: no Redis writes such bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Corrupt;

/// The bytes of a HyperLogLog.
pub(crate) struct Hll {
    bytes: Vec<u8>,
    /// Bytes up to which it stays sparse (`hll-sparse-max-bytes`).
    sparse_bytes_max: u64,
}

/// All registers, a byte each.
pub(crate) struct Registers(Box<[u8; REGISTERS]>);

impl Hll {
    /// One to which nothing was added.
    pub fn new(sparse_bytes_max: u64) -> Self {
        let mut bytes = vec![0; HEAD];
        bytes[..4].copy_from_slice(MAGIC);
        bytes[4] = SPARSE;
        sparse::push_zeros(&mut bytes, REGISTERS);
        Self { bytes, sparse_bytes_max }
    }

    /// The one with these bytes; `None` if they are not those of one.
    pub fn of(bytes: &[u8], sparse_bytes_max: u64) -> Option<Self> {
        let head = bytes.get(..HEAD)?;
        let fits = match head[4] {
            DENSE => bytes.len() == DENSE_BYTES,
            SPARSE => true,
            _ => false,
        };
        (fits && head[..4] == *MAGIC).then(|| Self { bytes: bytes.to_vec(), sparse_bytes_max })
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn is_dense(&self) -> bool {
        self.bytes[4] == DENSE
    }

    /// Adds an element. Returns whether a register has changed.
    pub fn add(&mut self, element: &[u8]) -> Result<bool, Corrupt> {
        let hash = hash::murmur64a(element);
        let index = hash as usize & (REGISTERS - 1);
        // A bit behind the counted ones ends the count.
        let rest = hash >> INDEX_BITS | 1 << COUNTED_BITS;
        self.raise(index, rest.trailing_zeros() as u8 + 1)
    }

    /// Sets a register to a value, if it is lower. Returns whether it was.
    pub fn raise(&mut self, index: usize, value: u8) -> Result<bool, Corrupt> {
        if !self.is_dense() {
            match sparse::raise(&mut self.bytes, index, value, self.sparse_bytes_max)? {
                sparse::Raised::Yes => return Ok(true),
                sparse::Raised::No => return Ok(false),
                sparse::Raised::NoRoom => self.make_dense()?,
            }
        }
        let registers = &mut self.bytes[HEAD..];
        let is_lower = dense_get(registers, index) < value;
        if is_lower {
            dense_set(registers, index, value);
        }
        Ok(is_lower)
    }

    /// Gives each register its 6 bits.
    pub fn make_dense(&mut self) -> Result<(), Corrupt> {
        if self.is_dense() {
            return Ok(());
        }
        let mut dense = vec![0; DENSE_BYTES];
        dense[..HEAD].copy_from_slice(&self.bytes[..HEAD]);
        dense[4] = DENSE;
        self.each_run(&mut |first, len, value| {
            if value > 0 {
                (first..first + len).for_each(|index| dense_set(&mut dense[HEAD..], index, value));
            }
        })?;
        self.bytes = dense;
        Ok(())
    }

    /// The number counted last, if no register has changed since.
    pub fn cached(&self) -> Option<u64> {
        let (words, _) = self.bytes[8..HEAD].as_chunks::<8>();
        Some(u64::from_le_bytes(words[0])).filter(|count| count >> 63 == 0)
    }

    /// Notes the number that was counted.
    pub fn cache(&mut self, count: u64) {
        self.bytes[8..HEAD].copy_from_slice(&count.to_le_bytes());
    }

    /// Notes that registers have changed.
    pub fn forget_cached(&mut self) {
        self.bytes[HEAD - 1] |= 0x80;
    }

    /// About how many different elements were added.
    pub fn count(&self) -> Result<u64, Corrupt> {
        let mut histogram = Histogram::default();
        self.each_run(&mut |_, len, value| histogram.add(value, len as u32))?;
        Ok(histogram.estimate())
    }

    /// Calls `f` with the first register, the number and the value of registers that are alike.
    fn each_run(&self, f: &mut dyn FnMut(usize, usize, u8)) -> Result<(), Corrupt> {
        if self.is_dense() {
            let registers = &self.bytes[HEAD..];
            (0..REGISTERS).for_each(|index| f(index, 1, dense_get(registers, index)));
            return Ok(());
        }
        sparse::each_run(&self.bytes, f)
    }

    /// The opcodes of a sparse one, as PFDEBUG DECODE writes them; `None` of a dense one.
    pub fn opcodes(&self) -> Option<String> {
        (!self.is_dense()).then(|| sparse::describe(&self.bytes))
    }
}

impl Registers {
    pub fn new() -> Self {
        Self(Box::new([0; REGISTERS]))
    }

    /// Raises each register to that of another.
    pub fn merge(&mut self, other: &Hll) -> Result<(), Corrupt> {
        let all = &mut self.0;
        other.each_run(&mut |first, len, value| {
            all[first..first + len]
                .iter_mut()
                .for_each(|register| *register = value.max(*register));
        })
    }

    /// The registers that are not zero, each with its index.
    pub fn raised(&self) -> impl Iterator<Item = (usize, u8)> {
        self.0.iter().copied().enumerate().filter(|(_, value)| *value > 0)
    }

    pub fn all(&self) -> &[u8] {
        &self.0[..]
    }

    /// About how many different elements were added.
    pub fn count(&self) -> u64 {
        let mut histogram = Histogram::default();
        self.0.iter().for_each(|value| histogram.add(*value, 1));
        histogram.estimate()
    }
}

/// Checks that sparse and dense registers say the same of many elements, and count them well; else
/// says what is wrong (PFSELFTEST).
pub(crate) fn self_test() -> Result<(), String> {
    let (mut grown, mut dense) = (Hll::new(SPARSE_BYTES_MAX_DEFAULT), Hll::new(0));
    for number in 1..=SELF_TEST_ELEMENTS {
        let element = number.to_string();
        let is_same = grown.add(element.as_bytes()) == dense.add(element.as_bytes());
        if !is_same {
            return Err(format!("element {number} does not change both forms"));
        }
        if !number.is_power_of_two() {
            continue;
        }
        let [Ok(sparse_count), Ok(dense_count)] = [grown.count(), dense.count()] else {
            return Err(format!("the registers of {number} elements do not add up"));
        };
        let is_close = sparse_count.abs_diff(u64::from(number)) <= u64::from(number / 20 + 1);
        if sparse_count != dense_count || !is_close {
            let counts = format!("{sparse_count} and {dense_count}");
            return Err(format!("{number} elements are counted as {counts}"));
        }
    }
    Ok(())
}

/// Elements that the test of itself adds.
const SELF_TEST_ELEMENTS: u32 = 1 << 16;

/// A register lies in one byte or in two.
fn dense_get(registers: &[u8], index: usize) -> u8 {
    let (at, shift) = (index * REGISTER_BITS / 8, index * REGISTER_BITS % 8);
    let high = registers.get(at + 1).copied().unwrap_or(0);
    (u16::from_le_bytes([registers[at], high]) >> shift) as u8 & 0x3f
}

fn dense_set(registers: &mut [u8], index: usize, value: u8) {
    let (at, shift) = (index * REGISTER_BITS / 8, index * REGISTER_BITS % 8);
    let high = registers.get(at + 1).copied().unwrap_or(0);
    let word =
        u16::from_le_bytes([registers[at], high]) & !(0x3f << shift) | u16::from(value) << shift;
    let [low, high] = word.to_le_bytes();
    registers[at] = low;
    if let Some(next) = registers.get_mut(at + 1) {
        *next = high;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparse_and_dense_hold_the_same_registers() {
        let new = || Hll::new(SPARSE_BYTES_MAX_DEFAULT);
        let (mut grown, mut dense) = (new(), new());
        dense.make_dense().unwrap();
        for number in 0..20_000u32 {
            let element = number.to_string();
            let changed = grown.add(element.as_bytes()).unwrap();
            assert_eq!(dense.add(element.as_bytes()), Ok(changed));
            if number % 997 == 0 || (number < 3_000 && number % 101 == 0) {
                let (mut a, mut b) = (Registers::new(), Registers::new());
                a.merge(&grown).unwrap();
                b.merge(&dense).unwrap();
                assert_eq!(a.all(), b.all());
                assert_eq!((grown.count(), b.count()), (dense.count(), dense.count().unwrap()));
            }
            assert!(grown.is_dense() || grown.bytes().len() as u64 <= SPARSE_BYTES_MAX_DEFAULT);
        }
        assert!(grown.is_dense());
        let count = grown.count().unwrap();
        assert!((19_600..20_400).contains(&count), "{count}");
    }

    #[test]
    fn the_test_of_itself_passes() {
        assert_eq!(self_test(), Ok(()));
    }

    #[test]
    fn what_is_cut_short_or_too_long_is_corrupt() {
        let of = |bytes: &[u8]| Hll::of(bytes, SPARSE_BYTES_MAX_DEFAULT);
        let mut hll = Hll::new(SPARSE_BYTES_MAX_DEFAULT);
        (0..50u8).for_each(|byte| assert!(hll.add(&[byte]).is_ok()));
        let whole = hll.bytes().to_vec();
        assert!(of(&whole[..HEAD - 1]).is_none());
        for len in HEAD..whole.len() {
            let cut = of(&whole[..len]).unwrap();
            assert_eq!((cut.count(), Registers::new().merge(&cut)), (Err(Corrupt), Err(Corrupt)));
        }
        let mut long = of(&[&whole[..], &[0x7f, 0xff]].concat()).unwrap();
        assert_eq!((long.count(), long.make_dense()), (Err(Corrupt), Err(Corrupt)));
        let mut other = whole.clone();
        other[4] = 2;
        assert!(of(&other).is_none());
        other[4] = DENSE;
        assert!(of(&other).is_none());
    }
}
