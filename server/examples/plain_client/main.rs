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
use std::time::Duration;

use report::{Figures, Row};
use servers::Server;
use settings::{Cell, Servers, Settings};
use side::Side;

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
            let mut sides = sides(running)?;
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
                let places: Vec<_> = servers.iter().map(Server::place).collect();
                rows.push(measure(&settings, cell, &mut sides(&places)?)?);
            }
        }
        Servers::Started { perdura, redis, directory } => {
            for durable in [false, true] {
                let cells = settings.cells.iter().filter(|cell| cell.durable == durable);
                let cells: Vec<&Cell> = cells.collect();
                if cells.is_empty() {
                    continue;
                }
                let servers = [
                    Server::perdura(perdura, &settings, directory, durable)?,
                    Server::redis(redis, &settings, directory, durable)?,
                ];
                let mut sides = sides(&servers.each_ref().map(Server::place))?;
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

fn sides(places: &[(String, u32)]) -> Result<Vec<Side>, AnyError> {
    Ok(places.iter().map(|(address, pid)| Side::new(address, *pid)).collect())
}

/// Measures one cell of the table at all servers, in turn and in rounds.
fn measure(settings: &Settings, cell: &Cell, sides: &mut [Side]) -> Result<Row, AnyError> {
    let mut all = Vec::new();
    for side in sides.iter_mut() {
        side.begin(settings, cell)?;
        all.push(Figures::new(side.address()));
    }
    for round in 0..=settings.rounds {
        let mut turn: Vec<usize> = (0..sides.len()).collect();
        if round % 2 == 1 {
            turn.reverse();
        }
        for index in turn {
            // The other server's checkpoint of what was written last ends in this time.
            std::thread::sleep(Duration::from_millis(settings.pause_ms));
            let one = sides[index].measure(settings, cell)?;
            if round > 0 {
                all[index].rounds.push(one);
            }
        }
    }
    let row = Row { cell: cell.clone(), all };
    report::print_row(&row);
    Ok(row)
}
