//! The keyword arguments with which a directory is opened.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use perdura::{Budget, Compression, Durability, Holder, Options};
use perdura_media::{Bytes, parse_duration};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};

use crate::errors::setting;
use crate::key;

/// The options that these keywords ask for. `None` leaves an option at its default, except for
/// `checkpoint_every`, where it means that none are made by time.
pub fn options(py: Python<'_>, words: Option<&Bound<'_, PyDict>>) -> PyResult<Options> {
    let mut options = Options::new();
    let mut holder = None;
    let mut is_held = true;
    let mut has_key = false;
    let mut heeded: Vec<String> = Vec::new();
    for (name, value) in words.into_iter().flatten() {
        let name: String = name.extract()?;
        if value.is_none() && name != "checkpoint_every" {
            continue;
        }
        options = match name.as_str() {
            "memory" => options.memory_bytes(size(&name, &value)?),
            "memory_max" => options.memory_bytes_max(size(&name, &value)?),
            "budget" => options.budget(budget(&value)?),
            "warning" => options.warning(time(&name, &value)?),
            "reserve" => options.reserve(time(&name, &value)?),
            "durability" => options.durability(durability(&value)?),
            "checkpoint_every" => {
                let every = (!value.is_none()).then(|| time(&name, &value)).transpose()?;
                options.checkpoint_every(every)
            }
            "compression" => options.compression(compression(&value)?),
            "holder_wait" => options.holder_wait(time(&name, &value)?),
            "key" | "key_file" if std::mem::replace(&mut has_key, true) => {
                return Err(setting("key and key_file: give one of both"));
            }
            "key" => options.key(key::of_bytes(&value)?),
            "key_file" => options.key(key::of_file(&value)?),
            "memory_dir" => options.memory_dir(value.extract::<PathBuf>()?),
            "flush_threads" => options.flush_threads(value.extract()?),
            "prove_again" => options.prove_again(value.extract()?),
            "guard" => {
                is_held = false;
                options.guard(value.extract::<PathBuf>()?)
            }
            "holder" => {
                match value.cast::<PyBool>() {
                    Ok(wanted) => is_held = wanted.is_true(),
                    Err(_) => holder = Some(Holder::perdura(value.extract::<PathBuf>()?)),
                }
                options
            }
            "holder_heeds" => {
                heeded = value.extract()?;
                options
            }
            _ => {
                return Err(PyTypeError::new_err(format!("there is no option {name:?}")));
            }
        };
    }
    if holder.is_none() && is_held {
        holder = Some(this_interpreter(py)?);
    }
    let holder = holder.map(|holder| heeded.iter().fold(holder, |h, source| h.heeding(source)));
    Ok(holder.into_iter().fold(options, Options::holder))
}

/// This interpreter with the script of the package that holds memory.
fn this_interpreter(py: Python<'_>) -> PyResult<Holder> {
    let words = py.import("perdura.holder")?.call_method0("command")?;
    let (program, arguments): (PathBuf, Vec<OsString>) = words.extract()?;
    Ok(Holder::program(program, arguments))
}

/// Bytes, as a number or as text such as `"64MB"`.
fn size(name: &str, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    if let Ok(text) = value.extract::<String>() {
        return match text.parse::<Bytes>() {
            Ok(Bytes(bytes)) => Ok(bytes),
            Err(error) => Err(setting(format_args!("{name} = {text:?}: {error}"))),
        };
    }
    value.extract().map_err(|_| expected(name, value, "a size: 64 << 20 or \"64MB\""))
}

/// A time: seconds, a `datetime.timedelta`, or text such as `"500ms"`.
pub fn time(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let wrong = || expected(name, value, "a time: 30.0 (seconds), \"30s\" or a timedelta");
    if let Ok(text) = value.extract::<String>() {
        return parse_duration(&text)
            .map_err(|error| setting(format_args!("{name} = {text:?}: {error}")));
    }
    match value.extract::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|_| wrong()),
        Err(_) => value.extract::<Duration>().map_err(|_| wrong()),
    }
}

fn budget(value: &Bound<'_, PyAny>) -> PyResult<Budget> {
    let text = value.extract::<String>();
    if let Some(percent) = text.as_ref().ok().and_then(|text| text.strip_suffix('%')) {
        let percent = percent.trim().parse();
        return percent
            .map(Budget::Percent)
            .map_err(|_| expected("budget", value, "a share such as \"25%\""));
    }
    size("budget", value).map(Budget::Bytes)
}

fn durability(value: &Bound<'_, PyAny>) -> PyResult<Durability> {
    match value.extract::<String>().as_deref() {
        Ok("warned") => Ok(Durability::Warned),
        Ok("fsync") => Ok(Durability::Fsync),
        _ => Err(expected("durability", value, "\"warned\" or \"fsync\"")),
    }
}

fn compression(value: &Bound<'_, PyAny>) -> PyResult<Compression> {
    let name = value.extract::<String>().unwrap_or_default();
    let found = Compression::ALL.into_iter().find(|(known, _)| *known == name);
    found
        .map(|(_, found)| found)
        .ok_or_else(|| expected("compression", value, "\"off\" or \"lz4\""))
}

fn expected(name: &str, value: &Bound<'_, PyAny>, expected: &str) -> PyErr {
    let shown = value.repr().map_or_else(|_| "?".to_owned(), |shown| shown.to_string());
    setting(format_args!("{name} = {shown}: expected {expected}"))
}
