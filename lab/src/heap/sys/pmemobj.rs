//! libpmemobj, loaded at run time: a pool in a file in memory, used in the ways that its manual
//! shows.
//!
//! `PMEM_IS_PMEM_FORCE=1` is in the worker's environment, so the library flushes lines instead of
//! calling msync. Declarations follow the headers of version 2.4 of the interface
//! (`libpmemobj/base.h`, `atomic_base.h`, `action_base.h`, `tx_base.h`).

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::library::Library;
use super::{hook, touch};
use crate::heap::contestant::{Contestant, ContestantError, Counters, WRITE_BYTES, Way};
use crate::heap::protocol::Setup;

/// Part of the library's file name.
const NAME: &str = "libpmemobj";
const LAYOUT: &CStr = c"perdura-bench";
const TX_PARAM_NONE: c_int = 0;

/// `PMEMoid`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Oid {
    pool: u64,
    offset: u64,
}

/// `struct pobj_action`: opaque, with the size and alignment of the header.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Action([u64; 16]);
const _: () = assert!(size_of::<Action>() == 128);

macro_rules! interface {
    ($($name:ident: $type:ty;)*) => {
        /// The library's functions by their names without `pmemobj_`.
        struct Interface { $($name: $type,)* }

        impl Interface {
            fn of(library: &Library) -> Result<Self, ContestantError> {
                Ok(Self { $($name: {
                    const NAME: &[u8] = concat!("pmemobj_", stringify!($name), "\0").as_bytes();
                    let name = CStr::from_bytes_with_nul(NAME).unwrap_or(c"");
                    let address = library.symbol(name)?.as_ptr();
                    // SAFETY: the library's function of this name, declared as in its header.
                    unsafe { std::mem::transmute::<*mut c_void, $type>(address) }
                },)* })
            }
        }
    };
}

type Pool = *mut c_void;

interface! {
    create: unsafe extern "C" fn(*const c_char, *const c_char, usize, libc::mode_t) -> Pool;
    errormsg: unsafe extern "C" fn() -> *const c_char;
    alloc: unsafe extern "C" fn(Pool, *mut Oid, usize, u64, *const c_void, *mut c_void) -> c_int;
    free: unsafe extern "C" fn(*mut Oid);
    reserve: unsafe extern "C" fn(Pool, *mut Action, usize, u64) -> Oid;
    defer_free: unsafe extern "C" fn(Pool, Oid, *mut Action);
    publish: unsafe extern "C" fn(Pool, *mut Action, usize) -> c_int;
    tx_begin: unsafe extern "C" fn(Pool, *mut c_void, ...) -> c_int;
    tx_add_range_direct: unsafe extern "C" fn(*const c_void, usize) -> c_int;
    tx_alloc: unsafe extern "C" fn(usize, u64) -> Oid;
    tx_free: unsafe extern "C" fn(Oid) -> c_int;
    tx_commit: unsafe extern "C" fn();
    tx_end: unsafe extern "C" fn() -> c_int;
}

/// An open pool.
pub struct Pmemobj {
    calls: Interface,
    pool: Pool,
    /// The pool's identity in every `Oid`; 0 until the first object.
    pool_id: AtomicU64,
    /// Offset in the pool of the table that holds each object's `Oid`.
    published: u64,
    is_counting: bool,
}

// SAFETY: all threads may use a pool at once; the other fields are atomic or never written.
unsafe impl Sync for Pmemobj {}

impl Pmemobj {
    /// Creates a pool in a file whose name is removed at once; returns the library's version, too.
    pub fn open(setup: &Setup) -> Result<(Self, String), ContestantError> {
        let path = setup.library.as_deref().unwrap_or(Path::new("libpmemobj.so.1"));
        let library = Library::open(path)?;
        if setup.is_counting {
            hook::install(NAME)?;
        }
        let calls = Interface::of(&library)?;
        let file = setup.dir.join(format!("pmemobj-{}", std::process::id()));
        let failed =
            |cause: String| ContestantError::Open { what: file.display().to_string(), cause };
        let name =
            CString::new(file.as_os_str().as_bytes()).map_err(|error| failed(error.to_string()))?;
        let bytes = setup.heap_bytes as usize;
        // SAFETY: terminated strings; the library creates the file.
        let pool = unsafe { (calls.create)(name.as_ptr(), LAYOUT.as_ptr(), bytes, 0o600) };
        let (pool_id, is_counting) = (AtomicU64::new(0), setup.is_counting);
        let mut opened = Self { calls, pool, pool_id, published: 0, is_counting };
        if pool.is_null() {
            return Err(failed(opened.cause()));
        }
        std::fs::remove_file(&file).map_err(|error| failed(error.to_string()))?;
        let bytes = setup.objects * size_of::<Oid>();
        opened.published = opened.allocate(bytes)?;
        opened.touch(opened.published, bytes, 0);
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let name = real.file_name().unwrap_or(real.as_os_str()).to_string_lossy().into_owned();
        Ok((opened, name))
    }

    fn cause(&self) -> String {
        // SAFETY: this thread's last message, a terminated string; it is copied here.
        unsafe {
            let message = (self.calls.errormsg)();
            if message.is_null() {
                return "no cause given".into();
            }
            CStr::from_ptr(message).to_string_lossy().into_owned()
        }
    }

    #[inline]
    fn oid(&self, offset: u64) -> Oid {
        Oid { pool: self.pool_id.load(Relaxed), offset }
    }

    #[inline]
    fn place(&self, oid: Oid, bytes: usize) -> Result<u64, ContestantError> {
        if oid.offset == 0 {
            return Err(ContestantError::Allocate { bytes, cause: self.cause() });
        }
        if self.pool_id.load(Relaxed) != oid.pool {
            self.pool_id.store(oid.pool, Relaxed);
        }
        Ok(oid.offset)
    }

    #[inline]
    fn address(&self, place: u64) -> *mut u8 {
        self.pool.cast::<u8>().wrapping_add(place as usize)
    }

    /// Replaces an object by the manual's atomic interface: frees the object of a pointer in the
    /// pool and clears the pointer; then allocates the new object into it.
    #[inline]
    fn replace_published(
        &self,
        index: usize,
        old: u64,
        bytes: usize,
    ) -> Result<u64, ContestantError> {
        let at = self.address(self.published + (index * size_of::<Oid>()) as u64).cast::<Oid>();
        let (no_constructor, no_argument) = (std::ptr::null(), std::ptr::null_mut());
        // SAFETY: the entry lies in the pool and belongs to this share alone; other ways may have
        // left an old value in it.
        let new = unsafe {
            at.write(self.oid(old));
            (self.calls.free)(at);
            (self.calls.alloc)(self.pool, at, bytes, 0, no_constructor, no_argument);
            at.read()
        };
        self.place(new, bytes)
    }

    fn replace_reserved(&self, old: u64, bytes: usize) -> Result<u64, ContestantError> {
        let mut actions = [Action([0; 16]); 2];
        let [free, reserve] = &mut actions;
        // SAFETY: an object of the caller's; actions live until they are published below.
        let new = unsafe {
            (self.calls.defer_free)(self.pool, self.oid(old), free);
            (self.calls.reserve)(self.pool, reserve, bytes, 0)
        };
        let place = self.place(new, bytes)?;
        // SAFETY: two actions that were just filled in.
        match unsafe { (self.calls.publish)(self.pool, actions.as_mut_ptr(), actions.len()) } {
            0 => Ok(place),
            _ => Err(ContestantError::Free { place: old, cause: self.cause() }),
        }
    }

    /// Runs `body` in a transaction. `body` returns `None` if a call failed: that has aborted the
    /// transaction, so it must not be committed.
    #[inline]
    fn transaction<R>(
        &self,
        objects: usize,
        body: impl FnOnce() -> Option<R>,
    ) -> Result<R, ContestantError> {
        // SAFETY: without a jump buffer failures are return values; each begin is ended.
        let (done, failed) = unsafe {
            let refused =
                (self.calls.tx_begin)(self.pool, std::ptr::null_mut(), TX_PARAM_NONE) != 0;
            let done = if refused { None } else { body() };
            if done.is_some() {
                (self.calls.tx_commit)();
            }
            (done, (self.calls.tx_end)())
        };
        match done {
            Some(done) if failed == 0 => Ok(done),
            _ => Err(ContestantError::Transaction { objects, cause: self.cause() }),
        }
    }
}

impl Contestant for Pmemobj {
    #[inline]
    fn allocate(&self, bytes: usize) -> Result<u64, ContestantError> {
        let mut oid = Oid { pool: 0, offset: 0 };
        let (no_constructor, no_argument) = (std::ptr::null(), std::ptr::null_mut());
        // SAFETY: the result goes to this frame.
        unsafe {
            (self.calls.alloc)(self.pool, &raw mut oid, bytes, 0, no_constructor, no_argument)
        };
        self.place(oid, bytes)
    }

    #[inline]
    fn free(&self, place: u64) -> Result<(), ContestantError> {
        let mut oid = self.oid(place);
        // SAFETY: an object of the caller's, freed once.
        unsafe { (self.calls.free)(&raw mut oid) };
        Ok(())
    }

    #[inline]
    fn touch(&self, place: u64, bytes: usize, value: u64) {
        // SAFETY: an object of the caller's share, of at least `bytes`.
        unsafe { touch(self.address(place), bytes, value) };
    }

    #[inline]
    fn replace(
        &self,
        way: Way,
        index: usize,
        old: u64,
        bytes: usize,
    ) -> Result<u64, ContestantError> {
        match way {
            Way::Published => self.replace_published(index, old, bytes),
            // The library's free is durable on return.
            Way::Plain | Way::Strict => {
                self.free(old)?;
                self.allocate(bytes)
            }
            Way::Reserved => self.replace_reserved(old, bytes),
            Way::Transaction => {
                // SAFETY: an object of the caller's; called within a transaction.
                let both = || unsafe {
                    if (self.calls.tx_free)(self.oid(old)) != 0 {
                        return None;
                    }
                    let new = (self.calls.tx_alloc)(bytes, 0);
                    (new.offset != 0).then_some(new)
                };
                let new = self.transaction(2, both)?;
                self.place(new, bytes)
            }
        }
    }

    #[inline]
    fn transact(&self, places: &[u64], value: &[u8; WRITE_BYTES]) -> Result<(), ContestantError> {
        self.transaction(places.len(), || {
            for place in places {
                let to = self.address(*place);
                // SAFETY: an object of the caller's share, of at least these bytes; called within a
                // transaction, which logs the old bytes.
                unsafe {
                    if (self.calls.tx_add_range_direct)(to.cast(), WRITE_BYTES) != 0 {
                        return None;
                    }
                    to.copy_from_nonoverlapping(value.as_ptr(), WRITE_BYTES);
                }
            }
            Some(())
        })
    }

    fn counters(&self) -> Option<Counters> {
        self.is_counting.then(hook::counters)
    }
}
