//! Opening: the header is checked or made, the span table is loaded, and operations that a killed
//! process had not committed are undone.

use perdura_region::{BLOCK_BYTES, LaneId, Region};

use crate::error::HeapError;
use crate::lane::Lane;
use crate::layout::{
    AT_LANES, AT_MAGIC, AT_SPANS, AT_VERSION, LOG_BYTES, Layout, MAGIC, SPAN_BYTES, VERSION,
};
use crate::log::{Entry, Undo, read, set_bytes, set_word, void_left};
use crate::spans::Spans;

/// Opens the spans of the heap in `region`, or makes a heap if the region is new.
pub(crate) fn open(region: Region) -> Result<Spans, HeapError> {
    if region.lanes() < 2 {
        return Err(HeapError::TooFewLanes { lanes: region.lanes() });
    }
    let layout = Layout::of(region.geometry(), region.lanes());
    let needed_bytes = layout.first_span() * SPAN_BYTES + BLOCK_BYTES;
    let region_bytes = region.len_bytes();
    if region_bytes < needed_bytes {
        return Err(HeapError::TooSmall { region_bytes, needed_bytes });
    }
    let spans = Spans::new(region, layout);
    for block in 0..spans.region.geometry().blocks() as u64 {
        spans.region.assign_block(block, layout.meta());
    }
    check_or_make(&spans)?;
    for lane in (0..layout.shards).map(LaneId) {
        spans.region.assign_block(layout.lane_block(lane) / BLOCK_BYTES, lane);
    }
    let free_spans = spans.load()?;
    for (lane, own) in (0..).map(LaneId).zip(free_spans).filter(|(_, own)| own.free_spans() > 0) {
        Lane::new(&spans, spans.region.lock(lane)).own_spans(own);
    }
    for lane in (0..layout.shards).map(LaneId) {
        roll_back(&spans, lane)?;
    }
    Ok(spans)
}

fn check_or_make(spans: &Spans) -> Result<(), HeapError> {
    let lanes = u64::from(spans.region.lanes());
    let spans_max = spans.layout.spans_max;
    let meta = spans.lock_meta();
    let (magic, version) = (meta.load(AT_MAGIC), meta.load(AT_VERSION));
    let (stored, found_spans) = (meta.load(AT_LANES), meta.load(AT_SPANS));
    drop(meta);
    match magic {
        0 => {}
        MAGIC if version != VERSION => {
            return Err(HeapError::Version { found: version, supported: VERSION });
        }
        MAGIC if stored != lanes => return Err(HeapError::Lanes { stored, found: lanes }),
        MAGIC if found_spans != spans_max => {
            let (what, offset) = ("heap header", AT_SPANS);
            return Err(HeapError::Corrupt { what, offset, value: found_spans });
        }
        MAGIC => return Ok(()),
        found => return Err(HeapError::NotAHeap { found }),
    }
    spans.with_meta(|meta| {
        meta.store(AT_VERSION, VERSION)?;
        meta.store(AT_LANES, lanes)?;
        meta.store(AT_SPANS, spans_max)?;
        // The magic number makes the heap exist, so it is stored last. All else begins as zeros.
        meta.store(AT_MAGIC, MAGIC)
    })?;
    Ok(())
}

/// Undoes the operation that a killed process had begun in a lane's log and not committed.
fn roll_back(spans: &Spans, lane: LaneId) -> Result<(), HeapError> {
    let head = spans.layout.lane_block(lane);
    let entries = {
        let guard = spans.region.lock(lane);
        let bytes = |offset: u64, len: usize| {
            is_in_lane(spans, lane, offset, len as u64).then(|| guard.bytes(offset, len))
        };
        read(&bytes, head).map_err(corrupt_log)?
    };
    // All are looked at before the first is put back: a damaged log changes nothing.
    let owned = entries.into_iter().map(|entry| owner_of(spans, &entry).map(|lane| (lane, entry)));
    let owned = owned.collect::<Result<Vec<_>, HeapError>>()?;
    for (lane, entry) in owned.into_iter().rev() {
        put_back(&spans.region, lane, entry.undo)?;
    }
    void_left(&spans.region, lane, head)?;
    Ok(())
}

/// The lane whose memory an entry of an undo log changes: roots or objects, never a log.
fn owner_of(spans: &Spans, entry: &Entry) -> Result<LaneId, HeapError> {
    let (offset, len) = match &entry.undo {
        Undo::Word { offset, .. } => (*offset, 8),
        Undo::Bytes { offset, old } => (*offset, old.len() as u64),
    };
    let is_log = spans.layout.lane_of_block(offset).is_some() && offset % BLOCK_BYTES < LOG_BYTES;
    spans
        .lane_at(offset)
        .filter(|lane| !is_log && is_in_lane(spans, *lane, offset, len))
        .ok_or_else(|| corrupt_log((entry.at, offset)))
}

fn is_in_lane(spans: &Spans, lane: LaneId, offset: u64, len: u64) -> bool {
    let last = offset.checked_add(len.max(1) - 1);
    last.is_some_and(|last| {
        spans.lane_at(offset) == Some(lane) && spans.lane_at(last) == Some(lane)
    })
}

fn corrupt_log((offset, value): (u64, u64)) -> HeapError {
    HeapError::Corrupt { what: "undo log", offset, value }
}

fn put_back(region: &Region, lane: LaneId, undo: Undo) -> Result<(), HeapError> {
    match undo {
        Undo::Word { offset, old } => set_word(region, lane, offset, old)?,
        Undo::Bytes { offset, old } => set_bytes(region, lane, offset, &old)?,
    }
    Ok(())
}
