//! The options about TLS of commands that connect to a server, in the words of `redis-cli`.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;

use super::address::Address;

const TLS: &str = "TLS";

/// How a server is reached by TLS.
#[derive(Debug, Clone, Default, Args)]
pub struct TlsOptions {
    /// Speak TLS to the server, as with the address `rediss://HOST:PORT`.
    #[arg(long, help_heading = TLS)]
    pub tls: bool,
    /// Certificates of the authorities of which one must have signed the server's certificate (PEM)
    /// [default: those of the system].
    #[arg(long, value_name = "FILE", help_heading = TLS)]
    pub cacert: Option<PathBuf>,
    /// This client's certificate, with those between it and the authority (PEM), for a server that
    /// asks for one.
    #[arg(long, value_name = "FILE", requires = "key", help_heading = TLS)]
    pub cert: Option<PathBuf>,
    /// The private key of --cert (PEM, without a pass phrase).
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = TLS)]
    pub key: Option<PathBuf>,
    /// Take any certificate of the server: whoever is on the way can then read and change all that
    /// is sent.
    #[arg(long, conflicts_with = "cacert", help_heading = TLS)]
    pub insecure: bool,
}

impl TlsOptions {
    /// The address of a server that an option gives: `HOST:PORT`, or a URL.
    pub fn address(&self, option: &str, text: &str) -> Result<Address> {
        let mut address = match Address::of_url(text)? {
            Some(address) => address,
            None if text.contains(':') => Address::of_place(text),
            None => bail!("{option} {text}: expected ADDRESS:PORT, such as 127.0.0.1:6379"),
        };
        address.is_sealed |= self.tls;
        Ok(address)
    }

    /// The same where it is the only server.
    pub fn only_address(&self, option: &str, text: &str) -> Result<Address> {
        let address = self.address(option, text)?;
        self.check(&[&address])?;
        Ok(address)
    }

    /// Refuses options that none of the connections heeds: nobody must take one for sealed that is
    /// not.
    pub fn check(&self, addresses: &[&Address]) -> Result<()> {
        let given = [
            (self.cacert.is_some(), "--cacert"),
            (self.cert.is_some(), "--cert"),
            (self.insecure, "--insecure"),
        ];
        match given.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, option)) if !addresses.iter().any(|address| address.is_sealed) => bail!(
                "{option} is about TLS, which is not asked for: add --tls, or give the address as \
                 rediss://HOST:PORT"
            ),
            _ => Ok(()),
        }
    }
}
