//! Page frames: where the kernel put the pages of this process, from `/proc/self/pagemap`.
//!
//! The kernel shows frame numbers to CAP_SYS_ADMIN only; others read zeros. Without frame numbers
//! nothing is measured about placement, and [`FrameReader::source`] says so. Inside a virtual
//! machine the numbers are the guest's: the host's frames behind them cannot be seen.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

use super::sys::PAGE_BYTES;

const PRESENT: u64 = 1 << 63;
const FRAME_MASK: u64 = (1 << 55) - 1;
const PAGEMAP: &str = "/proc/self/pagemap";

/// Whether frame numbers can be seen, and whose they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FrameSource {
    /// The machine's own frames.
    Machine,
    /// A guest's frames: this is a virtual machine.
    Guest,
    /// No frames: not permitted, or the kernel has no such file.
    Hidden,
}

impl FrameSource {
    /// The source in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Machine => "page frames of the machine",
            Self::Guest => {
                "page frames of the guest (a virtual machine: the host's frames behind them cannot \
                 be seen)"
            }
            Self::Hidden => {
                "page frames are not shown here (they need CAP_SYS_ADMIN): placement is not \
                 measured, and the model assumes frames in the order of the first touch"
            }
        }
    }
}

/// Frames cannot be read although the kernel shows them.
#[derive(Debug, thiserror::Error)]
#[error("{PAGEMAP}, {pages} pages at address {address:#x}: {source}")]
pub struct FrameError {
    /// First address of the range.
    pub address: u64,
    /// Pages of the range.
    pub pages: usize,
    /// The system's reason.
    pub source: io::Error,
}

/// Reads frame numbers.
#[derive(Debug)]
pub struct FrameReader {
    file: Option<File>,
    source: FrameSource,
}

impl FrameReader {
    /// Finds out whether frames can be seen.
    pub fn open() -> Self {
        let hidden = Self { file: None, source: FrameSource::Hidden };
        let Ok(file) = File::open(PAGEMAP) else { return hidden };
        // The page of this word is surely present.
        let here = std::hint::black_box(1u64);
        let seen = Self { file: Some(file), source: FrameSource::Machine };
        match seen.frame(std::ptr::from_ref(&here).addr() as u64) {
            Ok(Some(_)) if is_guest() => Self { source: FrameSource::Guest, ..seen },
            Ok(Some(_)) => seen,
            Ok(None) | Err(_) => hidden,
        }
    }

    /// A reader that sees no frames, as without the capability.
    pub fn hidden() -> Self {
        Self { file: None, source: FrameSource::Hidden }
    }

    /// Where the frame numbers come from.
    pub fn source(&self) -> FrameSource {
        self.source
    }

    /// The frame behind an address; none: the page is not present, or frames are not shown.
    ///
    /// # Errors
    /// The kernel's file cannot be read.
    pub fn frame(&self, address: u64) -> Result<Option<u64>, FrameError> {
        Ok(self.frames(address, 1)?[0])
    }

    /// The frames behind pages in the order of their addresses.
    ///
    /// # Errors
    /// The kernel's file cannot be read.
    pub fn frames(&self, address: u64, pages: usize) -> Result<Vec<Option<u64>>, FrameError> {
        let Some(file) = &self.file else { return Ok(vec![None; pages]) };
        let mut entries = vec![0; pages * 8];
        file.read_exact_at(&mut entries, address / PAGE_BYTES as u64 * 8)
            .map_err(|source| FrameError { address, pages, source })?;
        let words = entries.chunks_exact(8).map(|word| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            frame_of(u64::from_ne_bytes(bytes))
        });
        Ok(words.collect())
    }
}

/// The frame in an entry of the page map. Frame 0 is never an application's: it means "not shown".
fn frame_of(entry: u64) -> Option<u64> {
    let frame = entry & FRAME_MASK;
    (entry & PRESENT != 0 && frame != 0).then_some(frame)
}

/// Whether this is a virtual machine, by the processor's flag (x86) or the firmware's maker.
fn is_guest() -> bool {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let flags = read("/proc/cpuinfo");
    let has_flag = flags
        .lines()
        .filter(|line| line.starts_with("flags"))
        .any(|line| line.split_whitespace().any(|flag| flag == "hypervisor"));
    let maker = read("/sys/class/dmi/id/sys_vendor") + &read("/sys/class/dmi/id/product_name");
    let makers = [
        "QEMU",
        "KVM",
        "VMware",
        "Xen",
        "VirtualBox",
        "Virtual Machine",
        "Amazon EC2",
        "Google Compute",
    ];
    has_flag
        || makers.iter().any(|name| maker.contains(name))
        || std::path::Path::new("/sys/hypervisor/type").exists()
}

/// How contiguous pages are. A *break* lies between two pages that are consecutive in the address
/// space but whose frames are not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Contiguity {
    /// Pages whose frame is known.
    pub pages: u64,
    /// Pages that are not present.
    pub pages_absent: u64,
    /// Runs of pages without a break.
    pub runs: u64,
    /// Mean length of a run, pages.
    pub run_pages_mean: f64,
    /// Median length of a run, pages.
    pub run_pages_median: u64,
    /// Length of the longest run, pages.
    pub run_pages_max: u64,
    /// Number of breaks.
    pub breaks: u64,
    /// Breaks at which the next page lies in the frame *before*: neighbours in falling order.
    pub breaks_falling: u64,
    /// Breaks per 1,000 pages.
    pub breaks_per_1000: f64,
}

impl Contiguity {
    /// Contiguity of pages in the order of their addresses; absent pages are passed over.
    pub fn of(frames: &[Option<u64>]) -> Self {
        let present: Vec<u64> = frames.iter().flatten().copied().collect();
        let mut runs: Vec<u64> =
            present.chunk_by(|a, b| a + 1 == *b).map(|run| run.len() as u64).collect();
        runs.sort_unstable();
        let (pages, breaks) = (present.len() as u64, runs.len().saturating_sub(1) as u64);
        let falling = present.windows(2).filter(|pair| pair[1] + 1 == pair[0]).count();
        let ratio =
            |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        Self {
            pages,
            pages_absent: frames.len() as u64 - pages,
            runs: runs.len() as u64,
            run_pages_mean: ratio(pages, runs.len() as u64),
            run_pages_median: runs.get(runs.len() / 2).copied().unwrap_or(0),
            run_pages_max: runs.last().copied().unwrap_or(0),
            breaks,
            breaks_falling: falling as u64,
            breaks_per_1000: 1000.0 * ratio(breaks, pages),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sys::{Backing, Pages};
    use super::*;

    #[test]
    fn entries_of_the_page_map_are_read_as_the_kernel_writes_them() {
        assert_eq!(frame_of(0), None);
        assert_eq!(frame_of(PRESENT), None, "present, number withheld");
        assert_eq!(frame_of(PRESENT | 0x1234), Some(0x1234));
        assert_eq!(
            frame_of(PRESENT | (1 << 61) | (1 << 55) | 7),
            Some(7),
            "flags above the number"
        );
        assert_eq!(frame_of((1 << 62) | 99), None, "swapped: that is a place on a device");
    }

    #[test]
    fn runs_end_where_frames_do_not_follow() {
        let frames = [Some(5), Some(6), Some(7), None, Some(8), Some(3), Some(2), Some(9)];
        let found = Contiguity::of(&frames);
        assert_eq!((found.pages, found.pages_absent), (7, 1));
        assert_eq!((found.runs, found.breaks, found.breaks_falling), (4, 3, 1));
        assert_eq!((found.run_pages_median, found.run_pages_max), (1, 4));
        assert!((found.run_pages_mean - 1.75).abs() < 1e-9);
        assert!((found.breaks_per_1000 - 3000.0 / 7.0).abs() < 1e-9);
        assert_eq!(Contiguity::of(&[]), Contiguity::default());
    }

    #[test]
    fn a_touched_page_has_a_frame_where_frames_are_shown_and_none_elsewhere() {
        let pages = Pages::map(Backing::Anonymous, 4 * PAGE_BYTES).unwrap();
        pages.touch(1);
        for reader in [FrameReader::open(), FrameReader::hidden()] {
            let frames = reader.frames(pages.address(), 4).unwrap();
            let is_shown = reader.source() != FrameSource::Hidden;
            assert_eq!(frames[1].is_some(), is_shown, "{:?}", reader.source());
            assert_eq!([frames[0], frames[2], frames[3]], [None; 3]);
        }
    }
}
