//! Calls of the program's functions by the library.
//!
//! Such a function may unwind, by an exception of C++ or the end of its thread. That ends the
//! process with a message, because the library's frames cannot be unwound.

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
            "perdura: {}: the function it called did not return but threw an exception, panicked \
             or ended its thread; catch that within the function; the process ends",
            self.0
        );
        std::process::abort()
    }
}
