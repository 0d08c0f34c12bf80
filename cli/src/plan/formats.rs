//! `perdura plan formats`: the formats of traces, and which of them this program reads.

use perdura_plan::trace::{Format, Packing};
use perdura_terminal::say;

/// Prints the formats, one a line.
pub fn list() {
    say(listed(&|format| format.is_in_this_build(), Packing::are_in_this_build()));
}

/// The formats as a table, with those that a build leaves out marked as such.
fn listed(is_read: &dyn Fn(Format) -> bool, unpacks: bool) -> String {
    let mut text = format!("{:<12} {:<6} content\n", "format", "read");
    let said = |is_read| if is_read { "yes" } else { "no" };
    for format in Format::ALL.iter().copied() {
        let read = said(is_read(format));
        text += &format!("{:<12} {read:<6} {}\n", format.name(), format.describe());
    }
    for packing in Packing::ALL {
        let name = packing.to_string();
        text += &format!("{name:<12} {:<6} any of these formats, packed\n", said(unpacks));
    }
    if !unpacks || !Format::ALL.iter().copied().all(is_read) {
        text += "\nThis build leaves out the formats with \"no\". Released programs read all:\n\
                 `cargo xtask release` builds one.\n";
    }
    text += "\nThe format of a file is found by what it holds; --format overrides that.\n\
             Tables (csv, parquet): --columns names the columns, or gives their places from 1, and \
             their units:\n  \
             --columns time=ts:us,op=type,offset=lba:512,size=sectors:512,volume=disk";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_that_the_build_leaves_out_is_marked_with_the_way_to_get_it() {
        let without = listed(&|format| format != Format::Parquet, false);
        let read = |name: &str| {
            let line = without.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap()
        };
        for (name, said) in [("parquet", "no"), ("gzip", "no"), ("csv", "yes"), ("ptrace", "yes")] {
            assert_eq!(read(name), said, "{name} in {without}");
        }
        assert!(without.contains("`cargo xtask release`"), "{without}");
        let with = listed(&|_| true, true);
        assert!(!with.contains("leaves out") && !with.contains(" no "), "{with}");
    }
}
