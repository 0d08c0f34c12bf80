//! Standard input as a trace, `-`. A pipe that is read once is read as it comes. A pipe that
//! replays will read again is first copied to an unnamed file, which then becomes standard input,
//! so that each reader can open `/dev/stdin` anew, as with `- < FILE`.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use perdura_terminal::LateBar;

/// The word for standard input.
const DASH: &str = "-";
/// The path of standard input.
const PLACE: &str = "/dev/stdin";
/// How many bytes are copied at once.
const COPY_BYTES: usize = 1 << 20;

/// The files, with the path of standard input in the place of `-`.
pub fn placed(files: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let is_dash = |path: &&PathBuf| path.as_os_str() == DASH;
    ensure!(
        files.iter().filter(is_dash).count() <= 1,
        "`-`, standard input, is given twice, and can be read once"
    );
    Ok(files.iter().map(|path| if is_dash(&path) { PLACE.into() } else { path.clone() }).collect())
}

/// Makes sure that standard input, if it is among the files as given, can be opened, and opened
/// `again` where that is asked for.
pub fn keep(files: &[PathBuf], again: bool) -> Result<()> {
    let folder = std::env::temp_dir();
    if !files.iter().any(|path| path.as_os_str() == DASH) {
        return Ok(());
    }
    let kind = std::fs::metadata(PLACE).context("standard input")?.file_type();
    // A socket cannot be opened by a path, so it is always copied.
    if kind.is_file() || !(again || kind.is_socket()) {
        return Ok(());
    }
    let kept = kept(&mut io::stdin().lock(), &folder).with_context(|| {
        format!(
            "standard input, kept in {} for sizing, which reads a trace several times (TMPDIR \
             names another folder; --no-sizing does without)",
            folder.display()
        )
    })?;
    rustix::stdio::dup2_stdin(&kept).context("standard input")
}

fn kept(from: &mut dyn Read, folder: &Path) -> io::Result<File> {
    let mut to = tempfile::tempfile_in(folder)?;
    let bar = LateBar::new("keeping standard input");
    let (mut buffer, mut done_bytes) = (vec![0; COPY_BYTES], 0);
    loop {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(bytes) => {
                to.write_all(&buffer[..bytes])?;
                done_bytes += bytes as u64;
                bar.bytes(done_bytes, done_bytes);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bar.finish();
    Ok(to)
}
