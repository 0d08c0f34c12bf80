//! What Redis' `tls-…` parameters say, and the files that they name.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::validity::Validity;

/// Whether clients must show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AuthClients {
    /// A client without a certificate of the given authority is refused.
    #[default]
    Yes,
    /// No certificate is asked for.
    No,
    /// A client may show none; the one that it shows must be good.
    Optional,
}

impl AuthClients {
    /// The words of `tls-auth-clients`.
    pub const ALL: [(&str, Self); 3] =
        [("yes", Self::Yes), ("no", Self::No), ("optional", Self::Optional)];

    /// The word for the setting.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, each)| *each == self).map_or("", |(name, _)| name)
    }
}

/// The settings of TLS, with what their files said when they were last read.
#[derive(Debug, Clone, Default)]
pub struct TlsSettings {
    /// The server's certificate and those between it and the authority (PEM).
    pub cert_file: Option<PathBuf>,
    /// The private key of the certificate (PEM, without a pass phrase).
    pub key_file: Option<PathBuf>,
    /// Certificates of the authorities that sign clients' certificates (PEM).
    pub ca_cert_file: Option<PathBuf>,
    /// A directory with such files.
    pub ca_cert_dir: Option<PathBuf>,
    /// Whether clients must show a certificate.
    pub auth_clients: AuthClients,
    /// Versions, as words such as `TLSv1.3`; empty: 1.2 and 1.3.
    pub protocols: String,
    ready: Option<Arc<ServerConfig>>,
    validity: Option<Validity>,
}

/// Why there can be no TLS with these settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A setting is missing that the others need.
    #[error("TLS needs {0}")]
    Missing(&'static str),
    /// A file cannot be read, or is not what it should be.
    #[error("{parameter} {}: {why}", path.display())]
    File {
        /// The setting that names the file.
        parameter: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Certificate and key do not fit each other, or cannot be used.
    #[error("tls-cert-file with tls-key-file: {0}")]
    Pair(rustls::Error),
    /// A word of `tls-protocols` is no version that there is.
    #[error("tls-protocols: expected TLSv1.2, TLSv1.3 or both, got {0:?}")]
    Protocols(String),
}

impl TlsSettings {
    /// Reads the files. Nothing has changed if that fails.
    ///
    /// # Errors
    /// The reason for which there can be no TLS with these settings.
    pub fn load(&mut self) -> Result<(), TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let (cert, key) = match (&self.cert_file, &self.key_file) {
            (Some(cert), Some(key)) => (certificates("tls-cert-file", cert)?, private_key(key)?),
            (None, _) => return Err(TlsError::Missing("tls-cert-file, the server's certificate")),
            (_, None) => return Err(TlsError::Missing("tls-key-file, the certificate's key")),
        };
        let validity = cert.first().and_then(Validity::of);
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions(&self.protocols)?)
            .map_err(TlsError::Pair)?;
        let builder = match self.verifier(provider)? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut ready = builder.with_single_cert(cert, key).map_err(TlsError::Pair)?;
        ready.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        ready.send_tls13_tickets = 0;
        self.ready = Some(Arc::new(ready));
        self.validity = validity;
        Ok(())
    }

    /// What the files said when they were last read.
    pub(crate) fn ready(&self) -> Option<&Arc<ServerConfig>> {
        self.ready.as_ref()
    }

    /// The last second in which the certificate is valid, since 1970.
    pub(crate) fn not_after_s(&self) -> Option<u64> {
        self.validity.map(|validity| validity.not_after_s())
    }

    /// Warns if clients refuse the certificate that was read last.
    pub(crate) fn remark(&self, unix_ms: u64) {
        let fault = self.validity.and_then(|validity| validity.fault(unix_ms));
        if let (Some(fault), Some(file)) = (fault, &self.cert_file) {
            tracing::warn!(
                "tls-cert-file {}: the certificate {fault}, so clients refuse it: replace it and \
                 its key, and send SIGHUP",
                file.display()
            );
        }
    }

    fn verifier(
        &self,
        provider: Arc<rustls::crypto::CryptoProvider>,
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
        if self.auth_clients == AuthClients::No {
            return Ok(None);
        }
        let (roots, parameter, path) = self.authorities()?;
        let failed = |why: String| TlsError::File { parameter, path: path.to_owned(), why };
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let builder = match self.auth_clients {
            AuthClients::Optional => builder.allow_unauthenticated(),
            _ => builder,
        };
        Ok(Some(builder.build().map_err(|error| failed(error.to_string()))?))
    }

    /// The certificates of the authorities, and where they came from.
    fn authorities(&self) -> Result<(RootCertStore, &'static str, &Path), TlsError> {
        let mut roots = RootCertStore::empty();
        if let Some(dir) = &self.ca_cert_dir {
            let failed = |why: io::Error| TlsError::File {
                parameter: "tls-ca-cert-dir",
                path: dir.clone(),
                why: why.to_string(),
            };
            for entry in std::fs::read_dir(dir).map_err(failed)? {
                let path = entry.map_err(failed)?.path();
                // Other files may lie there, such as a list of those that are withdrawn.
                if let Ok(found) = certificates("tls-ca-cert-dir", &path) {
                    roots.add_parsable_certificates(found);
                }
            }
        }
        if let Some(file) = &self.ca_cert_file {
            roots.add_parsable_certificates(certificates("tls-ca-cert-file", file)?);
            return Ok((roots, "tls-ca-cert-file", file));
        }
        match &self.ca_cert_dir {
            Some(dir) => Ok((roots, "tls-ca-cert-dir", dir)),
            None => Err(TlsError::Missing(
                "tls-ca-cert-file or tls-ca-cert-dir, by which clients' certificates are checked; \
                 with tls-auth-clients no, clients need no certificate",
            )),
        }
    }
}

fn versions(words: &str) -> Result<Vec<&'static SupportedProtocolVersion>, TlsError> {
    let version = |word: &str| match word.to_ascii_lowercase().as_str() {
        "tlsv1.2" => Ok(&rustls::version::TLS12),
        "tlsv1.3" => Ok(&rustls::version::TLS13),
        _ => Err(TlsError::Protocols(word.to_owned())),
    };
    let words: Vec<&str> = words.split_ascii_whitespace().collect();
    match &words[..] {
        [] => Ok(rustls::DEFAULT_VERSIONS.to_vec()),
        words => words.iter().map(|word| version(word)).collect(),
    }
}

/// All certificates of a file, of which there must be one at least.
fn certificates(
    parameter: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |error| file_error(parameter, path, "certificate", error);
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(failed)?.collect();
    match found.map_err(failed)? {
        none if none.is_empty() => Err(failed(pem::Error::NoItemsFound)),
        found => Ok(found),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let failed =
        |error| file_error("tls-key-file", path, "private key without a pass phrase", error);
    PrivateKeyDer::from_pem_file(path).map_err(failed)
}

fn file_error(parameter: &'static str, path: &Path, wanted: &str, error: pem::Error) -> TlsError {
    let why = match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => format!("there is no {wanted} in it (PEM)"),
        other => format!("expected a {wanted} (PEM): {other:?}"),
    };
    TlsError::File { parameter, path: path.to_owned(), why }
}
