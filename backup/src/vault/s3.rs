//! A vault in a bucket of an S3-compatible store.
//!
//! The usual variables say how: AWS_REGION or AWS_DEFAULT_REGION, AWS_ACCESS_KEY_ID,
//! AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL (then the
//! bucket is in the path), AWS_CA_BUNDLE.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use instant_xml::FromXml;
use ring::digest::{SHA256, digest};
use rusty_s3::actions::{ListObjectsV2, S3Action};
use rusty_s3::{Bucket, Credentials, UrlStyle};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

use super::{Listed, Listing, Vault, VaultError};
use crate::error::BackupError;
use crate::urls::without_password;

/// Time within which a request must be answered.
const PATIENCE: Duration = Duration::from_secs(60);
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// Time for which a signature is good: a clock may be wrong by so much.
const SIGNED_FOR: Duration = Duration::from_secs(15 * 60);
/// Most bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// A bucket, or what is below a prefix in it.
pub struct S3 {
    agent: Agent,
    bucket: Bucket,
    credentials: Credentials,
    /// Empty, or with `/` at its end.
    prefix: String,
    url: String,
}

/// The answer to a request that the store refuses.
#[derive(Debug, Default, FromXml)]
#[xml(rename = "Error")]
struct Refusal {
    #[xml(rename = "Code")]
    code: Option<String>,
    #[xml(rename = "Message")]
    message: Option<String>,
}

impl S3 {
    /// The vault at `s3://BUCKET/PREFIX`, given what comes behind `s3://`.
    ///
    /// # Errors
    /// The URL is none, or the environment says too little.
    pub fn from_environment(place: &str) -> Result<Self, BackupError> {
        Self::new(place, &|name| std::env::var(name).ok())
    }

    fn new(place: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, BackupError> {
        let refused = |why: String| {
            BackupError::Refused(format!("{}: {why}", without_password(&format!("s3://{place}"))))
        };
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
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
        let (endpoint, style) = match endpoint {
            Some(endpoint) => (endpoint, UrlStyle::Path),
            None => (format!("https://s3.{region}.amazonaws.com"), UrlStyle::VirtualHost),
        };
        let no_endpoint = |why: &dyn std::fmt::Display| {
            let endpoint = without_password(&endpoint);
            refused(format!("{endpoint}: expected http://HOST or https://HOST: {why}"))
        };
        let parsed = endpoint.parse().map_err(|error| no_endpoint(&error))?;
        let bucket = Bucket::new(parsed, style, bucket.to_owned(), region)
            .map_err(|error| no_endpoint(&error))?;
        let (key_id, secret) = (needed("AWS_ACCESS_KEY_ID")?, needed("AWS_SECRET_ACCESS_KEY")?);
        let credentials = match variable("AWS_SESSION_TOKEN") {
            Some(token) => Credentials::new_with_token(key_id, secret, token),
            None => Credentials::new(key_id, secret),
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
            bucket,
            credentials,
            prefix: if prefix.is_empty() { String::new() } else { format!("{prefix}/") },
            url: format!("s3://{place}"),
        })
    }

    /// Makes a request with the headers that the action signs. Returns the status and the body of
    /// the answer.
    fn ask<'a, A: S3Action<'a>>(
        &self,
        mut action: A,
        body: &[u8],
    ) -> Result<(u16, Vec<u8>), String> {
        let mut request = ureq::http::Request::builder()
            .method(A::METHOD.to_str())
            .uri(action.sign(SIGNED_FOR).as_str());
        for (name, value) in action.headers_mut().iter() {
            request = request.header(name, value);
        }
        let request = request.body(body).map_err(|error| error.to_string())?;
        let answer = self.agent.run(request).map_err(|error| error.to_string())?;
        let (head, mut body): (_, Body) = answer.into_parts();
        let bytes = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        Ok((head.status.as_u16(), bytes.map_err(|error| error.to_string())?))
    }

    fn send(&self, name: &str, bytes: &[u8], is_new: bool) -> Result<(u16, Vec<u8>), String> {
        let key = self.key(name);
        let mut action = self.bucket.put_object(Some(&self.credentials), &key);
        // The signature is not of the body; the store compares this with what reaches it.
        let sum = BASE64_STANDARD.encode(digest(&SHA256, bytes));
        action.headers_mut().insert("x-amz-checksum-sha256", sum);
        if is_new {
            action.headers_mut().insert("if-none-match", "*");
        }
        self.ask(action, bytes)
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn failed(&self, what: &'static str, name: &str, why: String, is_missing: bool) -> VaultError {
        VaultError { what, name: name.to_owned(), vault: self.describe(), why, is_missing }
    }

    fn done(
        &self,
        what: &'static str,
        name: &str,
        answer: Result<(u16, Vec<u8>), String>,
    ) -> Result<Vec<u8>, VaultError> {
        match answer {
            Ok((200..300, body)) => Ok(body),
            Ok((status, body)) => {
                Err(self.failed(what, name, reason(status, &body), status == 404))
            }
            Err(why) => Err(self.failed(what, name, why, false)),
        }
    }
}

impl Vault for S3 {
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), VaultError> {
        self.done("put", name, self.send(name, bytes, false)).map(drop)
    }

    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool, VaultError> {
        match self.send(name, bytes, true) {
            // 409: others ask for the same at this moment.
            Ok((409 | 412, _)) => Ok(false),
            // The store knows no conditions. Whoever comes last has put it.
            Ok((501, _)) => self.put(name, bytes).map(|()| true),
            answer => self.done("put", name, answer).map(|_| true),
        }
    }

    fn get(&self, name: &str) -> Result<Vec<u8>, VaultError> {
        let key = self.key(name);
        let action = self.bucket.get_object(Some(&self.credentials), &key);
        self.done("get", name, self.ask(action, b""))
    }

    fn list(&self, folder: &str) -> Result<Listing, VaultError> {
        let mut listing = Listing::default();
        let slash = if folder.is_empty() { "" } else { "/" };
        let prefix = format!("{}{folder}{slash}", self.prefix);
        let mut next: Option<String> = None;
        loop {
            let mut action = self.bucket.list_objects_v2(Some(&self.credentials));
            action.with_prefix(&*prefix);
            action.with_delimiter("/");
            if let Some(token) = next.take() {
                action.with_continuation_token(token);
            }
            let body = self.done("list", folder, self.ask(action, b""))?;
            let parsed = ListObjectsV2::parse_response(&String::from_utf8_lossy(&body));
            let page = parsed.map_err(|error| {
                let why = format!("the answer is no listing of a bucket: {error}");
                self.failed("list", folder, why, false)
            })?;
            for object in page.contents {
                if let Some(name) = object.key.strip_prefix(&self.prefix)
                    && let Some(bytes) = object.size
                {
                    listing.objects.push(Listed { name: name.to_owned(), bytes });
                }
            }
            for inner in page.common_prefixes {
                let name = inner.prefix.strip_prefix(&prefix);
                listing.folders.extend(name.map(|name| name.trim_end_matches('/').to_owned()));
            }
            next = page.next_continuation_token;
            if next.is_none() {
                listing.objects.sort_unstable();
                listing.folders.sort_unstable();
                return Ok(listing);
            }
        }
    }

    fn delete(&self, name: &str) -> Result<(), VaultError> {
        let key = self.key(name);
        let action = self.bucket.delete_object(Some(&self.credentials), &key);
        match self.done("delete", name, self.ask(action, b"")) {
            Err(error) if !error.is_missing => Err(error),
            _ => Ok(()),
        }
    }

    fn describe(&self) -> String {
        self.url.clone()
    }
}

/// The reason that an answer gives, as far as it gives one.
fn reason(status: u16, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let Refusal { code, message } = instant_xml::from_str(&text).unwrap_or_default();
    let words = [Some(format!("status {status}")), code, message];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    const SECRET: &str = "a-secret-of-the-test";

    fn vault(place: &str, endpoint: &str) -> Result<S3, BackupError> {
        S3::new(place, &|name| match name {
            "AWS_ACCESS_KEY_ID" => Some("user".to_owned()),
            "AWS_SECRET_ACCESS_KEY" => Some(SECRET.to_owned()),
            "AWS_ENDPOINT_URL" => Some(endpoint.to_owned()),
            _ => None,
        })
    }

    /// Gives these answers, one a connection, and returns the heads of the requests.
    fn answer(
        listener: TcpListener,
        answers: Vec<(u16, String)>,
    ) -> std::thread::JoinHandle<Vec<String>> {
        std::thread::spawn(move || {
            let mut asked = Vec::new();
            for (status, body) in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let (mut text, mut part) = (Vec::new(), [0; 4096]);
                while !text.windows(4).any(|end| end == b"\r\n\r\n") {
                    let bytes = stream.read(&mut part).unwrap();
                    assert!(bytes > 0, "a request is cut short");
                    text.extend_from_slice(&part[..bytes]);
                }
                let text = String::from_utf8(text).unwrap();
                assert!(!text.contains(SECRET), "{text}");
                asked.push(text);
                let len = body.len();
                let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {len}\r\n");
                write!(stream, "{head}Connection: close\r\n\r\n{body}").unwrap();
            }
            asked
        })
    }

    #[test]
    fn a_listing_of_several_pages_is_read_whole_and_one_that_breaks_off_is_an_error() {
        let page = |inner: &str, next: &str| {
            let start = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult \
                         xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>bucket</Name>";
            let text = format!("{start}{inner}{next}</ListBucketResult>");
            (200, text)
        };
        let object = |key| format!("<Contents><Key>{key}</Key><Size>7</Size></Contents>");
        let folder = "<CommonPrefixes><Prefix>pre/image-1/x/</Prefix></CommonPrefixes>";
        let is_cut = "<IsTruncated>true</IsTruncated>";
        let token = format!("{is_cut}<NextContinuationToken>a+b/=</NextContinuationToken>");
        let pages = vec![
            page(&object("pre/image-1/b"), &token),
            page(&(object("pre/image-1/a") + folder), "<IsTruncated>false</IsTruncated>"),
            page("", is_cut),
            (200, "no listing".to_owned()),
        ];
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let server = answer(listener, pages);
        let vault = vault("bucket/pre", &endpoint).unwrap();
        let listing = vault.list("image-1").unwrap();
        let names: Vec<_> = listing.objects.iter().map(|one| (&*one.name, one.bytes)).collect();
        assert_eq!(names, [("image-1/a", 7), ("image-1/b", 7)]);
        assert_eq!(listing.folders, ["x"]);
        for _ in 0..2 {
            let error = vault.list("image-1").unwrap_err();
            assert!(error.why.contains("no listing of a bucket"), "{error}");
        }
        let asked = server.join().unwrap();
        assert!(asked[0].starts_with("GET /bucket/?"), "{asked:?}");
        assert!(asked[0].contains("prefix=pre%2Fimage-1%2F&"), "{asked:?}");
        assert!(asked[1].contains("continuation-token=a%2Bb%2F%3D&"), "{asked:?}");
    }

    #[test]
    fn a_refusal_says_why_and_what_is_missing_is_told_apart() {
        let refusal = "<?xml version=\"1.0\"?>\n<Error><Code>NoSuchKey</Code><Message>It &amp; \
                       more</Message><Key>a</Key></Error>";
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let answers = vec![(404, refusal.to_owned()), (404, String::new()), (503, "busy".into())];
        let server = answer(listener, answers);
        let vault = vault("bucket", &endpoint).unwrap();
        let error = vault.get("a").unwrap_err();
        assert!(error.is_missing);
        assert_eq!(
            error.to_string(),
            "cannot get \"a\" in s3://bucket: status 404 NoSuchKey It & more"
        );
        vault.delete("a").unwrap();
        let error = vault.put("a", b"1").unwrap_err();
        assert_eq!((error.why.as_str(), error.is_missing), ("status 503", false));
        server.join().unwrap();
        let error = vault.get("a").unwrap_err().to_string();
        assert!(!error.contains("Signature") && !error.contains(SECRET), "{error}");
    }

    #[test]
    fn a_new_object_is_put_under_a_condition_where_the_store_knows_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let answers = [200, 412, 409, 501, 200, 503].map(|status| (status, String::new()));
        let server = answer(listener, answers.into());
        let vault = vault("bucket", &endpoint).unwrap();
        assert!(vault.put_new("a", b"").unwrap());
        assert!(!vault.put_new("a", b"").unwrap());
        assert!(!vault.put_new("a", b"").unwrap());
        assert!(vault.put_new("a", b"").unwrap(), "put without a condition");
        vault.put_new("a", b"").unwrap_err();
        let asked = server.join().unwrap();
        let is_conditional: Vec<bool> =
            asked.iter().map(|text| text.contains("if-none-match: *\r\n")).collect();
        assert_eq!(is_conditional, [true, true, true, true, false, true]);
        let signed = "X-Amz-SignedHeaders=host%3Bif-none-match%3Bx-amz-checksum-sha256&";
        assert!(asked[0].contains(signed), "{}", asked[0]);
        let of_nothing = "x-amz-checksum-sha256: 47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\r\n";
        assert!(asked[0].contains(of_nothing), "{}", asked[0]);
    }

    #[test]
    fn what_is_no_bucket_or_endpoint_is_refused() {
        for (place, endpoint) in
            [("", "http://a"), ("b c", "http://a"), ("b", "a"), ("b", "ftp://a")]
        {
            let error = vault(place, endpoint).err().unwrap().to_string();
            assert!(error.contains("expected"), "{place} {endpoint}: {error}");
        }
        let error = S3::new("bucket", &|_| None).err().unwrap().to_string();
        assert_eq!(error, "s3://bucket: the variable AWS_ACCESS_KEY_ID is not set");
        let known = |name: &str| name.contains("KEY").then(|| "x".to_owned());
        let vault = S3::new("bucket/a/b", &known).unwrap();
        let url = vault.bucket.object_url(&vault.key("c"));
        assert_eq!(url.as_str(), "https://bucket.s3.us-east-1.amazonaws.com/a/b/c");
    }
}
