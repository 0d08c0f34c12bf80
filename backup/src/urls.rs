//! URLs as people may see them.

/// A URL without its password, for an error or a log. What stands for a password in a URL that is
/// wrong counts as one: anything between the first colon behind `:/` or `://` and the last `@`.
#[must_use]
pub fn without_password(url: &str) -> String {
    let hidden = || {
        let (scheme, rest) = url.split_once(":/")?;
        let (who, place) = rest.rsplit_once('@')?;
        let (user, _) = who.split_once(':')?;
        Some(format!("{scheme}:/{user}:…@{place}"))
    };
    hidden().unwrap_or_else(|| url.to_owned())
}

#[cfg(test)]
mod tests {
    use super::without_password;

    #[test]
    fn a_password_is_not_shown_whatever_is_in_it_and_all_else_is() {
        for (url, shown) in [
            ("ssh://u:geheim@h/p", "ssh://u:…@h/p"),
            ("ssh://u:geheim@h:22/p", "ssh://u:…@h:22/p"),
            ("redis://:ge/he@im@h", "redis://:…@h"),
            ("sftp://u:geheim:a@h", "sftp://u:…@h"),
            ("ssh:/u:geheim@h/p", "ssh:/u:…@h/p"),
            ("ssh://u@h:22/p", "ssh://u@h:22/p"),
            ("ssh://h:22/p", "ssh://h:22/p"),
            ("/a:b@c", "/a:b@c"),
            ("h@a:1", "h@a:1"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }
}
