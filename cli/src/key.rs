//! The key of an encrypted image: where it comes from, and the commands that make and change it.

use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
use perdura_guard::forbid_cores;
use perdura_media::FileDevice;
use perdura_media::file::{Direct, Engine, OpenMode};
use perdura_region::directory::IMAGE_NAME;
use perdura_region::{Key, change_key};
use perdura_terminal::say;

/// The environment variable with the key, which no process that a command starts may inherit.
pub const KEY_VARIABLE: &str = "PERDURA_KEY";
/// Most bytes that are read of a file or from a command, which is more than any key has.
const READ_BYTES_MAX: u64 = 4096;

const KEY: &str = "Encryption";

/// Options that give the key of an image.
#[derive(Debug, Default, Args)]
pub struct KeyArgs {
    /// File with the key of the image, which is then encrypted on the SSD (AES-256-GCM): 32 bytes,
    /// or 64 hexadecimal digits. `perdura key generate` makes one. Or set PERDURA_KEY. The data
    /// cannot be read without it: keep a copy elsewhere.
    #[arg(long, value_name = "FILE", help_heading = KEY)]
    pub key_file: Option<PathBuf>,
    /// A shell command that prints the key, as --key-file has it: of a vault, for example.
    #[arg(long, value_name = "COMMAND", conflicts_with = "key_file", help_heading = KEY)]
    pub key_command: Option<String>,
}

impl KeyArgs {
    /// The key, if one is given. There is no core file of this process then.
    pub fn key(&self) -> Result<Option<Key>> {
        if let Some(path) = &self.key_file {
            return of_file("key-file", path).map(Some);
        }
        if let Some(command) = &self.key_command {
            forbid_cores();
            return of_command(command).map(Some);
        }
        match std::env::var(KEY_VARIABLE) {
            Ok(text) => {
                forbid_cores();
                parse(text.as_bytes()).context(KEY_VARIABLE).map(Some)
            }
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(error) => Err(error).context(KEY_VARIABLE),
        }
    }
}

/// Options of `key`.
#[derive(Debug, Args)]
pub struct KeyCommandArgs {
    #[command(subcommand)]
    what: KeyCommand,
}

#[derive(Debug, Subcommand)]
enum KeyCommand {
    /// Write a new random key to a file that only its owner can read.
    Generate {
        /// The file, which must not exist yet.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Give the image in a directory another key. Its data are not written anew: the image has a
    /// key of its own, which is encrypted by the given one. No process may use the directory.
    Change {
        /// Directory of the data.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        #[command(flatten)]
        old: KeyArgs,
        /// File with the new key.
        #[arg(long, value_name = "FILE")]
        new_key_file: PathBuf,
    },
}

pub fn run(args: &KeyCommandArgs) -> Result<ExitCode> {
    match &args.what {
        KeyCommand::Generate { file } => generate(file)?,
        KeyCommand::Change { dir, old, new_key_file } => change(dir, old, new_key_file)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn generate(path: &Path) -> Result<()> {
    let place = || path.display().to_string();
    let key = Key::random()?;
    let digits: String = key
        .words()
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .map(|b| format!("{b:02x}"))
        .collect();
    let mut options = std::fs::OpenOptions::new();
    let mut file =
        options.write(true).create_new(true).mode(0o600).open(path).with_context(place)?;
    file.write_all(format!("{digits}\n").as_bytes()).with_context(place)?;
    file.sync_all().with_context(place)?;
    // A key whose name a power cut takes away is lost with its data.
    let folder = perdura_media::file::parent(path);
    let folder_synced = std::fs::File::open(folder).and_then(|folder| folder.sync_all());
    folder_synced.with_context(|| folder.display().to_string())?;
    say(format_args!(
        "a new key is in {}: keep a copy where the SSD is not, for without it the data are lost",
        path.display()
    ));
    Ok(())
}

fn change(dir: &Path, old: &KeyArgs, new_key_file: &Path) -> Result<()> {
    let Some(old) = old.key()? else {
        bail!("the key that the image has now is missing: give --key-file, or set {KEY_VARIABLE}");
    };
    let new = of_file("new-key-file", new_key_file)?;
    let path = dir.join(IMAGE_NAME);
    let place = || path.display().to_string();
    let device = FileDevice::open(&path, OpenMode::Existing, Engine::Pwrite, Direct::Off)
        .with_context(place)?;
    ensure!(
        device.try_lock().with_context(place)?,
        "{}: a process uses it: end the server, and `perdura flush` its holder",
        path.display()
    );
    change_key(&device, &old, &new).with_context(place)?;
    say(format_args!(
        "{} has the new key; keep the old one as long as there are restore points or copies of the \
         image from before, which still need it",
        path.display()
    ));
    Ok(())
}

/// The key in the file that an option names. There is no core file of this process from then on.
pub fn of_file(option: &str, path: &Path) -> Result<Key> {
    forbid_cores();
    let place = || format!("--{option} {}", path.display());
    let file = std::fs::File::open(path).with_context(place)?;
    let mode = file.metadata().with_context(place)?.permissions().mode();
    if mode & 0o077 != 0 {
        tracing::warn!("{}: other users can read it (mode {:03o})", place(), mode & 0o777);
    }
    let mut bytes = Vec::new();
    file.take(READ_BYTES_MAX).read_to_end(&mut bytes).with_context(place)?;
    parse(&bytes).with_context(place)
}

fn of_command(command: &str) -> Result<Key> {
    let place = || format!("--key-command {command}");
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .env_remove(KEY_VARIABLE);
    let mut child = shell.spawn().with_context(place)?;
    let mut bytes = Vec::new();
    if let Some(output) = child.stdout.take() {
        output.take(READ_BYTES_MAX).read_to_end(&mut bytes).with_context(place)?;
    }
    let status = child.wait().with_context(place)?;
    ensure!(status.success(), "{}: it ended with {status}", place());
    parse(&bytes).with_context(place)
}

/// A key in either form. No error shows what was found.
fn parse(bytes: &[u8]) -> Result<Key> {
    Key::parse(bytes).context("it is no key: expected 32 bytes, or 64 hexadecimal digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_prints_the_key_and_one_that_fails_is_named() {
        let digits = "ab".repeat(32);
        assert!(of_command(&format!("echo {digits}")).unwrap() == Key::new([0xab; 32]));
        let error = format!("{:#}", of_command(&format!("echo {digits}; exit 3")).unwrap_err());
        assert!(error.contains("exit status: 3"), "{error}");
        of_command("true").unwrap_err();
    }
}
