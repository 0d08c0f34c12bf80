//! `cargo xtask package`: a Debian package, an archive for any Linux, and the context of a container
//! image. `cargo xtask test-package` has the Debian package's life in a clean Debian.

mod archive;
mod context;
mod deb;
mod life;
mod root;
mod stage;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::run;
pub use life::test;
use stage::Stage;

/// What packages are made from.
#[derive(Default)]
pub struct Wanted<'w> {
    /// Whether the development profile is built, which is quicker.
    is_dev: bool,
    /// A program that is there already, in the place of one that is built.
    perdura: Option<&'w str>,
    /// The Debian package's version [default: the workspace's].
    version: Option<&'w str>,
}

impl<'w> Wanted<'w> {
    /// Understands the command's options.
    pub fn parse(options: &[&'w str]) -> Result<Self> {
        let mut wanted = Self::default();
        for pair in options.chunks(2) {
            match pair {
                ["--profile", "dev"] => wanted.is_dev = true,
                ["--profile", "release"] => wanted.is_dev = false,
                ["--perdura", program] => wanted.perdura = Some(program),
                ["--version", version] => wanted.version = Some(version),
                other => bail!("package: unknown option {:?}", other.join(" ")),
            }
        }
        Ok(wanted)
    }

    /// Writes all packages.
    pub fn write(&self) -> Result<()> {
        let stage = Stage::fill(self)?;
        println!("{}", deb::write(&stage, self.version)?.display());
        println!("{}", archive::write(&stage)?.display());
        println!("{}", context::write(&stage)?.display());
        Ok(())
    }
}

/// The folder of the packages.
fn place() -> Result<PathBuf> {
    let place = run::target()?.join("package");
    std::fs::create_dir_all(&place).with_context(|| place.display().to_string())?;
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_understood() {
        let wanted = Wanted::parse(&["--profile", "dev", "--version", "2"]).unwrap();
        assert!(wanted.is_dev && wanted.perdura.is_none());
        assert_eq!(wanted.version, Some("2"));
        assert!(Wanted::parse(&["--perdura"]).is_err());
        assert!(Wanted::parse(&["--profile", "fast"]).is_err());
    }
}
