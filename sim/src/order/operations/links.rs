//! Objects that are allocated, replaced and freed together with the word that names them.

use perdura_heap::{Heap, HeapError, Offset};

use super::super::broken::Broken;
use super::super::oracle::Expected;
use super::super::script::{Operation, Script};
use super::super::settings::Settings;
use super::steps::{compact, pattern};

pub(crate) fn all() -> Vec<Operation> {
    let redo = |name, run| Operation::new(name, Settings::REDO, run);
    vec![
        redo("link", link),
        Operation::new("link-undo", Settings::UNDO, link),
        redo("link-between-frees", between_frees),
        redo("link-log-full", log_full).with_long_recoveries(),
        redo("link-fold", fold),
        redo("link-and-transaction", and_transaction),
        redo("link-in-freed", in_freed),
        Operation::recovery("open-links", Settings::REDO, link),
        Operation::recovery("open-link-in-freed", Settings::REDO, in_freed),
    ]
}

/// Words, in one object, that name objects.
#[derive(Clone, Copy)]
struct Table(Offset);

impl Table {
    fn make(script: &mut Script) -> Result<Self, Broken> {
        script.object("a table of words", &pattern(1, 128)).map(Self)
    }

    fn place(self, word: usize) -> Offset {
        Offset::new(self.0.get() + 8 * word as u64).unwrap_or(self.0)
    }

    fn set(self, next: &mut Expected, word: usize, value: u64) {
        next.write(self.0.get(), 8 * word, &value.to_le_bytes());
    }
}

/// Runs `make`, after which a word names the object that was made, of `len` bytes.
fn made(
    script: &mut Script,
    step: &'static str,
    (table, word): (Table, usize),
    old: Option<Offset>,
    (len, contents): (u64, Option<&[u8]>),
    make: impl FnOnce(&Heap, Offset) -> Result<Offset, HeapError>,
) -> Result<Offset, Broken> {
    script.step(step, |heap, next| {
        let made = make(heap, table.place(word))?;
        next.settle();
        if let Some(old) = old {
            next.free(old.get(), false);
        }
        next.alloc(made.get(), len, contents.map(<[u8]>::to_vec));
        table.set(next, word, made.get());
        Ok(made)
    })
}

fn alloc_into(
    script: &mut Script,
    step: &'static str,
    at: (Table, usize),
    len: u64,
) -> Result<Offset, Broken> {
    made(script, step, at, None, (len, None), |heap, place| heap.alloc_into(place, len))
}

fn replace_at(
    script: &mut Script,
    step: &'static str,
    at: (Table, usize),
    old: Offset,
    len: u64,
) -> Result<Offset, Broken> {
    made(script, step, at, Some(old), (len, None), |heap, place| heap.replace_at(place, len))
}

fn free_from(
    script: &mut Script,
    step: &'static str,
    (table, word): (Table, usize),
    old: Offset,
) -> Result<(), Broken> {
    script.step(step, |heap, next| {
        heap.free_from(table.place(word))?;
        next.settle();
        next.free(old.get(), false);
        table.set(next, word, 0);
        Ok(())
    })
}

/// Each call, in lines of their own and in one line, and the memory of freed objects used again.
fn link(script: &mut Script) -> Result<(), Broken> {
    let table = Table::make(script)?;
    script.begin();
    let (near, far) = ((table, 1), (table, 12));
    let first = alloc_into(script, "allocate into a word", near, 64)?;
    let contents = pattern(2, 200);
    let all = (200, Some(&*contents));
    let put = made(script, "with contents", far, None, all, |heap, place| {
        heap.put_into(place, &contents)
    })?;
    let second = replace_at(script, "replace", near, first, 64)?;
    let third = replace_at(script, "replace again", near, second, 5_000)?;
    let all = (200, Some(&*contents));
    let other = made(script, "replace with contents", far, Some(put), all, |heap, place| {
        heap.replace_with(place, &contents)
    })?;
    free_from(script, "free", near, third)?;
    free_from(script, "free the other", far, other)?;
    alloc_into(script, "allocate once more", near, 64)?;
    Ok(())
}

/// Frees that are not durable yet before links in the same line and the next.
fn between_frees(script: &mut Script) -> Result<(), Broken> {
    let table = Table::make(script)?;
    let old = [2, 3, 4, 5].map(|seed| script.object("one to free", &pattern(seed, 64)));
    script.begin();
    let mut linked = None;
    for (number, old) in old.into_iter().enumerate() {
        let old = old?;
        script.step("free", |heap, next| {
            heap.persist_free(old)?;
            next.free(old.get(), true);
            Ok(())
        })?;
        if number % 2 == 1 {
            let at = (table, number);
            linked = Some(match linked {
                None => alloc_into(script, "allocate into a word", at, 64)?,
                Some(_) => alloc_into(script, "into another", at, 1_000)?,
            });
        }
    }
    script.step("fence", |heap, next| {
        heap.fence();
        next.settle();
        Ok(())
    })
}

/// Links until the log's chunk is full, and another is taken.
fn log_full(script: &mut Script) -> Result<(), Broken> {
    let table = Table::make(script)?;
    let mut object = alloc_into(script, "fill the log", (table, 0), 64)?;
    // Two of these links take a line of the log, so few lines are left.
    for _ in 0..2_036 {
        object = replace_at(script, "fill the log", (table, 0), object, 64)?;
    }
    script.begin();
    for word in [0, 8, 0, 8, 0, 8] {
        if word == 0 {
            object = replace_at(script, "replace", (table, 0), object, 64)?;
        } else {
            alloc_into(script, "allocate", (table, word), 64)?;
        }
    }
    Ok(())
}

/// Links before a fold and behind it.
fn fold(script: &mut Script) -> Result<(), Broken> {
    let table = Table::make(script)?;
    let first = alloc_into(script, "allocate into a word", (table, 0), 64)?;
    script.begin();
    let second = replace_at(script, "replace", (table, 0), first, 64)?;
    alloc_into(script, "into another word", (table, 9), 64)?;
    compact(script)?;
    replace_at(script, "replace in the new generation", (table, 0), second, 64)?;
    Ok(())
}

/// One word changed by links, transactions and plain stores.
fn and_transaction(script: &mut Script) -> Result<(), Broken> {
    let table = Table::make(script)?;
    script.begin();
    let first = alloc_into(script, "allocate into a word", (table, 0), 64)?;
    let moved = |script: &mut Script, step, from: usize, to: usize, object: Offset| {
        script.step(step, |heap, next| {
            heap.transaction(|tx| -> Result<(), HeapError> {
                tx.write_bytes(table.place(to), &object.get().to_le_bytes())?;
                tx.write_bytes(table.place(from), &0_u64.to_le_bytes())
            })?;
            next.settle();
            table.set(next, to, object.get());
            table.set(next, from, 0);
            Ok(())
        })
    };
    moved(script, "move it by a transaction", 0, 8, first)?;
    let second = alloc_into(script, "allocate into the first word", (table, 0), 64)?;
    free_from(script, "free from the other", (table, 8), first)?;
    moved(script, "move that one, too", 0, 8, second)?;
    script.fill("plain stores", table.0, &pattern(3, 128))?;
    alloc_into(script, "allocate into the word again", (table, 8), 64)?;
    Ok(())
}

/// A word in an object that is freed afterwards: it must not be changed in the next object at that
/// place.
fn in_freed(script: &mut Script) -> Result<(), Broken> {
    let table = Table::make(script)?;
    script.begin();
    let object = alloc_into(script, "allocate into a word", (table, 2), 64)?;
    replace_at(script, "replace", (table, 2), object, 64)?;
    script.step("free the table", |heap, next| {
        heap.persist_free(table.0)?;
        next.free(table.0.get(), true);
        Ok(())
    })?;
    let other = Table(script.object("another in its place", &pattern(4, 128))?);
    alloc_into(script, "allocate into that", (other, 3), 48)?;
    Ok(())
}
