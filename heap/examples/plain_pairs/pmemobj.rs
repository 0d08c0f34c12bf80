//! libpmemobj, opened at run time: an object's identifier in the pool's root object.

use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;
use std::path::Path;
use std::ptr::{null, null_mut};

use crate::{HEAP_BYTES, Pairs, failed, touch};

/// libpmemobj's `PMEMoid`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Oid {
    pool: u64,
    offset: u64,
}

/// libpmemobj's `struct pobj_action`, 128 B.
#[repr(C)]
struct Action([u64; 16]);

type Open = unsafe extern "C" fn(*const c_char, *const c_char, usize, u32) -> *mut u8;
type Alloc =
    unsafe extern "C" fn(*mut u8, *mut Oid, usize, u64, *const c_void, *mut c_void) -> c_int;

type Free = unsafe extern "C" fn(*mut Oid);
type Reserve = unsafe extern "C" fn(*mut u8, *mut Action, usize, u64) -> Oid;
type DeferFree = unsafe extern "C" fn(*mut u8, Oid, *mut Action);
type SetValue = unsafe extern "C" fn(*mut u8, *mut Action, *mut u64, u64);
type Publish = unsafe extern "C" fn(*mut u8, *mut Action, usize) -> c_int;

/// The manual's way. A pool on tmpfs, of which libpmem is told that it is persistent memory.
pub struct Pmemobj {
    pool: *mut u8,
    table: *mut Oid,
    alloc: Alloc,
    free: Free,
    reserve: Reserve,
    defer_free: DeferFree,
    set_value: SetValue,
    publish: Publish,
}

// SAFETY: libpmemobj's calls may be made by all threads at once, each with its own entries.
unsafe impl Sync for Pmemobj {}

impl Pmemobj {
    pub fn open(dir: &Path, objects: usize) -> Result<Option<Self>, Box<dyn Error>> {
        let file =
            CString::new(format!("{}/pool-{}", dir.display(), std::fs::read_dir(dir)?.count()))?;
        // SAFETY: the process has one thread yet; terminated strings; symbols of these types, as
        // libpmemobj.h declares them, in a library that is never closed.
        unsafe {
            std::env::set_var("PMEM_IS_PMEM_FORCE", "1");
            let library = libc::dlopen(c"libpmemobj.so.1".as_ptr(), libc::RTLD_NOW);
            if library.is_null() {
                return Ok(None);
            }
            let symbol = |name: &CStr| match libc::dlsym(library, name.as_ptr()) {
                at if at.is_null() => failed("libpmemobj has no symbol", &name.to_string_lossy()),
                at => at,
            };
            let create: Open = transmute(symbol(c"pmemobj_create"));
            let pool = create(file.as_ptr(), c"pairs".as_ptr(), HEAP_BYTES as usize, 0o600);
            if pool.is_null() {
                return Err("pmemobj_create made no pool".into());
            }
            let root: unsafe extern "C" fn(*mut u8, usize) -> Oid =
                transmute(symbol(c"pmemobj_root"));
            let root = root(pool, objects * size_of::<Oid>());
            Ok(Some(Self {
                pool,
                table: pool.add(root.offset as usize).cast(),
                alloc: transmute::<*mut c_void, Alloc>(symbol(c"pmemobj_alloc")),
                free: transmute::<*mut c_void, Free>(symbol(c"pmemobj_free")),
                reserve: transmute::<*mut c_void, Reserve>(symbol(c"pmemobj_reserve")),
                defer_free: transmute::<*mut c_void, DeferFree>(symbol(c"pmemobj_defer_free")),
                set_value: transmute::<*mut c_void, SetValue>(symbol(c"pmemobj_set_value")),
                publish: transmute::<*mut c_void, Publish>(symbol(c"pmemobj_publish")),
            }))
        }
    }

    fn touch(&self, oid: Oid, index: usize) {
        if oid.offset == 0 {
            failed("libpmemobj", &"no memory");
        }
        touch(self.pool.wrapping_add(oid.offset as usize), index);
    }
}

impl Pairs for Pmemobj {
    fn replace(&self, index: usize, bytes: usize) {
        // SAFETY: an entry of this thread's share, in the root object: nothing, or an object.
        let made = unsafe {
            let entry = self.table.add(index);
            if (*entry).offset != 0 {
                (self.free)(entry);
            }
            (self.alloc)(self.pool, entry, bytes, 0, null(), null_mut());
            *entry
        };
        self.touch(made, index);
    }
}

/// The library's fastest way: the free, the allocation and the identifier in one publication.
pub struct Published(pub Pmemobj);

impl Pairs for Published {
    fn replace(&self, index: usize, bytes: usize) {
        let Pmemobj { pool, table, .. } = self.0;
        let mut actions = [const { Action([0; 16]) }; 4];
        let at = actions.as_mut_ptr();
        // SAFETY: as above; the actions live until they are published.
        let (made, published) = unsafe {
            let entry = table.add(index);
            let made = (self.0.reserve)(pool, at, bytes, 0);
            (self.0.set_value)(pool, at.add(1), &raw mut (*entry).pool, made.pool);
            (self.0.set_value)(pool, at.add(2), &raw mut (*entry).offset, made.offset);
            let frees = (*entry).offset != 0;
            if frees {
                (self.0.defer_free)(pool, *entry, at.add(3));
            }
            (made, (self.0.publish)(pool, at, 3 + usize::from(frees)))
        };
        if published != 0 {
            failed("pmemobj_publish", &published);
        }
        self.0.touch(made, index);
    }
}
