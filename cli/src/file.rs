//! A settings file: command-line options in TOML, where `memory = "4GiB"` is `--memory 4GiB`.
//! Unknown names are errors. The real command line comes later and wins.
//!
//! Each mistake is told with the file and the line, also one that is found only when the options
//! are used: its error names the options, and the file knows on which lines it has them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow, bail};
use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory, Parser};
use perdura_backup::without_password;
use toml::Spanned;

use crate::args::Cli;

/// The settings of a file, in the order of their lines.
#[derive(Debug)]
pub struct SettingsFile {
    path: PathBuf,
    settings: Vec<Setting>,
}

#[derive(Debug)]
struct Setting {
    line: usize,
    name: String,
    value: toml::Value,
    /// The command-line words for which it stands.
    words: Vec<OsString>,
}

impl SettingsFile {
    /// Reads the file of a subcommand.
    ///
    /// # Errors
    /// The file cannot be read, is no TOML, or has an unknown setting or a value of another kind.
    pub fn read(path: &Path, subcommand: &str) -> Result<Self> {
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("--config {}", path.display()))?;
        let line = |span: Range<usize>| text[..span.start].matches('\n').count() + 1;
        let table: BTreeMap<Spanned<String>, toml::Value> =
            toml::from_str(&text).map_err(|error| {
                let line = error.span().map_or(1, line);
                // Its value may be a password.
                let told = text.lines().nth(line - 1).and_then(|text| text.split_once('='));
                let name = told.map_or("", |(name, _)| name.trim());
                let is_name = !name.is_empty()
                    && name.bytes().all(|b| b"-_".contains(&b) || b.is_ascii_alphanumeric());
                let name = if is_name { format!("{name}: ") } else { String::new() };
                anyhow!("{}:{line}: {name}not TOML: {}", path.display(), error.message())
            })?;
        let cli = Cli::command();
        let command = cli.find_subcommand(subcommand).context("no such subcommand")?;
        let mut settings = Vec::new();
        for (name, value) in table {
            let (line, name) = (line(name.span()), name.into_inner());
            let mut setting = Setting { line, name, value, words: Vec::new() };
            setting.words = words(command, &setting.name, &setting.value)
                .and_then(|words| check(subcommand, words))
                .with_context(|| setting.place(path))?;
            settings.push(setting);
        }
        settings.sort_by_key(|setting| setting.line);
        Ok(Self { path: path.to_owned(), settings })
    }

    /// The command-line words for which the file stands.
    pub fn words(&self) -> impl Iterator<Item = OsString> {
        self.settings.iter().flat_map(|setting| setting.words.iter().cloned())
    }

    /// Where the file has the options that this text names, unless they are on the command line,
    /// too, which wins.
    pub fn places(&self, text: &str, command_line: &[OsString]) -> Option<String> {
        let is_given =
            |name: &str| command_line.iter().any(|word| names(&word.to_string_lossy(), name));
        let named = |s: &&Setting| names(text, &s.name) && !is_given(&s.name);
        let places: Vec<_> =
            self.settings.iter().filter(named).map(|setting| setting.place(&self.path)).collect();
        (!places.is_empty()).then(|| places.join("; "))
    }

    /// An error of the command, with the places in this file that it is about.
    pub fn locate(&self, error: Error, command_line: &[OsString]) -> Error {
        match self.places(&format!("{error:#}"), command_line) {
            Some(places) => error.context(places),
            None => error,
        }
    }
}

impl Setting {
    fn place(&self, path: &Path) -> String {
        // Errors are logged, and a log is read by more people than the file.
        let is_secret = matches!(self.name.as_str(), "requirepass" | "user");
        let value = match is_secret {
            true => "…".to_owned(),
            false => without_password(&self.value.to_string()),
        };
        format!("{}:{}: {} = {value}", path.display(), self.line, self.name)
    }
}

/// Whether a text has `--name` as a whole word.
fn names(text: &str, name: &str) -> bool {
    let continues = |rest: &str| {
        rest.starts_with(|next: char| next.is_ascii_alphanumeric() || matches!(next, '-' | '_'))
    };
    let option = format!("--{name}");
    text.match_indices(&option).any(|(at, found)| !continues(&text[at + found.len()..]))
}

/// The command-line words of one setting.
fn words(command: &clap::Command, name: &str, value: &toml::Value) -> Result<Vec<OsString>> {
    let is_it = |long| long == name && long != "config" && long != "help";
    let known = command.get_arguments().find(|option| option.get_long().is_some_and(is_it));
    let Some(known) = known else {
        let subcommand = command.get_name();
        bail!("unknown setting {name:?}; `perdura {subcommand} --help` lists them");
    };
    let may_repeat = matches!(known.get_action(), ArgAction::Append);
    Ok(match value {
        // The word `false` would be taken for the default, and nobody would be told.
        toml::Value::Boolean(_) if known.get_action().takes_values() => {
            bail!("expected text or a number, as after --{name}")
        }
        toml::Value::Boolean(true) => vec![format!("--{name}").into()],
        toml::Value::Boolean(false) => Vec::new(),
        toml::Value::String(text) => vec![format!("--{name}={text}").into()],
        toml::Value::Integer(number) => vec![format!("--{name}={number}").into()],
        toml::Value::Array(texts) if may_repeat && texts.iter().all(|text| text.is_str()) => {
            let texts = texts.iter().filter_map(toml::Value::as_str);
            texts.map(|text| format!("--{name}={text}").into()).collect()
        }
        _ => bail!(
            "expected text, a whole number, true or false{}",
            if may_repeat { ", or a list of texts" } else { "" }
        ),
    })
}

/// Refuses words that no command line could have. What only other settings make right or wrong is
/// not looked at here.
fn check(subcommand: &str, words: Vec<OsString>) -> Result<Vec<OsString>> {
    let alone = ["perdura".into(), subcommand.into()].into_iter().chain(words.iter().cloned());
    match Cli::try_parse_from(alone) {
        Err(error)
            if !matches!(
                error.kind(),
                ErrorKind::MissingRequiredArgument | ErrorKind::ArgumentConflict
            ) =>
        {
            let text = error.to_string();
            let why = text.split("\n\nFor more").next().unwrap_or(&text).trim();
            bail!("{}", why.trim_start_matches("error: "))
        }
        _ => Ok(words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(text: &str) -> Result<Vec<OsString>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Ok(SettingsFile::read(file.path(), "serve")?.words().collect())
    }

    #[test]
    fn settings_become_options() {
        let found = words_of("memory = '4GiB'\nno-holder = true\nmax-clients = 5").unwrap();
        assert_eq!(found, ["--memory=4GiB", "--no-holder", "--max-clients=5"]);
    }

    #[test]
    fn an_unknown_setting_is_named() {
        let error = format!("{:#}", words_of("\nmemroy = '4GiB'").unwrap_err());
        assert!(error.contains(":2: memroy = \"4GiB\": unknown setting"), "{error}");
        words_of("config = 'x'").unwrap_err();
        words_of("memory = ['x']").unwrap_err();
        words_of("memory = ").unwrap_err();
        let found = words_of("device = ['/a', '/b,1GiB']").unwrap();
        assert_eq!(found, ["--device=/a", "--device=/b,1GiB"]);
        words_of("device = [1]").unwrap_err();
        for value in [false, true] {
            let error = words_of(&format!("checkpoint = {value}")).unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains("as after --checkpoint"), "{error}");
        }
        assert!(words_of("no-holder = false").unwrap().is_empty());
    }

    #[test]
    fn a_mistake_is_told_with_its_line_and_with_what_is_permitted() {
        for (text, words) in [
            ("threads = 2\nmemory = ", [":2: memory: ", "TOML"]),
            ("io = 'auto'\nio = 'uring'", [":2: io: ", "duplicate key"]),
            ("\nno line of TOML", [":2: not TOML", "expected"]),
            ("\n\nthreads = 'many'", [":3: threads = \"many\"", "invalid digit"]),
            ("port = 70000", [":1: port = 70000", "65535"]),
            ("\nslowlog-log-slower-than = -5", [":2: slowlog-log-slower-than = -5", "-1"]),
        ] {
            let error = format!("{:#}", words_of(text).unwrap_err());
            for word in words {
                assert!(error.contains(word), "{word} in {error}");
            }
        }
    }

    #[test]
    fn errors_of_the_command_get_the_lines_of_the_options_that_they_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "memory = 'a lot'\nmemory-dir = '/x'\ngrace = '1s'").unwrap();
        let read = SettingsFile::read(file.path(), "serve").unwrap();
        let located = |text: &str, given: &[&str]| {
            let given: Vec<_> = given.iter().map(OsString::from).collect();
            format!("{:#}", read.locate(anyhow!("{text}"), &given))
        };
        let path = file.path().display();
        let about_memory = "--memory a lot: expected a size";
        let found = located(about_memory, &[]);
        assert_eq!(found, format!("{path}:1: memory = \"a lot\": {about_memory}"));
        let found = located("give more --grace or less --memory-dir", &[]);
        assert!(found.starts_with(&format!("{path}:2: memory-dir = \"/x\"; {path}:3: grace")));
        for given in [&["--memory=a lot"][..], &["--memory", "a lot"]] {
            assert_eq!(located(about_memory, given), about_memory);
        }
        assert_eq!(located("no space", &[]), "no space");

        let error = format!("{:#}", words_of("requirepass = ['hidden']").unwrap_err());
        assert!(error.contains(":1: requirepass = …: expected text"), "{error}");
        for text in ["requirepass = hidden", "requirepass = 'hidden", "ship = ['s3://u:hidden@b']"]
        {
            let error = format!("{:#}", words_of(text).unwrap_err());
            assert!(!error.contains("hidden"), "{error}");
        }
    }
}
