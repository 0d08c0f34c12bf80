//! The writing of a dump: a snapshot of the store and the libraries of functions, in a file without
//! a name, which goes when it is dropped.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use perdura_media::Clock;
use perdura_rdb::Writer;
use perdura_store::{Entry, Key, SnapshotSink, Store, Unreadable};

use crate::commands::encode_entry;
use crate::script::Libraries;
use crate::shared::Functions;

/// Buckets of keys that are walked under one hold of their shard.
const BUCKETS_PER_HOLD: u64 = 64;

/// The parts of a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parts {
    pub keys: bool,
    pub libraries: bool,
}

impl Parts {
    pub const ALL: Self = Self { keys: true, libraries: true };
}

/// A dump that is done.
#[derive(Debug)]
pub(crate) struct Dump {
    file: File,
    pub bytes: u64,
    pub unix_ms: u64,
}

impl Dump {
    /// Reads bytes from a place on, fewer than asked for only at the end.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(bytes, offset)
    }

    /// Reads bytes that the dump has.
    ///
    /// # Errors
    /// The file cannot be read, or is shorter.
    pub fn read_exact(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }
}

/// Where dumps come from.
pub(super) struct Source<'a> {
    pub store: &'a Store,
    pub functions: &'a Functions,
    pub clock: &'a dyn Clock,
}

impl Source<'_> {
    /// Writes a dump to a file in `dir`. `goes_on` hears after each step how many keys it has, and
    /// may end it; then there is none.
    pub fn dump(
        &self,
        dir: &Path,
        parts: Parts,
        goes_on: &dyn Fn(u64) -> bool,
    ) -> Result<Option<Dump>, String> {
        let failed = |error: io::Error| format!("{}: {error}", dir.display());
        let file = tempfile::tempfile_in(dir).map_err(failed)?;
        let unix_ms = self.clock.unix_ms();
        let said = [
            ("redis-ver", "7.0.0".to_owned()),
            ("redis-bits", "64".to_owned()),
            ("ctime", (unix_ms / 1000).to_string()),
            ("made-by", format!("perdura {}", env!("CARGO_PKG_VERSION"))),
        ];
        let writer = Writer::new(file, &said).map_err(failed)?;
        let open = Open { writer: Some(writer), value: Vec::new(), error: None, keys: 0 };
        let sink = Arc::new(Sink { open: Mutex::new(open) });
        // A value that cannot be read ends the walk, and with it the snapshot.
        let is_whole = Unreadable::catch(|| self.walk(&sink, parts, goes_on))
            .map_err(|unreadable| unreadable.to_string())??;
        let mut open = sink.lock();
        if let Some(error) = open.error.take() {
            return Err(failed(error));
        }
        let (true, Some(writer)) = (is_whole, open.writer.take()) else { return Ok(None) };
        let (file, bytes) = writer.end().map_err(failed)?;
        Ok(Some(Dump { file, bytes, unix_ms }))
    }

    /// Gives the sink what the dump shall have. False: it was ended before.
    fn walk(
        &self,
        sink: &Arc<Sink>,
        parts: Parts,
        goes_on: &dyn Fn(u64) -> bool,
    ) -> Result<bool, String> {
        // A library does not change between the moment of the keys and its own.
        let changing = self.functions.begin_change();
        let keys = || {
            let sink: Arc<dyn SnapshotSink> = sink.clone();
            self.store.snapshot(&sink).map_err(|error| error.to_string())
        };
        let mut snapshot = if parts.keys { Some(keys()?) } else { None };
        if parts.libraries {
            sink.add_libraries(&self.functions.libraries());
        }
        drop(changing);
        while let Some(snapshot) = &mut snapshot
            && snapshot.step(BUCKETS_PER_HOLD)
        {
            let open = sink.lock();
            let (keys, has_failed) = (open.keys, open.error.is_some());
            drop(open);
            if has_failed || !goes_on(keys) {
                return Ok(false);
            }
        }
        goes_on(sink.lock().keys);
        Ok(true)
    }
}

/// The dump that is being written: the walk and clients' operations add keys to it.
struct Sink {
    open: Mutex<Open>,
}

struct Open {
    /// `None` once the dump has been ended.
    writer: Option<Writer<File>>,
    /// The value that is being written.
    value: Vec<u8>,
    /// The first error of writing.
    error: Option<io::Error>,
    keys: u64,
}

impl Sink {
    fn add_libraries(&self, libraries: &Libraries) {
        let mut open = self.lock();
        let Open { writer: Some(writer), error: error @ None, .. } = &mut *open else { return };
        let mut codes = libraries.by_name.values().map(|library| &library.code);
        *error = codes.try_for_each(|code| writer.function(code)).err();
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SnapshotSink for Sink {
    fn take(&self, key: Key<'_>, entry: &Entry<'_>) {
        let mut open = self.lock();
        let Open { writer: Some(writer), value, error: None, .. } = &mut *open else { return };
        value.clear();
        encode_entry(entry, value);
        let written = writer.key(u64::from(key.db), key.bytes, entry.expire_at_ms, value);
        value.shrink_to(1 << 20);
        match written {
            Ok(()) => open.keys += 1,
            Err(error) => open.error = Some(error),
        }
    }
}
