//! The pages of the commands in Markdown, from the description of the command line: one for each
//! command of `perdura`, with what is below it, and one that lists them.

use std::fmt::Write;
use std::path::Path;

use clap::{Arg, Command};

/// A list of pages by their files' names.
type Pages = Vec<(String, String)>;

/// Writes the pages into a directory that is there.
pub fn write(program: Command, dir: &Path) -> std::io::Result<()> {
    pages(program).iter().try_for_each(|(name, text)| std::fs::write(dir.join(name), text))
}

fn pages(mut program: Command) -> Pages {
    program.build();
    let mut list = String::from(
        "# Commands, option by option\n\n`perdura man --markdown docs/cli` has written these pages \
         from the program.\n[Commands by task](../commands.md) shows them at work.\n\n\
         | command | |\n|---|---|\n",
    );
    let mut pages = Pages::new();
    for command in shown(&program) {
        let file = format!("{}.md", command.get_name());
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(list, "| [`perdura {}`]({file}) | {} |", command.get_name(), cell(&about));
        let mut text = String::new();
        describe(command, 1, &mut text);
        pages.push((file, text));
    }
    pages.push(("README.md".into(), list));
    pages
}

/// The commands below this one that its help lists.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help")
}

/// Describes a command under a heading, and what is below it one level deeper.
fn describe(command: &Command, level: usize, text: &mut String) {
    let path = command.get_bin_name().unwrap_or(command.get_name());
    let _ = writeln!(text, "{} {path}\n", "#".repeat(level));
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    for paragraph in about.split("\n\n").filter(|paragraph| !paragraph.is_empty()) {
        let _ = writeln!(text, "{}\n", wrapped(&sentence(paragraph)));
    }
    let usage = command.clone().render_usage().to_string();
    let _ = writeln!(text, "```text\n{}\n```", usage.trim_start_matches("Usage: "));
    let mut headings = Vec::new();
    for argument in arguments(command) {
        if !headings.contains(&heading(argument)) {
            headings.push(heading(argument));
        }
    }
    for of in headings {
        let _ = writeln!(text, "\n| {of} | |\n|---|---|");
        for argument in arguments(command).filter(|argument| heading(argument) == of) {
            let _ = writeln!(text, "| {} | {} |", name(argument), meaning(argument));
        }
    }
    for below in shown(command) {
        text.push('\n');
        describe(below, level + 1, text);
    }
}

/// The arguments that the help lists, but for those that each command has.
fn arguments(command: &Command) -> impl Iterator<Item = &Arg> {
    let all = command.get_arguments().filter(|argument| !argument.is_hide_set());
    all.filter(|argument| !matches!(argument.get_id().as_str(), "help" | "version"))
}

fn heading(argument: &Arg) -> &str {
    let other = if argument.is_positional() { "Arguments" } else { "Options" };
    argument.get_help_heading().unwrap_or(other)
}

/// An argument as it is written: `-o, --output <FILE>`.
fn name(argument: &Arg) -> String {
    let takes = argument.get_action().takes_values();
    let values = argument.get_value_names().filter(|_| takes).unwrap_or_default();
    let values: Vec<String> = values.iter().map(|value| format!("<{value}>")).collect();
    let short = argument.get_short().map(|letter| format!("-{letter}"));
    let long = argument.get_long().map(|word| format!("--{word}"));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    format!("`{}`", format!("{} {}", names.join(", "), values.join(" ")).trim())
}

fn meaning(argument: &Arg) -> String {
    let help = argument.get_long_help().or(argument.get_help());
    let mut meaning = sentence(&cell(&help.map(ToString::to_string).unwrap_or_default()));
    let values = argument.get_possible_values();
    let values: Vec<String> = values
        .iter()
        .filter(|value| !value.is_hide_set() && argument.get_action().takes_values())
        .map(|value| match value.get_help() {
            Some(help) => format!("`{}`: {}", value.get_name(), cell(&help.to_string())),
            None => format!("`{}`", value.get_name()),
        })
        .collect();
    if !values.is_empty() {
        let _ = write!(meaning, " One of {}.", values.join("; "));
    }
    let defaults = argument.get_default_values().iter().map(|value| value.to_string_lossy());
    let defaults: Vec<_> = defaults.filter(|_| argument.get_action().takes_values()).collect();
    if !defaults.is_empty() && !argument.is_hide_default_value_set() {
        let _ = write!(meaning, " Default: `{}`.", defaults.join(" "));
    }
    meaning
}

/// A text in one line, with its signs kept as they are.
fn cell(text: &str) -> String {
    plain(&text.split_whitespace().collect::<Vec<_>>().join(" ")).replace('|', "\\|")
}

/// A text whose `<` begin no tags; between backticks they cannot.
fn plain(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let parts = parts.map(|(at, part)| match at % 2 {
        0 => part.replace('<', "&lt;").replace('*', "\\*"),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("`")
}

/// A text with a full stop at its end, which clap removes.
fn sentence(text: &str) -> String {
    let is_ended = text.is_empty() || text.ends_with(['.', ':', '!', '?']);
    format!("{text}{}", if is_ended { "" } else { "." })
}

/// A paragraph in lines of at most 100 columns.
fn wrapped(paragraph: &str) -> String {
    let mut lines = vec![String::new()];
    for word in plain(paragraph).split_whitespace() {
        if lines.last().is_some_and(|line| line.chars().count() + 1 + word.chars().count() > 100) {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            let blank = if line.is_empty() { "" } else { " " };
            let _ = write!(line, "{blank}{word}");
        }
    }
    lines.join("\n")
}
