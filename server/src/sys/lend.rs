//! Lends a borrowed object to callbacks that can only keep what lives for ever.

use std::cell::Cell;
use std::ptr::NonNull;

use crate::script::Host;

/// A place that callbacks of a Lua state reach, with the [`Host`] of the script that runs, if one
/// does.
#[derive(Default)]
pub(crate) struct Lent(Cell<Option<NonNull<dyn Host>>>);

/// Takes the host back at the end of the loan, also where that unwinds.
struct TakeBack<'a>(&'a Lent, Option<NonNull<dyn Host>>);

impl Drop for TakeBack<'_> {
    fn drop(&mut self) {
        self.0.0.set(self.1);
    }
}

impl Lent {
    /// Lends `host` while `f` runs.
    pub fn lend<'h, R>(&self, host: &mut (dyn Host + 'h), f: impl FnOnce() -> R) -> R {
        let pointer: NonNull<dyn Host + 'h> = NonNull::from(host);
        // SAFETY: only the lifetime changes. The pointer is used between here and the end of this
        // function only, when `TakeBack` removes it, and `host` stays borrowed until then.
        let pointer: NonNull<dyn Host> = unsafe { std::mem::transmute(pointer) };
        let _back = TakeBack(self, self.0.replace(Some(pointer)));
        f()
    }

    /// Calls `f` with the host. `None` where no host is lent, or where this is called from `f`
    /// itself: there is never a second reference to the host.
    pub fn with<R>(&self, f: impl FnOnce(&mut dyn Host) -> R) -> Option<R> {
        let mut pointer = self.0.take()?;
        let _back = TakeBack(self, Some(pointer));
        // SAFETY: the pointer is there, so a call to `lend` is under way that holds the only
        // reference to the host; and it was taken out, so no other call of `with` has it.
        Some(f(unsafe { pointer.as_mut() }))
    }
}
