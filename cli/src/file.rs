//! A settings file: command-line options in TOML, where `memory = "4GiB"` is `--memory 4GiB`.
//! Unknown names are errors. The real command line comes later and wins.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::{ArgAction, CommandFactory};

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
        let is_it = |long| long == name && long != "config" && long != "help";
        let known = command.get_arguments().find(|option| option.get_long().is_some_and(is_it));
        let may_repeat =
            known.is_some_and(|option| matches!(option.get_action(), ArgAction::Append));
        if known.is_none() {
            bail!(
                "{}: unknown setting {name:?}; `perdura {subcommand} --help` lists them",
                path.display()
            );
        }
        let takes_value = known.is_some_and(|option| option.get_action().takes_values());
        match value {
            // The word `false` would be taken for the default, and nobody would be told.
            toml::Value::Boolean(is_on) if takes_value => bail!(
                "{}: {name} = {is_on}: expected text or a number, as after --{name}",
                path.display()
            ),
            toml::Value::Boolean(true) => words.push(format!("--{name}").into()),
            toml::Value::Boolean(false) => {}
            toml::Value::String(text) => words.push(format!("--{name}={text}").into()),
            toml::Value::Integer(number) => words.push(format!("--{name}={number}").into()),
            toml::Value::Array(texts) if may_repeat && texts.iter().all(|text| text.is_str()) => {
                let texts = texts.iter().filter_map(toml::Value::as_str);
                words.extend(texts.map(|text| format!("--{name}={text}").into()));
            }
            other => bail!(
                "{}: {name} = {other}: expected text, a whole number, true or false{}",
                path.display(),
                if may_repeat { ", or a list of texts" } else { "" }
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
        let found = words_of("device = ['/a', '/b,1GiB']").unwrap();
        assert_eq!(found, ["--device=/a", "--device=/b,1GiB"]);
        words_of("device = [1]").unwrap_err();
        for value in [false, true] {
            let error = words_of(&format!("checkpoint = {value}")).unwrap_err().to_string();
            assert!(error.contains("as after --checkpoint"), "{error}");
        }
        assert!(words_of("no-holder = false").unwrap().is_empty());
    }
}
