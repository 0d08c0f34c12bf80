//! The clients of a round: those who fill and write, and those who are stuck when the warning
//! comes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::writes::{Found, Writes, write_value};
use crate::target::{Connection, Reply, TargetError};

/// Requests under way while a server is filled, and keys asked for at a time afterwards.
const BATCH: usize = 128;
/// Requests of the client that reads no reply.
const UNREAD: usize = 2_000;

/// How clients write.
#[derive(Debug, Clone, Copy)]
pub struct Habits {
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Requests under way at a time.
    pub depth: usize,
    /// Time between two batches.
    pub pause: Duration,
}

/// A client that is stuck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stuck {
    /// It has paused all writers.
    Pausing,
    /// It waits for something that does not come.
    Blocked,
    /// It sends, and reads no reply.
    Unread,
}

/// Writes each key of one client once.
pub fn fill(
    address: &str,
    writes: &mut Writes,
    value_bytes: usize,
    is_over: &AtomicBool,
) -> Result<(), TargetError> {
    let mut connection = Connection::open(address, None)?;
    let mut value = Vec::new();
    for first in (0..writes.len()).step_by(BATCH) {
        if is_over.load(Ordering::Relaxed) {
            return Ok(());
        }
        let batch = first..(first + BATCH).min(writes.len());
        for at in batch.clone() {
            write_value(writes.send(at), value_bytes, &mut value);
            connection.request(&[b"SET", writes.key(at).as_bytes(), &value]);
        }
        connection.send()?;
        for at in batch {
            match connection.reply(&mut |_| ())? {
                Reply::Line => writes.acknowledge(at, 1),
                Reply::Error(text) => return Err(TargetError::Reply { text }),
                other => return Err(TargetError::Reply { text: format!("{other:?}") }),
            }
        }
    }
    Ok(())
}

/// Writes at random until the connection breaks, as it does when the server ends. Counts what is
/// acknowledged.
pub fn write(
    address: &str,
    writes: &mut Writes,
    habits: &Habits,
    seed: u64,
    acknowledged: &AtomicU64,
) {
    let Ok(mut connection) = Connection::open(address, None) else { return };
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut value, mut batch) = (Vec::new(), Vec::new());
    loop {
        batch.clear();
        for _ in 0..habits.depth {
            let at = random.random_range(0..writes.len());
            let version = writes.send(at);
            write_value(version, habits.value_bytes, &mut value);
            connection.request(&[b"SET", writes.key(at).as_bytes(), &value]);
            batch.push((at, version));
        }
        if connection.send().is_err() {
            return;
        }
        for &(at, version) in &batch {
            match connection.reply(&mut |_| ()) {
                Err(_) => return,
                Ok(Reply::Line) => {
                    writes.acknowledge(at, version);
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                // Refused: nothing was promised.
                Ok(_) => {}
            }
        }
        std::thread::sleep(habits.pause);
    }
}

/// Gets stuck. The connection must be kept until the server's end.
pub fn get_stuck(address: &str, how: Stuck) -> Result<Connection, TargetError> {
    let mut connection = Connection::open(address, None)?;
    match how {
        Stuck::Pausing => {
            connection.request(&[b"CLIENT", b"PAUSE", b"600000", b"WRITE"]);
            connection.ask()?;
        }
        Stuck::Blocked => {
            connection.request(&[b"WAIT", b"1", b"600000"]);
            connection.send()?;
        }
        Stuck::Unread => {
            (0..UNREAD).for_each(|_| connection.request(&[b"GET", b"k0000000000"]));
            connection.send()?;
        }
    }
    Ok(connection)
}

/// Whether a server answers with the right value of a key: neither that it is loading, nor with
/// anything else. A server that has lost the key answers rightly that there is none.
pub fn answers(connection: &mut Connection, key: &str) -> bool {
    connection.request(&[b"GET", key.as_bytes()]);
    matches!(connection.ask(), Ok(Reply::Bulk { .. }))
}

/// Looks for every key of one client.
pub fn count(
    address: &str,
    writes: &Writes,
    value_bytes: usize,
    is_over: &AtomicBool,
) -> Result<Found, TargetError> {
    let mut connection = Connection::open(address, None)?;
    let mut found = Found::default();
    let began = Instant::now();
    for first in (0..writes.len()).step_by(BATCH) {
        if is_over.load(Ordering::Relaxed) {
            return Ok(found);
        }
        let batch = first..(first + BATCH).min(writes.len());
        batch.clone().for_each(|at| connection.request(&[b"GET", writes.key(at).as_bytes()]));
        connection.send()?;
        for at in batch {
            let mut value = None;
            match connection.reply(&mut |bytes| value = Some(bytes.to_vec()))? {
                Reply::Bulk { is_nil } => {
                    let value = value.as_deref().filter(|_| !is_nil);
                    writes.judge(at, value, value_bytes, &mut found);
                }
                other => {
                    let text = format!("{other:?} after {:?}", began.elapsed());
                    return Err(TargetError::Reply { text });
                }
            }
        }
    }
    Ok(found)
}
