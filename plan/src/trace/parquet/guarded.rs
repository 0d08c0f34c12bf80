//! Turns panics of the Parquet library into errors.
//!
//! The library asserts some properties of a sound file. Damage that is found in this way becomes an
//! error like any other, and nothing is printed: the panic hook ignores panics of this thread while
//! it is in the library, and passes all others on.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use ::parquet::errors::{ParquetError, Result};

thread_local! {
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

static HOOK: Once = Once::new();

/// Does `work`, whose panics are errors. What it worked on is not to be used again after one.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    HOOK.call_once(|| {
        let others = take_hook();
        set_hook(Box::new(move |panic| {
            // Gone at a thread's very end: then it is not one of ours.
            if !IS_GUARDED.try_with(Cell::get).unwrap_or(false) {
                others(panic);
            }
        }));
    });
    IS_GUARDED.set(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    IS_GUARDED.set(false);
    done.unwrap_or_else(|_| {
        Err(ParquetError::General("its pages are not what its metadata say".to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_in_the_library_is_an_error() {
        assert_eq!(guarded(|| Ok(5)).unwrap(), 5);
        let error = guarded(|| -> Result<()> { panic!("not to be seen") }).unwrap_err();
        assert!(error.to_string().contains("not what its metadata say"), "{error}");
        assert!(!IS_GUARDED.get());
    }
}
