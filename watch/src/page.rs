//! The page: one file, with its style and its script in it.

use axum::http::HeaderValue;
use sha2::{Digest, Sha256};

use crate::access::base64;

const HTML: &str = concat!(
    include_str!("page/head.html"),
    "<style>",
    include_str!("page/page.css"),
    "</style>",
    include_str!("page/body.html"),
    "<script>",
    include_str!("page/page.js"),
    "</script></body></html>\n"
);

/// The page and the policy that lets a browser do only what it needs: run this one script, apply
/// this one style, and ask this server.
#[derive(Debug)]
pub struct Page {
    pub html: &'static str,
    pub policy: HeaderValue,
}

impl Page {
    pub fn new() -> Self {
        let hash = |text: &str| format!("'sha256-{}'", base64(&Sha256::digest(text.as_bytes())));
        let policy = format!(
            "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src data:; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            hash(include_str!("page/page.js")),
            hash(include_str!("page/page.css")),
        );
        // Of visible characters only.
        let policy = HeaderValue::try_from(policy);
        Self {
            html: HTML,
            policy: policy.unwrap_or(HeaderValue::from_static("default-src 'none'")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_asks_nobody_else() {
        assert!(HTML.len() < 300_000, "{}", HTML.len());
        for unwanted in ["http://", "https://", "src=", "@import", "url(", "eval(", "style=\""] {
            assert!(!HTML.contains(unwanted), "{unwanted}");
        }
        let policy = Page::new().policy;
        assert!(policy.to_str().unwrap().contains("script-src 'sha256-"));
    }
}
