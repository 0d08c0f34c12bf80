//! Transactions: a function that does all of its changes or none.

use std::ffi::{c_char, c_int, c_void};

use ::perdura_heap::Tx;

use crate::called::called;
use crate::error::{Refusal, address, code, perdura_code, text_of};
use crate::open::{heap_of, perdura_heap};
use crate::place::{offset_of, range_of};
use crate::roots::pointer_to;

/// A transaction in progress, which is valid in its function and in its thread only.
pub struct perdura_tx {
    _opaque: [u8; 0],
}

/// Runs `body(tx, arg)` as a transaction. If `body` returns 0, all changes through `tx` are
/// durable, and the call returns PERDURA_OK. If `body` returns another number, none of the changes
/// was made, and the call returns PERDURA_ABORTED. A loss of power at any time leaves all changes
/// or none. In `body` no other transaction of this thread can begin, and persistent memory is freed
/// by perdura_tx_free only and not resized (PERDURA_NESTED). Transactions do not lock: a program
/// that changes one object in two threads must exclude one of them meanwhile.
///
/// `body` must return, and not by `longjmp`; a C++ exception, or the end of the thread, ends the
/// process. Memory that `body` allocates or frees is allocated or freed with the commit.
///
/// # Safety
/// `heap` is open; `body` may be called with `arg`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_transaction(
    heap: *mut perdura_heap,
    body: Option<unsafe extern "C-unwind" fn(*mut perdura_tx, *mut c_void) -> c_int>,
    arg: *mut c_void,
) -> perdura_code {
    code("perdura_transaction", || {
        // SAFETY: the caller's promise.
        let heap = unsafe { heap_of(heap)? };
        let body = body.ok_or(Refusal::Argument { what: "body", why: "is null" })?;
        heap.transaction(|tx| {
            // SAFETY: the caller's function. The transaction lives until it has returned, and
            // nobody else uses it.
            let run = || unsafe { body(std::ptr::from_mut(tx).cast(), arg) };
            let returned = called("perdura_transaction", run);
            if heap.is_forked() {
                // Only the parent may commit the transaction or undo it.
                eprintln!(
                    "perdura: perdura_transaction: the function forked, and the child returned, \
                     too; end the child in the function; the process ends"
                );
                std::process::abort()
            }
            match returned {
                0 => Ok(()),
                returned => Err(Refusal::Aborted { returned }),
            }
        })
    })
}

/// Changes `len` bytes at `to`, which lie in one persistent object or area, to those at `from`,
/// which stay the caller's. Read the changed bytes with perdura_tx_read, because memory itself may
/// change only at the commit.
///
/// # Safety
/// `tx` is this function's transaction; `len` bytes can be read at `from`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_tx_write(
    tx: *mut perdura_tx,
    to: *mut c_void,
    from: *const c_void,
    len: usize,
) -> perdura_code {
    code("perdura_tx_write", || {
        // SAFETY: the caller's promise.
        let tx = unsafe { tx_of(tx)? };
        let offset = range_of(tx.heap(), to, len)?;
        if from.is_null() {
            return Err(Refusal::Argument { what: "from", why: "is null" });
        }
        // SAFETY: the caller's promise, for no more bytes than the heap has; the copy that is made
        // of them is made before anything is written.
        let bytes = unsafe { std::slice::from_raw_parts(from.cast(), len) };
        Ok(tx.write_bytes(offset, bytes)?)
    })
}

/// Copies `len` bytes at `from`, which lie in one persistent object or area, to `to`, with this
/// transaction's changes.
///
/// # Safety
/// `tx` is this function's transaction; `len` bytes can be written at `to`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_tx_read(
    tx: *mut perdura_tx,
    to: *mut c_void,
    from: *const c_void,
    len: usize,
) -> perdura_code {
    code("perdura_tx_read", || {
        // SAFETY: the caller's promise.
        let tx = unsafe { tx_of(tx)? };
        let offset = range_of(tx.heap(), from, len)?;
        if to.is_null() {
            return Err(Refusal::Argument { what: "to", why: "is null" });
        }
        // SAFETY: the caller's promise, for no more bytes than the heap has.
        let out = unsafe { std::slice::from_raw_parts_mut(to.cast(), len) };
        Ok(tx.read_bytes(offset, out)?)
    })
}

/// Allocates persistent memory with the transaction: if the transaction is undone, nothing was
/// allocated. The contents are arbitrary; fill the memory with perdura_tx_write. Returns null if
/// nothing was allocated; the transaction may go on.
///
/// # Safety
/// `tx` is this function's transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_tx_alloc(tx: *mut perdura_tx, size: usize) -> *mut c_void {
    address("perdura_tx_alloc", || {
        // SAFETY: the caller's promise.
        let tx = unsafe { tx_of(tx)? };
        let object = tx.alloc(size as u64)?;
        Ok(tx.heap().pointer(object).cast())
    })
}

/// Frees persistent memory once the transaction has committed. Null is ignored.
///
/// # Safety
/// `tx` is this function's transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_tx_free(tx: *mut perdura_tx, memory: *mut c_void) -> perdura_code {
    code("perdura_tx_free", || {
        if memory.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let tx = unsafe { tx_of(tx)? };
        let offset = offset_of(tx.heap(), memory)?;
        Ok(tx.free(offset)?)
    })
}

/// Gives memory a name as perdura_root_set does, with the transaction.
///
/// # Safety
/// `tx` is this function's transaction; `name` ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_tx_root_set(
    tx: *mut perdura_tx,
    name: *const c_char,
    memory: *mut c_void,
) -> perdura_code {
    code("perdura_tx_root_set", || {
        // SAFETY: the caller's promise.
        let (tx, name) = unsafe { (tx_of(tx)?, text_of("name", name)?) };
        let offset = offset_of(tx.heap(), memory)?;
        Ok(tx.set_root(name, pointer_to(offset))?)
    })
}

/// Removes a name as perdura_root_remove does, with the transaction.
///
/// # Safety
/// `tx` is this function's transaction; `name` ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_tx_root_remove(
    tx: *mut perdura_tx,
    name: *const c_char,
) -> perdura_code {
    code("perdura_tx_root_remove", || {
        // SAFETY: the caller's promise.
        let (tx, name) = unsafe { (tx_of(tx)?, text_of("name", name)?) };
        Ok(tx.remove_root(name)?)
    })
}

/// # Safety
/// `tx` is null, or the pointer that [`perdura_transaction`] passed to the function that runs now.
unsafe fn tx_of<'t>(tx: *mut perdura_tx) -> Result<&'t mut Tx<'t>, Refusal> {
    // SAFETY: the caller's promise: it is a transaction that only this function uses, one call
    // after the other.
    let tx = unsafe { tx.cast::<Tx<'t>>().as_mut() };
    let tx = tx.ok_or(Refusal::Argument { what: "tx", why: "is null" })?;
    if tx.heap().is_forked() { Err(Refusal::Forked) } else { Ok(tx) }
}
