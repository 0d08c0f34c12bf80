//! Transactions: a function that does all of its changes or none.

use std::ffi::{c_char, c_int, c_void};

use ::perdura_heap::Tx;

use crate::called::called;
use crate::error::{Refusal, address, code, perdura_code, text_of};
use crate::open::{heap_of, perdura_heap};
use crate::place::{offset_of, range_of};
use crate::roots::pointer_to;

/// A transaction in progress: valid within its function, and in its thread.
pub struct perdura_tx {
    _opaque: [u8; 0],
}

/// Runs `body(tx, arg)` as a transaction. If it returns 0, all that it did through `tx` is durable,
/// and this returns PERDURA_OK; if it returns anything else, none of it was done, and this returns
/// PERDURA_ABORTED. A half-done change cannot be left behind, whenever the power fails. Within
/// `body` no other transaction of this thread can begin, and persistent memory is freed by
/// perdura_tx_free only and not resized (PERDURA_NESTED). Transactions do not lock: who changes one
/// object in two threads must exclude the other.
///
/// `body` must return: not by `longjmp`; a C++ exception, or the end of the thread, ends the
/// process. What it allocates and what it frees, it does so with the commit.
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
                // To commit it or to undo it is the parent's.
                eprintln!("perdura: perdura_transaction: its function forked, and the child returned from it too; end");
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
/// which stay the caller's. They are read back with perdura_tx_read: memory itself may change only
/// at the commit.
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

/// Takes persistent memory with the transaction: if it is undone, nothing was taken. Its contents
/// are arbitrary; fill it with perdura_tx_write. Null: none was taken, and the transaction may go
/// on.
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

/// Gives persistent memory back once the transaction has committed. Null is nothing.
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

/// As perdura_root_set, with the transaction.
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

/// As perdura_root_remove, with the transaction.
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
/// Null, or what [`perdura_transaction`] passed to the function that runs now.
unsafe fn tx_of<'t>(tx: *mut perdura_tx) -> Result<&'t mut Tx<'t>, Refusal> {
    // SAFETY: the caller's promise: it is a transaction that only this function uses, one call
    // after the other.
    let tx = unsafe { tx.cast::<Tx<'t>>().as_mut() };
    let tx = tx.ok_or(Refusal::Argument { what: "tx", why: "is null" })?;
    if tx.heap().is_forked() { Err(Refusal::Forked) } else { Ok(tx) }
}
