//! Our NBD server beside two others: nbdkit's memory plugin, and qemu-nbd on a file in memory.
//! fio's nbd engine runs the same job of 4 KiB requests against one server after the other, round
//! by round. A server that is not installed is left out.
//!
//! `cargo run --release -p perdura-block --example nbd_beside -- randread,randwrite,randrw 1,16,64
//! ROUNDS SECONDS`

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use perdura_block::nbd::{Address, Export, Listener, Server, Settings, Stop};
use perdura_media::{Emulator, Pace, RealClock, System};

const SIZE_BYTES: u64 = 1 << 30;

/// An NBD server of another project. Dropping it ends its process.
struct Rival(Child);

impl Drop for Rival {
    fn drop(&mut self) {
        // The process may have ended by itself; the results have shown that then.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |at: usize, default: &str| words.get(at).map_or(default, String::as_str).to_owned();
    let (modes, depths) = (word(0, "randread,randwrite,randrw"), word(1, "1,16,64"));
    let (rounds, seconds): (usize, u64) = (word(2, "3").parse()?, word(3, "1").parse()?);

    let folder = tempfile::tempdir_in("/dev/shm")?;
    let mut servers = vec!["perdura"];
    serve(&folder.path().join("perdura"))?;
    let mut rivals = Vec::new();
    for (name, command) in rivals_in(folder.path())? {
        if let Some(rival) = started(command, &folder.path().join(name)) {
            rivals.push(rival);
            servers.push(name);
        }
    }
    for name in &servers {
        // Every page is written before the measurement, so that no page fault is timed.
        fio(&folder.path().join(name), &["--rw=write", "--bs=1m", "--iodepth=4"])?;
    }
    println!(
        "{:<10} {:>5}  IOPS of 4 KiB, median of {rounds} rounds of {seconds} s (ratio to it)",
        "", "depth"
    );
    for mode in modes.split(',') {
        for depth in depths.split(',') {
            let mut found: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
            for _ in 0..rounds {
                for name in &servers {
                    let runtime = format!("--runtime={seconds}");
                    let (mode, depth) = (format!("--rw={mode}"), format!("--iodepth={depth}"));
                    let job = [&mode, &depth, "--bs=4k", "--time_based", "--norandommap", &runtime];
                    found.entry(name).or_default().push(fio(&folder.path().join(name), &job)?);
                }
            }
            let ours = median(&mut found.get("perdura").cloned().unwrap_or_default());
            let line: Vec<String> = servers
                .iter()
                .map(|name| {
                    let theirs = median(&mut found.get(name).cloned().unwrap_or_default());
                    format!("{name} {theirs:.0} ({:.2})", ours / theirs)
                })
                .collect();
            println!("{mode:<10} {depth:>5}  {}", line.join("  "));
        }
    }
    Ok(())
}

/// Serves memory with the modelled times of DRAM until this process ends.
fn serve(socket: &Path) -> Result<(), Box<dyn Error>> {
    let system = System::find("dram")?;
    let disk = Arc::new(Emulator::anonymous(&system, SIZE_BYTES, Pace::Real)?);
    let export = Export { name: String::new(), disk };
    let stop = Arc::new(Stop::new()?);
    let server = Server::new(export, Settings::default(), Arc::new(RealClock), stop);
    let listener = Listener::bind(&Address::Unix(socket.to_owned()), false)?;
    std::thread::spawn(move || server.serve(vec![listener]));
    Ok(())
}

fn rivals_in(folder: &Path) -> Result<Vec<(&'static str, Command)>, Box<dyn Error>> {
    let image = folder.join("image");
    std::fs::File::create(&image)?.set_len(SIZE_BYTES)?;
    let mut nbdkit = Command::new("nbdkit");
    nbdkit.arg("-f").arg("-U").arg(folder.join("nbdkit")).args(["memory", "1G"]);
    let mut qemu = Command::new("qemu-nbd");
    qemu.args(["-t", "-f", "raw", "--cache=writeback", "-k"])
        .arg(folder.join("qemu-nbd"))
        .arg(image);
    Ok(vec![("nbdkit", nbdkit), ("qemu-nbd", qemu)])
}

/// Starts a server and waits for its socket; `None` if the program is not installed.
fn started(mut command: Command, socket: &Path) -> Option<Rival> {
    let rival = Rival(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?);
    while std::os::unix::net::UnixStream::connect(socket).is_err() {
        std::thread::yield_now();
    }
    Some(rival)
}

/// Runs a job of fio and returns its reads and writes a second, from fio's terse output.
fn fio(socket: &Path, job: &[&str]) -> Result<f64, Box<dyn Error>> {
    let uri = format!("--uri=nbd+unix:///?socket={}", socket.display());
    let output = Command::new("fio")
        .args(["--name=job", "--ioengine=nbd", "--size=1g", "--randrepeat=0", "--minimal", &uri])
        .args(job)
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let fields: Vec<&str> = text.trim().split(';').collect();
    let field = |number: usize| fields.get(number - 1).and_then(|text| text.parse::<f64>().ok());
    match (field(5), field(8), field(49)) {
        (Some(0.0), Some(reads), Some(writes)) => Ok(reads + writes),
        _ => Err(format!("fio {job:?}: {text}{}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
