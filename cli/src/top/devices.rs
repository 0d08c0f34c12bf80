//! The devices of a server, and what they did between two looks.

use std::time::Duration;

use perdura_media::{Bytes, BytesPerSecond};
use perdura_watch::Device;

/// A device on the screen. Rates are `None` before there are two looks.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceRow {
    pub told: Device,
    pub read_per_s: Option<u64>,
    pub written_per_s: Option<u64>,
    /// The part of the time for which a request was under way, 0 to 1.
    pub busy: Option<f64>,
}

/// The devices now, with what they did since the look before, which was `time` ago.
pub fn rows(now: Vec<Device>, before: &[Device], time: Duration) -> Vec<DeviceRow> {
    let row = |told: Device| {
        let before = before.iter().find(|one| one.name == told.name && one.path == told.path);
        // A server that was started again counts from zero.
        let before = before.filter(|one| {
            let is_same = one.read_bytes <= told.read_bytes;
            is_same && one.written_bytes <= told.written_bytes && !time.is_zero()
        });
        let rate = |now: u64, before: u64| ((now - before) as f64 / time.as_secs_f64()) as u64;
        DeviceRow {
            read_per_s: before.map(|one| rate(told.read_bytes, one.read_bytes)),
            written_per_s: before.map(|one| rate(told.written_bytes, one.written_bytes)),
            busy: before
                .map(|one| ((told.busy_s - one.busy_s) / time.as_secs_f64()).clamp(0.0, 1.0)),
            told,
        }
    };
    now.into_iter().map(row).collect()
}

impl DeviceRow {
    /// The cells of the device's line, in the order of the columns.
    pub fn cells(&self) -> [String; 8] {
        let rate = |rate: Option<u64>| {
            rate.map_or_else(|| "-".into(), |rate| BytesPerSecond(rate).to_string())
        };
        let busy = self.busy.map_or_else(|| "-".into(), |busy| format!("{:.0} %", busy * 100.0));
        let power = match self.told.power_state.as_str() {
            "" => "-".into(),
            state => state.replace(';', ","),
        };
        let watts = match &self.told.watts {
            None => "none".into(),
            // Drives that sleep take thousandths.
            Some((watts, source)) if *watts < 1.0 => format!("{watts:.3} W {source}"),
            Some((watts, source)) => format!("{watts:.1} W {source}"),
        };
        [
            self.told.path.clone(),
            self.told.state.clone(),
            Bytes(self.told.used_bytes).to_string(),
            rate(self.read_per_s),
            rate(self.written_per_s),
            busy,
            power,
            watts,
        ]
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
pub mod tests {
    use perdura_watch::devices as told;

    use super::*;

    pub const INFO: &str = "# Devices\r\ndevices:2\r\nfar_reads:7\r\n\
        device0:state=online,path=/mnt/a;b,live_bytes=1,used_bytes=1048576,suspect_segments=0,\
        reads=3,failed_reads=0,read_bytes=4096,writes=1,written_bytes=8192,busy_seconds=1.500,\
        share_of_hits=0.1,drives=nvme0n1,power_state=ps4 (of 0 to 4; non-operational),\
        watts=0.005,watts_source=nameplate\r\n\
        device1:state=failed,path=/mnt/c,live_bytes=0,used_bytes=0,suspect_segments=0,reads=0,\
        failed_reads=0,read_bytes=0,writes=0,written_bytes=0,busy_seconds=0.000,failure=it is,\
        share_of_hits=0.0,drives=none (tmpfs),watts_source=none\r\ndrives:1\r\n";

    #[test]
    fn the_lines_of_devices_are_read_and_no_others() {
        let devices = told(INFO);
        assert_eq!(devices.len(), 2);
        assert_eq!((devices[0].used_bytes, devices[0].busy_s), (1 << 20, 1.5));
        assert_eq!(devices[0].watts, Some((0.005, "nameplate".into())));
        assert_eq!((devices[1].power_state.as_str(), &devices[1].watts), ("", &None));
        // A server of an older version says nothing of drives.
        let old = "device0:state=online,path=a,used_bytes=1,read_bytes=2,written_bytes=3,\
                   busy_seconds=4";
        assert_eq!(told(old)[0].watts, None);
        assert_eq!(told("device:x\r\ndevices:3\r\ndevice0:state=online\r\n"), []);
    }

    #[test]
    fn rates_are_those_between_two_looks() {
        let before = told(INFO);
        let first = rows(before.clone(), &[], Duration::ZERO);
        assert_eq!(first[0].cells()[3..6], ["-", "-", "-"]);
        let mut now = before.clone();
        now[0].read_bytes += 4_000_000;
        now[0].written_bytes += 2_000_000;
        now[0].busy_s += 0.5;
        let rows_now = rows(now.clone(), &before, Duration::from_secs(2));
        assert_eq!(
            rows_now[0].cells(),
            [
                "/mnt/a;b",
                "online",
                "1 MiB",
                "2 MB/s",
                "1 MB/s",
                "25 %",
                "ps4 (of 0 to 4, non-operational)",
                "0.005 W nameplate"
            ]
        );
        assert_eq!(rows_now[1].cells()[6..], ["-", "none"]);
        // The server was started again, or the device is another.
        let restarted = rows(before.clone(), &now, Duration::from_secs(2));
        assert_eq!((restarted[0].read_per_s, restarted[1].read_per_s), (None, Some(0)));
        let moved = Device { path: "/mnt/z".into(), ..now[0].clone() };
        assert_eq!(rows(vec![moved], &before, Duration::from_secs(2))[0].busy, None);
    }
}
