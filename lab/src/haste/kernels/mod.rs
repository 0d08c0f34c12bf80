//! Programs that want more memory than there is: out-of-core matrix multiply, and kernels in the
//! manner of NPB (HASTE slides, "Memory-hungry Applications"), with their data in capacity memory
//! on a medium.
//!
//! A kernel runs twice: with all data in DRAM, and paged with a resident cap on the virtual clock,
//! which records the requests to the medium ([`run`]). The recording is replayed on the model of
//! any system ([`KernelRun::on`]): that time is MODELLED. [`measure`] runs the kernel at a system's
//! real pace and shows the model's error. A medium in place of DRAM is not paged: there a modelled
//! last-level cache says which lines would be loaded from the medium ([`lines`], [`inject`]).
//!
//! `run` and `line_run` are the runs, `room` places data, `probe` sees accesses, `sys` has arrays;
//! every other file is a kernel, which states its sizes, works, and checks its result.

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

/// The kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kernel {
    /// Out-of-core matrix multiply.
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
    /// Successive over-relaxation with five unknowns a point.
    Lu,
}

impl Kernel {
    /// All kernels.
    pub const ALL: [Self; 7] =
        [Self::Dgemm, Self::Is, Self::Cg, Self::Ft, Self::Mg, Self::Ep, Self::Lu];

    /// Name of the kernel in results.
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

    /// Size of the kernel's data.
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

/// Size of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// About a megabyte: for tests.
    Tiny,
    /// 50 to 70 MB: seconds.
    Small,
    /// About a gigabyte: minutes.
    Medium,
    /// The slides' size: 21 GB for the matrices, 8 to 35 GB for the others.
    Paper,
}

/// Outcome of a kernel's check of its own result.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Verified {
    /// The quantity that was checked.
    pub what: &'static str,
    /// The value that was found.
    pub found: f64,
    /// The largest value that is right.
    pub bound: f64,
}

impl Verified {
    /// Whether the result is right.
    pub fn is_right(&self) -> bool {
        // `found > bound` would accept NaN, which is wrong.
        self.found <= self.bound
    }
}

/// Why a kernel did not run to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The kernel's result is wrong.
    #[error("{kernel}: wrong result: {what}: {found:e}, expected at most {bound:e}")]
    Wrong {
        /// Name of the kernel.
        kernel: &'static str,
        /// The quantity that was checked.
        what: &'static str,
        /// The value that was found.
        found: f64,
        /// The largest value that is right.
        bound: f64,
    },
    /// The kernel made more accesses to the medium than could be recorded.
    #[error(
        "{kernel}: {left_out} accesses of the medium beyond the {steps_max} that are recorded; \
         raise steps_max or fault_pages"
    )]
    Steps {
        /// Name of the kernel.
        kernel: &'static str,
        /// Accesses that were not recorded.
        left_out: u64,
        /// Most accesses that can be recorded.
        steps_max: usize,
    },
    /// A setting has an impossible value.
    #[error("{name} = {value}: expected {expected}")]
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// The value as given.
        value: u64,
        /// The values that are possible.
        expected: &'static str,
    },
    /// The modelled cache's shape is impossible.
    #[error(transparent)]
    Shape(#[from] crate::caches::model::ShapeError),
    /// The heap has no room, or cannot be opened.
    #[error(transparent)]
    Heap(#[from] perdura_heap::HeapError),
    /// Memory cannot be had.
    #[error(transparent)]
    Memory(#[from] perdura_heap::MemoryError),
    /// Paged memory cannot be had.
    #[error(transparent)]
    Paged(#[from] perdura_region::paged::PagedError),
    /// The system is unknown.
    #[error(transparent)]
    Profile(#[from] perdura_media::ProfileError),
    /// The emulated medium cannot be created.
    #[error(transparent)]
    Emulator(#[from] perdura_media::EmulatorError),
}

/// A kernel with its data.
trait Work<'h, P: Probe>: Sized {
    /// Allocates and fills the data.
    fn prepare(room: &Room<'h, P>, scale: Scale) -> Result<Self, KernelError>;
    /// Computes; this part is timed.
    fn work(&mut self);
    /// Checks the result.
    fn verify(&mut self) -> Verified;
}

/// Called when the timed part begins and ends.
trait Watch {
    fn begin(&mut self);
    fn end(&mut self);
}

/// Runs a kernel with its data in a room, and checks its result.
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
