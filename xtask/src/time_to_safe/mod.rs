//! Measures the README's figure: the time until all data are on the SSD, against their size.
//!
//! Perdura flushes a full budget ([`BUDGET`], the same at every size) with `PERDURA DRILL`, which
//! first dirties memory until the budget is full, and times only the flush. Redis saves with
//! `SAVE`. Both hold the same keys with values that cannot be compressed. One server runs at a
//! time, and each round goes through all sizes, so that a slow minute of the machine affects both.
//! Both wait after they were filled, until the disk has written what it holds in caches of its own
//! ([`SETTLE_PER_GIB`]).
//!
//! The result is docs/measuring/time-to-safe.md, an SVG and a JSON beside it.

mod servers;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perdura_page::{Chart, Point, Series, Style};
use serde_json::json;

use crate::run;
use servers::Server;

/// The sizes of all values together, in MiB.
const SIZES_MIB: [u64; 5] = [1024, 2048, 4096, 8192, 12_288];
const ROUNDS: usize = 2;
/// Right after 8 GiB had been written, the same flush took 210 ms, and 85 ms half a minute later.
const SETTLE_PER_GIB: Duration = Duration::from_secs(3);
const VALUE_BYTES: usize = 1000;
const BUDGET: &str = "256MiB";
const SEED: u64 = 1;
const FOLDER: &str = "docs/measuring";

/// The seconds of all rounds at one size, in ascending order once all rounds are done.
struct Row {
    size_mib: u64,
    perdura: Vec<f64>,
    redis: Vec<f64>,
}

pub fn measure(dir: &str) -> Result<()> {
    run::cargo(&["build", "--release", "--quiet", "--package", "perdura-cli"])?;
    let dir = Path::new(dir);
    let mut rows: Vec<Row> = SIZES_MIB
        .iter()
        .map(|&size_mib| Row { size_mib, perdura: Vec::new(), redis: Vec::new() })
        .collect();
    for round in 1..=ROUNDS {
        for row in &mut rows {
            let redis = timed(Server::redis(dir)?, row.size_mib, Server::save)?;
            let perdura = Server::perdura(dir, row.size_mib, BUDGET)?;
            let perdura = timed(perdura, row.size_mib, Server::drill)?;
            eprintln!(
                "round {round} of {ROUNDS}, {} MiB: Redis {redis:.2} s, Perdura {perdura:.2} s",
                row.size_mib
            );
            row.redis.push(redis);
            row.perdura.push(perdura);
        }
    }
    // Some 40 GB, which nobody needs any more.
    std::fs::remove_dir_all(dir).with_context(|| dir.display().to_string())?;
    for row in &mut rows {
        row.redis.sort_by(f64::total_cmp);
        row.perdura.sort_by(f64::total_cmp);
    }
    let machine = machine()?;
    let write = |name: &str, text: String| {
        let path = Path::new(FOLDER).join(name);
        std::fs::write(&path, text).with_context(|| path.display().to_string())
    };
    write("time-to-safe.svg", perdura_page::svg_file(&chart(&rows)))?;
    write("time-to-safe.json", format!("{:#}\n", result(&rows, &machine)))?;
    write("time-to-safe.md", page(&rows, &machine))
}

/// Fills the server, runs the step that makes its data safe, ends the server, and returns the
/// step's seconds.
fn timed(
    mut server: Server,
    size_mib: u64,
    step: impl Fn(&mut Server) -> Result<f64>,
) -> Result<f64> {
    let keys = (size_mib << 20) / VALUE_BYTES as u64;
    server.fill(keys, VALUE_BYTES, SEED)?;
    let held = server.keys()?;
    ensure!(held == keys, "{} holds {held} keys, {keys} were written", server.name());
    std::thread::sleep(SETTLE_PER_GIB * (size_mib / 1024) as u32);
    let seconds = step(&mut server)?;
    server.end()?;
    Ok(seconds)
}

fn median(ascending: &[f64]) -> f64 {
    ascending.get(ascending.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The median with the smallest and the largest value, as text.
fn spread(ascending: &[f64]) -> String {
    let (Some(least), Some(most)) = (ascending.first(), ascending.last()) else {
        return String::new();
    };
    format!("{:.2} s ({least:.2} to {most:.2})", median(ascending))
}

fn gib(size_mib: u64) -> String {
    format!("{} GiB", size_mib as f64 / 1024.0)
}

fn chart(rows: &[Row]) -> Chart {
    let series = |name: &str, class: &str, of: fn(&Row) -> &[f64]| Series {
        name: name.into(),
        class: class.into(),
        style: Style::Bars,
        points: rows
            .iter()
            .enumerate()
            .map(|(x, row)| {
                let times = of(row);
                let range = Some([times[0], times[times.len() - 1]]);
                Point { x, y: median(times), range }
            })
            .collect(),
    };
    Chart {
        title: "Time until all data are on the SSD".into(),
        y_name: "seconds".into(),
        x_name: "data in memory".into(),
        x_names: rows.iter().map(|row| gib(row.size_mib)).collect(),
        series: vec![
            series("Redis 7, SAVE", "c1", |row| &row.redis),
            series(&format!("Perdura, flush of a full budget ({BUDGET})"), "c0", |row| {
                &row.perdura
            }),
        ],
        is_log: false,
        width: 720.0,
        height: 300.0,
    }
}

/// The machine and programs of a measurement, as names and values.
struct Machine {
    facts: Vec<(&'static str, String)>,
}

fn machine() -> Result<Machine> {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").context("/proc/cpuinfo")?;
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let memory = std::fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
    let memory_kib = memory.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
    let ask = |program: &str, words: &[&str]| -> Result<String> {
        let output = Command::new(program).args(words).output().context(program.to_owned())?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    Ok(Machine {
        facts: vec![
            ("processors", cpus.matches("processor\t").count().to_string()),
            ("processor", model.map_or("unknown", |(_, model)| model).to_owned()),
            ("memory", format!("{} GiB", memory_kib.unwrap_or_default() >> 20)),
            ("kernel", ask("uname", &["-sr"])?),
            ("redis", ask("redis-server", &["--version"])?),
            ("revision", ask("git", &["rev-parse", "--short=12", "HEAD"])?),
            ("date", ask("date", &["-u", "+%Y-%m-%d"])?),
            ("load at the end", ask("cut", &["-d", " ", "-f", "1", "/proc/loadavg"])?),
        ],
    })
}

fn result(rows: &[Row], machine: &Machine) -> serde_json::Value {
    let rows = rows.iter().map(|row| {
        json!({
            "size_mib": row.size_mib,
            "perdura_flush_s": row.perdura,
            "redis_save_s": row.redis,
        })
    });
    let facts = machine.facts.iter().map(|(name, fact)| ((*name).to_owned(), json!(fact)));
    json!({
        "machine": facts.collect::<serde_json::Map<_, _>>(),
        "budget": BUDGET,
        "value_bytes": VALUE_BYTES,
        "seed": SEED,
        "sizes": rows.collect::<Vec<_>>(),
    })
}

fn page(rows: &[Row], machine: &Machine) -> String {
    let facts = machine.facts.iter().map(|(name, fact)| format!("| {name} | {fact} |\n"));
    let facts: String = facts.collect();
    let settle = SETTLE_PER_GIB.as_secs();
    let mut table = String::new();
    for row in rows {
        table += &format!(
            "| {} | {} | {} |\n",
            gib(row.size_mib),
            spread(&row.perdura),
            spread(&row.redis)
        );
    }
    format!(
        "# Time to safe against the size of the data

![Time until all data are on the SSD](time-to-safe.svg)

| data | Perdura: flush of a full budget of {BUDGET} | Redis: `SAVE` |
|---|---|---|
{table}
Medians of {ROUNDS} rounds, with the least and the most.

```sh
cargo xtask time-to-safe
```

| machine | |
|---|---|
{facts}
A load above the number of processors means that other work ran beside: then both columns are slower
than this machine can be, and only the comparison within the run counts.

Both servers hold the same keys, values of {VALUE_BYTES} random bytes, on the same disk, one server
at a time, and wait {settle} s for each GiB after they were filled. Perdura flushes in the layout of
an emergency, after as many bytes were made dirty as the budget allows; the flush is timed by the
server (`PERDURA DRILL`). Redis saves by `SAVE`, timed by the client, with compression off (it finds
nothing in random bytes, and would take longer).

The longer flush at 12 GiB is the disk's, which still writes what it took of the filling and of
Redis' file: right after 8 GiB had been written the flush took 0.21 s, half a minute later 0.08 s;
at 12 GiB, 40 s after the filling and with no `SAVE` before, 0.11, 0.09 and 0.07 s in three drills
one after the other (2026-11-28, by hand).

What the figure does not say: Redis' append-only file makes acknowledged writes safe at once, and
costs a write each; Perdura's counterpart is `--durability fsync` ([server.md](server.md)). A
larger budget takes proportionally longer to flush: the time follows the budget, and the budget
follows the warning.
",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_told_by_its_median_and_its_ends() {
        assert_eq!(spread(&[0.25, 0.5, 4.0]), "0.50 s (0.25 to 4.00)");
        let row = Row { size_mib: 512, perdura: vec![0.1, 0.2, 0.3], redis: vec![1.0, 2.0, 3.0] };
        let machine = Machine { facts: vec![("date", "2026-01-01".into())] };
        let page = page(std::slice::from_ref(&row), &machine);
        assert!(page.contains("| 0.5 GiB | 0.20 s (0.10 to 0.30) | 2.00 s (1.00 to 3.00) |"));
        assert!(page.contains("| date | 2026-01-01 |"), "{page}");
        let drawn = chart(&[row]);
        assert_eq!(drawn.series[0].points[0].range, Some([1.0, 3.0]));
    }
}
