//! From when until when a certificate is valid.

use std::time::Duration;

use perdura_media::time::rfc3339;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};
use rustls_pki_types::{CertificateDer, UnixTime};

/// The time in which a certificate is valid, in seconds since 1970.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Validity {
    Span {
        not_before_s: u64,
        not_after_s: u64,
    },
    /// It ends before it begins. Nothing tells of its times then.
    Never,
}

impl Validity {
    /// Reads the times of a certificate. The library tells of them only in its refusals, so it is
    /// asked about the first and the last of all times. It looks at the time before it looks for
    /// who has signed the certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        use CertificateError::{Expired, ExpiredContext, NotValidYetContext};
        let parsed = ParsedCertificate::try_from(certificate).ok()?;
        let refusal = |unix_s| {
            let time = UnixTime::since_unix_epoch(Duration::from_secs(unix_s));
            let nobody = RootCertStore::empty();
            match verify_server_cert_signed_by_trust_anchor(&parsed, &nobody, &[], time, &[]) {
                Err(Error::InvalidCertificate(why)) => Some(why),
                _ => None,
            }
        };
        let not_before_s = match refusal(0) {
            Some(NotValidYetContext { not_before, .. }) => not_before.as_secs(),
            Some(Expired) => return Some(Self::Never),
            // It is valid from 1970 on, or from before.
            _ => 0,
        };
        match refusal(u64::MAX) {
            Some(ExpiredContext { not_after, .. }) => {
                Some(Self::Span { not_before_s, not_after_s: not_after.as_secs() })
            }
            _ => None,
        }
    }

    /// The last second in which it is valid; 0: there is none.
    pub fn not_after_s(&self) -> u64 {
        match self {
            Self::Span { not_after_s, .. } => *not_after_s,
            Self::Never => 0,
        }
    }

    /// Why clients refuse the certificate at this time, if they do.
    pub fn fault(&self, unix_ms: u64) -> Option<String> {
        let now_s = unix_ms / 1000;
        match self {
            Self::Span { not_after_s, .. } if now_s > *not_after_s => {
                Some(format!("has expired at {}", rfc3339(not_after_s * 1000)))
            }
            Self::Span { not_before_s, .. } if now_s < *not_before_s => {
                Some(format!("is not valid before {}", rfc3339(not_before_s * 1000)))
            }
            Self::Span { .. } => None,
            Self::Never => Some("ends before it begins".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustls_pki_types::pem::PemObject;

    use super::*;

    fn of(name: &str) -> Validity {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/certificates/");
        let certificate = CertificateDer::from_pem_file(format!("{dir}{name}.pem")).unwrap();
        Validity::of(&certificate).unwrap()
    }

    #[test]
    fn the_times_of_a_certificate_are_read_whoever_has_signed_it() {
        for name in ["server", "foreign", "authority"] {
            let Validity::Span { not_before_s, not_after_s } = of(name) else { panic!("{name}") };
            assert_eq!(not_after_s - not_before_s, 36_500 * 86_400, "{name}");
        }
    }

    #[test]
    fn a_certificate_is_refused_before_its_time_and_after_it() {
        let valid = Validity::Span { not_before_s: 1_000_000_000, not_after_s: 1_100_000_000 };
        assert_eq!(valid.fault(1_000_000_000_000), None);
        assert_eq!(valid.fault(1_100_000_000_999), None);
        let early = valid.fault(999_999_999_999).unwrap();
        assert_eq!(early, "is not valid before 2001-09-09T01:46:40.000Z");
        let late = valid.fault(1_100_000_001_000).unwrap();
        assert_eq!(late, "has expired at 2004-11-09T11:33:20.000Z");
        let expired = of("expired").fault(1_800_000_000_000);
        assert_eq!(expired.unwrap(), "has expired at 2025-01-01T00:00:00.000Z");
        assert_eq!(of("never").fault(0).unwrap(), "ends before it begins");
    }
}
