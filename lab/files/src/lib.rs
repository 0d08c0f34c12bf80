//! `libperdura_files.so`: a program that knows nothing of Perdura has its files on a modelled
//! medium, and reads and writes them without entering the kernel.
//!
//! Loaded with `LD_PRELOAD` (`perdura run --media … --at …` does that), it takes the place of the C
//! library's calls on files. A file that is *served* stays what it is, a file: each process maps it
//! shared, a read or a write is a copy from or to the mapping, and then the wait that the model
//! asks for. So whatever goes around this library (other programs, streams, mappings, the kernel)
//! sees the same bytes.
//!
//! Invariants:
//! - Lengths are the kernel's: whatever makes a file longer or shorter is a system call. What this
//!   library knows of a length is never more than the file has, unless another process shortened
//!   it.
//! - The offset of an open file description is kept here, or by the kernel, never by both
//!   ([`served::Offset`]). It goes to the kernel, for good, before anybody else may use it: a
//!   forked child, another program, a stream.
//! - A call that this library cannot answer goes on to the C library with the same arguments. No
//!   call is refused that would have succeeded, but for those that programs know how to do without
//!   (`copy_file_range`, `sendfile`, `splice`).
//! - No lock is held while a modelled wait is waited, nor where a signal's handler could want it
//!   (but for one that shortens, or closes for good, the file whose copy it interrupted:
//!   docs/files.md).
//!
//! What is and is not served: docs/files.md. Settings, by environment: see [`settings`].

// The calls are not exported from a test, whose own they would be.
#![cfg_attr(test, allow(dead_code))]

mod calls;
mod medium;
mod process;
mod request;
#[path = "../../../preload/src/say.rs"]
mod say;
mod served;
mod settings;
mod start;
mod sys;
mod table;
mod tally;
