//! A device for tests: its time is a counter, and it records and checks every command.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use perdura_media::DeviceError;

use crate::path::{Access, Hardware, TAGS_MAX};

/// A command that the device was given.
#[derive(Debug, Clone, Copy)]
pub struct Noted {
    pub access: Access,
    pub offset_bytes: u64,
    pub len_bytes: u64,
    pub issued_ps: u64,
    pub due_ps: u64,
}

/// An action of a driver that is forbidden.
#[derive(Debug, Clone)]
#[allow(dead_code)] // Shown by a test that fails.
pub enum Wrong {
    TagInFlight { tag: usize, due_ps: u64, now_ps: u64 },
    Bytes { access: Access, requested: u64, issued: u64 },
    NoCommand { offset_bytes: u64 },
}

#[derive(Debug)]
pub struct Noting {
    now_ps: AtomicU64,
    seed: u64,
    state: Mutex<State>,
    spins: AtomicUsize,
    sleeps: AtomicUsize,
}

#[derive(Debug)]
struct State {
    bytes: Vec<u8>,
    commands: Vec<Noted>,
    due_by_tag: [u64; TAGS_MAX],
    wrong: Option<Wrong>,
}

impl Noting {
    pub fn new(capacity_bytes: u64, seed: u64) -> Self {
        Self {
            now_ps: AtomicU64::new(1),
            seed,
            state: Mutex::new(State {
                bytes: vec![0; capacity_bytes as usize],
                commands: Vec::new(),
                due_by_tag: [0; TAGS_MAX],
                wrong: None,
            }),
            spins: AtomicUsize::new(0),
            sleeps: AtomicUsize::new(0),
        }
    }

    pub fn commands(&self) -> Result<Vec<Noted>, Wrong> {
        let state = self.state.lock();
        state.wrong.clone().map_or_else(|| Ok(state.commands.clone()), Err)
    }

    /// Number of waits without sleep, and of waits asleep.
    pub fn waits(&self) -> [usize; 2] {
        [&self.spins, &self.sleeps].map(|count| count.load(Ordering::SeqCst))
    }

    /// Lets other threads run first, as often as the seed and the instant say.
    fn wait(&self, due_ps: u64) {
        for _ in 0..due_ps.wrapping_mul(self.seed.wrapping_mul(2) + 1) % 7 {
            std::thread::yield_now();
        }
        self.now_ps.fetch_max(due_ps, Ordering::SeqCst);
    }
}

impl Hardware for Noting {
    fn capacity_bytes(&self) -> u64 {
        self.state.lock().bytes.len() as u64
    }

    fn issue(&self, tag: usize, access: Access, offset_bytes: u64, len_bytes: u64) -> u64 {
        let mut state = self.state.lock();
        let issued_ps = self.now_ps();
        let busy_until_ps = state.due_by_tag[tag];
        if busy_until_ps > issued_ps {
            let wrong = Wrong::TagInFlight { tag, due_ps: busy_until_ps, now_ps: issued_ps };
            state.wrong.get_or_insert(wrong);
        }
        let due_ps = issued_ps + 1000 + offset_bytes % 97 + len_bytes;
        state.due_by_tag[tag] = due_ps;
        state.commands.push(Noted { access, offset_bytes, len_bytes, issued_ps, due_ps });
        due_ps
    }

    fn copy_out(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        buf.copy_from_slice(&self.state.lock().bytes[offset_bytes as usize..][..buf.len()]);
        Ok(())
    }

    fn copy_in(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.state.lock().bytes[offset_bytes as usize..][..buf.len()].copy_from_slice(buf);
        Ok(())
    }

    /// Reads the clock, which advances with each reading.
    fn now_ps(&self) -> u64 {
        self.now_ps.fetch_add(1, Ordering::SeqCst)
    }

    fn spin_until(&self, due_ps: u64) {
        self.spins.fetch_add(1, Ordering::SeqCst);
        self.wait(due_ps);
    }

    fn sleep_until(&self, due_ps: u64) {
        self.sleeps.fetch_add(1, Ordering::SeqCst);
        self.wait(due_ps);
    }
}
