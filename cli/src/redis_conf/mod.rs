//! Reading a redis.conf, whose directives become options of `serve` or are refused.
//!
//! Every directive of Redis 7.2 has one of three meanings: it stands for an option of `serve`; it
//! changes nothing here; or only those of its values are accepted with which this server does what
//! Redis would do. All lines with another directive or value are
//! refused in one message, because a setting that somebody relies on must not be dropped in
//! silence.

mod lines;
mod table;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, Result, bail};
use perdura_server::ServerConfig;
use perdura_server::parameters::{self, inert};

use lines::Line;
use table::{Meaning, TABLE};

/// The options of `serve` that the file stands for.
pub fn words(path: &Path) -> Result<Vec<OsString>> {
    let lines = read(path)?;
    let (mut words, mut refused) = (Vec::new(), Vec::new());
    for line in &lines {
        match meaning(line) {
            Ok(options) => words.extend(options.into_iter().map(OsString::from)),
            Err(why) => refused.push(format!("  line {}: {}: {why}", line.number, shown(line))),
        }
    }
    words.extend(durability(&lines).map(OsString::from));
    if !refused.is_empty() {
        bail!(
            "{}: this server cannot do what these lines say; remove or change them\n{}",
            path.display(),
            refused.join("\n")
        );
    }
    Ok(words)
}

/// The directives of the file that change nothing, under the reason for it.
pub fn without_meaning(path: &Path) -> Result<BTreeMap<&'static str, Vec<String>>> {
    let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for line in read(path)? {
        let own = TABLE.iter().find(|(directive, _)| *directive == line.directive);
        let why = match (own, inert::find(&line.directive)) {
            (Some((_, Meaning::Nothing(why))), _) => *why,
            (None, Some(parameter)) => parameter.why,
            _ => continue,
        };
        found.entry(why).or_default().push(line.directive);
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Vec<Line>> {
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("a redis.conf at {}", path.display()))?;
    lines::read(&text).map_err(|unreadable| {
        let lines::Unreadable { number, why } = unreadable;
        anyhow::anyhow!("{}:{number}: {why}", path.display())
    })
}

fn meaning(line: &Line) -> Result<Vec<String>, String> {
    let (name, value) = (&line.directive, line.values.join(" "));
    let Some((_, meaning)) = TABLE.iter().find(|(directive, _)| directive == name) else {
        if let Some(parameter) = inert::find(name) {
            return parameter.check_in_file(&value).map(|()| Vec::new());
        }
        // Checked here, so that the message names the line.
        let mut config = ServerConfig::default();
        return match parameters::set(&mut config, name, value.as_bytes()) {
            Some(outcome) => {
                outcome.map(|()| vec![format!("--set={name}={value}")]).map_err(Cow::into_owned)
            }
            None => Err("Redis 7.2 has no such directive".to_owned()),
        };
    };
    match meaning {
        Meaning::Option(convert) => convert(&line.values),
        Meaning::Nothing(_) => Ok(Vec::new()),
        Meaning::Only(accepted, why) => {
            let fits = accepted.iter().any(|accepted| value.eq_ignore_ascii_case(accepted));
            if fits { Ok(Vec::new()) } else { Err((*why).to_owned()) }
        }
    }
}

/// Two directives make one option: only `appendonly yes` with `appendfsync always` acknowledges a
/// write when it is on the SSD. What the others promise is less than this server's usual promise.
fn durability(lines: &[Line]) -> Option<String> {
    let last = |directive: &str| {
        let line = lines.iter().rev().find(|line| line.directive == directive)?;
        line.values.first().map(|value| value.to_ascii_lowercase())
    };
    let is_always = last("appendonly").as_deref() == Some("yes")
        && last("appendfsync").as_deref() == Some("always");
    is_always.then(|| "--durability=fsync".to_owned())
}

/// The line for a message, with its value hidden if it is a secret.
fn shown(line: &Line) -> String {
    if table::SECRET.contains(&line.directive.as_str()) {
        return format!("{} ***", line.directive);
    }
    [std::slice::from_ref(&line.directive), &line.values].concat().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(text: &str) -> Result<Vec<String>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let words = words(file.path())?;
        Ok(words.into_iter().map(|word| word.into_string().unwrap()).collect())
    }

    #[test]
    fn directives_become_options() {
        let text = "port 7000\nbind 10.0.0.1 -::1\nrequirepass \"geheim 1\"\nmaxmemory 2gb\n\
                    dir /data\ntimeout 60\nappendonly yes\nappendfsync always\nsave 900 1\n\
                    maxmemory-policy allkeys-lru";
        let expected = [
            "--port=7000",
            "--bind=10.0.0.1 -::1",
            "--requirepass=geheim 1",
            "--maxmemory=2147483648",
            "--dir=/data/perdura-data",
            "--client-timeout=60s",
            "--set=maxmemory-policy=allkeys-lru",
            "--durability=fsync",
        ];
        assert_eq!(words_of(text).unwrap(), expected);
        assert!(words_of("appendonly yes\nappendfsync everysec").unwrap().is_empty());
    }

    #[test]
    fn all_that_cannot_be_kept_to_is_told_at_once_with_line_and_value_and_without_secrets() {
        let text =
            "port 7000\ntls-ciphers RC4\nmasterauth geheim\nno-such 1\nmaxmemory lots\nport 70000";
        let error = words_of(text).unwrap_err().to_string();
        for part in ["line 2: tls-ciphers RC4", "line 3: masterauth ***", "line 4: no-such 1"] {
            assert!(error.contains(part), "{part} in {error}");
        }
        assert!(error.contains("line 6: port 70000: expected a whole number"), "{error}");
        assert!(error.contains("line 5: maxmemory lots") && !error.contains("geheim"), "{error}");
    }

    #[test]
    fn the_file_that_debian_installs_is_taken() {
        let path = Path::new("/etc/redis/redis.conf");
        if !path.exists() {
            println!("skipped: redis-server is not installed");
            return;
        }
        let words = words(path).unwrap();
        let words: Vec<_> = words.iter().filter_map(|word| word.to_str()).collect();
        for word in ["--bind=127.0.0.1 -::1", "--port=6379", "--dir=/var/lib/redis/perdura-data"] {
            assert!(words.contains(&word), "{word} in {words:?}");
        }
    }

    /// `docs/redis-conf.md` lists each directive with what becomes of it.
    #[test]
    fn every_directive_is_documented() {
        let document = include_str!("../../../docs/redis-conf.md");
        let own = TABLE.iter().map(|(directive, _)| *directive);
        let inert = inert::PARAMETERS.iter().map(|parameter| parameter.name);
        for directive in own.chain(inert).chain(parameters::LIVE) {
            assert!(
                document.contains(&format!("`{directive}`")),
                "docs/redis-conf.md lacks {directive}"
            );
        }
    }
}
