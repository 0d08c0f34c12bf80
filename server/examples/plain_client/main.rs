//! A client of any server that speaks the Redis protocol, which shares no code with `bench`.
//!
//! `settings` reads the command line and says which cells a table has. `workload` makes the bytes
//! of the commands, `connection` sends them and counts the replies. `side` measures one server, for
//! one short round at a time. `servers` starts the servers of a table, `report` prints it.
//!
//! One thread has all connections: an epoll tells which have replies, and a connection sends its
//! next batch as soon as the last one is answered. A latency runs from the sending of a batch to
//! the arrival of its last reply. Rounds are short and the servers take turns, because the speed of
//! a virtual machine changes every few seconds: a ratio is the median of those of the rounds.

mod connection;
mod report;
mod servers;
mod settings;
mod side;
mod workload;

use std::error::Error;

use report::{Figures, Row};
use servers::Server;
use settings::{Cell, Servers, Settings};
use side::{Pace, Side};

type AnyError = Box<dyn Error>;

fn main() -> Result<(), AnyError> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let settings = match Settings::parse(&words) {
        Ok(settings) => settings,
        Err(wrong) => return Err(format!("{wrong}\n\n{}", settings::HELP).into()),
    };
    let mut rows = Vec::new();
    report::print_head();
    match &settings.servers {
        Servers::Running(running) => {
            let side = |(address, pid): &(String, u32)| Side::new(address, address, *pid);
            let mut sides: Vec<_> = running.iter().map(side).collect();
            for cell in &settings.cells {
                rows.push(measure(&settings, cell, &mut sides)?);
            }
        }
        Servers::Budgets { perdura, budgets, directory } => {
            for cell in &settings.cells {
                let start = |(port, budget): (u16, &String)| {
                    Server::perdura_at(perdura, &settings, directory, cell.durable, (port, budget))
                };
                let servers = (settings.port..).zip(budgets).map(start);
                let servers = servers.collect::<Result<Vec<_>, _>>()?;
                let mut sides: Vec<_> = servers.iter().map(Server::side).collect();
                rows.push(measure(&settings, cell, &mut sides)?);
            }
        }
        Servers::Started { perdura, redis, valkey, directory } => {
            for durable in [false, true] {
                let cells = settings.cells.iter().filter(|cell| cell.durable == durable);
                let cells: Vec<&Cell> = cells.collect();
                if cells.is_empty() {
                    continue;
                }
                let mut servers = vec![Server::perdura(perdura, &settings, directory, durable)?];
                let others = valkey.iter().map(|program| ("Valkey", program));
                for (port, (name, program)) in
                    (settings.port + 1..).zip(others.chain([("Redis", redis)]))
                {
                    servers.push(Server::redis(name, program, directory, durable, port)?);
                }
                let mut sides: Vec<_> = servers.iter().map(Server::side).collect();
                for cell in cells {
                    rows.push(measure(&settings, cell, &mut sides)?);
                }
            }
        }
    }
    report::print_foot(&rows);
    match &settings.json {
        Some(path) => Ok(std::fs::write(path, report::json(&rows))?),
        None => Ok(()),
    }
}

/// Measures one cell of the table at all servers, in turn and in rounds.
fn measure(settings: &Settings, cell: &Cell, sides: &mut [Side]) -> Result<Row, AnyError> {
    for side in sides.iter_mut() {
        side.begin(settings, cell)?;
    }
    let all = rounds(settings, cell, sides, Pace::Closed)?;
    let mut row = Row { cell: cell.clone(), all, at_load: None };
    if let Some(share) = settings.load {
        let slowest = row.all.iter().map(Figures::ops_per_s).fold(f64::INFINITY, f64::min);
        let rate = slowest * share;
        let pace = Pace::Open(rate / cell.pipeline as f64);
        row.at_load = Some((rate, rounds(settings, cell, sides, pace)?));
    }
    report::print_row(&row, matches!(settings.servers, Servers::Started { .. }));
    Ok(row)
}

fn rounds(
    settings: &Settings,
    cell: &Cell,
    sides: &mut [Side],
    pace: Pace,
) -> Result<Vec<Figures>, AnyError> {
    let mut all: Vec<_> = sides.iter().map(|side| Figures::new(side.name())).collect();
    for round in 0..=settings.rounds {
        let mut turn: Vec<usize> = (0..sides.len()).collect();
        if round % 2 == 1 {
            turn.reverse();
        }
        for index in turn {
            let one = sides[index].measure(settings, cell, pace)?;
            if round > 0 {
                all[index].rounds.push(one);
            }
        }
    }
    Ok(all)
}
