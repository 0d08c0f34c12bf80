//! The client's side of TLS: whom it trusts, who it is, and errors in words that help.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct,
    Error, RootCertStore, SignatureScheme,
};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use super::options::TlsOptions;

/// Where systems keep the certificates of the authorities that they trust.
const SYSTEM_ROOTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// The client's side of a connection to a host, before anything is sent.
pub fn session(host: &str, options: &TlsOptions) -> Result<ClientConnection> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions()?;
    let builder = match options.insecure {
        true => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(TakesAnyCertificate(provider))),
        false => builder.with_root_certificates(roots(options.cacert.as_deref())?),
    };
    let config = match (&options.cert, &options.key) {
        (Some(cert), Some(key)) => {
            let refused = |error| anyhow!("--cert with --key: {error}");
            builder
                .with_client_auth_cert(certificates("--cert", cert)?, private_key(key)?)
                .map_err(refused)?
        }
        _ => builder.with_no_client_auth(),
    };
    let Ok(name) = ServerName::try_from(host.to_owned()) else {
        bail!("{host}: no name or address of a host, by which a certificate could be checked");
    };
    Ok(ClientConnection::new(Arc::new(config), name)?)
}

fn roots(file: Option<&Path>) -> Result<RootCertStore> {
    let (option, path) = match file {
        Some(file) => ("--cacert", file.to_owned()),
        None => match SYSTEM_ROOTS.iter().map(PathBuf::from).find(|path| path.exists()) {
            Some(path) => ("the system's authorities", path),
            None => bail!(
                "this system has no list of authorities ({}): give --cacert FILE",
                SYSTEM_ROOTS.join(", ")
            ),
        },
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(option, &path)?);
    Ok(roots)
}

/// All certificates of a file, of which there must be one at least.
fn certificates(option: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let failed = |error| file_error(option, path, "certificate", error);
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(failed)?.collect();
    match found.map_err(failed)? {
        none if none.is_empty() => Err(failed(pem::Error::NoItemsFound)),
        found => Ok(found),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let failed = |error| file_error("--key", path, "private key without a pass phrase", error);
    PrivateKeyDer::from_pem_file(path).map_err(failed)
}

fn file_error(option: &str, path: &Path, wanted: &str, error: pem::Error) -> anyhow::Error {
    let place = path.display();
    match error {
        pem::Error::Io(error) => anyhow!("{option} {place}: {error}"),
        pem::Error::NoItemsFound => anyhow!("{option} {place}: there is no {wanted} in it (PEM)"),
        other => anyhow!("{option} {place}: expected a {wanted} (PEM): {other:?}"),
    }
}

/// The error with what to do about it, if it is one of TLS.
pub fn explained(error: io::Error) -> io::Error {
    let Some(told) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) else {
        return error;
    };
    let advice = match told {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "no authority that is known has signed the server's certificate: give the authority's \
             by --cacert FILE"
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "the server's certificate is for another name: connect by a name that is in it",
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "the server's certificate has expired: renew it, or set this machine's clock",
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "the server wants a client's certificate: give --cert FILE and --key FILE"
        }
        Error::AlertReceived(_) => {
            "the server has refused the connection; its log says why. If it takes clients with a \
             good certificate only, look at --cert"
        }
        Error::InvalidMessage(_) => {
            "no TLS is spoken there: give the port of --tls-port, or connect without --tls"
        }
        _ => return error,
    };
    io::Error::new(ErrorKind::InvalidData, format!("{advice} ({told})"))
}

/// Lets every certificate be the server's, for `--insecure`.
#[derive(Debug)]
struct TakesAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for TakesAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
