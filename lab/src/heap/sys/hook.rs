//! Counts the flushes and fences that libpmemobj asks of libpmem.
//!
//! libpmemobj reaches libpmem's flushing functions through its own table of addresses. After the
//! library is loaded and before a pool is opened, the entries of those functions are replaced by
//! functions that count and then call the original. Calls inside libpmem (`pmem_persist` calls its
//! own flush and drain) do not use the table, so nothing is counted twice. Only counting workers do
//! this; no timing includes it.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::heap::contestant::{ContestantError, Counters};

const LINE_BYTES: usize = 64;
const PMEM_F_MEM_NODRAIN: c_uint = 1 << 0;
const PMEM_F_MEM_NOFLUSH: c_uint = 1 << 5;

static LINES: AtomicU64 = AtomicU64::new(0);
static FENCES: AtomicU64 = AtomicU64::new(0);

/// The counts so far.
pub fn counters() -> Counters {
    let (lines, fences) = (LINES.load(Relaxed), FENCES.load(Relaxed));
    Counters { lines, fences, ..Counters::default() }
}

/// A function to count: its name, its replacement, and the address of the original.
struct Hook {
    name: &'static CStr,
    stand_in: usize,
    original: &'static AtomicUsize,
}

static FLUSH: AtomicUsize = AtomicUsize::new(0);
static PERSIST: AtomicUsize = AtomicUsize::new(0);
static DRAIN: AtomicUsize = AtomicUsize::new(0);
static MEMCPY: AtomicUsize = AtomicUsize::new(0);
static MEMMOVE: AtomicUsize = AtomicUsize::new(0);
static MEMSET: AtomicUsize = AtomicUsize::new(0);

type Range = unsafe extern "C" fn(*const c_void, usize);
type Drain = unsafe extern "C" fn();
type Copy = unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_uint) -> *mut c_void;
type Set = unsafe extern "C" fn(*mut c_void, c_int, usize, c_uint) -> *mut c_void;

fn hooks() -> [Hook; 6] {
    let hook = |name, stand_in, original| Hook { name, stand_in, original };
    [
        hook(c"pmem_flush", flush as Range as usize, &FLUSH),
        hook(c"pmem_persist", persist as Range as usize, &PERSIST),
        hook(c"pmem_drain", drain as Drain as usize, &DRAIN),
        hook(c"pmem_memcpy", memcpy as Copy as usize, &MEMCPY),
        hook(c"pmem_memmove", memmove as Copy as usize, &MEMMOVE),
        hook(c"pmem_memset", memset as Set as usize, &MEMSET),
    ]
}

fn count_lines(address: usize, bytes: usize) {
    if bytes > 0 {
        let last = (address + bytes - 1) / LINE_BYTES;
        LINES.fetch_add((last - address / LINE_BYTES + 1) as u64, Relaxed);
    }
}

fn count_write(address: usize, bytes: usize, flags: c_uint) {
    if flags & PMEM_F_MEM_NOFLUSH == 0 {
        count_lines(address, bytes);
        if flags & PMEM_F_MEM_NODRAIN == 0 {
            FENCES.fetch_add(1, Relaxed);
        }
    }
}

unsafe extern "C" fn flush(address: *const c_void, bytes: usize) {
    count_lines(address as usize, bytes);
    // SAFETY: the original with the caller's arguments; `install` stored its address before this
    // function could be called.
    unsafe { std::mem::transmute::<usize, Range>(FLUSH.load(Relaxed))(address, bytes) }
}

unsafe extern "C" fn persist(address: *const c_void, bytes: usize) {
    count_write(address as usize, bytes, 0);
    // SAFETY: the original with the caller's arguments, as in `flush`.
    unsafe { std::mem::transmute::<usize, Range>(PERSIST.load(Relaxed))(address, bytes) }
}

unsafe extern "C" fn drain() {
    FENCES.fetch_add(1, Relaxed);
    // SAFETY: the original, as in `flush`.
    unsafe { std::mem::transmute::<usize, Drain>(DRAIN.load(Relaxed))() }
}

unsafe extern "C" fn memcpy(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    flags: c_uint,
) -> *mut c_void {
    count_write(to as usize, bytes, flags);
    // SAFETY: the original with the caller's arguments, as in `flush`.
    unsafe { std::mem::transmute::<usize, Copy>(MEMCPY.load(Relaxed))(to, from, bytes, flags) }
}

unsafe extern "C" fn memmove(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    flags: c_uint,
) -> *mut c_void {
    count_write(to as usize, bytes, flags);
    // SAFETY: the original with the caller's arguments, as in `flush`.
    unsafe { std::mem::transmute::<usize, Copy>(MEMMOVE.load(Relaxed))(to, from, bytes, flags) }
}

unsafe extern "C" fn memset(
    to: *mut c_void,
    byte: c_int,
    bytes: usize,
    flags: c_uint,
) -> *mut c_void {
    count_write(to as usize, bytes, flags);
    // SAFETY: the original with the caller's arguments, as in `flush`.
    unsafe { std::mem::transmute::<usize, Set>(MEMSET.load(Relaxed))(to, byte, bytes, flags) }
}

/// Installs the replacements in the table of the loaded library whose file name contains `library`.
///
/// # Errors
/// The library is not loaded, or a function is not in its table: then counts would be too low.
pub fn install(library: &str) -> Result<(), ContestantError> {
    let mut search = Search { library, found: 0 };
    // SAFETY: the callback gets `search` as it was passed, and only during the call.
    unsafe { libc::dl_iterate_phdr(Some(look_at), (&raw mut search).cast()) };
    let unhooked = hooks().into_iter().find(|hook| hook.original.load(Relaxed) == 0);
    match unhooked {
        None => Ok(()),
        Some(hook) => Err(ContestantError::Open {
            what: format!("{} in the table of {library}", hook.name.to_string_lossy()),
            cause: format!("not found; {} others were", search.found),
        }),
    }
}

struct Search<'s> {
    library: &'s str,
    found: usize,
}

/// An entry of a dynamic section, as in `elf.h`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Dynamic {
    tag: i64,
    value: usize,
}

const DT_NULL: i64 = 0;
const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;
const _: () = assert!(size_of::<Dynamic>() == 16 && size_of::<libc::Elf64_Rela>() == 24);

unsafe extern "C" fn look_at(
    info: *mut libc::dl_phdr_info,
    _: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: the loader's description of an object, valid during the call; `search` is
    // `install`'s.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search<'_>>()) };
    if info.dlpi_name.is_null() {
        return 0;
    }
    // SAFETY: a terminated string of the loader's.
    let name = unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy();
    if !name.contains(search.library) {
        return 0;
    }
    // SAFETY: the object's program headers, and their number as the loader gives it.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let base = info.dlpi_addr as usize;
    for header in headers.iter().filter(|header| header.p_type == libc::PT_DYNAMIC) {
        // SAFETY: the loaded object's dynamic section, which ends with DT_NULL.
        unsafe { replace_in(base, (base + header.p_vaddr as usize) as *const Dynamic, search) };
    }
    1
}

/// Replaces the entries of one object's tables.
///
/// # Safety
/// `dynamic` is the dynamic section of an object that is loaded at `base` and that nobody unloads.
unsafe fn replace_in(base: usize, dynamic: *const Dynamic, search: &mut Search<'_>) {
    // SAFETY: all entries up to DT_NULL exist.
    let value = |tag| unsafe {
        (0..)
            .map(|at| *dynamic.add(at))
            .take_while(|entry| entry.tag != DT_NULL)
            .find(|entry| entry.tag == tag)
            .map(|entry| entry.value)
    };
    // The loader has made most of these addresses absolute; some systems leave them relative.
    let address = |tag| value(tag).map(|at| if at < base { base + at } else { at });
    let (Some(symbols), Some(strings)) = (address(DT_SYMTAB), address(DT_STRTAB)) else { return };
    for (table, length) in [(DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)] {
        let (Some(table), Some(length)) = (address(table), value(length)) else { continue };
        let count = length / size_of::<libc::Elf64_Rela>();
        for at in 0..count {
            // SAFETY: these are tables of the loaded object, which contain a relocation's symbol
            // and its name.
            let (entry, name) = unsafe {
                let entry = &*(table as *const libc::Elf64_Rela).add(at);
                let symbol =
                    &*(symbols as *const libc::Elf64_Sym).add((entry.r_info >> 32) as usize);
                (entry, CStr::from_ptr((strings + symbol.st_name as usize) as *const _))
            };
            if let Some(hook) = hooks().into_iter().find(|hook| hook.name == name) {
                // SAFETY: the relocation says that an address of this symbol lies here.
                search.found +=
                    usize::from(unsafe { exchange(base + entry.r_offset as usize, &hook) });
            }
        }
    }
}

/// Puts the hook's replacement at `place` and keeps the address of the original.
///
/// # Safety
/// The address of the hook's function lies at `place`, and no other thread reads it now.
unsafe fn exchange(place: usize, hook: &Hook) -> bool {
    let page = rustix::param::page_size();
    let first = place / page * page;
    // SAFETY: the loader made the table's page read-only; it is made writable for the exchange,
    // then read-only again.
    unsafe {
        if libc::mprotect(first as *mut c_void, page, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            return false;
        }
        let entry = place as *mut usize;
        if entry.read() != hook.stand_in {
            hook.original.store(entry.read(), Relaxed);
            entry.write(hook.stand_in);
        }
        libc::mprotect(first as *mut c_void, page, libc::PROT_READ) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_that_a_range_touches() {
        for (address, bytes, lines) in
            [(0, 0, 0), (0, 1, 1), (63, 1, 1), (63, 2, 2), (64, 64, 1), (8, 128, 3)]
        {
            let before = LINES.load(Relaxed);
            count_lines(address, bytes);
            assert_eq!(LINES.load(Relaxed) - before, lines, "{address} {bytes}");
        }
    }

    #[test]
    fn a_library_that_is_not_loaded_cannot_be_counted() {
        let error = install("libnothing.so").unwrap_err();
        assert!(error.to_string().contains("pmem_flush in the table of libnothing.so"), "{error}");
    }
}
