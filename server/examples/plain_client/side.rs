//! One server: what was written to it, and its measurements.

use std::cmp::Ordering;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::AnyError;
use crate::connection::Connection;
use crate::settings::{Cell, Settings};
use crate::workload::{Batch, Random};

pub struct Side {
    address: String,
    pid: u32,
    connections: Vec<Connection>,
    random: Random,
    /// Kinds of data that were written in full.
    filled: Vec<Vec<u8>>,
}

/// The figures of one round.
pub struct One {
    pub ops_per_s: f64,
    pub cpu_us_per_op: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
}

impl Side {
    pub fn new(address: &str, pid: u32) -> Self {
        let (connections, filled) = (Vec::new(), Vec::new());
        Self { address: address.into(), pid, connections, random: Random(3), filled }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Opens the cell's connections, and writes everything once that its commands ask for.
    pub fn begin(&mut self, settings: &Settings, cell: &Cell) -> Result<(), AnyError> {
        let open = |_| Connection::open(&self.address);
        self.connections = (0..cell.clients).map(open).collect::<Result<_, _>>()?;
        let mut batch = Batch::filling(cell, settings.keys);
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
            connection.send(&all, (last - first) as usize)?;
            connection.finish(&mut piece)?;
        }
        self.filled.push(kind);
        Ok(())
    }

    /// Measures the server for one round.
    pub fn measure(&mut self, settings: &Settings, cell: &Cell) -> Result<One, AnyError> {
        let mut batch = Batch::measured(cell, settings.keys);
        let epoll: OwnedFd = epoll::create(CreateFlags::CLOEXEC)?;
        for (at, connection) in self.connections.iter().enumerate() {
            epoll::add(&epoll, connection, EventData::new_u64(at as u64), EventFlags::IN)?;
        }
        let mut ready = Vec::with_capacity(self.connections.len());
        let (mut took_ms, mut piece) = (Vec::with_capacity(1 << 20), vec![0; 64 << 10]);
        let length = Duration::from_secs_f64(settings.seconds);
        let (cpu_before, began) = (cpu_us(self.pid)?, Instant::now());
        for connection in &mut self.connections {
            connection.send(batch.drawn(&mut self.random), cell.pipeline)?;
        }
        let mut under_way = self.connections.len();
        while under_way > 0 {
            ready.clear();
            match epoll::wait(&epoll, spare_capacity(&mut ready), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let is_over = began.elapsed() >= length;
            for event in &ready {
                let connection = &mut self.connections[event.data.u64() as usize];
                let Some(ms) = connection.receive(&mut piece)? else { continue };
                took_ms.push(ms);
                match is_over {
                    true => under_way -= 1,
                    false => connection.send(batch.drawn(&mut self.random), cell.pipeline)?,
                }
            }
        }
        let operations = (took_ms.len() * cell.pipeline) as f64;
        let (took_s, cpu) = (began.elapsed().as_secs_f64(), cpu_us(self.pid)? - cpu_before);
        took_ms.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
        let part = |part: f64| took_ms[(took_ms.len() as f64 * part) as usize];
        Ok(One {
            ops_per_s: operations / took_s,
            cpu_us_per_op: cpu as f64 / operations,
            p50_ms: part(0.5),
            p99_ms: part(0.99),
            p999_ms: part(0.999),
        })
    }
}

/// Processor time of all threads of a process, in microseconds, in steps of 10 ms.
fn cpu_us(pid: u32) -> Result<u64, AnyError> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let behind = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = behind.split_whitespace().collect();
    let [user, system] = [fields[11].parse::<u64>()?, fields[12].parse::<u64>()?];
    Ok((user + system) * 10_000)
}
