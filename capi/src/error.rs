//! The code and the message of a thread's last call that failed.
//!
//! Both lie in the thread's own memory and have no destructor: handlers of `atexit`, and code that
//! runs late at a thread's end, may call the library and fail.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use ::perdura_heap::{HeapError, MemoryError};
use perdura::{AccessError, CloseError, OpenError};
use perdura_region::RegionError;
use perdura_region::directory::DirectoryError;

/// How a call ended. Codes keep their numbers; new ones may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum perdura_code {
    /// The call succeeded.
    PERDURA_OK = 0,
    /// An argument is refused: a null pointer, a name that is not UTF-8, an unknown kind.
    PERDURA_ARGUMENT = 1,
    /// A size is refused: zero, or more than the heap has.
    PERDURA_SIZE = 2,
    /// An alignment is refused: it is no power of two, or too large.
    PERDURA_ALIGNMENT = 3,
    /// The heap is exhausted, or the system gives no memory.
    PERDURA_NO_MEMORY = 4,
    /// No object begins at the address.
    PERDURA_NO_OBJECT = 5,
    /// The object was freed before.
    PERDURA_FREED_TWICE = 6,
    /// The memory is of the other kind.
    PERDURA_OTHER_KIND = 7,
    /// The address is not in this heap.
    PERDURA_FOREIGN = 8,
    /// The range leaves its object, or its mapping.
    PERDURA_OUT_OF_OBJECT = 9,
    /// The name is empty or too long.
    PERDURA_ROOT_NAME = 10,
    /// The name is taken.
    PERDURA_ROOT_TAKEN = 11,
    /// There is no root of that name.
    PERDURA_NO_ROOT = 12,
    /// The root is of another type.
    PERDURA_ROOT_TYPE = 13,
    /// There is no room for another root.
    PERDURA_ROOTS_FULL = 14,
    /// The transaction is larger than the log may be.
    PERDURA_LOG_FULL = 15,
    /// Too many threads use the heap.
    PERDURA_THREADS = 16,
    /// The call is not possible in a transaction, and this thread is in one.
    PERDURA_NESTED = 17,
    /// A transaction of another thread is open.
    PERDURA_BUSY = 18,
    /// Data on the medium are damaged.
    PERDURA_CORRUPT = 19,
    /// The heap was written by another version.
    PERDURA_VERSION = 20,
    /// The file or directory holds something else, or a heap with other fixed settings.
    PERDURA_NOT_A_HEAP = 21,
    /// The file or directory cannot be opened or made.
    PERDURA_FILE = 22,
    /// The heap is open already, in another program or by another handle.
    PERDURA_IN_USE = 23,
    /// Memory cannot be bound to the NUMA node.
    PERDURA_NODE = 24,
    /// The transaction's function asked for it to be undone, and it was.
    PERDURA_ABORTED = 25,
    /// The region refused: its device has failed, or the budget is too small.
    PERDURA_REGION = 26,
    /// An error that has no code of its own; its message says what happened.
    PERDURA_OTHER = 27,
    /// This process was forked from the one that opened the heap, or made the mapping.
    PERDURA_FORKED = 28,
}

use perdura_code::*;

/// Why a call is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(transparent)]
    Heap(#[from] HeapError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Close(#[from] CloseError),
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(transparent)]
    Region(#[from] RegionError),
    #[error("{what} {why}")]
    Argument { what: &'static str, why: &'static str },
    #[error("there is no root {name:?}")]
    NoRoot { name: String },
    #[error(
        "this process was forked from the one that opened this memory, which goes on with it; \
         leave it to that process, or open it in the child after the parent has closed it (a \
         daemon: after it forked)"
    )]
    Forked,
    #[error("the transaction was undone: its function returned {returned}")]
    Aborted { returned: i32 },
}

impl Refusal {
    fn code(&self) -> perdura_code {
        match self {
            Self::Heap(error) => code_of(error),
            Self::Open(error) => code_of_opening(error),
            Self::Close(error) => match error {
                CloseError::Heap(error) => code_of(error),
                CloseError::Forked { .. } => PERDURA_FORKED,
                _ => PERDURA_REGION,
            },
            Self::Access(AccessError::Refused(_)) | Self::Region(_) => PERDURA_REGION,
            Self::Access(_) => PERDURA_OUT_OF_OBJECT,
            Self::Argument { .. } => PERDURA_ARGUMENT,
            Self::NoRoot { .. } => PERDURA_NO_ROOT,
            Self::Aborted { .. } => PERDURA_ABORTED,
            Self::Forked => PERDURA_FORKED,
        }
    }
}

fn code_of_opening(error: &OpenError) -> perdura_code {
    match error {
        OpenError::Heap(error) => code_of(error),
        OpenError::Memory(error) => code_of_memory(error),
        OpenError::Directory(error) => match error {
            DirectoryError::InUse { .. } | DirectoryError::StillFlushing { .. } => PERDURA_IN_USE,
            DirectoryError::File { .. } => PERDURA_FILE,
            DirectoryError::Image { source, .. } => match source {
                perdura_region::OpenError::Image(_) => PERDURA_CORRUPT,
                _ => PERDURA_FILE,
            },
            _ => PERDURA_REGION,
        },
        OpenError::Setting { .. } => PERDURA_ARGUMENT,
        _ => PERDURA_REGION,
    }
}

fn code_of(error: &HeapError) -> perdura_code {
    match error {
        HeapError::NotAHeap { .. } | HeapError::Fixed { .. } => PERDURA_NOT_A_HEAP,
        HeapError::Shorter { .. } => PERDURA_FILE,
        HeapError::Version { .. } => PERDURA_VERSION,
        HeapError::Size { .. } => PERDURA_SIZE,
        HeapError::Alignment { .. } => PERDURA_ALIGNMENT,
        HeapError::OutOfMemory { .. } | HeapError::Refused { .. } => PERDURA_NO_MEMORY,
        HeapError::NoObject { .. } => PERDURA_NO_OBJECT,
        HeapError::FreedTwice { .. } => PERDURA_FREED_TWICE,
        HeapError::OtherKind { .. } => PERDURA_OTHER_KIND,
        HeapError::Foreign { .. } => PERDURA_FOREIGN,
        HeapError::OutOfObject { .. } => PERDURA_OUT_OF_OBJECT,
        HeapError::RootName { .. } => PERDURA_ROOT_NAME,
        HeapError::RootTaken { .. } => PERDURA_ROOT_TAKEN,
        HeapError::NoRoot { .. } => PERDURA_NO_ROOT,
        HeapError::RootType { .. } => PERDURA_ROOT_TYPE,
        HeapError::RootsFull { .. } => PERDURA_ROOTS_FULL,
        HeapError::LogFull { .. } => PERDURA_LOG_FULL,
        HeapError::Threads { .. } => PERDURA_THREADS,
        HeapError::InTransaction { .. } => PERDURA_NESTED,
        HeapError::Busy => PERDURA_BUSY,
        HeapError::Null | HeapError::Place { .. } => PERDURA_ARGUMENT,
        HeapError::Corrupt { .. } => PERDURA_CORRUPT,
        HeapError::Memory(error) => code_of_memory(error),
        _ => PERDURA_OTHER,
    }
}

fn code_of_memory(error: &MemoryError) -> perdura_code {
    match error {
        MemoryError::File { .. } => PERDURA_FILE,
        MemoryError::InUse { .. } => PERDURA_IN_USE,
        MemoryError::Anonymous { .. } => PERDURA_NO_MEMORY,
        MemoryError::Node { .. } | MemoryError::NodeOfFile { .. } => PERDURA_NODE,
        _ => PERDURA_OTHER,
    }
}

/// Advice on what to do, for errors that do not give it.
fn advice(code: perdura_code) -> &'static str {
    match code {
        PERDURA_NO_OBJECT | PERDURA_FOREIGN => {
            "; pass an address that this heap gave out, and the first byte of it"
        }
        PERDURA_NESTED => {
            " (C has perdura_tx_alloc, perdura_tx_free and perdura_tx_write, and no nested \
             transactions)"
        }
        PERDURA_FREED_TWICE => "; free it once, and forget its address then",
        PERDURA_OTHER_KIND => {
            "; free persistent memory with persistfree, capacity memory with capfree"
        }
        PERDURA_ROOT_TAKEN => "; use perdura_root to have it, or remove the name first",
        PERDURA_NO_ROOT => "; name an object with persistmalloc or perdura_root_set",
        PERDURA_ROOT_TYPE => "; open it with the program that made it, or remove the root",
        PERDURA_NOT_A_HEAP => "; name another file, or delete this one if it is not needed",
        PERDURA_CORRUPT => {
            "; `perdura check` says what is damaged, `perdura check --repair` mends a file's heap \
             where nothing is lost by it; else restore it from a copy"
        }
        _ => "",
    }
}

/// Bytes of a message with its zero byte. Only long paths make longer messages.
const TEXT_BYTES: usize = 1024;
/// Text in the place of a long message's middle: the beginning names the failed call, the end says
/// why it failed and what to do.
const LEFT_OUT: &str = " [...] ";

struct Last {
    code: perdura_code,
    /// The message, which ends with a zero byte.
    text: [u8; TEXT_BYTES],
}

thread_local! {
    static LAST: RefCell<Last> =
        const { RefCell::new(Last { code: PERDURA_OK, text: [0; TEXT_BYTES] }) };
}

const _: () = assert!(!std::mem::needs_drop::<RefCell<Last>>());

impl Last {
    fn set(&mut self, code: perdura_code, text: &str) {
        let text = fitting(text);
        self.code = code;
        self.text[..text.len()].copy_from_slice(text.as_bytes());
        self.text[text.len()..].fill(0);
    }
}

/// The text without its middle if it is too long.
fn fitting(text: &str) -> Cow<'_, str> {
    if text.len() < TEXT_BYTES {
        return text.into();
    }
    let half = (TEXT_BYTES - 1 - LEFT_OUT.len()) / 2;
    let begin = (0..=half).rfind(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let end = (text.len() - half..text.len()).find(|at| text.is_char_boundary(*at));
    format!("{}{LEFT_OUT}{}", &text[..begin], &text[end.unwrap_or(text.len())..]).into()
}

/// Runs the body of a call. The code and the message of a refusal stay this thread's until its next
/// refusal.
pub(crate) fn guard<R>(
    call: &str,
    f: impl FnOnce() -> Result<R, Refusal>,
) -> Result<R, perdura_code> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(refusal)) => {
            let code = refusal.code();
            let mut text = format!("{call}: {refusal}{}", advice(code));
            text.retain(|c| c != '\0');
            LAST.with_borrow_mut(|last| last.set(code, &text));
            Err(code)
        }
        Err(_) => {
            // The panic's message is on standard error already.
            eprintln!("perdura: {call}: a mistake in libperdura (above); the process ends");
            std::process::abort()
        }
    }
}

/// Runs the body of a call that returns a code; see [`guard`].
pub(crate) fn code(call: &str, f: impl FnOnce() -> Result<(), Refusal>) -> perdura_code {
    guard(call, f).err().unwrap_or(PERDURA_OK)
}

/// Runs the body of a call that returns an address or null; see [`guard`].
pub(crate) fn address<T>(call: &str, f: impl FnOnce() -> Result<*mut T, Refusal>) -> *mut T {
    guard(call, f).unwrap_or(ptr::null_mut())
}

/// The text of a C string.
///
/// # Safety
/// `text` is null or ends with a zero byte, and stays as it is for as long as the result is used.
pub(crate) unsafe fn text_of<'t>(
    what: &'static str,
    text: *const c_char,
) -> Result<&'t str, Refusal> {
    if text.is_null() {
        return Err(Refusal::Argument { what, why: "is null" });
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Refusal::Argument { what, why: "is not UTF-8" })
}

/// The code of this thread's last call that failed; PERDURA_OK if none did. Calls that succeed
/// leave it.
#[unsafe(no_mangle)]
pub extern "C" fn perdura_error_code() -> perdura_code {
    LAST.with_borrow(|last| last.code)
}

/// What went wrong in this thread's last call that failed, with the values and what to do; an empty
/// string if none did. It belongs to the library and is valid until this thread's next call that
/// fails, or its end. Of more than 1,023 bytes the middle is left out.
#[unsafe(no_mangle)]
pub extern "C" fn perdura_error() -> *const c_char {
    LAST.with_borrow(|last| last.text.as_ptr().cast())
}
