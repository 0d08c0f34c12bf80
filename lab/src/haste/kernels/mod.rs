//! Programs that want more memory than there is: out-of-core matrix multiply, and kernels in the
//! manner of NPB (HASTE slides, "Memory-hungry Applications"), with their data in capacity memory
//! on a medium.
//!
//! A kernel is run twice: with all of its data in DRAM, and paged, with a resident cap, on the
//! virtual clock, which records what it asks of the medium ([`run`]). The recording is replayed on
//! the model of any system ([`KernelRun::on`]): MODELLED. [`measure`] runs it at a system's real
//! pace, and says by how much the model was wrong. Media in place of DRAM are not paged: there a
//! modelled last-level cache says which lines would be loaded from them ([`lines`], [`inject`]).
//!
//! `run` and `line_run` are the runs, `room` is where data lie, `probe` what sees accesses, `sys`
//! arrays; the rest are kernels: each says its sizes, works, and checks what it worked out.

mod cg;
mod dgemm;
mod ep;
mod ft;
mod is;
mod line_run;
mod lu;
mod mg;
mod probe;
mod random;
mod room;
mod run;
mod sys;

use serde::{Deserialize, Serialize};

pub use line_run::{DramLine, Injected, LineRun, LineSettings, inject, lines};
pub use probe::Injection;
pub use run::{KernelRun, Measured, OnMedium, Settings, Way, measure, run};

use probe::Probe;
use room::Room;

/// The programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kernel {
    /// Matrix multiply.
    Dgemm,
    /// Integer sort.
    Is,
    /// Conjugate gradient.
    Cg,
    /// 3-D Fourier transform.
    Ft,
    /// Multigrid.
    Mg,
    /// Gaussian pairs; next to no memory.
    Ep,
    /// Successive over-relaxation, five unknowns a point.
    Lu,
}

impl Kernel {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Dgemm, Self::Is, Self::Cg, Self::Ft, Self::Mg, Self::Ep, Self::Lu];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dgemm => "dgemm",
            Self::Is => "is",
            Self::Cg => "cg",
            Self::Ft => "ft",
            Self::Mg => "mg",
            Self::Ep => "ep",
            Self::Lu => "lu",
        }
    }

    /// Bytes of its data.
    pub fn footprint_bytes(self, scale: Scale) -> u64 {
        match self {
            Self::Dgemm => dgemm::footprint_bytes(scale),
            Self::Is => is::footprint_bytes(scale),
            Self::Cg => cg::footprint_bytes(scale),
            Self::Ft => ft::footprint_bytes(scale),
            Self::Mg => mg::footprint_bytes(scale),
            Self::Ep => ep::footprint_bytes(scale),
            Self::Lu => lu::footprint_bytes(scale),
        }
    }
}

/// How large the data are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// About a megabyte: for tests.
    Tiny,
    /// 50 to 70 MB, seconds.
    Small,
    /// About a gigabyte, minutes.
    Medium,
    /// The slides': 21 GB for the matrices, 8 to 35 GB for the others.
    Paper,
}

/// What a kernel's check of its own results found.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Verified {
    /// What was looked at.
    pub what: &'static str,
    /// What was found.
    pub found: f64,
    /// And may be at most.
    pub bound: f64,
}

impl Verified {
    /// Whether the results are right.
    pub fn is_right(&self) -> bool {
        // Not `found > bound`: a result that is no number is wrong.
        self.found <= self.bound
    }
}

/// Why a kernel was not run to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// Its results are wrong.
    #[error("{kernel}: {what}: {found:e}, at most {bound:e} would be right")]
    Wrong {
        /// Which kernel.
        kernel: &'static str,
        /// What was looked at.
        what: &'static str,
        /// What was found.
        found: f64,
        /// And may be at most.
        bound: f64,
    },
    /// More was asked of the medium than was recorded.
    #[error(
        "{kernel}: {left_out} accesses of the medium beyond the {steps_max} that are recorded; raise steps_max or fault_pages"
    )]
    Steps {
        /// Which kernel.
        kernel: &'static str,
        /// Accesses not recorded.
        left_out: u64,
        /// The bound.
        steps_max: usize,
    },
    /// A setting cannot work.
    #[error("{name} = {value}: expected {expected}")]
    Setting {
        /// Which.
        name: &'static str,
        /// Its value.
        value: u64,
        /// What would work.
        expected: &'static str,
    },
    /// No such cache.
    #[error(transparent)]
    Shape(#[from] crate::caches::model::ShapeError),
    /// The heap has no room, or does not open.
    #[error(transparent)]
    Heap(#[from] perdura_heap::HeapError),
    /// No memory.
    #[error(transparent)]
    Memory(#[from] perdura_heap::MemoryError),
    /// No paged memory.
    #[error(transparent)]
    Paged(#[from] perdura_region::paged::PagedError),
    /// No such system.
    #[error(transparent)]
    Profile(#[from] perdura_media::ProfileError),
    /// No emulated medium.
    #[error(transparent)]
    Emulator(#[from] perdura_media::EmulatorError),
}

/// A kernel with its data.
trait Work<'h, P: Probe>: Sized {
    /// Makes the data.
    fn prepare(room: &Room<'h, P>, scale: Scale) -> Result<Self, KernelError>;
    /// What is timed.
    fn work(&mut self);
    /// Checks what was worked out.
    fn verify(&mut self) -> Verified;
}

/// Told when the timed part begins and ends.
trait Watch {
    fn begin(&mut self);
    fn end(&mut self);
}

/// Runs a kernel with its data in a room, to its check.
fn drive<P: Probe>(
    kernel: Kernel,
    scale: Scale,
    room: &Room<'_, P>,
    watch: &mut impl Watch,
) -> Result<Verified, KernelError> {
    let verified = match kernel {
        Kernel::Dgemm => stages::<P, dgemm::Dgemm<'_, P>>(scale, room, watch)?,
        Kernel::Is => stages::<P, is::Is<'_, P>>(scale, room, watch)?,
        Kernel::Cg => stages::<P, cg::Cg<'_, P>>(scale, room, watch)?,
        Kernel::Ft => stages::<P, ft::Ft<'_, P>>(scale, room, watch)?,
        Kernel::Mg => stages::<P, mg::Mg<'_, P>>(scale, room, watch)?,
        Kernel::Ep => stages::<P, ep::Ep<'_, P>>(scale, room, watch)?,
        Kernel::Lu => stages::<P, lu::Lu<'_, P>>(scale, room, watch)?,
    };
    if verified.is_right() {
        return Ok(verified);
    }
    let Verified { what, found, bound } = verified;
    Err(KernelError::Wrong { kernel: kernel.name(), what, found, bound })
}

fn stages<'h, P: Probe, W: Work<'h, P>>(
    scale: Scale,
    room: &Room<'h, P>,
    watch: &mut impl Watch,
) -> Result<Verified, KernelError> {
    let mut work = W::prepare(room, scale)?;
    watch.begin();
    work.work();
    watch.end();
    Ok(work.verify())
}
