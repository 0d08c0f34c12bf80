//! The bytes of a trace: a file or a stream, decompressed if its first bytes show that it is
//! packed.
//!
//! The bytes that were read are counted before decompression, for the progress bar and for
//! messages.

use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Packing, TraceError};

/// How many bytes are read ahead to find out packing and format.
pub(crate) const HEAD_BYTES: usize = 64 << 10;

/// How many bytes of a packed file are read at once.
const PACKED_BYTES: usize = 256 << 10;

/// The largest dictionary that an unpacker may ask for, KiB.
#[cfg(feature = "formats")]
const DICTIONARY_KIB: u32 = 256 << 10;

/// The bytes at the start of a text that say that it is UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The counters that the reader at the bottom shares with the one at the top.
#[derive(Debug, Default)]
struct Tally {
    bytes: AtomicU64,
    failed: AtomicBool,
}

/// Counts what is read, and notes that the file itself failed, so that this is not taken for damage
/// to packed data.
struct Counted {
    inner: Box<dyn Read + Send>,
    tally: Arc<Tally>,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(into) {
            Ok(bytes) => {
                self.tally.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                Ok(bytes)
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::Interrupted {
                    self.tally.failed.store(true, Ordering::Relaxed);
                }
                Err(error)
            }
        }
    }
}

pub(crate) struct Input {
    file: String,
    source: Box<dyn Read + Send>,
    packing: Option<Packing>,
    tally: Arc<Tally>,
    /// Unpacked bytes that were read ahead and not taken yet.
    head: Vec<u8>,
    taken: usize,
}

impl Input {
    /// Reads ahead, and unpacks what follows if the first bytes say that it is packed.
    pub(crate) fn new(file: &str, source: Box<dyn Read + Send>) -> Result<Input, TraceError> {
        let tally = Arc::<Tally>::default();
        let source = Box::new(Counted { inner: source, tally: tally.clone() });
        let mut input = Input {
            file: file.to_owned(),
            source,
            packing: None,
            tally,
            head: Vec::new(),
            taken: 0,
        };
        input.look(HEAD_BYTES)?;
        if let Some(packing) = Packing::of(&input.head) {
            input = input.unpacked(packing)?;
            input.look(HEAD_BYTES)?;
        }
        // Text from some editors and spreadsheets begins with a mark that belongs to no column;
        // binary formats have zeros.
        if input.head.starts_with(BYTE_ORDER_MARK) && !input.head.contains(&0) {
            input.taken = BYTE_ORDER_MARK.len();
        }
        Ok(input)
    }

    /// The unpacked bytes at the start, up to [`HEAD_BYTES`]; fewer where the trace has no more.
    pub(crate) fn head(&self) -> &[u8] {
        &self.head[self.taken..]
    }

    /// Whether the whole trace is in [`Input::head`].
    pub(crate) fn head_is_all(&self) -> bool {
        self.head.len() < HEAD_BYTES
    }

    /// The file's name, for messages.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    pub(crate) fn packing(&self) -> Option<Packing> {
        self.packing
    }

    /// A handle on how much of the file was read, for others to keep.
    pub(crate) fn progress(&self) -> Progress {
        Progress(self.tally.clone())
    }

    /// Reads some bytes; 0 at the end.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> Result<usize, TraceError> {
        let head = self.head();
        if !head.is_empty() {
            let bytes = head.len().min(into.len());
            into[..bytes].copy_from_slice(&head[..bytes]);
            self.taken += bytes;
            return Ok(bytes);
        }
        loop {
            match self.source.read(into) {
                Ok(bytes) => return Ok(bytes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failure(error)),
            }
        }
    }

    /// Reads until `into` is full or the trace is at its end.
    pub(crate) fn read_full(&mut self, into: &mut [u8]) -> Result<usize, TraceError> {
        let mut filled = 0;
        while filled < into.len() {
            match self.read(&mut into[filled..])? {
                0 => break,
                bytes => filled += bytes,
            }
        }
        Ok(filled)
    }

    fn look(&mut self, bytes: usize) -> Result<(), TraceError> {
        let mut head = vec![0; bytes];
        let filled = self.read_full(&mut head)?;
        head.truncate(filled);
        (self.head, self.taken) = (head, 0);
        Ok(())
    }

    fn unpacked(mut self, packing: Packing) -> Result<Input, TraceError> {
        let start = io::Cursor::new(std::mem::take(&mut self.head));
        let packed = BufReader::with_capacity(PACKED_BYTES, start.chain(self.source));
        let source = unpack(&self.file, packing, packed)?;
        Ok(Input { source, packing: Some(packing), ..self })
    }

    fn failure(&self, source: io::Error) -> TraceError {
        let (file, at_bytes) = (self.file.clone(), self.tally.bytes.load(Ordering::Relaxed));
        match self.packing {
            Some(packing) if !self.tally.failed.load(Ordering::Relaxed) => {
                TraceError::Packed { file, packing, at_bytes, source }
            }
            _ => TraceError::Read { file, at_bytes, source },
        }
    }
}

/// The unpacked bytes.
#[cfg(feature = "formats")]
fn unpack(
    file: &str,
    packing: Packing,
    packed: impl io::BufRead + Send + 'static,
) -> Result<Box<dyn Read + Send>, TraceError> {
    Ok(match packing {
        Packing::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(packed)),
        Packing::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(packed)),
        Packing::Xz => Box::new(lzma_rust2::XzReader::new_mem_limit(packed, true, DICTIONARY_KIB)),
        Packing::Zstd => match zstd::stream::read::Decoder::with_buffer(packed) {
            Ok(decoder) => Box::new(decoder),
            Err(source) => {
                let file = file.to_owned();
                return Err(TraceError::Packed { file, packing, at_bytes: 0, source });
            }
        },
    })
}

#[cfg(not(feature = "formats"))]
fn unpack(
    file: &str,
    packing: Packing,
    _: impl io::BufRead,
) -> Result<Box<dyn Read + Send>, TraceError> {
    Err(TraceError::NotBuilt { file: file.to_owned(), format: packing.to_string() })
}

/// How much of the file, as it is stored, was read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress(Arc<Tally>);

impl Progress {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Counts bytes that were read past this reader.
    #[cfg(feature = "formats")]
    pub(crate) fn add(&self, bytes: u64) {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
