//! Checks, before a program is started, that the system will preload a library into it: where it
//! cannot, the system starts the program without the library and without a message.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::io::Errno;

use super::env_words;

/// Scripts that are interpreted by scripts: at this depth the kernel refuses to follow.
const INTERPRETERS_MAX: usize = 5;
/// Bytes of a script's first line that the kernel reads.
const FIRST_LINE_MAX: u64 = 256;
const PT_INTERP: u32 = 3;

/// Finds a program as a shell would.
pub fn find(name: &OsStr) -> Result<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(name));
    }
    let folders = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
    let found = std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| {
        path.metadata()
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    });
    found.with_context(|| format!("{}: not found in PATH", name.display()))
}

/// Refuses a program that would run without the preloaded library. `words` are its arguments, in
/// which `env` names another program.
pub fn check(path: &Path, words: &[OsString]) -> Result<()> {
    let mut path = path.to_owned();
    let mut words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    let mut scripts = 0;
    loop {
        let place = || path.display().to_string();
        if let Some((interpreter, argument)) = interpreter(&path).with_context(place)? {
            scripts += 1;
            if scripts >= INTERPRETERS_MAX {
                bail!("{}: scripts interpreted by scripts, {scripts} deep and more", place());
            }
            (path, words) = (interpreter, argument);
            continue;
        }
        check_elf(&path).with_context(place)?;
        if path.file_name() != Some(OsStr::new("env")) {
            return Ok(());
        }
        // `env` finds the program that it starts as a shell does.
        let Some((name, rest)) = env_words::started(words).with_context(place)? else {
            return Ok(());
        };
        (path, words) = (find(&name)?, rest);
    }
}

/// The interpreter in a script's first line, and its argument before the script: the kernel passes
/// the rest of the line as one word, even if it has spaces in it.
fn interpreter(path: &Path) -> Result<Option<(PathBuf, Vec<Vec<u8>>)>> {
    let mut line = Vec::new();
    File::open(path)?.take(FIRST_LINE_MAX).read_to_end(&mut line)?;
    let Some(rest) = line.strip_prefix(b"#!") else { return Ok(None) };
    let rest = rest.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
    let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
    let (first, argument) = (&rest[..end], rest[end..].trim_ascii());
    if first.is_empty() {
        bail!("the first line names no interpreter");
    }
    let words = (!argument.is_empty()).then(|| argument.to_vec());
    Ok(Some((PathBuf::from(OsStr::from_bytes(first)), words.into_iter().collect())))
}

fn check_elf(path: &Path) -> Result<()> {
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        bail!("not a program");
    }
    let changes_user = metadata.mode() & libc::S_ISUID != 0;
    let changes_group = metadata.mode() & libc::S_ISGID != 0 && metadata.mode() & 0o010 != 0;
    if changes_user || changes_group {
        bail!(
            "it runs as its owner (set-user-ID or set-group-ID), where the system preloads \
             nothing: it would run with its heap and files as they are; use a copy without these \
             permissions"
        );
    }
    if has_capabilities(&file)? && !rustix::process::getuid().is_root() {
        bail!(
            "it has capabilities (setcap), with which the system preloads nothing for anybody but \
             root: it would run with its heap and files as they are; start it as root, or use a \
             copy without them"
        );
    }
    let mut head = [0; 64];
    file.read_exact(&mut head).context("too short for a program")?;
    if head[..4] != *b"\x7fELF" {
        bail!("neither an ELF program nor a script with an interpreter (#!)");
    }
    // Class 64 and little-endian, as the library of this build.
    if head[4] != 2 || head[5] != 1 {
        bail!("not a 64-bit little-endian program: the library cannot be loaded into it");
    }
    let at = u64::from_le_bytes(piece(&head, 32));
    let entry_bytes = u64::from(u16::from_le_bytes(piece(&head, 54)));
    let entries = u64::from(u16::from_le_bytes(piece(&head, 56)));
    if entry_bytes < 56 {
        bail!("damaged: program headers of {entry_bytes} bytes");
    }
    for entry in 0..entries {
        let mut kind = [0; 4];
        let place = at.checked_add(entry * entry_bytes).context("damaged: program headers")?;
        file.seek(SeekFrom::Start(place))?;
        file.read_exact(&mut kind).context("damaged: program headers beyond its end")?;
        if u32::from_le_bytes(kind) == PT_INTERP {
            return Ok(());
        }
    }
    bail!(
        "statically linked: it has no dynamic loader that could preload a library, and would run \
         with its heap and files as they are; use a dynamically linked build"
    )
}

fn has_capabilities(file: &File) -> Result<bool> {
    match rustix::fs::fgetxattr_query(file, c"security.capability") {
        Ok(len_bytes) => Ok(len_bytes > 0),
        // The file has no capabilities, or its file system has no such attributes.
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(errno).context("its capabilities cannot be read"),
    }
}

fn piece<const N: usize>(bytes: &[u8; 64], at: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes[at + index])
}
