//! Mends a heap's file in place, once a check has shown that the repair loses nothing that can be
//! kept.

use std::path::Path;

use super::{CheckReport, mend_roots, open_tolerant};
use crate::damage::Findings;
use crate::error::HeapError;
use crate::leaks::Reclaimed;
use crate::memory::{Durability, Memory};

/// Settings of a repair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RepairOptions {
    /// Whether leaks are freed: objects to which no reference leads.
    pub reclaim_leaks: bool,
}

/// The result of a repair.
#[derive(Debug)]
pub struct Repaired {
    /// The check before the repair. All damage in it was mended, unless `after` is missing.
    pub before: CheckReport,
    /// The check after the repair; `None` if some damage cannot be repaired, so that nothing was
    /// changed.
    pub after: Option<CheckReport>,
    /// Leaks that were freed.
    pub reclaimed: Reclaimed,
}

/// Repairs the heap in a file that no program has open, as [`crate::Damage::remedy`] says. If some
/// damage cannot be repaired, nothing is changed. A sound heap keeps everything but its leaks.
///
/// # Errors
/// The file cannot be written, a program has it open, or the repair itself failed; a repair that
/// ended early can be done again.
pub fn repair(path: &Path, options: RepairOptions) -> Result<Repaired, HeapError> {
    let before = super::heap_file(path)?;
    let mut reclaimed = Reclaimed::default();
    let has_leaks = before.leaks.as_ref().is_some_and(|leaks| leaks.objects > 0);
    let has_work =
        !before.is_sound() || !before.remarks.is_empty() || (options.reclaim_leaks && has_leaks);
    if !before.is_repairable() {
        return Ok(Repaired { before, after: None, reclaimed });
    }
    if has_work {
        let memory = Memory::file(path, 0, Durability::Flushed)?;
        let findings = Findings::collected();
        let heap = open_tolerant(memory, None, &findings)?;
        mend_roots(&heap, &findings);
        if options.reclaim_leaks {
            let leaks = heap.leaks()?;
            reclaimed = heap.reclaim(&leaks)?;
        }
        heap.close()?;
    }
    let after = super::heap_file(path)?;
    Ok(Repaired { before, after: Some(after), reclaimed })
}
