//! The operations that are checked, each as small as its behaviour allows.
//!
//! Every operation of the heap that changes persistent memory is here. A step tells the oracle the
//! promises of the operation's documentation: durable on return, all or nothing, and no more leaks
//! than are documented.

mod links;
mod steps;
mod transactions;

use perdura_heap::{HeapError, Kind, Offset, Persist};

use super::broken::Broken;
use super::oracle::Expected;
use super::script::{Operation, Script, Start};
use super::settings::Settings;
use steps::{compact, pattern};

/// All operations.
pub(crate) fn all() -> Vec<Operation> {
    let mut all = objects();
    all.extend(links::all());
    all.extend(transactions::all());
    all
}

fn objects() -> Vec<Operation> {
    let operation = |name, run| Operation::new(name, Settings::REDO, run);
    vec![
        Operation { start: Start::Nothing, ..operation("create", |_| Ok(())) },
        operation("alloc", alloc),
        operation("free", free),
        operation("free-reuse", free_reuse),
        operation("realloc", realloc),
        operation("alloc-large", alloc_large),
        operation("free-large", free_large),
        operation("persist", persist),
        operation("alloc-named", alloc_named),
        operation("compartment", compartment),
        operation("fold", fold),
        operation("fold-twice", fold_twice),
        Operation::recovery("open-records", Settings::REDO, free_reuse),
    ]
}

fn take(script: &mut Script, step: &'static str, bytes: u64) -> Result<Offset, Broken> {
    script.step(step, |heap, next| {
        let offset = heap.persist_alloc(bytes)?;
        next.settle();
        next.alloc(offset.get(), bytes, None);
        Ok(offset)
    })
}

fn give(script: &mut Script, step: &'static str, object: Offset) -> Result<(), Broken> {
    script.step(step, |heap, next| {
        heap.persist_free(object)?;
        next.free(object.get(), true);
        Ok(())
    })
}

fn alloc(script: &mut Script) -> Result<(), Broken> {
    script.object("a first object", &pattern(1, 64))?;
    script.begin();
    take(script, "one of a class in use", 64)?;
    take(script, "one of a new class", 1_000)?;
    let filled = take(script, "another of it", 1_000)?;
    script.fill("its bytes", filled, &pattern(2, 1_000))
}

fn free(script: &mut Script) -> Result<(), Broken> {
    let kept = script.object("one to keep", &pattern(1, 48))?;
    let some = [
        script.object("one to free", &pattern(2, 48))?,
        script.object("another to free", &pattern(3, 48))?,
        script.object("a third to free", &pattern(4, 2_000))?,
    ];
    script.begin();
    give(script, "free", some[0])?;
    give(script, "free another", some[1])?;
    script.step("fence", |heap, next| {
        heap.fence();
        next.settle();
        Ok(())
    })?;
    give(script, "free the last of its class", some[2])?;
    script.fill("bytes of the one kept", kept, &pattern(5, 48))
}

/// A freed object's memory serves another at once.
fn free_reuse(script: &mut Script) -> Result<(), Broken> {
    let first = script.object("one to free", &pattern(1, 256))?;
    script.object("one to keep", &pattern(2, 256))?;
    script.begin();
    give(script, "free", first)?;
    let again = take(script, "take its memory", 256)?;
    script.fill("its bytes", again, &pattern(3, 256))?;
    give(script, "free it again", again)?;
    take(script, "take it again", 256)?;
    Ok(())
}

fn realloc(script: &mut Script) -> Result<(), Broken> {
    let bytes = pattern(1, 200);
    let object = script.object("an object", &bytes)?;
    script.begin();
    let object = script.step("shrink in place", |heap, next| {
        let moved = heap.persist_realloc(object, 190)?;
        resized(next, object, moved, 190, &bytes);
        Ok(moved)
    })?;
    let object = script.step("grow by a copy", |heap, next| {
        let moved = heap.persist_realloc(object, 5_000)?;
        resized(next, object, moved, 5_000, &bytes[..190]);
        Ok(moved)
    })?;
    script.step("shrink by a copy", |heap, next| {
        let moved = heap.persist_realloc(object, 16)?;
        resized(next, object, moved, 16, &bytes[..16]);
        Ok(moved)
    })?;
    Ok(())
}

/// Notes a change of size. If the object moves, a loss may find both the old one and the new one.
fn resized(next: &mut Expected, object: Offset, moved: Offset, len_bytes: u64, kept: &[u8]) {
    if moved != object {
        next.settle();
        next.alloc(moved.get(), len_bytes, None);
        next.by_way("both are there");
        next.free(object.get(), true);
    }
    next.alloc(moved.get(), len_bytes, Some(kept.to_vec()));
}

fn alloc_large(script: &mut Script) -> Result<(), Broken> {
    script.object("a small one", &pattern(1, 100))?;
    script.begin();
    take(script, "two spans", 100_000)?;
    take(script, "three spans", 190_000)?;
    Ok(())
}

/// The spans of a large object serve small ones next, and the other way round.
fn free_large(script: &mut Script) -> Result<(), Broken> {
    let large = take(script, "two spans", 100_000)?;
    let small = script.object("a small one", &pattern(1, 3_000))?;
    script.begin();
    give(script, "free the large one", large)?;
    let other = script.object("one of another class", &pattern(2, 500))?;
    give(script, "free the small one", small)?;
    give(script, "free the other one", other)?;
    take(script, "three spans", 190_000)?;
    Ok(())
}

/// Plain stores to an object, made durable.
fn persist(script: &mut Script) -> Result<(), Broken> {
    let object = script.object("an object", &pattern(1, 200))?;
    script.begin();
    script.fill("its bytes", object, &pattern(2, 200))
}

/// An object that is allocated and named at once: a loss finds both or neither.
fn alloc_named(script: &mut Script) -> Result<(), Broken> {
    script.object("an object", &pattern(1, 64))?;
    script.begin();
    for (name, bytes) in [("one", 100), ("another", 2_000)] {
        script.step("take and name", |heap, next| {
            let offset = heap.persist_alloc_named(bytes, name)?;
            next.settle();
            next.alloc(offset.get(), bytes, None);
            next.roots.insert(name.to_owned(), (u8::type_id(), offset.get()));
            Ok(())
        })?;
    }
    let taken =
        script.step("a name that is taken", |heap, _| Ok(heap.persist_alloc_named(64, "one")))?;
    match taken {
        Err(HeapError::RootTaken { .. }) => Ok(()),
        Err(error) => Err(Broken::Refused { step: "a name that is taken", error }),
        Ok(_) => Err(Broken::NotRefused { step: "a name that is taken" }),
    }
}

/// Two compartments, of which the first is removed.
fn compartment(script: &mut Script) -> Result<(), Broken> {
    script.object("an object", &pattern(1, 64))?;
    script.begin();
    let take = |script: &mut Script, step, bytes| {
        script.step(step, |heap, next| {
            let made = heap.compartment(Kind::Persistent, bytes)?;
            next.compartments.insert(made.offset.get(), made.len_bytes);
            Ok(made)
        })
    };
    let first = take(script, "an area", 100_000)?;
    take(script, "another", 65_536)?;
    script.step("remove the first", |heap, next| {
        heap.remove_compartment(first)?;
        next.compartments.remove(&first.offset.get());
        Ok(())
    })?;
    script.object("an object in its place", &pattern(2, 70_000))?;
    Ok(())
}

fn fold(script: &mut Script) -> Result<(), Broken> {
    let first = script.object("one to free", &pattern(1, 64))?;
    script.object("one to keep", &pattern(2, 64))?;
    script.object("another to keep", &pattern(3, 700))?;
    give(script, "free", first)?;
    script.begin();
    compact(script)?;
    script.object("one of the new generation", &pattern(4, 64))?;
    Ok(())
}

/// A second snapshot in the place of the first, with records in between.
fn fold_twice(script: &mut Script) -> Result<(), Broken> {
    let first = script.object("one to free", &pattern(1, 64))?;
    script.object("one to keep", &pattern(2, 64))?;
    compact(script)?;
    give(script, "free", first)?;
    script.begin();
    take(script, "one more", 64)?;
    compact(script)?;
    take(script, "yet one more", 64)?;
    Ok(())
}
