//! The promises that every reader keeps, whatever bytes it reads: the oracle of tests and of
//! fuzzing.

use std::io::Cursor;

use super::super::{ReadOptions, Record, TraceError, TraceReader};

/// Reads any bytes to their end, and holds what comes of it against what readers promise. Gives the
/// records, of which tests may want more.
///
/// # Panics
/// A promise that is not kept.
pub fn read_soundly(trace: &[u8], options: &ReadOptions) -> Result<Vec<Record>, TraceError> {
    let stream = Box::new(Cursor::new(trace.to_vec()));
    let mut reader = TraceReader::new("trace", stream, Some(trace.len() as u64), options)?;
    let (mut batch, mut records, mut last_ns) = (Vec::new(), Vec::new(), 0);
    while reader.next_batch(&mut batch)? {
        assert!(!batch.is_empty(), "a batch has records");
        let volumes = reader.volumes().len() as u32;
        for record in &batch {
            let end = record.offset_bytes.checked_add(record.len_bytes);
            assert!(record.len_bytes > 0, "an access has bytes: {record:?}");
            assert!(end.is_some_and(|end| end <= 1 << 63), "an access ends below 2^63: {record:?}");
            assert!(record.time_ns >= last_ns, "time does not go back from {last_ns}: {record:?}");
            assert!(record.volume < volumes, "a volume has a name, {volumes} have: {record:?}");
            last_ns = record.time_ns;
        }
        records.extend_from_slice(&batch);
    }
    let skipped = reader.skipped();
    assert!(skipped.count <= options.skip_bad, "no more are passed over than may be");
    assert!(skipped.first.len() as u64 <= skipped.count);
    Ok(records)
}
