//! `perdura backup` and `perdura restore`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use perdura_backup::{
    BackupError, Deleted, Owner, Pass, Planted, PointName, Retention, Seal, Shipper, Source, Vault,
    WarmCopy, Writer, choose, list, vault,
};
use perdura_media::file::{Direct, Engine, OpenMode};
use perdura_media::{Bytes, FileDevice, RealClock, parse_duration};
use perdura_region::directory::{IMAGE_NAME, has_image, memory_files_of};
use perdura_terminal::{LateBar, complain, say, time};

use crate::ship::{ShipKeyArgs, warn_of_shared_fate};

/// Options of `backup`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct BackupArgs {
    #[command(subcommand)]
    what: Option<What>,
    /// Where to put it: a directory, `s3://BUCKET/PREFIX` or `ssh://USER@HOST/PATH`.
    #[arg(value_name = "URL", required = true)]
    url: Option<String>,
    /// Directory of the data. A server may be running on it: its newest checkpoint is taken.
    #[arg(long, value_name = "DIR", default_value = "perdura-data")]
    dir: PathBuf,
    /// Go on: put a restore point whenever there is a newer checkpoint, looking this often.
    #[arg(long, value_name = "TIME")]
    every: Option<String>,
    /// Delete restore points that are older, and what only they need [default: nothing is deleted].
    #[arg(long, value_name = "TIME")]
    keep: Option<String>,
    /// Put the point although another program ships this image to the vault, which then stops.
    #[arg(long)]
    take_over: bool,
    #[command(flatten)]
    key: ShipKeyArgs,
    #[command(flatten)]
    image_key: crate::key::KeyArgs,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List the restore points of a vault.
    List(ListArgs),
    /// Keep a vault for another machine, which asks over standard input: what `ssh://` runs here.
    /// With `command="perdura backup receive /srv/backup",restrict` before a key in
    /// authorized_keys, that key can do nothing else.
    Receive(ReceiveArgs),
    /// Fetch all that a restore point needs, and check it. Nothing is written.
    Verify(PointArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    #[arg(value_name = "URL")]
    url: String,
    /// Read each point, and say how large it is.
    #[arg(long)]
    sizes: bool,
    #[command(flatten)]
    key: ShipKeyArgs,
}

#[derive(Debug, Args)]
struct ReceiveArgs {
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// The restore point that is meant.
#[derive(Debug, Args)]
struct PointArgs {
    #[arg(value_name = "URL")]
    url: String,
    /// The newest point at this time or before: `2026-11-29T15:54:21Z`, or `10m` for ten minutes
    /// ago [default: the newest].
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// The image, where the vault has several: 16 hexadecimal digits, as `backup list` shows them.
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    #[command(flatten)]
    key: ShipKeyArgs,
}

/// Options of `restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    #[command(flatten)]
    point: PointArgs,
    #[command(flatten)]
    image_key: crate::key::KeyArgs,
    /// Directory for the image, in which none is; `perdura serve --dir DIR` opens it then.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Keep a warm copy: apply each new restore point as it comes, until SIGTERM, which ends it at
    /// a whole point.
    #[arg(long, conflicts_with = "at")]
    follow: bool,
    /// With --follow, the time between two looks for a newer point [default: 1s].
    #[arg(long, value_name = "TIME", requires = "follow")]
    every: Option<String>,
}

pub fn run(args: &BackupArgs) -> Result<ExitCode> {
    match (&args.what, &args.url) {
        (Some(What::List(args)), _) => show(args)?,
        (Some(What::Verify(args)), _) => verify(args)?,
        (Some(What::Receive(args)), _) => {
            let directory = vault::Directory::new(args.dir.clone());
            vault::receive(&directory, std::io::stdin().lock(), std::io::stdout().lock())?;
        }
        (None, Some(url)) => back_up(args, url)?,
        (None, None) => bail!("give the URL of a vault"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Puts a restore point of the newest checkpoint.
fn back_up(args: &BackupArgs, url: &str) -> Result<()> {
    let path = args.dir.join(IMAGE_NAME);
    let place = || path.display().to_string();
    if !has_image(&args.dir) {
        bail!("no image in {} ({IMAGE_NAME}): give --dir", args.dir.display());
    }
    let (vault, seal) = (vault::open(url)?, args.key.seal()?);
    warn_of_shared_fate(&*vault, &args.dir);
    let keep = time("keep", &args.keep)?;
    let every = time("every", &args.every)?;
    // Opened anew for each pass, because the file may have grown.
    let open = || {
        FileDevice::open(&path, OpenMode::ReadOnly, Engine::Pwrite, Direct::Auto)
            .with_context(place)
    };
    let device = open()?;
    let is_at_rest = device.try_lock_shared().with_context(place)?;
    if !is_at_rest || memory_files_of(&args.dir)?.is_some() {
        say("a server or its holder has the data: the newest checkpoint is taken");
    }
    // The lock must not keep a server from starting.
    drop(device);
    let (first, mut retention) = (open()?, keep.map(|keep| Retention::new(keep, Planted::None)));
    let image_key = args.image_key.key()?;
    let source = Source::new(&first, image_key.as_ref()).with_context(place)?;
    let mut owner = Owner::new(&args.dir, args.take_over);
    let writer = Writer::claim(&*vault, source.image_id(), &mut owner, now_unix_ms())?;
    let mut shipper = Shipper::new(&*vault, seal.clone(), &source, writer, Planted::None)?;
    loop {
        let device = open()?;
        let source = Source::new(&device, image_key.as_ref()).with_context(place)?;
        match (shipper.pass(&source, &RealClock), every) {
            (Ok(pass), _) => tell(pass, &shipper, every.is_some()),
            (Err(error @ BackupError::TakenOver { .. }), _) | (Err(error), None) => {
                return Err(error.into());
            }
            (Err(error), Some(_)) => complain("perdura", &error.into()),
        }
        if let Some(retention) = &mut retention {
            retention.note(&shipper);
            let now = now_unix_ms();
            let deleted = retention.tidy(&*vault, &seal, source.image_id(), &shipper, now)?;
            if deleted != Deleted::default() {
                say(format_args!("deleted {} points, {} packs", deleted.points, deleted.packs));
            }
        }
        match every {
            Some(every) => std::thread::sleep(every),
            None => return Ok(shipper.release(&mut owner)?),
        }
    }
}

fn tell(pass: Option<Pass>, shipper: &Shipper<'_>, goes_on: bool) {
    let newest = shipper.newest().map(|newest| newest.unix_ms);
    let time = newest.map(perdura_backup::time::rfc3339).unwrap_or_default();
    match pass {
        Some(pass) => say(format_args!(
            "put the restore point {time}: {} in {} objects",
            Bytes(pass.bytes),
            pass.objects
        )),
        None if goes_on => {}
        None => say(format_args!("nothing has changed since the restore point {time}")),
    }
}

fn show(args: &ListArgs) -> Result<()> {
    let (vault, seal) = (vault::open(&args.url)?, args.key.seal()?);
    for point in list(&*vault, None)? {
        let sizes = match args.sizes {
            true => {
                let sizes = point.sizes(&*vault, &seal)?;
                format!(
                    "  memory {}  {} in {} pieces",
                    Bytes(sizes.region_bytes),
                    Bytes(sizes.bytes),
                    sizes.pieces
                )
            }
            false => String::new(),
        };
        say(format_args!(
            "{}  image {:016x}  commit {}{sizes}",
            point.time(),
            point.image_id,
            point.commit
        ));
    }
    Ok(())
}

/// The vault, the seal and the point that are meant.
fn chosen(args: &PointArgs) -> Result<(Box<dyn Vault>, Seal, PointName)> {
    let image = args.image.as_ref().map(|image| {
        u64::from_str_radix(image, 16)
            .with_context(|| format!("--image {image}: expected 16 hexadecimal digits"))
    });
    let at = args.at.as_ref().map(|at| moment(at)).transpose()?;
    let (vault, seal) = (vault::open(&args.url)?, args.key.seal()?);
    let point = choose(&*vault, image.transpose()?, at)?;
    Ok((vault, seal, point))
}

/// A moment: RFC 3339, or a time ago.
fn moment(at: &str) -> Result<u64> {
    if let Some(unix_ms) = perdura_backup::time::parse(at) {
        return Ok(unix_ms);
    }
    let ago = parse_duration(at).ok().with_context(|| {
        format!("--at {at}: expected a moment, such as 2026-11-29T15:54:21Z, or a time ago, as 10m")
    })?;
    Ok(now_unix_ms().saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)))
}

fn now_unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    now.as_millis() as u64
}

fn verify(args: &PointArgs) -> Result<()> {
    let (vault, seal, point) = chosen(args)?;
    let bar = LateBar::new("verify");
    let outcome =
        perdura_backup::verify(&*vault, &seal, &point, &mut |done, of| bar.bytes(done, of));
    bar.finish();
    outcome?;
    say(format_args!("the restore point {} is whole", point.time()));
    Ok(())
}

pub fn restore(args: &RestoreArgs) -> Result<ExitCode> {
    refuse_image(&args.dir)?;
    if args.follow {
        return follow(args);
    }
    let (vault, seal, point) = chosen(&args.point)?;
    let bar = LateBar::new("restore");
    let path = args.dir.join(IMAGE_NAME);
    let progress = &mut |done, of| bar.bytes(done, of);
    let key = args.image_key.key()?;
    let outcome = perdura_backup::restore(&*vault, &seal, &point, &path, key.as_ref(), progress);
    bar.finish();
    outcome?;
    say(format_args!(
        "restored the point {} and checked it; go on with: perdura serve --dir {}",
        point.time(),
        args.dir.display()
    ));
    Ok(ExitCode::SUCCESS)
}

/// Keeps a warm copy until a signal ends it.
fn follow(args: &RestoreArgs) -> Result<ExitCode> {
    let every = time("every", &args.every)?.unwrap_or(Duration::from_secs(1));
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("heed a signal")?;
    }
    let (vault, seal, first) = chosen(&args.point)?;
    let bar = LateBar::new("restore");
    let path = args.dir.join(IMAGE_NAME);
    let progress = &mut |done, of| bar.bytes(done, of);
    let key = args.image_key.key()?;
    let copy = WarmCopy::new(&*vault, &seal, &first, &path, key.as_ref(), progress);
    bar.finish();
    let mut copy = copy?;
    say(format_args!("the warm copy is as of {}", first.time()));
    let mut failed = None;
    while !stop.load(Ordering::Relaxed) || failed.is_some() {
        let newer = choose(&*vault, Some(first.image_id), None).and_then(|newest| {
            if (newest.unix_ms, newest.commit) == copy.newest() && failed.is_none() {
                return Ok(None);
            }
            copy.apply(&*vault, &seal, &newest, &mut |_, _| {}).map(|()| Some(newest))
        });
        match newer {
            Ok(Some(point)) => {
                failed = None;
                say(format_args!("the warm copy is as of {}", point.time()));
            }
            Ok(None) => {}
            Err(error) => {
                let error = error.to_string();
                if failed.as_ref() != Some(&error) {
                    eprintln!("perdura: the copy does not follow, and it is tried again: {error}");
                }
                if stop.load(Ordering::Relaxed) {
                    // A vault that cannot be reached does not harm what the copy has.
                    match copy.is_whole() {
                        true => break,
                        false => bail!("stopped in the middle of a restore point: {error}"),
                    }
                }
                failed = Some(error);
            }
        }
        if !stop.load(Ordering::Relaxed) {
            std::thread::sleep(every);
        }
    }
    say(format_args!("ended; go on with: perdura serve --dir {}", args.dir.display()));
    Ok(ExitCode::SUCCESS)
}

fn refuse_image(dir: &Path) -> Result<()> {
    if has_image(dir) || memory_files_of(dir)?.is_some() {
        bail!(
            "{} has an image or memory already, which a restore never replaces: give another \
             --dir, or move it away",
            dir.display()
        );
    }
    Ok(())
}
