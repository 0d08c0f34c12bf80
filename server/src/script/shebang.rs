//! The first line of a script: `#!lua flags=...`, and of a library: `#!lua name=...`.

/// What a script says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Flags(u8);

impl Flags {
    pub const NO_WRITES: Self = Self(1);
    pub const ALLOW_OOM: Self = Self(1 << 1);
    pub const ALLOW_STALE: Self = Self(1 << 2);
    pub const NO_CLUSTER: Self = Self(1 << 3);
    pub const ALLOW_CROSS_SLOT_KEYS: Self = Self(1 << 4);
    /// The script has no first line of this kind: it may do what scripts could before there were
    /// flags.
    pub const COMPATIBLE: Self = Self(1 << 7);

    /// The flags with their names, in the order in which they are listed.
    pub const NAMES: [(&str, Self); 5] = [
        ("no-writes", Self::NO_WRITES),
        ("allow-oom", Self::ALLOW_OOM),
        ("allow-stale", Self::ALLOW_STALE),
        ("no-cluster", Self::NO_CLUSTER),
        ("allow-cross-slot-keys", Self::ALLOW_CROSS_SLOT_KEYS),
    ];

    /// The flag of this name.
    pub fn named(name: &[u8]) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, flag)| *flag)
    }

    pub fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }

    pub fn add(&mut self, flag: Self) {
        self.0 |= flag.0;
    }
}

/// The flags of a script's code, if its first line is right.
pub(crate) fn flags_of_code(code: &[u8]) -> Option<Flags> {
    script(code).ok().map(|(flags, _)| flags)
}

/// The first line's words, and where the code begins: at the line's end, so that lines keep their
/// numbers.
fn first_line(code: &[u8]) -> Option<(Option<Vec<Vec<u8>>>, usize)> {
    let end = code.iter().position(|byte| *byte == b'\n')?;
    Some((crate::resp::split_words(&code[..end]), end))
}

/// Takes a script apart: its flags, and where its code begins.
///
/// # Errors
/// The first line is wrong; the text is Redis'.
pub(crate) fn script(code: &[u8]) -> Result<(Flags, usize), String> {
    if !code.starts_with(b"#!") {
        return Ok((Flags::COMPATIBLE, 0));
    }
    let (words, end) = first_line(code).ok_or("Invalid script shebang")?;
    let words = words.filter(|words| !words.is_empty());
    let words = words.ok_or("Invalid engine in script shebang")?;
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    if words[0] != b"#!lua" {
        return Err(format!("Unexpected engine in script shebang: {}", text(&words[0])));
    }
    let mut flags = Flags::default();
    for word in &words[1..] {
        let Some(names) = word.strip_prefix(b"flags=") else {
            return Err(format!("Unknown lua shebang option: {}", text(word)));
        };
        for name in names.split(|byte| *byte == b',').filter(|_| !names.is_empty()) {
            let flag = Flags::named(name);
            flags.add(
                flag.ok_or_else(|| format!("Unexpected flag in script shebang: {}", text(name)))?,
            );
        }
    }
    Ok((flags, end))
}

/// Takes a library apart: its name, and where its code begins.
///
/// # Errors
/// The first line is wrong; the text is Redis'.
pub(crate) fn library(code: &[u8]) -> Result<(String, usize), String> {
    if !code.starts_with(b"#!") {
        return Err("Missing library metadata".to_owned());
    }
    let invalid = "Invalid library metadata";
    let (words, end) = first_line(code).ok_or(invalid)?;
    let words = words.filter(|words| !words.is_empty()).ok_or(invalid)?;
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let mut name = None;
    for word in &words[1..] {
        match word.get(..5) {
            Some(head) if head.eq_ignore_ascii_case(b"name=") => {
                if name.replace(text(&word[5..])).is_some() {
                    return Err(
                        "Invalid metadata value, name argument was given multiple times".to_owned()
                    );
                }
            }
            _ => return Err(format!("Invalid metadata value given: {}", text(word))),
        }
    }
    let name = name.ok_or("Library name was not given")?;
    check_name(name.as_bytes())?;
    match words[0].get(2..).unwrap_or_default() {
        engine if engine.eq_ignore_ascii_case(b"lua") => Ok((name, end)),
        engine => Err(format!("Engine '{}' not found", text(engine))),
    }
}

/// Refuses a name that a library or a function cannot have.
pub(crate) fn check_name(name: &[u8]) -> Result<(), String> {
    if !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
        return Ok(());
    }
    Err("Library names can only contain letters, numbers, or underscores(_) and must be at least \
         one character long"
        .to_owned())
}

/// The name that a library's first line says.
///
/// # Errors
/// The first line is wrong; the text is Redis'.
pub(crate) fn library_name(code: &[u8]) -> Result<String, String> {
    library(code).map(|(name, _)| name)
}
