//! Numbers of the pages for which stores wait: fault handlers enter them, and the cleaner takes
//! them.

use std::sync::atomic::{AtomicU64, Ordering::*};

/// Pages whose old bytes a fault waits for. A fault that finds no free slot waits until the drain
/// comes to its page.
#[derive(Debug, Default)]
pub(super) struct Urgent {
    /// Number of the page plus one; 0: the slot is free.
    slots: [AtomicU64; 32],
}

impl Urgent {
    pub(crate) fn ask(&self, page: u64) {
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

    /// Calls `f` with each page that was asked for, and frees its slot.
    pub(crate) fn take(&self, mut f: impl FnMut(u64)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(urgent: &Urgent) -> Vec<u64> {
        let mut pages = Vec::new();
        urgent.take(|page| pages.push(page));
        pages.sort_unstable();
        pages
    }

    #[test]
    fn each_page_that_was_asked_for_is_taken_once_though_others_have_its_slot() {
        let urgent = Urgent::default();
        let pages = [0, 32, 64, 31, 63, 7, 1 << 40];
        for page in pages.iter().chain(&pages) {
            urgent.ask(*page);
        }
        assert_eq!(taken(&urgent), [0, 7, 31, 32, 63, 64, 1 << 40]);
        assert_eq!(taken(&urgent), []);
        // Whoever finds no slot waits for the drain.
        (100..140).for_each(|page| urgent.ask(page));
        assert_eq!(taken(&urgent), Vec::from_iter(100..132));
    }
}
