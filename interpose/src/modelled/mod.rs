//! An unmodified program has its files on a modelled medium, and reads and writes them without
//! entering the kernel (`perdura-lab run --media … --at …`).
//!
//! A *served* file is still an ordinary file: each process
//! maps it shared; a read or a write is a copy from or to the mapping, and then the wait that the
//! model asks for. So other programs, streams, mappings and the kernel see the same bytes.
//!
//! Invariants:
//! - The kernel keeps a file's length: each change of it is a system call. The length that this
//!   library knows is never more than the file's, unless another process shortened the file.
//! - The offset of an open file description is kept here or by the kernel, never by both
//!   ([`served::Offset`]). It goes to the kernel, for good, before a forked child, another program
//!   or a stream may use it.
//! - A call that this library cannot answer goes on to the C library with the same arguments. No
//!   call is refused that would have succeeded, except those that programs can do without
//!   (`copy_file_range`, `sendfile`, `splice`).
//! - No lock is held during a modelled wait, nor where a signal handler could want it. (The
//!   exception is a handler that shortens, or closes for good, the file whose copy it interrupted:
//!   docs/files.md.)
//!
//! What is and is not served: docs/files.md. Environment variables: see [`settings`].

pub mod calls;
mod medium;
pub mod process;
pub mod report;
mod request;
mod serve;
mod served;
mod settings;
pub mod setup;
mod sys;
mod table;
mod tally;
