//! `perdura export`: all keys of a running server as of one moment, in a dump that Redis loads.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use perdura_media::{Bytes, format_duration};
use perdura_rdb::crc64;
use perdura_terminal::{LateBar, say};

use crate::connection::TlsOptions;
use crate::import::Target;
use crate::password::password;

/// Options of `export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// File to write. What it had before stays until the dump is whole.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Address of the running server: ADDRESS:PORT or a URL, such as `rediss://HOST:PORT`.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6379")]
    from: String,
    /// File with the server's password; or set PERDURA_PASSWORD.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsOptions,
}

/// Bytes that are fetched at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// How often the server is asked how far it is.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// Bytes of the checksum at the end of a dump.
const SUM_BYTES: u64 = 8;

pub fn run(args: &ExportArgs) -> Result<ExitCode> {
    let place = || args.file.display().to_string();
    if args.file.is_dir() {
        bail!("{}: is a directory; give a file", place());
    }
    let parent = args.file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = parent.unwrap_or(Path::new("."));
    // Looked at first: nobody wants to wait for a dump that cannot be written.
    let mut temporary = tempfile::NamedTempFile::new_in(folder).with_context(place)?;
    let password = password(&args.password_file)?;
    let from = args.tls.only_address("--from", &args.from)?;
    let mut server = Target::connect(&from, &args.tls, password.as_deref())?;
    let began = Instant::now();
    server.ask(&["PERDURA", "EXPORT", "BEGIN"])?;
    let bar = LateBar::new("export");
    let (bytes, keys) = wait(&mut server, &bar)?;
    let fetched = fetch(&mut server, temporary.as_file_mut(), bytes, &bar);
    // The server may forget the dump, whatever has become of it.
    let forgotten = server.ask(&["PERDURA", "EXPORT", "END"]);
    bar.finish();
    fetched.with_context(place)?;
    forgotten?;
    temporary.as_file().sync_all().with_context(place)?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    temporary.as_file().set_permissions(mode).with_context(place)?;
    temporary.persist(&args.file).with_context(place)?;
    File::open(folder).and_then(|folder| folder.sync_all()).with_context(place)?;
    let elapsed = began.elapsed();
    say(format_args!(
        "{}: {keys} keys, {} in {}",
        place(),
        Bytes(fs::metadata(&args.file).with_context(place)?.len()),
        format_duration(elapsed)
    ));
    Ok(ExitCode::SUCCESS)
}

/// Waits until the server has made the dump; its bytes and keys.
fn wait(server: &mut Target, bar: &LateBar) -> Result<(u64, u64)> {
    loop {
        let text = server.ask(&["PERDURA", "EXPORT", "STATUS"])?;
        let field = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        let number = |name: &str| -> Result<u64> {
            let value = field(name).and_then(|value| value.parse().ok());
            value.with_context(|| format!("the server answered without {name}: {text:?}"))
        };
        match field("state") {
            Some("running") => bar.step("keys", number("keys")?, number("keys_expected")?),
            Some("done") => return Ok((number("bytes")?, number("keys")?)),
            Some("failed") => {
                bail!("the server could not make the dump: {}", field("why").unwrap_or(""))
            }
            _ => {
                bail!("the dump is gone: another export was begun, or the server was started anew")
            }
        }
        std::thread::sleep(ASK_EVERY);
    }
}

/// Fetches the dump, and compares its checksum.
fn fetch(server: &mut Target, file: &mut File, bytes: u64, bar: &LateBar) -> Result<()> {
    let mut out = BufWriter::with_capacity(PIECE_BYTES as usize, file);
    let (mut at, mut sum, mut last) = (0, 0, Vec::new());
    while at < bytes {
        let (offset, count) = (at.to_string(), PIECE_BYTES.min(bytes - at).to_string());
        let words = ["PERDURA", "EXPORT", "READ", &offset, &count];
        let piece = server.ask_for_bytes(&words)?;
        if piece.is_empty() {
            bail!("the server gave {at} of {bytes} bytes");
        }
        out.write_all(&piece)?;
        let summed_to = bytes.saturating_sub(SUM_BYTES).saturating_sub(at).min(piece.len() as u64);
        let (summed, rest) = piece.split_at(summed_to as usize);
        sum = crc64(sum, summed);
        last.extend_from_slice(rest);
        at += piece.len() as u64;
        bar.step("bytes", at, bytes);
    }
    out.flush()?;
    if last != sum.to_le_bytes() {
        bail!("the dump was damaged on its way: its checksum is wrong");
    }
    Ok(())
}
