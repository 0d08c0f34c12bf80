//! Reading dumps.

mod packed;
mod source;
mod stream;
mod value;

use std::io::Read;

use crate::VERSION_READ_MAX;
use crate::error::RdbError;
use crate::value::Value;
use value::{Values, module_name};

/// Shown bytes of a key in an error.
const KEY_BYTES_SHOWN: usize = 128;

/// What a dump file consists of.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// Something that the writer said about itself or about the data.
    Aux {
        /// What it is about.
        name: Vec<u8>,
        /// What it says.
        value: Vec<u8>,
    },
    /// How many keys the next database has, about.
    Sizes {
        /// Keys.
        keys: u64,
        /// Keys with an expiry.
        with_expiry: u64,
    },
    /// The source text of a library of functions.
    Function(Vec<u8>),
    /// A module has left something here, which was skipped.
    ModuleAux {
        /// The name of the module's type.
        name: String,
    },
    /// A key.
    Key(KeyItem),
}

/// A key of a dump file.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyItem {
    /// Number of the database.
    pub db: u64,
    /// The key's name.
    pub key: Vec<u8>,
    /// When the key goes away, milliseconds since 1970.
    pub expire_at_ms: Option<u64>,
    /// Seconds since the last use.
    pub idle_seconds: Option<u64>,
    /// How often the key is used, logarithmic.
    pub frequency: Option<u8>,
    /// The value.
    pub value: Value,
}

/// Reads a dump file, item by item.
pub struct Reader<R> {
    values: Values<R>,
    version: u16,
    db: u64,
    is_done: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the beginning of a dump. Each value may take `value_bytes_max` of memory.
    ///
    /// # Errors
    /// It is no dump, or one of a version that is not known.
    pub fn new(reader: R, value_bytes_max: u64) -> Result<Self, RdbError> {
        let mut values = Values::new(reader, None, value_bytes_max);
        let mut head = Vec::new();
        let read = values.source.bytes(9, "its head", &mut head);
        let version = std::str::from_utf8(&head).ok().and_then(|head| head.strip_prefix("REDIS"));
        let version = version.and_then(|digits| digits.parse::<u16>().ok());
        match (read, version) {
            (Err(error @ RdbError::Io { .. }), _) => Err(error),
            (Ok(()), Some(version @ 1..=VERSION_READ_MAX)) => {
                Ok(Self { values, version, db: 0, is_done: false })
            }
            (Ok(()), Some(found)) => Err(RdbError::Version { found, newest: VERSION_READ_MAX }),
            _ => Err(RdbError::NotADump { found: head.escape_ascii().to_string() }),
        }
    }

    /// The version of the dump.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Bytes that were read.
    pub fn offset(&self) -> u64 {
        self.values.source.offset()
    }

    /// The next item; `None` at the end, whose checksum is right.
    ///
    /// # Errors
    /// The dump cannot be read, is damaged or too large, or has a value of an unknown type.
    pub fn next_item(&mut self) -> Result<Option<Item>, RdbError> {
        if self.is_done {
            return Ok(None);
        }
        let (mut expire_at_ms, mut idle_seconds, mut frequency) = (None, None, None);
        loop {
            self.values.recharge();
            let at = "the list of its keys";
            let code = self.values.source.byte(at)?;
            match code {
                // The slot of a cluster that the next keys are of, and their numbers.
                244 => {
                    for _ in 0..3 {
                        self.values.len()?;
                    }
                }
                245 => return self.values.own_string().map(|text| Some(Item::Function(text))),
                246 => return Err(self.values.corrupt("a function of a release candidate of 7.0")),
                247 => return self.module_aux().map(Some),
                248 => idle_seconds = Some(self.values.len()?),
                249 => frequency = Some(self.values.source.byte("a frequency")?),
                250 => {
                    let (name, value) = (self.values.own_string()?, self.values.own_string()?);
                    return Ok(Some(Item::Aux { name, value }));
                }
                251 => {
                    let (keys, with_expiry) = (self.values.len()?, self.values.len()?);
                    return Ok(Some(Item::Sizes { keys, with_expiry }));
                }
                252 => {
                    let ms = i64::from_le_bytes(self.values.source.array("an expiry")?);
                    expire_at_ms = Some(u64::try_from(ms).unwrap_or(0));
                }
                253 => {
                    let seconds = i32::from_le_bytes(self.values.source.array("an expiry")?);
                    expire_at_ms = Some(u64::try_from(seconds).unwrap_or(0) * 1000);
                }
                254 => self.db = self.values.len()?,
                255 => {
                    self.check_sum()?;
                    self.is_done = true;
                    return Ok(None);
                }
                kind => {
                    let key = self.values.own_string()?;
                    self.values.recharge();
                    let db = self.db;
                    let value = match self.values.value(kind) {
                        Ok(value) => value,
                        Err(error @ (RdbError::Io { .. } | RdbError::Truncated { .. })) => {
                            return Err(error);
                        }
                        Err(error) => {
                            let shown = &key[..key.len().min(KEY_BYTES_SHOWN)];
                            let key = shown.escape_ascii().to_string();
                            return Err(RdbError::Key { key, db, error: Box::new(error) });
                        }
                    };
                    let item = KeyItem { db, key, expire_at_ms, idle_seconds, frequency, value };
                    return Ok(Some(Item::Key(item)));
                }
            }
        }
    }

    /// The bytes that were read from the reader and are not the dump's, and the reader.
    pub fn into_rest(self) -> (Vec<u8>, R) {
        self.values.source.into_rest()
    }

    fn check_sum(&mut self) -> Result<(), RdbError> {
        if self.version < 5 {
            return Ok(());
        }
        let summed = self.values.source.sum();
        let found = u64::from_le_bytes(self.values.source.array("its checksum")?);
        // 0 is written where checksums are switched off.
        if found == 0 || found == summed {
            Ok(())
        } else {
            Err(RdbError::Checksum { found, summed })
        }
    }

    fn module_aux(&mut self) -> Result<Item, RdbError> {
        let values = &mut self.values;
        let name = module_name(values.len()?);
        let (_when_code, _when) = (values.len()?, values.len()?);
        loop {
            match values.len()? {
                0 => return Ok(Item::ModuleAux { name }),
                1 | 2 => {
                    values.len()?;
                }
                3 => {
                    values.source.array::<4>("a module's number")?;
                }
                4 => {
                    values.source.array::<8>("a module's number")?;
                }
                5 => {
                    values.own_string()?;
                }
                _ => return Err(values.corrupt("a part of a module's data of an unknown form")),
            }
        }
    }
}

/// Reads one value from bytes of which nothing may be left behind it: the byte that names its
/// encoding, and the value.
pub(crate) fn read_value(bytes: &[u8], max_bytes: u64) -> Result<Value, RdbError> {
    let mut values = Values::new(bytes, Some(bytes.len() as u64), max_bytes);
    let kind = values.source.byte("a value")?;
    let value = values.value(kind)?;
    match values.source.is_at_end()? {
        true => Ok(value),
        false => Err(values.corrupt("bytes behind the value")),
    }
}
