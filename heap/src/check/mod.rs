//! Checking a heap for all damage that can be seen, without changing the heap.
//!
//! A check is a recovery of a copy that collects damage instead of ending, followed by a look at
//! roots, runs and leaks. [`heap_file`] maps the file privately, so it costs memory only for the
//! pages that recovery changes. [`Heap::check`] copies tables and logs of an open heap, and
//! compares them with the heap's own state. [`repair`] does such a recovery in place, once a check
//! has ruled out that it loses objects.

mod repair;
mod report;

use std::path::Path;

use crate::config::{Bookkeeping, Config};
use crate::core::Core;
use crate::damage::{Damage, Findings};
use crate::engine::Kind;
use crate::engine::classes::{CLASSES, SPAN_BYTES, class_info};
use crate::error::HeapError;
use crate::heap::{Heap, Opened, check_size, checksum, is_unused};
use crate::layout::*;
use crate::memory::{Durability, Memory};
use crate::roots::{AT_OBJECT, AT_STATE, Root, decode};

pub use repair::{RepairOptions, Repaired, repair};
pub use report::{CheckReport, ClassUse, LeakCount, SpanUse};

/// Checks the heap in a file that no program has open. The file is not changed.
///
/// # Errors
/// The file cannot be read, a program has it open, or it holds something other than a heap.
pub fn heap_file(path: &Path) -> Result<CheckReport, HeapError> {
    let findings = Findings::collected();
    match open_tolerant(Memory::copy_of(path)?, None, &findings) {
        Err(error @ HeapError::NotAHeap { .. }) => Err(error),
        opened => Ok(report_of(opened, findings)),
    }
}

/// Checks the heap in a copy, which the check uses up. Memory without a heap counts as damaged.
pub fn memory(memory: Memory) -> CheckReport {
    let findings = Findings::collected();
    report_of(open_tolerant(memory, None, &findings), findings)
}

fn report_of(opened: Result<Heap, HeapError>, findings: Findings) -> CheckReport {
    let heap = match opened {
        Ok(heap) => heap,
        Err(error) => return CheckReport::unopened(findings, error),
    };
    let mut report = CheckReport::of(&heap);
    mend_roots(&heap, &findings);
    report.look_at(&heap);
    report.add(findings);
    report
}

impl Heap {
    /// Checks the logs and tables of the open heap, and whether the heap takes the same objects for
    /// allocated. Other threads must have ended their operations.
    ///
    /// # Errors
    /// This thread is in a transaction, or there is no memory for the copy.
    pub fn check(&self) -> Result<CheckReport, HeapError> {
        self.refuse_in_transaction("end it first")?;
        let findings = Findings::collected();
        let copy = open_tolerant(self.copy_of_tables()?, Some(&self.core.config), &findings)?;
        let opened = CheckReport::of(&copy);
        self.compare(&copy, &findings)?;
        let mut report = CheckReport { recovered: opened.recovered, ..CheckReport::of(self) };
        mend_roots(&copy, &findings);
        if findings.is_clean() {
            report.look_at(self);
        }
        report.add(findings);
        Ok(report)
    }

    /// Superblock, roots, tables, logs and snapshots of one moment; objects read as zeros.
    fn copy_of_tables(&self) -> Result<Memory, HeapError> {
        let core = &self.core;
        let copy = Memory::anonymous(core.layout.spans * SPAN_BYTES, Durability::Flushed)?;
        let _folded = core.logs.fold();
        let loggers = core.logs.all_held();
        let _held: Vec<_> = loggers.iter().map(|logger| logger.visit()).collect();
        let mut span_bytes = vec![0; SPAN_BYTES as usize];
        let mut take = |span: u64| {
            core.memory.read(span * SPAN_BYTES, &mut span_bytes);
            copy.write(span * SPAN_BYTES, &span_bytes);
        };
        (0..core.layout.first_span()).for_each(&mut take);
        for span in core.layout.first_span()..core.layout.spans {
            let word = SpanWord::decode(core.memory.load(core.layout.table_word(span)));
            if let Some(
                SpanWord::Log { .. } | SpanWord::Objects { .. } | SpanWord::Snapshot { .. },
            ) = word
            {
                take(span);
            }
        }
        Ok(copy)
    }

    /// Compares the objects that are durable with those that this heap takes for allocated.
    fn compare(&self, copy: &Heap, findings: &Findings) -> Result<(), HeapError> {
        let list = |core: &Core| {
            let mut list = Vec::new();
            core.engine.for_objects(|offset, len_bytes| list.push((offset, len_bytes)));
            list
        };
        let (mine, durable) = (list(&self.core), list(&copy.core));
        for (list, other, is_used) in [(&mine, &durable, true), (&durable, &mine, false)] {
            for object in list {
                if other.binary_search(object).is_err() {
                    findings.meet(Damage::Differs { offset: object.0, is_used })?;
                }
            }
        }
        Ok(())
    }
}

/// Opens the heap in `memory` as well as possible, with the settings found in it.
fn open_tolerant(
    memory: Memory,
    config: Option<&Config>,
    findings: &Findings,
) -> Result<Heap, HeapError> {
    mend_superblock(&memory, findings)?;
    let mut settings = Config::default();
    if let Some(config) = config {
        settings.boot_id = config.boot_id;
        settings.threads = config.threads;
    }
    // A check takes no buckets, so none need be contiguous.
    settings.contiguous = false;
    if memory.load(AT_FLAGS) & FLAG_CONVENTIONAL != 0 {
        settings.bookkeeping = Bookkeeping::Conventional;
    }
    Heap::open_with(memory, settings, findings)
}

/// Mends one damaged word of the superblock, which the other words, the length and the sum
/// determine.
fn mend_superblock(memory: &Memory, findings: &Findings) -> Result<(), HeapError> {
    let found = if memory.len_bytes() < 8 { 0 } else { memory.load(AT_MAGIC) };
    if let Err(error) = check_size("a heap", memory.len_bytes(), HEAP_BYTES_MIN, HEAP_BYTES_MAX) {
        return Err(if found == MAGIC { error } else { HeapError::NotAHeap { found } });
    }
    let places = [AT_MAGIC, AT_VERSION, AT_SPANS, AT_FLAGS];
    let words = places.map(|at| memory.load(at));
    let sum = memory.load(AT_CHECKSUM);
    if found == MAGIC && sum == checksum(memory) {
        return Ok(());
    }
    let put = |words: [u64; 4]| {
        places.iter().zip(words).for_each(|(at, word)| memory.store_word(*at, word));
    };
    let candidates = [0, FLAG_CONVENTIONAL]
        .map(|flags| [MAGIC, VERSION, memory.len_bytes() / SPAN_BYTES, flags]);
    let sums = candidates.map(|right| {
        put(right);
        checksum(memory)
    });
    put(words);
    // Either the sum is right, or all words but the sum are.
    let right = candidates.iter().zip(sums).find(|(_, of)| *of == sum).map(|(right, _)| *right);
    if let Some(right) = right.or(candidates.into_iter().find(|right| *right == words)) {
        let wrong = places.iter().zip(words).zip(right).find(|((_, word), right)| word != right);
        let (offset, value) = wrong.map_or((AT_CHECKSUM, sum), |((at, word), _)| (*at, word));
        put(right);
        memory.store_word(AT_CHECKSUM, checksum(memory));
        memory.flush(AT_MAGIC, 64);
        memory.fence();
        return findings.meet(Damage::Superblock { what: "fixed part", offset, value });
    }
    match found {
        // An empty file holds no heap, although opening it would make one. A file that lost only
        // its head is a damaged heap.
        0 if is_unused(memory) => Err(HeapError::NotAHeap { found }),
        // Opening the memory returns the error that fits.
        _ => Ok(()),
    }
}

/// Removes entries of the table of roots that no correct program writes, and roots that name no
/// object.
fn mend_roots(heap: &Heap, findings: &Findings) {
    let core = &heap.core;
    let mut names = std::collections::BTreeSet::new();
    for index in 0..ROOTS_MAX {
        let offset = AT_ROOTS + index * ROOT_BYTES;
        let mut entry = [0; ROOT_BYTES as usize];
        core.memory.read(offset, &mut entry);
        let damage = match decode(offset, &entry) {
            Ok(None) => continue,
            Ok(Some(root)) => match root_damage(heap, &mut names, index, &root) {
                None => continue,
                Some(damage) => damage,
            },
            Err(HeapError::Corrupt { offset: at, value, .. }) => {
                let what = if at == offset + AT_OBJECT { "object" } else { "name or type" };
                Damage::RootTorn { index, offset, what, value }
            }
            Err(error) => Damage::Unopenable(error),
        };
        core.memory.persist_word(offset + AT_STATE, 0);
        // Findings are collected, so this returns no error.
        let _ = findings.meet(damage);
    }
}

fn root_damage(
    heap: &Heap,
    names: &mut std::collections::BTreeSet<String>,
    index: u64,
    root: &Root,
) -> Option<Damage> {
    let name = root.name.clone();
    if !names.insert(name.clone()) {
        return Some(Damage::RootTwice { name, index });
    }
    let object = root.object?;
    let is_there = heap.is_object(object)
        || heap.compartments().iter().any(|compartment| {
            let (start, len) = (compartment.offset.get(), compartment.len_bytes);
            compartment.kind == Kind::Persistent && (start..start + len).contains(&object.get())
        });
    (!is_there).then(|| Damage::RootNothing { name, object: object.get() })
}

/// The use of the heap's runs, by size class.
fn classes(heap: &Heap) -> Vec<ClassUse> {
    let filled = heap.core.engine.filled();
    (0..CLASSES)
        .filter(|class| filled[*class].runs > 0)
        .map(|class| ClassUse {
            slot_bytes: u64::from(class_info(class).bytes),
            runs: filled[class].runs,
            slots: filled[class].slots,
            used: filled[class].used,
        })
        .collect()
}

fn recovered(heap: &Heap) -> Option<crate::log::logged::Recovered> {
    match heap.opened() {
        Opened::Recovered(found) => Some(found),
        Opened::Made => None,
    }
}
