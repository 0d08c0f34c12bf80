//! Transactions and roots: redo and undo logs; words, objects and both; aborted and nested
//! transactions; full logs.

use perdura_heap::{Heap, HeapError, LogAs, Offset, Ptr, Records, Tx};

use super::super::broken::Broken;
use super::super::oracle::Expected;
use super::super::script::{Operation, Script};
use super::super::settings::Settings;
use super::steps::{compact, pattern};

pub(crate) fn all() -> Vec<Operation> {
    let redo = |name, run| Operation::new(name, Settings::REDO, run);
    let undo = |name, run| Operation::new(name, Settings::UNDO, run);
    let of = |records, operation: Operation| Operation {
        settings: Settings { records, ..operation.settings },
        ..operation
    };
    vec![
        redo("commit-redo", commit),
        undo("commit-undo", commit),
        of(Records::Words, redo("commit-redo-words", commit)),
        of(Records::Words, undo("commit-undo-words", commit)),
        of(Records::Objects, redo("commit-redo-objects", commit)),
        of(Records::Objects, undo("commit-undo-objects", commit)),
        redo("commit-large-redo", commit_large),
        redo("fill-large-redo", fill_large),
        undo("fill-large-undo", fill_large),
        redo("abort-redo", abort),
        undo("abort-undo", abort),
        redo("nested-redo", nested),
        undo("nested-undo", nested),
        redo("write-freed-redo", write_freed),
        undo("write-freed-undo", write_freed),
        redo("persist-after-commit", persist_after_commit),
        redo("log-full-redo", log_full).with_long_recoveries(),
        undo("log-full-undo", log_full),
        redo("log-again-redo", log_again).with_long_recoveries(),
        redo("fold-commits-redo", fold_commits),
        undo("fold-commits-undo", fold_commits),
        redo("roots-redo", roots),
        undo("roots-undo", roots),
        Operation::recovery("open-redo", Settings::REDO, commit),
        Operation::recovery("open-undo", Settings::UNDO, commit),
        Operation::recovery("open-write-freed", Settings::REDO, write_freed),
        Operation::recovery("open-fold", Settings::REDO, fold_commits),
    ]
}

/// Commits of a word until three chunks of the log are nearly full.
const COMMITS_BEFORE_AGAIN: u64 = 3_058;

/// A transaction that commits.
fn transact<R>(
    script: &mut Script,
    step: &'static str,
    run: impl FnOnce(&mut Tx<'_>, &mut Expected) -> Result<R, HeapError>,
) -> Result<R, Broken> {
    script.step(step, |heap, next| {
        let result = heap.transaction(|tx| run(tx, next))?;
        next.settle();
        Ok(result)
    })
}

/// A transaction that is undone, so that nothing changes.
fn undone(
    script: &mut Script,
    step: &'static str,
    run: impl FnOnce(&mut Tx<'_>, &mut Expected) -> Result<(), HeapError>,
) -> Result<(), Broken> {
    script.step(step, |heap, next| {
        let before = next.clone();
        let result: Result<(), Undone> = heap.transaction(|tx| {
            run(tx, next)?;
            Err(Undone::Wanted)
        });
        *next = before;
        match result {
            Err(Undone::Heap(error)) => Err(error),
            Ok(()) | Err(Undone::Wanted) => Ok(()),
        }
    })
}

/// Why a transaction was undone.
enum Undone {
    Wanted,
    Heap(HeapError),
}

impl From<HeapError> for Undone {
    fn from(error: HeapError) -> Self {
        Self::Heap(error)
    }
}

/// Writes `bytes` into an object, `at` bytes behind the object's begin.
fn write(
    tx: &mut Tx<'_>,
    next: &mut Expected,
    object: Offset,
    at: usize,
    bytes: &[u8],
) -> Result<(), HeapError> {
    tx.write_bytes(inside(object, at), bytes)?;
    next.write(object.get(), at, bytes);
    Ok(())
}

fn inside(object: Offset, at: usize) -> Offset {
    Offset::new(object.get() + at as u64).unwrap_or(object)
}

/// Makes a filled object in the transaction.
fn make(tx: &mut Tx<'_>, next: &mut Expected, bytes: &[u8]) -> Result<Offset, HeapError> {
    let made = tx.alloc(bytes.len() as u64)?;
    tx.write_bytes(made, bytes)?;
    next.alloc(made.get(), bytes.len() as u64, Some(bytes.to_vec()));
    Ok(made)
}

fn drop_object(tx: &mut Tx<'_>, next: &mut Expected, object: Offset) -> Result<(), HeapError> {
    tx.free(object)?;
    next.free(object.get(), false);
    Ok(())
}

/// Words and objects that are written, an object that is allocated and one that is freed; then the
/// same places again.
fn commit(script: &mut Script) -> Result<(), Broken> {
    let small = script.object("a small object", &pattern(1, 64))?;
    let large = script.object("a larger one", &pattern(2, 400))?;
    let old = script.object("one to free", &pattern(3, 96))?;
    script.begin();
    transact(script, "a word", |tx, next| write(tx, next, small, 8, &pattern(4, 8)))?;
    let made = transact(script, "words, an object, a new one, a freed one", |tx, next| {
        write(tx, next, small, 0, &pattern(5, 8))?;
        write(tx, next, small, 35, &pattern(6, 3))?;
        write(tx, next, large, 100, &pattern(7, 256))?;
        drop_object(tx, next, old)?;
        make(tx, next, &pattern(8, 96))
    })?;
    transact(script, "over the same, and into the new one", |tx, next| {
        write(tx, next, large, 90, &pattern(9, 40))?;
        write(tx, next, made, 0, &pattern(10, 96))?;
        tx.write_as(inside(small, 8), &pattern(11, 8), LogAs::Object)?;
        next.write(small.get(), 8, &pattern(11, 8));
        Ok(())
    })
}

/// A transaction that needs more than one piece of the log.
fn commit_large(script: &mut Script) -> Result<(), Broken> {
    let len = 33_000;
    let object = script.object("a large object", &pattern(1, len))?;
    let words = script.object("many words", &pattern(2, 2 * len))?;
    script.begin();
    transact(script, "most of both", |tx, next| {
        write(tx, next, object, 64, &pattern(3, len - 100))?;
        for at in (0..2_050).map(|number| number * 16) {
            write(tx, next, words, at, &pattern(at as u8, 8))?;
        }
        Ok(())
    })?;
    transact(script, "a word", |tx, next| write(tx, next, words, 16, &pattern(4, 8)))
}

/// A new object that is filled past the caches.
fn fill_large(script: &mut Script) -> Result<(), Broken> {
    let small = script.object("a small object", &pattern(1, 64))?;
    script.begin();
    transact(script, "a large object, and where it is", |tx, next| {
        let made = make(tx, next, &pattern(2, 4_096))?;
        write(tx, next, small, 0, &made.get().to_le_bytes())
    })
}

fn abort(script: &mut Script) -> Result<(), Broken> {
    let small = script.object("a small object", &pattern(1, 64))?;
    let large = script.object("a larger one", &pattern(2, 400))?;
    let old = script.object("one to keep", &pattern(3, 96))?;
    script.begin();
    undone(script, "an undone transaction", |tx, next| {
        write(tx, next, small, 0, &pattern(5, 16))?;
        write(tx, next, large, 100, &pattern(7, 256))?;
        drop_object(tx, next, old)?;
        make(tx, next, &pattern(8, 96)).map(drop)
    })?;
    transact(script, "one that holds", |tx, next| write(tx, next, small, 4, &pattern(9, 8)))?;
    undone(script, "another undone", |tx, next| write(tx, next, small, 0, &pattern(10, 64)))
}

/// An inner transaction that is undone in one that commits, and the other way round.
fn nested(script: &mut Script) -> Result<(), Broken> {
    let small = script.object("a small object", &pattern(1, 64))?;
    let large = script.object("a larger one", &pattern(2, 400))?;
    script.begin();
    transact(script, "an inner one undone", |tx, next| {
        write(tx, next, small, 0, &pattern(3, 16))?;
        let before = next.clone();
        let inner: Result<(), Undone> = tx.nested(|tx| {
            write(tx, next, small, 8, &pattern(4, 16))?;
            write(tx, next, large, 0, &pattern(5, 200))?;
            make(tx, next, &pattern(6, 48))?;
            Err(Undone::Wanted)
        });
        *next = before;
        if let Err(Undone::Heap(error)) = inner {
            return Err(error);
        }
        write(tx, next, large, 100, &pattern(7, 200))?;
        let kept = tx.nested(|tx| make(tx, next, &pattern(8, 48)))?;
        write(tx, next, kept, 8, &pattern(9, 24))
    })?;
    undone(script, "all undone, an inner one too", |tx, next| {
        tx.nested(|tx| write(tx, next, large, 0, &pattern(10, 300)))?;
        write(tx, next, small, 0, &pattern(11, 8))
    })
}

/// A write to an object that is freed afterwards: the write must not be found in the next object at
/// that place.
fn write_freed(script: &mut Script) -> Result<(), Broken> {
    let object = script.object("an object", &pattern(1, 128))?;
    script.begin();
    transact(script, "write to it", |tx, next| write(tx, next, object, 0, &pattern(2, 128)))?;
    script.step("free it", |heap, next| {
        heap.persist_free(object)?;
        next.free(object.get(), true);
        Ok(())
    })?;
    let again = script.object("another in its place", &pattern(3, 128))?;
    transact(script, "free that, take one", |tx, next| {
        drop_object(tx, next, again)?;
        make(tx, next, &pattern(4, 128)).map(drop)
    })?;
    script.object("one more", &pattern(5, 128))?;
    Ok(())
}

/// Plain stores over bytes that a transaction changed: a recovery must not undo the stores.
fn persist_after_commit(script: &mut Script) -> Result<(), Broken> {
    let object = script.object("an object", &pattern(1, 128))?;
    script.begin();
    transact(script, "write to it", |tx, next| write(tx, next, object, 0, &pattern(2, 128)))?;
    script.fill("plain stores", object, &pattern(3, 128))?;
    transact(script, "write again", |tx, next| write(tx, next, object, 8, &pattern(4, 8)))
}

/// The log's chunk becomes full, and another is taken.
fn log_full(script: &mut Script) -> Result<(), Broken> {
    commits_around(script, 1_018, 5)
}

/// The log's third chunk becomes full, and the second one, whose groups are over, is cleared and
/// used again.
fn log_again(script: &mut Script) -> Result<(), Broken> {
    commits_around(script, COMMITS_BEFORE_AGAIN, 6)
}

/// Commits of a word each, the last `recorded` of which are recorded.
fn commits_around(script: &mut Script, before: u64, recorded: usize) -> Result<(), Broken> {
    let object = script.object("an object", &pattern(1, 256))?;
    // Each commit takes a line of the log, so few lines are left. The format decides only how many
    // of these commits belong to the preparation.
    for number in 0..before {
        transact(script, "fill the log", |tx, next| {
            write(tx, next, object, 0, &(number | 1).to_le_bytes())
        })?;
    }
    script.begin();
    for number in 0..recorded {
        transact(script, "a word", |tx, next| {
            write(tx, next, object, number * 40, &pattern(number as u8, 8))
        })?;
    }
    Ok(())
}

fn fold_commits(script: &mut Script) -> Result<(), Broken> {
    let object = script.object("an object", &pattern(1, 256))?;
    let old = script.object("one to free", &pattern(2, 64))?;
    transact(script, "write to both", |tx, next| {
        write(tx, next, object, 0, &pattern(3, 200))?;
        write(tx, next, old, 8, &pattern(4, 8))
    })?;
    script.begin();
    transact(script, "write and free", |tx, next| {
        write(tx, next, object, 16, &pattern(5, 8))?;
        drop_object(tx, next, old)
    })?;
    compact(script)?;
    transact(script, "write in the new generation", |tx, next| {
        write(tx, next, object, 32, &pattern(6, 100))?;
        make(tx, next, &pattern(7, 64)).map(drop)
    })
}

fn set_root(heap: &Heap, next: &mut Expected, name: &str, object: Offset) -> Result<(), HeapError> {
    heap.set_root(name, Ptr::<[u64; 8]>::new(object))?;
    next.settle();
    next.roots.insert(name.to_owned(), (type_id(), object.get()));
    Ok(())
}

fn type_id() -> u64 {
    <[u64; 8] as perdura_heap::Persist>::type_id()
}

/// Named roots that are set, replaced and removed, alone and in a transaction.
fn roots(script: &mut Script) -> Result<(), Broken> {
    let one = script.object("an object", &pattern(1, 64))?;
    let other = script.object("another", &pattern(2, 64))?;
    script.begin();
    script.step("set a root", |heap, next| set_root(heap, next, "first", one))?;
    script.step("set another", |heap, next| set_root(heap, next, "a name of some length", one))?;
    script.step("replace", |heap, next| set_root(heap, next, "first", other))?;
    let made = transact(script, "an object and its root", |tx, next| {
        let made = make(tx, next, &pattern(3, 64))?;
        tx.set_root("second", Ptr::<[u64; 8]>::new(made))?;
        next.roots.insert("second".to_owned(), (type_id(), made.get()));
        Ok(made)
    })?;
    undone(script, "an undone root", |tx, _| {
        tx.set_root("third", Ptr::<[u64; 8]>::new(made))?;
        tx.remove_root("first")
    })?;
    script.step("remove", |heap, next| {
        heap.remove_root("first")?;
        next.settle();
        next.roots.remove("first");
        Ok(())
    })?;
    script.step("use its place", |heap, next| set_root(heap, next, "fourth", one))
}
