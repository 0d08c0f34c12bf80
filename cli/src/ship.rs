//! `serve --ship`: the backup that follows a running server.

mod lag;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use perdura_backup::{
    Follower, Options, Progress, Seal, Vault, shared_fate, vault, without_password,
};
use perdura_media::{Clock, format_duration};
use perdura_region::Key;
use perdura_region::directory::IMAGE_NAME;
use perdura_server::{Backup, Power};
use perdura_store::Store;
use perdura_terminal::{one_of, time};

use self::lag::{Lag, Terms};
use crate::key;
use crate::serve_args::ServeArgs;

const BACKUP: &str = "Backup";
/// Default time between two looks for a newer commit.
const EVERY: Duration = Duration::from_secs(1);
/// Default time for which restore points are kept.
const KEEP: Duration = Duration::from_secs(7 * 24 * 3600);
/// Longest time that a stopped server waits for the last restore point, when all is on the SSD.
const LAST_WITHIN: Duration = Duration::from_secs(10);

/// Options of `serve` about the backup.
#[derive(Debug, Args)]
#[command(next_help_heading = BACKUP)]
pub struct ShipArgs {
    /// Ship each checkpoint to a vault, while the server runs: a directory, `s3://BUCKET/PREFIX`
    /// (AWS_* variables say how), or `ssh://USER@HOST/PATH`. `perdura restore` makes an image of
    /// it.
    #[arg(long, value_name = "URL")]
    pub ship: Option<String>,
    /// Time between two looks for a newer checkpoint [default: 1s].
    #[arg(long, value_name = "TIME", requires = "ship")]
    pub ship_every: Option<String>,
    /// How long restore points are kept, ever fewer with their age; `off`: nothing is deleted
    /// [default: 7d].
    #[arg(long, value_name = "TIME", requires = "ship")]
    pub ship_keep: Option<String>,
    /// The age of the newest acknowledged state in the vault from which the backup is late
    /// [default: none].
    #[arg(long, value_name = "TIME", requires = "ship")]
    pub ship_lag_max: Option<String>,
    /// What happens when the backup is late: `warn`, or `refuse`: no write is accepted [default:
    /// warn].
    #[arg(long, value_name = "ACTION", requires = "ship_lag_max")]
    pub ship_lag_action: Option<String>,
    /// Ship although another program has the image in this vault, which then stops. It asks only
    /// once: after the other is replaced, this server may be replaced too.
    #[arg(long, requires = "ship")]
    pub ship_take_over: bool,
    #[command(flatten)]
    pub key: ShipKeyArgs,
}

/// The key of a backup.
#[derive(Debug, Args)]
pub struct ShipKeyArgs {
    /// File with the key with which the backup is encrypted: 32 bytes, or 64 hexadecimal digits.
    #[arg(long, value_name = "FILE")]
    pub ship_key_file: Option<PathBuf>,
}

impl ShipKeyArgs {
    /// How objects are sealed.
    pub fn seal(&self) -> Result<Seal> {
        let key = self.ship_key_file.as_ref().map(|path| key::of_file("ship-key-file", path));
        Ok(key.transpose()?.map_or_else(Seal::default, Seal::with_key))
    }
}

/// A backup that is about to begin.
pub struct Shipping {
    vault: Box<dyn Vault>,
    seal: Seal,
    options: Options,
    lag_max: Option<Duration>,
    is_refusing: bool,
}

impl Shipping {
    /// The backup that the options ask for, if they do. `dir` has the image, and `key` is the
    /// image's.
    pub fn new(args: &ServeArgs, dir: &Path, key: Option<Key>) -> Result<Option<Self>> {
        let ship = &args.ship;
        let seal = ship.key.seal()?;
        let Some(url) = &ship.ship else { return Ok(None) };
        let shown = without_password(url);
        if !args.device.is_empty() {
            bail!(
                "--ship {shown}: values on a --device are not backed up yet, and a backup without \
                 them could not be restored: give one of both"
            );
        }
        let has_no_checkpoints = args.place.checkpoint.as_deref() == Some("off");
        if has_no_checkpoints || args.durability.as_deref() == Some("none") {
            bail!(
                "--ship {shown}: checkpoints are what is shipped, and there are none with \
                 --checkpoint off or --durability none"
            );
        }
        let every = time("ship-every", &ship.ship_every)?.unwrap_or(EVERY);
        let keep = match ship.ship_keep.as_deref() {
            Some("off") => None,
            _ => Some(time("ship-keep", &ship.ship_keep)?.unwrap_or(KEEP)),
        };
        let lag_max = time("ship-lag-max", &ship.ship_lag_max)?;
        let actions = [("warn", false), ("refuse", true)];
        Ok(Some(Self {
            vault: vault::open(url)?,
            seal,
            options: Options {
                every: every.max(Duration::from_millis(10)),
                keep,
                key,
                dir: dir.to_owned(),
                is_taking_over: ship.ship_take_over,
            },
            lag_max,
            is_refusing: one_of("ship-lag-action", &ship.ship_lag_action, &actions)?,
        }))
    }

    /// Starts the thread that ships, and the one that looks at the lag.
    pub fn start(
        self,
        store: &Arc<Store>,
        clock: &Arc<dyn Clock>,
        power: Arc<Power>,
    ) -> Result<Running> {
        let Self { vault, seal, options, lag_max, is_refusing } = self;
        warn_of_shared_fate(&*vault, &options.dir);
        let progress = Arc::new(Progress::default());
        let figures = Arc::new(Lag {
            store: Arc::downgrade(store),
            progress: Arc::clone(&progress),
            clock: Arc::clone(clock),
            began_ns: clock.now_ns(),
            terms: Terms {
                vault: vault.describe(),
                lag_max,
                is_refusing,
                every: options.every,
                keep: options.keep,
                is_encrypted: seal.is_encrypting(),
            },
        });
        let held = Arc::downgrade(store);
        let hold = Box::new(move |is_held| {
            if let Some(store) = held.upgrade() {
                store.region().hold_segments(is_held);
            }
        });
        let device = store.region().device();
        let clock = Arc::clone(clock);
        let follower = Follower::start(device, vault, seal, options, clock, progress, hold);
        if lag_max.is_some() {
            let lag = Arc::clone(&figures);
            let watch = move || lag.watch(&power);
            let thread = std::thread::Builder::new().name("perdura-lag".into());
            thread.spawn(watch).context("start a thread")?;
        }
        Ok(Running { follower: follower.context("start a thread")?, figures })
    }
}

/// Warns if the vault would be lost together with the image in a directory.
pub fn warn_of_shared_fate(vault: &dyn Vault, dir: &Path) {
    if let Some(why) = shared_fate(vault, &dir.join(IMAGE_NAME)) {
        tracing::warn!("{why}");
    }
}

/// A backup that follows the server.
pub struct Running {
    follower: Follower,
    figures: Arc<Lag>,
}

impl Running {
    /// Its figures, for INFO.
    pub fn figures(&self) -> Arc<dyn Backup> {
        Arc::clone(&self.figures) as Arc<dyn Backup>
    }

    /// Ships the last state, which is on the SSD.
    pub fn finish(self) {
        if !self.follower.finish(LAST_WITHIN) {
            tracing::warn!(
                "the backup was not complete within {} of the stop; `perdura backup` completes it",
                format_duration(LAST_WITHIN)
            );
        }
    }
}
