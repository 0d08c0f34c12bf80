//! The instructions that access memory: chosen at run time and named in results; one that the
//! machine lacks is an error.

use std::fmt;
use std::str::FromStr;

use super::sys::portable;
#[cfg(target_arch = "x86_64")]
use super::sys::x86::{self, Avx2, Avx512, Lines, Sse2};
use super::workload::Persist;

/// A set of instructions for loads and stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isa {
    /// 64 bytes at a time.
    Avx512,
    /// 32 bytes at a time.
    Avx2,
    /// 16 bytes at a time.
    Sse2,
    /// 8 bytes at a time, with instructions that every processor has.
    Portable,
}

/// An instruction that this machine does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Lacking {
    /// The loads and stores of a set are missing.
    #[error("this processor has no {0}; leave --isa out for the widest it has")]
    Isa(Isa),
    /// The instruction that makes stores durable is missing.
    #[error("persist_instruction: {}: this processor has no {instruction}", persist.name())]
    Persist {
        /// The persist setting.
        persist: Persist,
        /// The instruction that it needs.
        instruction: &'static str,
    },
    /// Portable loads and stores cannot make stores durable.
    #[error("persist_instruction: {}: portable stores can only do `none`; use --isa sse2 or \
             wider", .0.name())]
    Portable(Persist),
}

impl Isa {
    /// All sets, the widest first.
    pub const ALL: [Self; 4] = [Self::Avx512, Self::Avx2, Self::Sse2, Self::Portable];

    /// The widest set that this machine has.
    pub fn widest() -> Self {
        Self::ALL.into_iter().find(|isa| isa.is_here()).unwrap_or(Self::Portable)
    }

    /// Whether this machine has the set.
    pub fn is_here(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => std::arch::is_x86_feature_detected!("avx512f"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => std::arch::is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::Sse2 => true,
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx512 | Self::Avx2 | Self::Sse2 => false,
            Self::Portable => true,
        }
    }

    /// Name of the set in settings and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Avx512 => "avx512",
            Self::Avx2 => "avx2",
            Self::Sse2 => "sse2",
            Self::Portable => "portable",
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Isa {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|isa| isa.name() == text);
        found.ok_or_else(|| "expected avx512, avx2, sse2 or portable".to_owned())
    }
}

/// Whether this machine has the instruction of a persist setting.
fn persists(persist: Persist) -> Result<(), Lacking> {
    let instruction = match persist {
        Persist::None => return Ok(()),
        Persist::NoCache => "non-temporal store",
        Persist::Cache => "clwb",
        Persist::CacheInv => "clflushopt",
    };
    if has(persist) { Ok(()) } else { Err(Lacking::Persist { persist, instruction }) }
}

#[cfg(target_arch = "x86_64")]
fn has(persist: Persist) -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const STRUCTURED: u32 = 7;
    let bits = if __cpuid(0).eax >= STRUCTURED { __cpuid_count(STRUCTURED, 0).ebx } else { 0 };
    match persist {
        Persist::None | Persist::NoCache => true,
        Persist::Cache => bits & 1 << 24 != 0,
        Persist::CacheInv => bits & 1 << 23 != 0,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn has(persist: Persist) -> bool {
    persist == Persist::None
}

/// The places that a kernel accesses, in order.
#[derive(Debug, Clone, Copy)]
pub enum Places<'a> {
    /// Any places.
    Listed(&'a [*mut u8]),
    /// Places at equal distances, which need no list.
    Run(Run),
}

/// Places at equal distances.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// The first place.
    pub first: *mut u8,
    /// Distance from one place to the next, bytes.
    pub step_bytes: isize,
    /// Number of places.
    pub count: usize,
}

impl Run {
    fn at(self, number: usize) -> *mut u8 {
        self.first.wrapping_offset(self.step_bytes.wrapping_mul(number as isize))
    }

    fn places(self) -> impl Iterator<Item = *mut u8> {
        (0..self.count).map(move |number| self.at(number))
    }
}

impl Places<'_> {
    /// Number of places.
    pub fn len(self) -> usize {
        match self {
            Self::Listed(places) => places.len(),
            Self::Run(run) => run.count,
        }
    }

    /// Whether there are no places.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The first `count` places, and the others.
    ///
    /// # Panics
    /// If there are fewer than `count`.
    pub fn split_at(self, count: usize) -> (Self, Self) {
        match self {
            Self::Listed(places) => {
                let (these, those) = places.split_at(count);
                (Self::Listed(these), Self::Listed(those))
            }
            Self::Run(run) => {
                let rest = Run { first: run.at(count), count: run.count - count, ..run };
                (Self::Run(Run { count, ..run }), Self::Run(rest))
            }
        }
    }

    /// Calls `told` with each place.
    pub fn for_each(self, mut told: impl FnMut(*mut u8)) {
        match self {
            Self::Listed(places) => places.iter().for_each(|place| told(*place)),
            Self::Run(run) => run.places().for_each(told),
        }
    }
}

/// Reads this many bytes at each place.
type Reads = unsafe fn(Places<'_>, usize);
type ReadOne = unsafe fn(*const u8, usize) -> u64;
type Writes = unsafe fn(Places<'_>, usize);

/// Loads and stores with one set of instructions.
///
/// # Safety of its calls
/// Places are multiples of 64 B in memory that stays mapped; Rust holds no references into it;
/// `bytes` is a multiple of 64, and that much memory is at each place.
#[derive(Clone, Copy)]
pub struct Kernel {
    isa: Isa,
    read_all: Reads,
    read_one: ReadOne,
    write_all: [Writes; 4],
}

impl Kernel {
    /// A kernel with these instructions.
    ///
    /// # Errors
    /// The machine lacks them, or one that makes stores durable.
    pub fn new(isa: Isa, persists_with: &[Persist]) -> Result<Self, Lacking> {
        if !isa.is_here() {
            return Err(Lacking::Isa(isa));
        }
        for persist in persists_with {
            persists(*persist)?;
            if isa == Isa::Portable && *persist != Persist::None {
                return Err(Lacking::Portable(*persist));
            }
        }
        Ok(match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => Self::of_lines::<Avx512>(isa),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => Self::of_lines::<Avx2>(isa),
            #[cfg(target_arch = "x86_64")]
            Isa::Sse2 => Self::of_lines::<Sse2>(isa),
            _ => Self {
                isa,
                read_all: portable_reads,
                read_one: portable::read,
                write_all: [portable_writes; 4],
            },
        })
    }

    #[cfg(target_arch = "x86_64")]
    fn of_lines<L: Lines>(isa: Isa) -> Self {
        Self {
            isa,
            read_all: read_all::<L>,
            read_one: read_one::<L>,
            write_all: [
                write_all::<L, NO_CACHE>,
                write_all::<L, CACHE>,
                write_all::<L, CACHE_INV>,
                write_all::<L, NONE>,
            ],
        }
    }

    /// The kernel's set of instructions.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Reads at each place.
    ///
    /// # Safety
    /// See [`Kernel`].
    #[inline]
    pub unsafe fn read_all(&self, places: Places<'_>, bytes: usize) {
        // SAFETY: the caller keeps the promises of [`Kernel`].
        unsafe { (self.read_all)(places, bytes) }
    }

    /// Reads one place; the result depends on every line that was read.
    ///
    /// # Safety
    /// See [`Kernel`].
    #[inline]
    pub unsafe fn read_one(&self, from: *const u8, bytes: usize) -> u64 {
        // SAFETY: the caller keeps the promises of [`Kernel`].
        unsafe { (self.read_one)(from, bytes) }
    }

    /// Writes at each place, and makes each write durable before the next one begins.
    ///
    /// # Safety
    /// See [`Kernel`]; and [`Kernel::new`] was asked for `persist`.
    #[inline]
    pub unsafe fn write_all(&self, places: Places<'_>, bytes: usize, persist: Persist) {
        // SAFETY: the caller keeps the promises of [`Kernel`].
        unsafe { (self.write_all[persist as usize])(places, bytes) }
    }
}

const NO_CACHE: u8 = Persist::NoCache as u8;
const CACHE: u8 = Persist::Cache as u8;
const CACHE_INV: u8 = Persist::CacheInv as u8;
const NONE: u8 = Persist::None as u8;

#[cfg(target_arch = "x86_64")]
unsafe fn read_all<L: Lines>(places: Places<'_>, bytes: usize) {
    // SAFETY: the caller keeps the promises of [`Kernel`].
    unsafe {
        match places {
            Places::Listed(places) => read_each::<L>(places.iter().copied(), bytes),
            Places::Run(run) => read_each::<L>(run.places(), bytes),
        }
        L::leave();
    }
}

/// Single lines have their own loop: apart from multiples of four lines they are by far the most
/// usual.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn read_each<L: Lines>(places: impl Iterator<Item = *mut u8>, bytes: usize) {
    // SAFETY: the caller keeps the promises of [`Kernel`].
    unsafe {
        match bytes {
            64 => places.for_each(|place| L::read_64(place)),
            128 => places.for_each(|place| {
                L::read_64(place);
                L::read_64(place.add(64));
            }),
            256 => places.for_each(|place| L::read_256(place)),
            _ => places.for_each(|place| {
                let mut at = place;
                let end = at.add(bytes);
                let end_of_fours = at.add(bytes / 256 * 256);
                while at < end_of_fours {
                    L::read_256(at);
                    at = at.add(256);
                }
                while at < end {
                    L::read_64(at);
                    at = at.add(64);
                }
            }),
        }
    }
}

/// A word of each line is needed for the next place, as in a linked list: so the reads wait for
/// each other.
#[cfg(target_arch = "x86_64")]
unsafe fn read_one<L: Lines>(from: *const u8, bytes: usize) -> u64 {
    // SAFETY: the caller keeps the promises of [`Kernel`].
    unsafe {
        let (mut at, end) = (from, from.add(bytes));
        let mut word = 0;
        while at < end {
            L::read_64(at);
            word = x86::or_word(at, word);
            at = at.add(64);
        }
        L::leave();
        word
    }
}

#[cfg(target_arch = "x86_64")]
unsafe fn write_all<L: Lines, const PERSIST: u8>(places: Places<'_>, bytes: usize) {
    // SAFETY: the caller keeps the promises of [`Kernel`].
    unsafe {
        match places {
            Places::Listed(places) => write_each::<L, PERSIST>(places.iter().copied(), bytes),
            Places::Run(run) => write_each::<L, PERSIST>(run.places(), bytes),
        }
        L::leave();
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn write_each<L: Lines, const PERSIST: u8>(
    places: impl Iterator<Item = *mut u8>,
    bytes: usize,
) {
    places.for_each(|place| {
        // SAFETY: the caller keeps the promises of [`Kernel`].
        unsafe {
            let mut at = place;
            let end = at.add(bytes);
            while at < end {
                match PERSIST {
                    NO_CACHE => L::stream_64(at),
                    _ => L::write_64(at),
                }
                match PERSIST {
                    CACHE => x86::write_back(at),
                    CACHE_INV => x86::flush(at),
                    _ => {}
                }
                at = at.add(64);
            }
        }
        if PERSIST != NONE {
            x86::fence();
        }
    });
}

unsafe fn portable_reads(places: Places<'_>, bytes: usize) {
    places.for_each(|place| {
        // SAFETY: the caller keeps the promises of [`Kernel`].
        unsafe { portable::read(place, bytes) };
    });
}

unsafe fn portable_writes(places: Places<'_>, bytes: usize) {
    // SAFETY: the caller keeps the promises of [`Kernel`].
    places.for_each(|place| unsafe { portable::write(place, bytes) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C, align(64))]
    struct Lines4K([u8; 4096]);

    fn here() -> impl Iterator<Item = Isa> {
        Isa::ALL.into_iter().filter(|isa| isa.is_here())
    }

    #[test]
    fn stores_reach_every_byte_they_are_asked_for_and_no_other() {
        for isa in here() {
            for persist in Persist::ALL {
                let Ok(kernel) = Kernel::new(isa, &[persist]) else { continue };
                for bytes in [64, 128, 256, 1024] {
                    let mut lines = Box::new(Lines4K([0; 4096]));
                    let base = lines.0.as_mut_ptr();
                    let places = [base.wrapping_add(64), base.wrapping_add(2048)];
                    // SAFETY: both places have 1 KiB behind them in `lines`, which is not used
                    // until they are written.
                    unsafe { kernel.write_all(Places::Listed(&places), bytes, persist) };
                    let word = 0x0123_4567_89ab_cdef_u64.to_le_bytes();
                    for (at, byte) in lines.0.iter().enumerate() {
                        let is_in = |from: usize| (from..from + bytes).contains(&at);
                        let expected = if is_in(64) || is_in(2048) { word[at % 8] } else { 0 };
                        assert_eq!(*byte, expected, "{isa} {persist:?} {bytes}: byte {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_lies_behind_a_place_is_not_touched() {
        use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
        const PAGE: usize = 4096;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a mapping of its own; its second page is inaccessible and guards the first.
        let base = unsafe {
            let base =
                mmap_anonymous(std::ptr::null_mut(), 2 * PAGE, protection, MapFlags::PRIVATE);
            let base = base.unwrap().cast::<u8>();
            mprotect(base.add(PAGE).cast(), PAGE, MprotectFlags::empty()).unwrap();
            base
        };
        for isa in here() {
            let kernel = Kernel::new(isa, &[]).unwrap();
            for bytes in (64..=1024).step_by(64) {
                let place = [base.wrapping_add(PAGE - bytes)];
                let run = Run { first: place[0], step_bytes: 0, count: 2 };
                for places in [Places::Listed(&place), Places::Run(run)] {
                    // SAFETY: `bytes` up to the end of the first page.
                    unsafe {
                        kernel.read_all(places, bytes);
                        kernel.write_all(places, bytes, Persist::None);
                        kernel.read_one(place[0], bytes);
                    }
                }
            }
        }
        // SAFETY: mapped above, and nobody uses it any more.
        unsafe { munmap(base.cast(), 2 * PAGE).unwrap() };
    }

    #[test]
    fn a_dependent_read_waits_for_every_line() {
        for isa in here() {
            let kernel = Kernel::new(isa, &[]).unwrap();
            for bytes in [64, 256, 1024] {
                for line in 0..bytes / 64 {
                    let mut lines = Box::new(Lines4K([0; 4096]));
                    lines.0[line * 64] = 7;
                    // SAFETY: `lines` has 4 KiB.
                    let word = unsafe { kernel.read_one(lines.0.as_ptr(), bytes) };
                    assert_eq!(word & 7, 7, "{isa}: line {line} of {bytes} B");
                }
            }
        }
    }

    #[test]
    fn what_the_machine_lacks_is_refused() {
        for persist in [Persist::NoCache, Persist::Cache, Persist::CacheInv] {
            let refused = Kernel::new(Isa::Portable, &[persist]).err();
            let lacks = refused == Some(Lacking::Portable(persist));
            assert!(lacks || matches!(refused, Some(Lacking::Persist { .. })), "{refused:?}");
        }
        for isa in Isa::ALL.into_iter().filter(|isa| !isa.is_here()) {
            assert_eq!(Kernel::new(isa, &[]).err(), Some(Lacking::Isa(isa)));
        }
        assert!(Isa::widest().is_here());
    }
}
