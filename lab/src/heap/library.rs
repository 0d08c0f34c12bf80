//! Finds rivals' libraries where the dynamic linker would, in the linker's order.

use std::path::{Path, PathBuf};

use super::contestant::Who;

/// Deepest level of files that include others.
const INCLUDES_MAX: usize = 4;

/// A rival's library: its file names, best first, and the Debian package that installs it.
pub fn names(who: Who) -> Option<(&'static [&'static str], &'static str)> {
    match who {
        Who::Jemalloc => Some((&["libjemalloc.so.2"], "libjemalloc2")),
        Who::Mimalloc => Some((&["libmimalloc.so.2", "libmimalloc.so.3"], "libmimalloc2.0")),
        Who::Libpmemobj => Some((&["libpmemobj.so.1"], "libpmemobj1")),
        _ => None,
    }
}

/// The first of the files that exists.
pub fn find(names: &[&str], folders: &[PathBuf]) -> Option<PathBuf> {
    let places = |name: &&str| folders.iter().map(|folder| folder.join(name)).collect::<Vec<_>>();
    names.iter().flat_map(places).find(|path| path.is_file())
}

/// Folders that the dynamic linker searches: from the environment, from its configuration, and its
/// defaults.
pub fn folders() -> Vec<PathBuf> {
    let told = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> =
        std::env::split_paths(&told).filter(|path| !path.as_os_str().is_empty()).collect();
    configured(Path::new("/etc/ld.so.conf"), 0, &mut folders);
    folders.extend(["/lib", "/usr/lib", "/lib64", "/usr/lib64"].map(PathBuf::from));
    folders
}

/// Adds the folders named in a file like `ld.so.conf`; an unreadable file names none, as for the
/// linker.
fn configured(file: &Path, depth: usize, folders: &mut Vec<PathBuf>) {
    let Ok(text) = std::fs::read_to_string(file) else { return };
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        match line.strip_prefix("include").map(str::trim) {
            Some(pattern) if depth < INCLUDES_MAX => {
                matching(&file.with_file_name(pattern))
                    .iter()
                    .for_each(|file| configured(file, depth + 1, folders));
            }
            None if line.starts_with('/') => folders.push(line.into()),
            _ => {}
        }
    }
}

/// Files that match a path whose last part may have one `*`, sorted by name.
fn matching(pattern: &Path) -> Vec<PathBuf> {
    let name = pattern.file_name().unwrap_or_default().to_string_lossy();
    let Some((before, after)) = name.split_once('*') else { return vec![pattern.to_owned()] };
    let entries = pattern.parent().and_then(|folder| std::fs::read_dir(folder).ok());
    let mut found: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.len() >= before.len() + after.len()
                && name.starts_with(before)
                && name.ends_with(after)
        })
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linkers_configuration_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("conf.d")).unwrap();
        std::fs::write(at("ld.conf"), "include conf.d/*.conf\n/last # why\nnot/absolute\n")
            .unwrap();
        std::fs::write(at("conf.d/b.conf"), "/b\n# /none\n").unwrap();
        std::fs::write(at("conf.d/a.conf"), "/a/one\n/a/two\n").unwrap();
        std::fs::write(at("conf.d/a.other"), "/other\n").unwrap();
        let mut folders = Vec::new();
        configured(&at("ld.conf"), 0, &mut folders);
        assert_eq!(folders, ["/a/one", "/a/two", "/b", "/last"].map(PathBuf::from));
    }

    #[test]
    fn a_file_that_includes_itself_ends() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ld.conf"), "include ld.conf\n/a\n").unwrap();
        let mut folders = Vec::new();
        configured(&dir.path().join("ld.conf"), 0, &mut folders);
        assert_eq!(folders.len(), INCLUDES_MAX + 1);
    }

    #[test]
    fn the_better_name_is_taken_before_the_earlier_folder() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        for (folder, name) in [(&one, "worse"), (&two, "better")] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join(name), "").unwrap();
        }
        let folders = [one, two.clone()];
        assert_eq!(find(&["better", "worse"], &folders), Some(two.join("better")));
        assert_eq!(find(&["none"], &folders), None);
        assert!(!super::folders().is_empty());
    }
}
