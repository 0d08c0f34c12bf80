//! Functions of the program that the library calls.
//!
//! They may unwind, an exception of C++ or the end of their thread, and where they do it is seen
//! and ends the process: the library's frames are not made to be left like that, and the program's
//! are not to be left without a word.

/// Runs `f`, which calls a function that the program gave to `call`.
pub(crate) fn called<R>(call: &'static str, f: impl FnOnce() -> R) -> R {
    let unwound = Unwound(call);
    let result = f();
    std::mem::forget(unwound);
    result
}

struct Unwound(&'static str);

impl Drop for Unwound {
    fn drop(&mut self) {
        eprintln!(
            "perdura: {}: the function it called did not return but threw an exception, panicked or ended its thread; \
             catch it within the function; the process ends",
            self.0
        );
        std::process::abort()
    }
}
