//! The options of `serve` about who may connect: TLS in Redis' words, and the Unix socket.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use perdura_server::{AuthClients, ServerConfig};
use perdura_terminal::one_of;

const TLS: &str = "TLS";

/// Options about TLS.
#[derive(Debug, Args)]
pub struct TlsArgs {
    /// Port at which clients speak TLS, at the addresses of --bind or --listen; 0: none.
    #[arg(long, value_name = "PORT", overrides_with = "tls_listen", help_heading = TLS)]
    pub tls_port: Option<u16>,
    /// Address and port at which clients speak TLS, where it is another address than that of
    /// --listen.
    #[arg(long, value_name = "ADDRESS:PORT", overrides_with = "tls_port", help_heading = TLS)]
    pub tls_listen: Option<String>,
    /// The server's certificate, with those between it and the authority (PEM). SIGHUP reads all
    /// files of TLS again, and so does `CONFIG SET tls-cert-file`.
    #[arg(long, value_name = "FILE", help_heading = TLS)]
    pub tls_cert_file: Option<PathBuf>,
    /// The certificate's private key (PEM, without a pass phrase).
    #[arg(long, value_name = "FILE", help_heading = TLS)]
    pub tls_key_file: Option<PathBuf>,
    /// Certificates of the authorities by which clients' certificates are checked (PEM).
    #[arg(long, value_name = "FILE", help_heading = TLS)]
    pub tls_ca_cert_file: Option<PathBuf>,
    /// A directory with such files.
    #[arg(long, value_name = "DIR", help_heading = TLS)]
    pub tls_ca_cert_dir: Option<PathBuf>,
    /// Whether clients must show a certificate: `yes`, `no`, or `optional` [default: yes].
    #[arg(long, value_name = "yes|no|optional", help_heading = TLS)]
    pub tls_auth_clients: Option<String>,
    /// Let clients of other machines connect without TLS: whoever is on the way can read and change
    /// all that is sent, passwords too.
    #[arg(long, help_heading = TLS)]
    pub allow_plaintext: bool,
    /// Permissions of the Unix socket, as octal digits [default: 600].
    #[arg(long, value_name = "MODE", help_heading = TLS)]
    pub unix_socket_mode: Option<String>,
    /// Versions of TLS that are spoken: `TLSv1.2`, `TLSv1.3` or both [default: both].
    #[arg(long, value_name = "VERSIONS", help_heading = TLS)]
    pub tls_protocols: Option<String>,
}

/// Tells the server what the options say of TLS, and reads the files if they are needed.
pub fn apply(args: &TlsArgs, config: &mut ServerConfig) -> Result<()> {
    config.allow_plaintext = args.allow_plaintext;
    if let Some(mode) = &args.unix_socket_mode {
        let bits = u32::from_str_radix(mode, 8).ok().filter(|bits| *bits <= 0o777);
        config.unix_socket_mode = bits.with_context(|| {
            format!("--unix-socket-mode {mode}: expected octal digits, such as 660")
        })?;
    }
    let tls = &mut config.tls;
    tls.cert_file.clone_from(&args.tls_cert_file);
    tls.key_file.clone_from(&args.tls_key_file);
    tls.ca_cert_file.clone_from(&args.tls_ca_cert_file);
    tls.ca_cert_dir.clone_from(&args.tls_ca_cert_dir);
    tls.auth_clients = one_of("tls-auth-clients", &args.tls_auth_clients, &AuthClients::ALL)?;
    tls.protocols = args.tls_protocols.clone().unwrap_or_default();
    // Also where there is nothing to read: SIGHUP ends no server, as it ends no Redis.
    let asked = Arc::default();
    signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::clone(&asked))
        .context("catch SIGHUP")?;
    if config.tls_bind.is_empty() && config.tls_bind_if_there.is_empty() {
        return Ok(());
    }
    config.tls.load()?;
    config.reload = Some(asked);
    Ok(())
}
