//! Result files. They are checked before the work, because nobody wants to wait for a result that
//! cannot be written, and written after it, whole or not at all. Their old content stays until
//! then. No result file may be an input.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// The word for standard output.
const STDOUT: &str = "-";

/// A file to be written, or standard output, and the option that names it.
#[derive(Debug)]
pub struct Output {
    option: &'static str,
    path: PathBuf,
}

impl Output {
    /// The file of `--option`, if it is given; nothing in it changes yet.
    pub fn of(option: &'static str, path: Option<&Path>) -> Result<Option<Self>> {
        let Some(path) = path else { return Ok(None) };
        let output = Self { option, path: path.to_owned() };
        if output.is_stdout() {
            return Ok(Some(output));
        }
        output.try_out().with_context(|| output.name())?;
        Ok(Some(output))
    }

    /// Whether this is standard output, to which nothing else may be printed then.
    pub fn is_stdout(&self) -> bool {
        self.path.as_os_str() == STDOUT
    }

    /// Refuses outputs that are also inputs, or the same file twice.
    pub fn keep_apart(outputs: &[&Self], inputs: &[PathBuf]) -> Result<()> {
        for (at, output) in outputs.iter().enumerate() {
            let Some(place) = output.place() else { continue };
            for input in inputs {
                ensure!(
                    place_of_input(input).as_ref() != Some(&place),
                    "{}: that is to be read; give another file",
                    output.name()
                );
            }
            for other in &outputs[..at] {
                ensure!(
                    other.place().as_ref() != Some(&place),
                    "{}: that is the file of --{}; give another",
                    output.name(),
                    other.option
                );
            }
        }
        Ok(())
    }

    /// Replaces the content of the file by `bytes`.
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        self.replace(bytes).with_context(|| self.name())
    }

    fn name(&self) -> String {
        format!("--{} {}", self.option, self.path.display())
    }

    fn try_out(&self) -> Result<()> {
        match fs::metadata(&self.path) {
            Ok(about) if about.is_dir() => bail!("is a directory; give a file"),
            Ok(about) if about.is_file() => {
                File::options().write(true).open(&self.path)?;
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                tempfile::tempfile_in(folder(&self.path))?;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// The path of the file, with links resolved; `None` for a pipe or a device, which several
    /// outputs may share.
    fn place(&self) -> Option<PathBuf> {
        if self.is_stdout() {
            return Some(self.path.clone());
        }
        match fs::metadata(&self.path) {
            Ok(about) if !about.is_file() => None,
            Ok(_) => fs::canonicalize(&self.path).ok(),
            Err(_) => Some(fs::canonicalize(folder(&self.path)).ok()?.join(self.path.file_name()?)),
        }
    }

    fn replace(&self, bytes: &[u8]) -> Result<()> {
        if self.is_stdout() {
            return match io::stdout().write_all(bytes) {
                // The reader has gone, because it has seen enough.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
                written => Ok(written?),
            };
        }
        let mode = match fs::metadata(&self.path) {
            // A terminal or a pipe has no content to replace.
            Ok(about) if !about.is_file() => {
                return Ok(File::options().write(true).open(&self.path)?.write_all(bytes)?);
            }
            Ok(about) => Some(about.permissions()),
            Err(_) => None,
        };
        // Through a link the file behind it is replaced, not the link.
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let mut file = tempfile::Builder::new()
            .prefix(".perdura-")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder(&path))?;
        file.write_all(bytes)?;
        if let Some(mode) = mode {
            file.as_file().set_permissions(mode)?;
        }
        // The bytes are synced before the file gets its name, so that a loss of power leaves the
        // old file or the new one, not an empty one.
        file.as_file().sync_all()?;
        file.persist(&path)?;
        Ok(())
    }
}

/// The two files of most results: JSON for programs and a page for people.
#[derive(Debug)]
pub struct Outputs {
    json: Option<Output>,
    html: Option<Output>,
}

impl Outputs {
    /// The files of `--json` and `--html`, if they are given. They must differ from each other and
    /// from all `inputs`.
    pub fn of(json: Option<&Path>, html: Option<&Path>, inputs: &[PathBuf]) -> Result<Self> {
        let outputs = Self { json: Output::of("json", json)?, html: Output::of("html", html)? };
        let both: Vec<_> = outputs.json.iter().chain(&outputs.html).collect();
        Output::keep_apart(&both, inputs)?;
        Ok(outputs)
    }

    /// Whether one of them is standard output, to which nothing else may be printed then.
    pub fn take_stdout(&self) -> bool {
        self.json.iter().chain(&self.html).any(Output::is_stdout)
    }

    /// Writes the result, and its page where one is wanted.
    pub fn write(
        &self,
        result: &impl serde::Serialize,
        page: impl FnOnce() -> String,
    ) -> Result<()> {
        if let Some(json) = &self.json {
            let text = serde_json::to_string_pretty(result).context("--json")?;
            json.write((text + "\n").as_bytes())?;
        }
        if let Some(html) = &self.html {
            html.write(page().as_bytes())?;
        }
        Ok(())
    }
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn place_of_input(path: &Path) -> Option<PathBuf> {
    fs::canonicalize(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_stays_until_all_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.json");
        fs::write(&path, "old").unwrap();
        let output = Output::of("json", Some(&path)).unwrap().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        output.write(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_refused_before_the_work_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("no").join("plan.json");
        let error = Output::of("json", Some(&missing)).unwrap_err();
        assert!(error.to_string().starts_with("--json "), "{error}");
        assert!(Output::of("json", Some(dir.path())).is_err());
        Output::of("json", Some(&dir.path().join("plan.json"))).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn neither_a_trace_nor_another_result_is_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let (trace, plan) = (dir.path().join("t.csv"), dir.path().join("plan"));
        fs::write(&trace, "1").unwrap();
        let of = |option, path: &Path| Output::of(option, Some(path)).unwrap().unwrap();
        let inputs = [dir.path().join(".").join("t.csv")];
        let clash = Output::keep_apart(&[&of("json", &trace)], &inputs).unwrap_err();
        assert!(clash.to_string().contains("that is to be read"), "{clash}");
        let both = [&of("json", &plan), &of("html", &plan)];
        let clash = Output::keep_apart(&both, &inputs).unwrap_err();
        assert!(clash.to_string().contains("the file of --json"), "{clash}");
        Output::keep_apart(&[&of("json", &plan)], &inputs).unwrap();
        let stdout = Path::new(STDOUT);
        assert!(Output::keep_apart(&[&of("json", stdout), &of("html", stdout)], &[]).is_err());
    }
}
