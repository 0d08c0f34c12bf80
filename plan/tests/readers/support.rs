//! Reads traces from memory, for the tests of readers.

use std::io::Cursor;

use perdura_plan::trace::{ReadOptions, Record, TraceError, TraceReader};

/// All that a reader gives.
#[derive(Debug)]
pub struct Read {
    pub records: Vec<Record>,
    pub volumes: Vec<String>,
    pub ignored: u64,
    pub reader: &'static str,
}

pub fn open(trace: &[u8], options: &ReadOptions) -> Result<TraceReader, TraceError> {
    TraceReader::new(
        "trace",
        Box::new(Cursor::new(trace.to_vec())),
        Some(trace.len() as u64),
        options,
    )
}

pub fn all(reader: &mut TraceReader) -> Result<Vec<Record>, TraceError> {
    let (mut records, mut batch) = (Vec::new(), Vec::new());
    while reader.next_batch(&mut batch)? {
        records.extend_from_slice(&batch);
    }
    Ok(records)
}

pub fn read(trace: &[u8], options: &ReadOptions) -> Result<Read, TraceError> {
    let mut reader = open(trace, options)?;
    let records = all(&mut reader)?;
    let volumes = reader.volumes().to_vec();
    Ok(Read { records, volumes, ignored: reader.ignored(), reader: reader.format().name() })
}

/// The error of a reader for a wrong trace.
pub fn refusal(trace: &[u8], options: &ReadOptions) -> String {
    match read(trace, options) {
        Ok(read) => panic!("read: {read:?}"),
        Err(error) => error.to_string(),
    }
}

#[track_caller]
pub fn says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
}
