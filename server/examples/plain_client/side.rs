//! One server: what was written to it, and its measurements.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::Timespec;

use crate::AnyError;
use crate::connection::Connection;
use crate::settings::{Cell, Settings};
use crate::workload::{Batch, RENEWED, Random};

pub struct Side {
    name: String,
    address: String,
    pid: u32,
    connections: Vec<Connection>,
    random: Random,
    /// Kinds of data that were written in full.
    filled: Vec<Vec<u8>>,
}

/// Most bytes of the values that a round begins with.
const RENEWED_BYTES_MAX: usize = 200 << 20;
/// Elements of a list that is read.
const READ_ELEMENTS: usize = 1000;

/// When batches are sent.
#[derive(Clone, Copy)]
pub enum Pace {
    /// The next batch is sent as soon as a connection has its replies.
    Closed,
    /// At random times, so many batches a second on average. A batch waits until a connection has
    /// its replies.
    Open(f64),
}

/// The figures of one round.
#[derive(Clone, Copy)]
pub struct One {
    pub ops_per_s: f64,
    pub cpu_us_per_op: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
}

impl Side {
    pub fn new(name: &str, address: &str, pid: u32) -> Self {
        let (name, address) = (name.into(), address.into());
        Self { name, address, pid, connections: Vec::new(), random: Random(3), filled: Vec::new() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Opens the cell's connections, and writes everything once that its commands ask for.
    pub fn begin(&mut self, settings: &Settings, cell: &Cell) -> Result<(), AnyError> {
        let open = |_| Connection::open(&self.address);
        self.connections = (0..cell.clients).map(open).collect::<Result<_, _>>()?;
        let Some(mut batch) = Batch::filling(cell, settings.keys) else { return Ok(()) };
        let kind = batch.counted(&mut Random(0), 0).to_vec();
        if !settings.fill || self.filled.contains(&kind) {
            return Ok(());
        }
        let (mut all, mut piece) = (Vec::new(), vec![0; 64 << 10]);
        let connection = &mut self.connections[0];
        for first in (0..settings.keys).step_by(64) {
            let last = settings.keys.min(first + 64);
            all.clear();
            for number in first..last {
                all.extend_from_slice(batch.counted(&mut self.random, number));
            }
            connection.send(&all, (last - first) as usize, Instant::now())?;
            connection.finish(&mut piece)?;
        }
        self.filled.push(kind);
        Ok(())
    }

    /// Writes what a round begins with. Returns how many operations find something then.
    fn renew(&mut self, settings: &Settings, cell: &Cell) -> Result<usize, AnyError> {
        let Some([mut removing, mut adding]) = Batch::renewing(cell) else { return Ok(usize::MAX) };
        // No server is faster.
        let rate_max = if cell.pipeline == 1 { 200e3 } else { 1500e3 };
        let most = (rate_max * settings.seconds) as usize;
        let (elements, operations) = match &cell.command[..] {
            "LPUSH" | "RPUSH" | "SADD" => (0, usize::MAX),
            command if command.starts_with("LRANGE") => (READ_ELEMENTS, usize::MAX),
            _ => {
                let elements = most.min(RENEWED_BYTES_MAX / cell.value_bytes);
                // Batches are under way when the last one is sent, and a few names are drawn twice.
                (elements, (elements - elements / 50).saturating_sub(cell.clients * cell.pipeline))
            }
        };
        let (mut all, mut piece, now) = (Vec::new(), vec![0; 64 << 10], Instant::now());
        let connection = &mut self.connections[0];
        connection.send(removing.drawn(&mut self.random), 1, now)?;
        connection.finish(&mut piece)?;
        for _ in 0..elements.div_ceil(RENEWED * 16) {
            all.clear();
            (0..16).for_each(|_| all.extend_from_slice(adding.drawn(&mut self.random)));
            connection.send(&all, 16, now)?;
            connection.finish(&mut piece)?;
        }
        Ok(operations)
    }

    /// Measures the server for one round.
    pub fn measure(
        &mut self,
        settings: &Settings,
        cell: &Cell,
        pace: Pace,
    ) -> Result<One, AnyError> {
        let mut left = self.renew(settings, cell)? / cell.pipeline;
        // The other server's checkpoint of what was written last ends in this time, and this one's.
        std::thread::sleep(Duration::from_millis(settings.pause_ms));
        let mut batch = Batch::measured(cell, settings.keys);
        let epoll: OwnedFd = epoll::create(CreateFlags::CLOEXEC)?;
        for (at, connection) in self.connections.iter().enumerate() {
            epoll::add(&epoll, connection, EventData::new_u64(at as u64), EventFlags::IN)?;
        }
        let mut ready = Vec::with_capacity(self.connections.len());
        let (mut took_ms, mut piece) = (Vec::with_capacity(1 << 20), vec![0; 64 << 10]);
        let length = Duration::from_secs_f64(settings.seconds);
        let mut free: VecDeque<usize> = (0..self.connections.len()).collect();
        let (cpu_before, began) = (cpu_us(self.pid)?, Instant::now());
        let (mut due, end) = (began, began + length);
        loop {
            let now = Instant::now();
            let mut is_over = false;
            while let Some(&next) = free.front() {
                is_over = left == 0
                    || match pace {
                        Pace::Closed => now >= end,
                        Pace::Open(_) => due >= end,
                    };
                if is_over || (matches!(pace, Pace::Open(_)) && due > now) {
                    break;
                }
                free.pop_front();
                left -= 1;
                let since = if let Pace::Open(_) = pace { due } else { now };
                let bytes = batch.drawn(&mut self.random);
                self.connections[next].send(bytes, cell.pipeline, since)?;
                if let Pace::Open(rate) = pace {
                    due += Duration::from_secs_f64(-self.random.part().ln() / rate);
                }
            }
            if is_over && free.len() == self.connections.len() {
                break;
            }
            // A timeout has steps of a millisecond, so a batch that is due is waited for awake.
            let is_waiting = matches!(pace, Pace::Open(_)) && !is_over && !free.is_empty();
            let timeout = is_waiting.then_some(Timespec { tv_sec: 0, tv_nsec: 0 });
            ready.clear();
            match epoll::wait(&epoll, spare_capacity(&mut ready), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &ready {
                let at = event.data.u64() as usize;
                let Some(ms) = self.connections[at].receive(&mut piece)? else { continue };
                took_ms.push(ms);
                free.push_back(at);
            }
        }
        if took_ms.is_empty() {
            return Err("a round was too short for a reply".into());
        }
        let operations = (took_ms.len() * cell.pipeline) as f64;
        let (took_s, cpu) = (began.elapsed().as_secs_f64(), cpu_us(self.pid)? - cpu_before);
        took_ms.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
        let part = |part: f64| took_ms[(took_ms.len() as f64 * part) as usize];
        Ok(One {
            ops_per_s: operations / took_s,
            cpu_us_per_op: cpu / operations,
            p50_ms: part(0.5),
            p99_ms: part(0.99),
            p999_ms: part(0.999),
        })
    }
}

/// Processor time of all threads of a process, in microseconds.
fn cpu_us(pid: u32) -> Result<f64, AnyError> {
    let mut ns = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread that has just ended has no file any more.
        let Ok(text) = std::fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        ns += text.split_whitespace().next().unwrap_or_default().parse::<u64>()?;
    }
    Ok(ns as f64 / 1e3)
}
