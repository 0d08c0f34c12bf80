//! The page of a gauntlet: a table, and the time to be safe over the size of the data.

use std::fmt::Write;

use perdura_media::{Bytes, BytesPerSecond};
use perdura_page::{COLOURS, Chart, Series, Style, charts, data, table};

use super::server::Kind;
use super::{GraceResult, Round};
use crate::report::machine_paragraph;

/// The columns of [`GraceResult::table`].
pub const COLUMNS: [&str; 9] = [
    "server",
    "data",
    "rounds",
    "keys lost",
    "wrong",
    "late",
    "to be safe (s)",
    "first answer (s)",
    "writes/s",
];

impl GraceResult {
    /// The servers, in the order in which they ran.
    fn servers(&self) -> Vec<Kind> {
        let mut servers = Vec::new();
        for round in &self.rounds {
            if !servers.contains(&round.server) {
                servers.push(round.server);
            }
        }
        servers
    }

    fn sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<_> = self.rounds.iter().map(|round| round.size_bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    fn rounds_of(&self, server: Kind, size_bytes: u64) -> Vec<&Round> {
        let is_one = |round: &&Round| round.server == server && round.size_bytes == size_bytes;
        self.rounds.iter().filter(is_one).collect()
    }

    /// A row for each server and size, with the columns of [`COLUMNS`].
    pub fn table(&self) -> Vec<[String; 9]> {
        let mut rows = Vec::new();
        for size_bytes in self.sizes() {
            for server in self.servers() {
                let rounds = self.rounds_of(server, size_bytes);
                let sum = |of: &dyn Fn(&Round) -> u64| rounds.iter().map(|round| of(round)).sum();
                let (lost, keys): (u64, u64) = (sum(&|it| it.found.lost), sum(&|it| it.found.keys));
                let wrong: u64 = sum(&|it| it.found.wrong);
                let late: u64 = sum(&|it| u64::from(it.to_safe_s.is_none()));
                rows.push([
                    server.name().to_owned(),
                    Bytes(size_bytes).to_string(),
                    rounds.len().to_string(),
                    format!("{lost} of {keys}"),
                    wrong.to_string(),
                    late.to_string(),
                    spread(rounds.iter().filter_map(|round| round.to_safe_s)),
                    spread(rounds.iter().map(|round| round.first_answer_s)),
                    spread(rounds.iter().map(|round| round.writes_per_s)),
                ]);
            }
        }
        rows
    }
}

/// The median of values, and the range if there are several.
fn spread(values: impl Iterator<Item = f64>) -> String {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    let show = |value: f64| match value {
        many if many >= 100.0 => format!("{many:.0}"),
        few => format!("{few:.2}"),
    };
    match values.as_slice() {
        [] => "-".to_owned(),
        [only] => show(*only),
        [first, .., last] => {
            format!("{} ({} to {})", show(values[values.len() / 2]), show(*first), show(*last))
        }
    }
}

fn chart(result: &GraceResult, title: &str, of: impl Fn(&Round) -> Option<f64>) -> Chart {
    let sizes = result.sizes();
    let series =
        result.servers().into_iter().zip(COLOURS.iter().cycle()).map(|(server, colour)| {
            let worst = |size_bytes: &u64| {
                let rounds = result.rounds_of(server, *size_bytes);
                rounds.into_iter().filter_map(&of).max_by(f64::total_cmp)
            };
            Series::over(server.name(), *colour, Style::Line, sizes.iter().map(worst))
        });
    Chart {
        title: title.to_owned(),
        y_name: "seconds".to_owned(),
        x_name: "data".to_owned(),
        x_names: sizes.iter().map(|size| Bytes(*size).to_string()).collect(),
        series: series.collect(),
        ..Chart::half()
    }
}

/// The page of a gauntlet.
pub fn page(result: &GraceResult) -> String {
    perdura_page::page("The gauntlet", |out| {
        out.push_str("<h1>Warned, and killed when the grace ends</h1>");
        write!(
            out,
            "<p>Each server was filled, loaded with writes on a disk of {}, which falls to {} at a \
             moment that the seed decides, warned by SIGTERM, and killed after {} s if it had not \
             ended by then. Then its file system was cut off, as by a loss of power, the server \
             was started again, and every acknowledged write was looked for.</p>{}",
            BytesPerSecond(result.rate_bytes_per_s),
            BytesPerSecond(result.low_rate_bytes_per_s),
            result.grace_s,
            machine_paragraph(&result.machine),
        )?;
        table(out, &COLUMNS, result.table())?;
        let drawn = [
            chart(result, "From the warning to the end, the worst round", |round| {
                Some(round.to_safe_s.unwrap_or(result.grace_s))
            }),
            chart(result, "From the start to the first answer, the worst round", |round| {
                Some(round.first_answer_s)
            }),
        ];
        charts(out, "Times over the size of the data", drawn)?;
        out.push_str("<p class=\"note\">A server that was killed is drawn at the whole grace.</p>");
        data(out, result)
    })
}

#[cfg(test)]
mod tests {
    use super::super::writes::Found;
    use super::*;
    use crate::machine::Machine;

    fn round(server: Kind, lost: u64, to_safe_s: Option<f64>) -> Round {
        Round {
            server,
            size_bytes: 1 << 30,
            seed: 7,
            value_bytes: 100,
            depth: 1,
            slow_after_s: None,
            stuck: vec!["paused".into()],
            writes_per_s: 1_000.0,
            to_safe_s,
            first_answer_s: 0.5,
            found: Found { keys: 10, lost, wrong: 0 },
        }
    }

    #[test]
    fn a_row_has_all_rounds_of_a_server_and_a_round_is_kept_if_nothing_is_lost_or_late() {
        let result = GraceResult {
            kind: "grace".into(),
            machine: Machine::here(),
            grace_s: 10.0,
            rate_bytes_per_s: 125 << 20,
            low_rate_bytes_per_s: 60 << 20,
            rounds: vec![
                round(Kind::Perdura, 0, Some(0.2)),
                round(Kind::RedisRdb, 3, None),
                round(Kind::Perdura, 0, Some(0.4)),
                round(Kind::Perdura, 0, Some(0.3)),
            ],
        };
        let rows = result.table();
        assert_eq!(rows[0][..4], ["perdura", "1 GiB", "3", "0 of 30"]);
        assert_eq!(rows[0][6], "0.30 (0.20 to 0.40)");
        assert_eq!(rows[1][3..7], ["3 of 10", "0", "1", "-"]);
        let kept: Vec<_> = result.rounds.iter().map(Round::is_kept).collect();
        assert_eq!(kept, [true, false, true, true]);
        assert!(!round(Kind::Perdura, 0, None).is_kept());
        let page = page(&result);
        for words in ["redis-rdb", "3 of 10", "131.07 MB/s", "<svg", "id=\"result\""] {
            assert!(page.contains(words), "{words:?} is missing");
        }
    }
}
