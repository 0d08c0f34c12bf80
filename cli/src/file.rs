//! A settings file: command-line options in TOML, where `memory = "4GiB"` is `--memory 4GiB`.
//! Unknown names are errors. The real command line comes later and wins.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::CommandFactory;

use crate::args::Cli;

/// The command-line words for which the file stands, in the order of the file.
pub fn words(path: &Path, subcommand: &str) -> Result<Vec<OsString>> {
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("--config {}", path.display()))?;
    let table: toml::Table =
        toml::from_str(&text).with_context(|| format!("{} is not TOML", path.display()))?;
    let cli = Cli::command();
    let command = cli.find_subcommand(subcommand).context("no such subcommand")?;
    let mut words = Vec::new();
    for (name, value) in table {
        let known = command
            .get_arguments()
            .filter_map(|argument| argument.get_long())
            .any(|long| long == name && long != "config" && long != "help");
        if !known {
            bail!(
                "{}: unknown setting {name:?}; `perdura {subcommand} --help` lists them",
                path.display()
            );
        }
        match value {
            toml::Value::Boolean(true) => words.push(format!("--{name}").into()),
            toml::Value::Boolean(false) => {}
            toml::Value::String(text) => words.push(format!("--{name}={text}").into()),
            toml::Value::Integer(number) => words.push(format!("--{name}={number}").into()),
            other => bail!(
                "{}: {name} = {other}: expected text, a whole number, true or false",
                path.display()
            ),
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(text: &str) -> Result<Vec<OsString>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        words(file.path(), "serve")
    }

    #[test]
    fn settings_become_options() {
        let found = words_of("memory = '4GiB'\nno-holder = true\nmax-clients = 5").unwrap();
        let mut found: Vec<_> = found.iter().map(|word| word.to_str().unwrap()).collect();
        found.sort_unstable();
        assert_eq!(found, ["--max-clients=5", "--memory=4GiB", "--no-holder"]);
    }

    #[test]
    fn an_unknown_setting_is_named() {
        let error = words_of("memroy = '4GiB'").unwrap_err().to_string();
        assert!(error.contains("memroy"), "{error}");
        words_of("config = 'x'").unwrap_err();
        words_of("memory = ['x']").unwrap_err();
        words_of("memory = ").unwrap_err();
    }
}
