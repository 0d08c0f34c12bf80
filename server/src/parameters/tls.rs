//! The parameters of TLS. Who sets one has the files read afterwards.

use std::borrow::Cow;
use std::path::PathBuf;

use crate::tls::{AuthClients, TlsSettings};

/// The value of a parameter; `None` if it is not one of these.
pub(super) fn get(tls: &TlsSettings, name: &str) -> Option<String> {
    let shown = |path: &Option<PathBuf>| {
        path.as_ref().map_or_else(String::new, |path| path.display().to_string())
    };
    Some(match name {
        "tls-auth-clients" => tls.auth_clients.name().to_owned(),
        "tls-ca-cert-dir" => shown(&tls.ca_cert_dir),
        "tls-ca-cert-file" => shown(&tls.ca_cert_file),
        "tls-cert-file" => shown(&tls.cert_file),
        "tls-key-file" => shown(&tls.key_file),
        "tls-protocols" => tls.protocols.clone(),
        _ => return None,
    })
}

pub(super) fn set(
    tls: &mut TlsSettings,
    name: &str,
    value: &[u8],
) -> Result<(), Cow<'static, str>> {
    let text = std::str::from_utf8(value).map_err(|_| "not UTF-8")?;
    let path = Some(PathBuf::from(text)).filter(|_| !text.is_empty());
    match name {
        "tls-auth-clients" => {
            let found = AuthClients::ALL.iter().find(|(word, _)| text.eq_ignore_ascii_case(word));
            let known = "argument(s) must be one of the following: no, yes, optional";
            tls.auth_clients = found.ok_or(known)?.1;
        }
        "tls-ca-cert-dir" => tls.ca_cert_dir = path,
        "tls-ca-cert-file" => tls.ca_cert_file = path,
        "tls-cert-file" => tls.cert_file = path,
        "tls-key-file" => tls.key_file = path,
        "tls-protocols" => tls.protocols = text.to_owned(),
        _ => return Err("can't set immutable config".into()),
    }
    Ok(())
}
