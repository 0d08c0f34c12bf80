//! A vault in a bucket of an S3-compatible store.
//!
//! Requests are signed as AWS Signature Version 4 says. The usual variables say how: AWS_REGION or
//! AWS_DEFAULT_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN,
//! AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL (then the bucket is in the path), AWS_CA_BUNDLE.

use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::digest::{SHA256, digest};
use ring::hmac::{self, HMAC_SHA256};
use ureq::http::Method;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

use super::{Listed, Listing, Vault, VaultError};
use crate::error::BackupError;
use crate::time::compact;

/// Time within which a request must be answered.
const PATIENCE: Duration = Duration::from_secs(60);
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// Most bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// A bucket, or what is below a prefix in it.
pub struct S3 {
    agent: Agent,
    /// `https://HOST`, then `/BUCKET` if the bucket is no part of the host's name.
    host: String,
    scheme: String,
    bucket_path: String,
    /// Empty, or with `/` at its end.
    prefix: String,
    region: String,
    key_id: String,
    secret: String,
    token: Option<String>,
    url: String,
}

impl S3 {
    /// The vault at `s3://BUCKET/PREFIX`, given what comes behind `s3://`.
    ///
    /// # Errors
    /// The URL is none, or the environment says too little.
    pub fn from_environment(place: &str) -> Result<Self, BackupError> {
        let refused = |why: String| BackupError::Refused(format!("s3://{place}: {why}"));
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let needed = |name: &str| {
            variable(name).ok_or_else(|| refused(format!("the variable {name} is not set")))
        };
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        let prefix = prefix.trim_matches('/');
        let is_plain =
            |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._/".contains(&b));
        if bucket.is_empty() || !is_plain(bucket) || !is_plain(prefix) {
            let why = "expected BUCKET/PREFIX of letters, digits, `-`, `.`, `_` and `/`";
            return Err(refused(why.into()));
        }
        let region = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
        let region = region.unwrap_or_else(|| "us-east-1".to_owned());
        let endpoint = variable("AWS_ENDPOINT_URL_S3").or_else(|| variable("AWS_ENDPOINT_URL"));
        let (scheme, host, bucket_path) = match &endpoint {
            Some(endpoint) => {
                let (scheme, rest) = endpoint.split_once("://").ok_or_else(|| {
                    refused(format!("{endpoint}: expected http://HOST or https://HOST"))
                })?;
                (scheme.to_owned(), rest.trim_end_matches('/').to_owned(), format!("/{bucket}"))
            }
            None => {
                let host = format!("{bucket}.s3.{region}.amazonaws.com");
                ("https".to_owned(), host, String::new())
            }
        };
        let mut config = Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .timeout_connect(Some(CONNECT_PATIENCE))
            .http_status_as_error(false)
            .max_redirects(0);
        if let Some(path) = variable("AWS_CA_BUNDLE") {
            let pem = std::fs::read(&path)
                .map_err(|source| BackupError::File { path: path.into(), source })?;
            let certificates: Vec<Certificate<'static>> = parse_pem(&pem)
                .filter_map(|item| match item {
                    Ok(PemItem::Certificate(certificate)) => Some(certificate),
                    _ => None,
                })
                .collect();
            let roots = RootCerts::from(certificates);
            config = config.tls_config(TlsConfig::builder().root_certs(roots).build());
        }
        Ok(Self {
            agent: config.build().into(),
            host,
            scheme,
            bucket_path,
            prefix: if prefix.is_empty() { String::new() } else { format!("{prefix}/") },
            region,
            key_id: needed("AWS_ACCESS_KEY_ID")?,
            secret: needed("AWS_SECRET_ACCESS_KEY")?,
            token: variable("AWS_SESSION_TOKEN"),
            url: format!("s3://{place}"),
        })
    }

    /// Makes a request, whose path and query need no escapes but those they have. Returns the
    /// status and the body of the answer.
    fn ask(
        &self,
        method: Method,
        path: &str,
        query: &str,
        body: &[u8],
    ) -> Result<(u16, Vec<u8>), String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let (date, time) = date_and_time(now.as_millis() as u64);
        let hash = hex(digest(&SHA256, body).as_ref());
        let mut headers = vec![
            ("host", self.host.clone()),
            ("x-amz-content-sha256", hash.clone()),
            ("x-amz-date", time.clone()),
        ];
        headers.extend(self.token.clone().map(|token| ("x-amz-security-token", token)));
        let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let mut canonical = format!("{method}\n{path}\n{query}\n");
        for (name, value) in &headers {
            let _ = writeln!(canonical, "{name}:{value}");
        }
        let _ = write!(canonical, "\n{names}\n{hash}");
        let scope = format!("{date}/{}/s3/aws4_request", self.region);
        let of_it = hex(digest(&SHA256, canonical.as_bytes()).as_ref());
        let signed = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{of_it}");
        let mut key = format!("AWS4{}", self.secret).into_bytes();
        for part in [&*date, &*self.region, "s3", "aws4_request"] {
            key = mac(&key, part.as_bytes());
        }
        let signature = hex(&mac(&key, signed.as_bytes()));
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
            self.key_id
        );
        let mark = if query.is_empty() { "" } else { "?" };
        let mut request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("{}://{}{path}{mark}{query}", self.scheme, self.host))
            .header("authorization", authorization);
        for (name, value) in headers.iter().skip(1) {
            request = request.header(*name, value);
        }
        let request = request.body(body).map_err(|error| error.to_string())?;
        let answer = self.agent.run(request).map_err(|error| error.to_string())?;
        let (head, mut body): (_, Body) = answer.into_parts();
        let bytes = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        Ok((head.status.as_u16(), bytes.map_err(|error| error.to_string())?))
    }

    fn object(&self, name: &str) -> String {
        format!("{}/{}{name}", self.bucket_path, self.prefix)
    }

    fn done(
        &self,
        what: &'static str,
        name: &str,
        answer: Result<(u16, Vec<u8>), String>,
    ) -> Result<Vec<u8>, VaultError> {
        let (why, is_missing) = match answer {
            Ok((200..300, body)) => return Ok(body),
            Ok((status, body)) => {
                let text = String::from_utf8_lossy(&body);
                let part = |name| between(&text, name).next().unwrap_or_default();
                let (code, message) = (part("Code"), part("Message"));
                (format!("status {status} {code} {message}"), status == 404)
            }
            Err(why) => (why, false),
        };
        Err(VaultError { what, name: name.to_owned(), vault: self.describe(), why, is_missing })
    }
}

impl Vault for S3 {
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), VaultError> {
        let answer = self.ask(Method::PUT, &self.object(name), "", bytes);
        self.done("put", name, answer).map(drop)
    }

    fn get(&self, name: &str) -> Result<Vec<u8>, VaultError> {
        self.done("get", name, self.ask(Method::GET, &self.object(name), "", b""))
    }

    fn list(&self, folder: &str) -> Result<Listing, VaultError> {
        let mut listing = Listing::default();
        let slash = if folder.is_empty() { "" } else { "/" };
        let prefix = format!("{}{folder}{slash}", self.prefix);
        let mut next: Option<String> = None;
        loop {
            // In the order of the names, as the signature wants it.
            let token = next.take();
            let token = token
                .map_or(String::new(), |token| format!("continuation-token={}&", escaped(&token)));
            let query = format!("{token}delimiter=%2F&list-type=2&prefix={}", escaped(&prefix));
            let path = if self.bucket_path.is_empty() { "/" } else { &self.bucket_path };
            let answer = self.ask(Method::GET, path, &query, b"");
            let body = self.done("list", folder, answer)?;
            let text = String::from_utf8_lossy(&body);
            for object in between(&text, "Contents") {
                let part = |name| between(object, name).next();
                if let (Some(key), Some(bytes)) = (part("Key"), part("Size"))
                    && let Some(name) = key.strip_prefix(&self.prefix)
                    && let Ok(bytes) = bytes.parse()
                {
                    listing.objects.push(Listed { name: name.to_owned(), bytes });
                }
            }
            for inner in between(&text, "CommonPrefixes") {
                let name = between(inner, "Prefix").next().and_then(|p| p.strip_prefix(&prefix));
                listing.folders.extend(name.map(|name| name.trim_end_matches('/').to_owned()));
            }
            next = between(&text, "NextContinuationToken").next().map(str::to_owned);
            if next.is_none() {
                listing.objects.sort_unstable();
                listing.folders.sort_unstable();
                return Ok(listing);
            }
        }
    }

    fn delete(&self, name: &str) -> Result<(), VaultError> {
        match self.done("delete", name, self.ask(Method::DELETE, &self.object(name), "", b"")) {
            Err(error) if !error.is_missing => Err(error),
            _ => Ok(()),
        }
    }

    fn describe(&self) -> String {
        self.url.clone()
    }
}

/// The contents of the elements by this name, in a text without comments. What is asked for has
/// only names and numbers in it, which need no escapes.
fn between<'t>(text: &'t str, name: &str) -> impl Iterator<Item = &'t str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = text;
    std::iter::from_fn(move || {
        let (_, after) = rest.split_once(&open)?;
        let (inner, after) = after.split_once(&close)?;
        rest = after;
        Some(inner)
    })
}

fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(HMAC_SHA256, key), text).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut escaped, byte| {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => escaped.push(byte as char),
            false => {
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
        escaped
    })
}

/// Date and time as a signature has them: `20261129`, `20261129T155421Z`.
fn date_and_time(unix_ms: u64) -> (String, String) {
    let text = compact(unix_ms);
    let date = text.chars().take(8).collect();
    let time = text.split('.').next().unwrap_or_default().to_owned() + "Z";
    (date, time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_and_queries_are_escaped() {
        let text = "<L><Contents><Key>a</Key></Contents><Contents><Key>b</Key></Contents></L>";
        let keys: Vec<_> =
            between(text, "Contents").filter_map(|one| between(one, "Key").next()).collect();
        assert_eq!(keys, ["a", "b"]);
        assert_eq!(between("<Key>cut", "Key").next(), None);
        assert_eq!(escaped("a/b c=~"), "a%2Fb%20c%3D~");
        let both = ("20010909".to_owned(), "20010909T014640Z".to_owned());
        assert_eq!(date_and_time(1_000_000_000_123), both);
    }
}
