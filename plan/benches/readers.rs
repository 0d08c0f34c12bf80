//! Measures the records that each reader reads in a second, on one core: `cargo bench -p
//! perdura-plan --bench readers [FORMAT]...`.
//!
//! Traces are generated in memory. Each is read again and again for half a second, and the best of
//! five such times is shown, because other work on the machine only makes a time worse.

#![allow(clippy::expect_used)]

use std::io::Cursor;
use std::sync::Arc;
use std::time::{Duration, Instant};

use perdura_plan::trace::{Format, ReadOptions, TraceReader, generate};

const RECORDS: usize = 400_000;
const TIMES: usize = 5;
const EACH: Duration = Duration::from_millis(300);

/// A trace that several readers share.
#[derive(Clone)]
struct Shared(Arc<Vec<u8>>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn once(format: Format, trace: &Shared, options: &ReadOptions) -> u64 {
    let stream = Box::new(Cursor::new(trace.clone()));
    let mut reader =
        TraceReader::new(format.name(), stream, None, options).expect("made up to be read");
    let (mut batch, mut records) = (Vec::new(), 0);
    while reader.next_batch(&mut batch).expect("made up to be read") {
        records += batch.len() as u64;
    }
    records
}

fn main() {
    let chosen: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    println!("{:12} {:>12} {:>10} {:>8}", "format", "records/s", "MB/s", "B each");
    for &format in Format::ALL {
        if !chosen.is_empty() && !chosen.iter().any(|name| name == format.name()) {
            continue;
        }
        let options =
            ReadOptions { time_unit: generate::time_unit(format), ..ReadOptions::default() };
        let trace =
            Shared(Arc::new(generate::render(format, &generate::records(format, 1, RECORDS))));
        let mut best = 0.0f64;
        for _ in 0..TIMES {
            let (began, mut records) = (Instant::now(), 0);
            while began.elapsed() < EACH {
                records += once(format, &trace, &options);
            }
            best = best.max(records as f64 / began.elapsed().as_secs_f64());
        }
        let each = trace.0.len() as f64 / RECORDS as f64;
        println!(
            "{:12} {:>10.1} M {:>10.0} {each:>8.1}",
            format.name(),
            best / 1e6,
            best * each / 1e6
        );
    }
}
