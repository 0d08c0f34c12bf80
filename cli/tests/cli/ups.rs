//! Three servers under load, one guard, and a UPS whose power is really cut: by NUT's own daemon,
//! its simulated driver and `upsrw`.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::guarding::*;
use crate::running::*;

const DRIVER: &str = "/lib/nut/dummy-ups";
const DAEMON: &str = "/lib/nut/upsd";

/// A running UPS daemon with a simulated UPS; killed when dropped.
struct Ups {
    dir: tempfile::TempDir,
    port: u16,
    processes: Vec<Child>,
}

impl Ups {
    /// `None`, with a message, if the packages are missing or this is not root, which NUT's
    /// programs start as.
    fn start() -> Option<Self> {
        if !Path::new(DRIVER).exists() || !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: no {DRIVER} (package nut-server), or not root");
            return None;
        }
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let write = |name: &str, text: String| {
            std::fs::write(dir.path().join(name), text).unwrap();
        };
        let device = dir.path().join("sim.dev");
        let driver =
            format!("[sim]\ndriver=dummy-ups\nport={}\nmode=dummy-once\n", device.display());
        write("ups.conf", driver);
        write("upsd.conf", format!("LISTEN 127.0.0.1 {port}\n"));
        write("upsd.users", "[admin]\npassword=adm\nactions=SET\n".into());
        write("sim.dev", "ups.status: OL\nbattery.charge: 100\nbattery.runtime: 1800\n".into());
        let mut ups = Self { dir, port, processes: Vec::new() };
        ups.run(DRIVER, &["-a", "sim", "-u", "root", "-D"]);
        ups.run(DAEMON, &["-u", "root", "-D"]);
        wait_until("the UPS", || ups.ask().contains("OL"));
        Some(ups)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for name in ["NUT_CONFPATH", "NUT_STATEPATH", "NUT_ALTPIDPATH"] {
            command.env(name, self.dir.path());
        }
        command
    }

    fn run(&mut self, program: &str, words: &[&str]) {
        let mut command = self.command(program);
        command.args(words).stdout(Stdio::null()).stderr(Stdio::null());
        self.processes.push(command.spawn().unwrap());
    }

    fn name(&self) -> String {
        format!("sim@127.0.0.1:{}", self.port)
    }

    fn ask(&self) -> String {
        let output = self.command("upsc").args([&self.name(), "ups.status"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Changes what the UPS says.
    fn set(&self, variable: &str, value: &str) {
        let mut command = self.command("upsrw");
        command.args(["-s", &format!("{variable}={value}"), "-u", "admin", "-p", "adm"]);
        let output = command.arg(self.name()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Ups {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

#[test]
fn when_a_ups_runs_empty_three_servers_are_clean_before_its_end_and_have_everything_after() {
    let Some(ups) = Ups::start() else { return };
    let mut guard = GuardProcess::start_with(Some(format!("nut:{}", ups.name())));
    let mut servers = ["a", "b", "c"].map(|name| guard.serve(name));
    let writers = [0, 1, 2].map(|at| write_until_cut(servers[at].port, 0));
    let has_begun = |server: &Server| server.client().ask(&["EXISTS", &key(500)]) == ":1";
    wait_until("writes", || servers.iter().all(has_begun));
    ups.set("battery.runtime", "60");
    ups.set("ups.status", "OB DISCHRG");
    let cut = Instant::now();
    wait_until("on battery", || servers.iter().all(|server| state(server) == "on-battery"));
    println!("the servers know after {:?} that the power is cut", cut.elapsed());
    ups.set("ups.status", "OB LB DISCHRG");
    wait_until("the report of a low battery", || ups.ask().contains("LB"));
    let low = Instant::now();
    wait_until("low", || servers.iter().all(|server| state(server) == "low"));
    println!("the servers know {:?} after upsd that the battery is low", low.elapsed());
    let is_clean = |server: &Server| server.figure("power_demand_met") == 1;
    wait_until("everything saved", || servers.iter().all(is_clean));
    println!("all is on the SSD {:?} after upsd knew", low.elapsed());
    let acknowledged = writers.map(|writer| writer.join().unwrap());
    // The battery is empty: nothing that was in memory is left.
    servers.iter().for_each(|server| server.signal("STOP"));
    guard.kill_both();
    for server in &mut servers {
        server.signal("KILL");
        let _ = server.wait();
    }
    for (name, known) in ["a", "b", "c"].into_iter().zip(acknowledged) {
        let settings = [&SETTINGS[..], &["--no-holder"]].concat();
        let server = Server::start(&guard.data(name), &settings);
        assert!(server.banner.contains("loaded from"), "{}", server.banner);
        verify(&server, known);
    }
}
