//! The exceptions of `perdura.errors`, from the errors of the library. Each message says what to
//! do.

use perdura::heap_types::HeapError;
use perdura::{AccessError, CloseError, OpenError, RegionError, StoreError};
use perdura_region::ImageError;
use perdura_region::directory::DirectoryError;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// An exception of the class that `perdura.errors` has under this name.
fn raised(class: &str, message: &str) -> PyErr {
    Python::attach(|py| {
        let found = py.import("perdura.errors").and_then(|errors| errors.getattr(class));
        match found.and_then(|found| Ok(found.cast_into::<PyType>()?)) {
            Ok(class) => PyErr::from_type(class, (message.to_owned(),)),
            Err(error) => error,
        }
    })
}

/// An option cannot work.
pub fn setting(message: impl std::fmt::Display) -> PyErr {
    raised("SettingError", &message.to_string())
}

/// Something was closed before.
pub fn closed(what: &str) -> PyErr {
    raised("ClosedError", &format!("this {what} is closed: open its directory again"))
}

/// This process is a fork of the one that opened.
pub fn forked(what: &str, opened_by: u32) -> PyErr {
    let message = format!(
        "this {what} belongs to process {opened_by}, of which this one is a fork: use it there, or \
         start processes by multiprocessing's method \"spawn\" and let one of them open it"
    );
    raised("ForkedError", &message)
}

/// A buffer is in the way of an operation.
pub fn buffer(message: impl Into<String>) -> PyErr {
    pyo3::exceptions::PyBufferError::new_err(message.into())
}

pub fn opening(error: OpenError) -> PyErr {
    let message = error.to_string();
    match error {
        OpenError::Setting { .. } | OpenError::Heap(HeapError::Size { .. }) => setting(message),
        OpenError::Directory(DirectoryError::InUse { dir, pid: Some(pid) })
            if pid.unsigned_abs() == std::process::id() =>
        {
            let dir = dir.display();
            let hint = "this program has it open: use what it has, or close that first";
            raised("InUseError", &format!("{dir} is in use: {hint}"))
        }
        OpenError::Directory(DirectoryError::InUse { .. }) => raised("InUseError", &message),
        OpenError::Directory(DirectoryError::StillFlushing { .. }) => {
            raised("InUseError", &format!("{message}: open it again when the flush is over"))
        }
        OpenError::Directory(DirectoryError::Promise(_) | DirectoryError::Room { .. }) => {
            let hint = "choose a smaller budget or a longer warning";
            raised("PromiseError", &format!("{message}: {hint}"))
        }
        OpenError::Directory(DirectoryError::Image {
            source:
                perdura_region::OpenError::Image(
                    ImageError::Encrypted { .. }
                    | ImageError::NotEncrypted { .. }
                    | ImageError::WrongKey,
                ),
            ..
        }) => {
            let hint = "an image's key is given by key= or key_file=";
            raised("WrongKeyError", &format!("{message}; {hint}"))
        }
        OpenError::Holder(_) | OpenError::Directory(DirectoryError::Holder(_)) => {
            let hint = "name the program `perdura` by holder=\"/path/of/perdura\", or do without \
                        a holder by holder=False";
            raised("OpenError", &format!("{message}: {hint}"))
        }
        _ => raised("OpenError", &message),
    }
}

pub fn storing(error: StoreError) -> PyErr {
    let message = error.to_string();
    match error {
        StoreError::OutOfMemory { .. } => {
            let hint = "delete keys, or open the store with a larger memory=";
            raised("FullError", &format!("{message}: {hint}"))
        }
        StoreError::KeyTooLong { .. } | StoreError::ValueTooLarge { .. } => {
            raised("TooLargeError", &message)
        }
        StoreError::TransactionTooLarge { .. } => {
            let hint = "make it several transactions, or open the store with a larger budget=";
            raised("TooLargeError", &format!("{message}: {hint}"))
        }
        StoreError::WrongType(_) => {
            let hint = "this key was written by a Redis client; read it there";
            raised("WrongTypeError", &format!("{message}: {hint}"))
        }
        StoreError::NotDurable(error) => refused(error),
        _ => raised("Error", &message),
    }
}

pub fn refused(error: RegionError) -> PyErr {
    match error {
        RegionError::Closed => raised("ClosedError", &error.to_string()),
        RegionError::LogFull { .. } | RegionError::Space { .. } => {
            let hint = "make room on its file system";
            raised("DeviceError", &format!("{error}: {hint}"))
        }
        RegionError::BeyondBudget { .. } | RegionError::Budget { .. } => {
            raised("TooLargeError", &error.to_string())
        }
        _ => {
            let hint = "repair the device or make room on it, and close again; until then this \
                        process or the holder must live";
            raised("DeviceError", &format!("{error}: {hint}"))
        }
    }
}

pub fn heaping(error: HeapError) -> PyErr {
    let message = error.to_string();
    match error {
        HeapError::OutOfMemory { .. } => {
            let hint = "free blocks, or open a heap with a larger memory=";
            raised("FullError", &format!("{message}: {hint}"))
        }
        HeapError::RootsFull { .. } => raised("FullError", &message),
        HeapError::Size { .. } => raised("TooLargeError", &message),
        HeapError::LogFull { bytes, most_bytes } => raised(
            "TooLargeError",
            &format!(
                "this transaction needs {bytes} bytes of log and may have {most_bytes}: make it \
                 several transactions"
            ),
        ),
        HeapError::NoObject { .. }
        | HeapError::FreedTwice { .. }
        | HeapError::OtherKind { .. }
        | HeapError::OutOfObject { .. }
        | HeapError::Foreign { .. }
        | HeapError::Null => raised("BlockError", &message),
        HeapError::RootName { .. } => setting(message),
        HeapError::NoRoot { name } => pyo3::exceptions::PyKeyError::new_err(name),
        HeapError::RootType { .. } => {
            let hint = "another program made this root; read it there";
            raised("WrongTypeError", &format!("{message}: {hint}"))
        }
        _ => raised("Error", &message),
    }
}

/// A transaction of a heap begins where it must not.
pub fn nested(message: &str) -> PyErr {
    raised("NestedError", message)
}

/// A transaction that has not begun is used.
pub fn begins() -> PyErr {
    raised("Error", "begin the transaction: with heap.transaction() as tx")
}

/// A transaction that has ended is used.
pub fn over() -> PyErr {
    raised("ClosedError", "this transaction is over: begin another by heap.transaction()")
}

pub fn accessing(error: AccessError) -> PyErr {
    match error {
        AccessError::Refused(error) => refused(error),
        _ => pyo3::exceptions::PyIndexError::new_err(error.to_string()),
    }
}

pub fn closing(error: CloseError) -> PyErr {
    let message = error.to_string();
    match error {
        CloseError::Flush { .. } => {
            let hint = "repair the device or make room on it, and close again; until then this \
                        process or the holder must live";
            raised("DeviceError", &format!("{message}: {hint}"))
        }
        CloseError::Forked { .. } => raised("ForkedError", &message),
        _ => raised("Error", &message),
    }
}
