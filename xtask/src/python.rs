//! Runs the tests of the Python package: makes a virtual environment, installs the package there,
//! and starts Spark on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run::{run, target};

const REQUIREMENTS: &str = "python/requirements.txt";

/// Installs the package for an interpreter and runs the tests. If the environment could not be
/// made, the tests are skipped and the reason is returned; where `CI` is set, that is an error.
pub fn test(
    environment: Result<PathBuf>,
    install: fn(&Path) -> Result<()>,
) -> Result<Option<String>> {
    let python = match environment {
        Ok(python) => python,
        Err(error) if std::env::var_os("CI").is_none() => {
            return Ok(Some(format!("{error:#}")));
        }
        Err(error) => return Err(error),
    };
    install(&python)?;
    let tests = ["-m", "unittest", "discover", "-s", "python/tests"];
    let perdura = target()?.join("debug/perdura");
    // Short runs of Spark are mostly just-in-time compilation, so only the first tier is used.
    let java = ("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1");
    let mut command = Command::new(python);
    command.args(tests).env("PERDURA", perdura).env(java.0, java.1);
    run(command.env("PYTHONWARNINGS", "ignore"))?;
    Ok(None)
}

/// Installs the package as a user gets it: builds its wheel, with the features that it alone needs,
/// and gives it to pip.
pub fn install_wheel(python: &Path) -> Result<()> {
    let wheels = emptied("python/wheels")?;
    let beside = |name: &str| python.with_file_name(name);
    let build = ["build", "--profile", "dev", "--quiet", "--compatibility", "linux", "--out"];
    run(Command::new(beside("maturin"))
        .args(build)
        .arg(&wheels)
        .args(["-m", "python/Cargo.toml"]))?;
    let wheel = fs::read_dir(&wheels)?.next().context("maturin left no wheel")??.path();
    remove_installed(python)?;
    let install = ["install", "--quiet", "--no-deps", "--force-reinstall"];
    run(Command::new(beside("pip")).args(install).arg(wheel))
}

/// Builds what is published: the wheel of the release profile, which fits every Python from the
/// oldest one on, and the source distribution.
pub fn wheel(python: &Path) -> Result<()> {
    let out = emptied("python/dist")?;
    let maturin = || Command::new(python.with_file_name("maturin"));
    let manifest = ["-m", "python/Cargo.toml"];
    let build = ["build", "--release", "--strip", "--compatibility", "linux", "--out"];
    run(maturin().args(build).arg(&out).args(manifest))?;
    run(maturin().args(["sdist", "--out"]).arg(&out).args(manifest))?;
    println!("{}", out.display());
    Ok(())
}

/// A folder of the target folder, without what an earlier build, perhaps of another version, left
/// there.
fn emptied(name: &str) -> Result<PathBuf> {
    let folder = target()?.join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    Ok(folder)
}

/// Installs the files that the wheel would have, with the library that was built with the
/// workspace. A wheel's own library has fewer features, so it and most of what it depends on would
/// be compiled again.
pub fn install_built(python: &Path) -> Result<()> {
    let place = remove_installed(python)?;
    copy(Path::new("python/perdura"), &place)?;
    let library = target()?.join("debug/libperdura_native.so");
    let to = place.join("_native.abi3.so");
    fs::copy(&library, to).with_context(|| library.display().to_string())?;
    Ok(())
}

/// Removes the package's files from an environment. Returns the folder where they belong.
fn remove_installed(python: &Path) -> Result<PathBuf> {
    let words = ["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"];
    let found = Command::new(python).args(words).output().context("the interpreter")?;
    let packages = String::from_utf8(found.stdout)?;
    let place = Path::new(packages.trim()).join("perdura");
    // A relative path would name our own files.
    if !found.status.success() || !place.is_absolute() {
        bail!("{} does not say where its packages are: {packages:?}", python.display());
    }
    if place.exists() {
        fs::remove_dir_all(&place)?;
    }
    Ok(place)
}

/// Copies a folder's Python files with their types, and those of its folders.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &to)?;
        } else if path
            .extension()
            .is_some_and(|end| ["py", "pyi", "typed"].iter().any(|known| end == *known))
        {
            fs::copy(&path, to)?;
        }
    }
    Ok(())
}

/// The interpreter of a virtual environment that has the required packages. The environment is made
/// anew when the requirements have changed.
///
/// # Errors
/// Java, Python's `venv` or the network, which the first installation needs, is missing.
pub fn environment() -> Result<PathBuf> {
    let java = Command::new("java").arg("-version").output();
    if !java.is_ok_and(|java| java.status.success()) {
        bail!("Spark needs Java 17 or newer (Debian: openjdk-17-jre-headless)");
    }
    installed(&target()?.join("python/venv"), REQUIREMENTS)
}

/// The interpreter of the virtual environment at `place`, which has the packages that the file
/// `requirements` names.
///
/// # Errors
/// Python's `venv` or the network, which the first installation needs, is missing.
pub fn installed(place: &Path, requirements: &str) -> Result<PathBuf> {
    let python = place.join("bin/python");
    let required = fs::read_to_string(requirements).with_context(|| requirements.to_owned())?;
    let done = place.join("requirements.txt");
    if fs::read_to_string(&done).is_ok_and(|installed| installed == required) {
        return Ok(python);
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(place))
        .context("a virtual environment (Debian: python3-venv)")?;
    // Most modules are never loaded, and Python compiles the others when it loads them.
    let install =
        ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"];
    run(Command::new(&python).args(install).args(["-r", requirements]))
        .context("packages from PyPI; the network is needed once")?;
    // This file is written last, so that an unfinished environment is made again.
    fs::write(done, required)?;
    Ok(python)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packages_python_files_are_copied_and_compiled_ones_are_not() {
        let place = target().unwrap().join("python-copy");
        let (from, to) = (place.join("from"), place.join("to"));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(from.join("plan/__pycache__")).unwrap();
        for name in ["__init__.py", "_native.abi3.so", "plan/local.py", "plan/__pycache__/x.pyc"] {
            fs::write(from.join(name), name).unwrap();
        }
        copy(&from, &to).unwrap();
        assert!(to.join("__init__.py").is_file() && !to.join("_native.abi3.so").exists());
        assert_eq!(fs::read(to.join("plan/local.py")).unwrap(), b"plan/local.py");
        assert!(!to.join("plan/__pycache__/x.pyc").exists());
        fs::remove_dir_all(place).unwrap();
    }
}
