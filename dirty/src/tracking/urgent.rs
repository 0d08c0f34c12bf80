//! Pages that stores wait for, by number: written by fault handlers, taken by the cleaner.

use std::sync::atomic::{AtomicU64, Ordering::*};

/// Pages whose old bytes somebody waits for. A fault that finds no room waits for the drain's
/// ordinary course.
#[derive(Debug, Default)]
pub(super) struct Urgent {
    /// Page number plus one; 0: free.
    slots: [AtomicU64; 32],
}

impl Urgent {
    pub fn ask(&self, page: u64) {
        let from = page as usize % self.slots.len();
        for index in 0..self.slots.len() {
            let slot = &self.slots[(from + index) % self.slots.len()];
            match slot.compare_exchange(0, page + 1, AcqRel, Acquire) {
                Ok(_) => return,
                Err(asked) if asked == page + 1 => return,
                Err(_) => {}
            }
        }
    }

    /// Takes the pages that were asked for.
    pub fn take(&self, mut f: impl FnMut(u64)) {
        for slot in &self.slots {
            if slot.load(Relaxed) != 0 {
                let page = slot.swap(0, AcqRel);
                if page != 0 {
                    f(page - 1);
                }
            }
        }
    }
}
