//! What was seen at one look as metrics. Each family is described once, here or in `table`, and the
//! page of docs lists what is described ([`descriptions`]).

mod table;
mod write;

use perdura_server::{CommandLook, Look};

pub use table::{ABSENT_IF_NEGATIVE, LEFT_OUT, ROWS, Row};
pub use write::{Format, Kind};

use crate::fields::{Fields, Parts};
use crate::status::Status;
use crate::tenants::Tenants;
use write::Text;

/// What the text is made of.
#[derive(Debug)]
pub struct Seen<'l> {
    /// The server.
    pub look: &'l Look,
    /// The servers of its guard, if it has one that answers.
    pub tenants: Option<&'l Tenants>,
    /// Processor time of the thread that watches, seconds.
    pub watch_cpu_s: f64,
    /// Requests that it has answered.
    pub watch_requests: u64,
}

/// A family that is not one field of INFO.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// Its name, without the kind's suffix.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// The names of its labels, for readers.
    pub labels: &'static str,
    /// A sentence for operators.
    pub help: &'static str,
}

const fn family(
    name: &'static str,
    kind: Kind,
    labels: &'static str,
    help: &'static str,
) -> Family {
    Family { name, kind, labels, help }
}

macro_rules! families {
    ($($id:ident = $family:expr;)*) => {
        $(static $id: Family = $family;)*
        static FAMILIES: &[&Family] = &[$(&$id),*];
    };
}

#[rustfmt::skip]
families! {
    BUILD = family("perdura_build", Kind::Info, "version", "The program.");
    SERVER = family("perdura_server", Kind::Info, "durability, tracking, device, memory, compression, policy", "How the server was started.");
    HOLDS = family("perdura_promise_holds", Kind::Gauge, "", "1 if the promise holds, as `perdura status` judges: the SSD is sound, no more is dirty than may be, and a full budget can be flushed within the warning.");
    HOLDER = family("perdura_holder", Kind::Gauge, "", "1 if another process keeps the memory should the server die.");
    POWER = family("perdura_power_state", Kind::StateSet, "perdura_power_state", "What the worst source of warnings says.");
    DEMAND = family("perdura_power_demand", Kind::StateSet, "perdura_power_demand", "What follows from it.");
    KEYS = family("perdura_keys", Kind::Gauge, "db", "Keys.");
    EXPIRING = family("perdura_keys_with_expiry", Kind::Gauge, "db", "Keys that expire, or hashes of which fields do.");
    CPU = family("perdura_cpu_seconds", Kind::Counter, "mode", "Processor time of the server.");
    DENIED = family("perdura_acl_denied", Kind::Counter, "reason", "Wrong passwords, and commands, keys and channels that users may not use.");
    ERRORS = family("perdura_errors", Kind::Counter, "error", "Errors answered, by their first words.");
    CALLS = family("perdura_commands", Kind::Counter, "command", "Calls of a command; commands that were never called are absent.");
    FAILED = family("perdura_commands_failed", Kind::Counter, "command", "Calls that were answered with an error.");
    REJECTED = family("perdura_commands_rejected", Kind::Counter, "command", "Calls that were refused before they began.");
    DURATION = family("perdura_command_duration_seconds", Kind::Histogram, "command, le", "Time that a call took in the server.");
    DEVICE_STATE = family("perdura_tier_device", Kind::Info, "device, path, state, role", "A device with values that are not in memory.");
    DEVICE_FAILED = family("perdura_tier_device_failed", Kind::Gauge, "device", "1 if the device has failed.");
    DEVICE_USED = family("perdura_tier_device_used_bytes", Kind::Gauge, "device", "Bytes that are taken on the device.");
    DEVICE_LIVE = family("perdura_tier_device_live_bytes", Kind::Gauge, "device", "Bytes of values that are still wanted.");
    DEVICE_READS = family("perdura_tier_device_reads", Kind::Counter, "device", "Reads.");
    DEVICE_FAILED_READS = family("perdura_tier_device_failed_reads", Kind::Counter, "device", "Reads that failed.");
    DEVICE_READ = family("perdura_tier_device_read_bytes", Kind::Counter, "device", "Bytes read.");
    DEVICE_WRITTEN = family("perdura_tier_device_written_bytes", Kind::Counter, "device", "Bytes written.");
    DEVICE_BUSY = family("perdura_tier_device_busy_seconds", Kind::Counter, "device", "Time for which a request was under way.");
    GUARD = family("perdura_guard_answers", Kind::Gauge, "", "1 if the server's guard answers.");
    TENANT_DIRTY = family("perdura_tenant_dirty_bytes", Kind::Gauge, "tenant", "Bytes of a server of the guard that are not on the SSD yet.");
    TENANT_BUDGET = family("perdura_tenant_budget_bytes", Kind::Gauge, "tenant", "Bytes that may be dirty.");
    TENANT_SHARE = family("perdura_tenant_share_seconds", Kind::Gauge, "tenant", "Flush time that may be dirty, where a battery is shared.");
    TENANT_THERE = family("perdura_tenant_running", Kind::Gauge, "tenant", "1 if the server runs, 0 if the guard keeps its memory alone.");
    SHARED = family("perdura_shared_battery_seconds", Kind::Gauge, "", "Flush time of the battery that the guard divides.");
    SHARED_DIRTY = family("perdura_shared_dirty_seconds", Kind::Gauge, "", "Flush time of everything that is dirty in the guard's servers.");
    WATCH_CPU = family("perdura_watch_cpu_seconds", Kind::Counter, "", "Processor time of the thread that answers these requests.");
    WATCH_REQUESTS = family("perdura_watch_requests", Kind::Counter, "", "Requests that it has answered.");
}

/// What is known of every family: its name with the kind's suffix, its kind, its labels, the field
/// of INFO that it is, and a sentence.
pub fn descriptions() -> Vec<(String, Kind, &'static str, &'static str, &'static str)> {
    let rows = ROWS.iter().map(|row| (row.name, row.kind, "", row.field, row.help));
    let families = FAMILIES.iter().map(|f| (f.name, f.kind, f.labels, "", f.help));
    let with_suffix = |(name, kind, labels, field, help): (&str, Kind, _, _, _)| {
        (format!("{name}{}", kind.suffix()), kind, labels, field, help)
    };
    rows.chain(families).map(with_suffix).collect()
}

/// The text for one scrape.
pub fn text(seen: &Seen<'_>, format: Format) -> String {
    let mut out = Text::new(format);
    let fields = Fields::of(&seen.look.info);
    words(&mut out, &fields);
    promise(&mut out, &fields);
    rows(&mut out, &fields);
    labelled(&mut out, &fields);
    put(&mut out, &ERRORS, seen.look.errors.iter(), |(word, count)| Some(("error", word, *count)));
    commands(&mut out, &seen.look.commands);
    devices(&mut out, &fields);
    if let Some(tenants) = seen.tenants {
        of_guard(&mut out, tenants);
    }
    one(&mut out, &WATCH_CPU, seen.watch_cpu_s);
    one(&mut out, &WATCH_REQUESTS, seen.watch_requests);
    out.end()
}

impl Family {
    fn begin(&self, out: &mut Text) {
        out.family(self.name, self.kind, self.help);
    }

    /// The name of its samples.
    fn sample(&self) -> String {
        format!("{}{}", self.name, self.kind.suffix())
    }
}

/// Writes a family with one sample.
fn one(out: &mut Text, family: &Family, value: impl std::fmt::Display) {
    family.begin(out);
    out.sample(&family.sample(), &[], value);
}

/// Writes a family with a sample for each item that has a value, told apart by one label. A family
/// without samples is left out.
fn put<T, L: AsRef<str>, V: std::fmt::Display>(
    out: &mut Text,
    family: &Family,
    items: impl Iterator<Item = T>,
    of: impl Fn(T) -> Option<(&'static str, L, V)>,
) {
    let name = family.sample();
    for (at, (label, text, value)) in items.filter_map(of).enumerate() {
        if at == 0 {
            family.begin(out);
        }
        out.sample(&name, &[(label, text.as_ref())], value);
    }
}

fn words(out: &mut Text, fields: &Fields<'_>) {
    let word = |field| fields.get(field).unwrap_or_default();
    BUILD.begin(out);
    out.sample(&BUILD.sample(), &[("version", word("perdura_version"))], 1);
    SERVER.begin(out);
    let labels = [
        ("durability", word("durability")),
        ("tracking", word("tracking")),
        ("device", word("device")),
        ("memory", word("memory_lock")),
        ("compression", word("compression")),
        ("policy", word("maxmemory_policy")),
    ];
    out.sample(&SERVER.sample(), &labels, 1);
}

fn promise(out: &mut Text, fields: &Fields<'_>) {
    if let Ok(status) = Status::of_fields(fields) {
        one(out, &HOLDS, u8::from(status.holds));
        one(out, &HOLDER, u8::from(status.holder));
    }
    for (family, field, known) in [
        (&POWER, "power_state", &["steady", "on-battery", "low", "ending"]),
        (&DEMAND, "power_demand", &["promise", "shorter-flush", "clean", "end"]),
    ] {
        let Some(now) = fields.get(field) else { continue };
        let is_now = |word: &&'static str| Some((family.name, *word, u8::from(*word == now)));
        put(out, family, known.iter(), is_now);
    }
}

fn rows(out: &mut Text, fields: &Fields<'_>) {
    for row in ROWS {
        let (Some(number), Some(words)) = (fields.number(row.field), fields.get(row.field)) else {
            continue;
        };
        if number < 0.0 && ABSENT_IF_NEGATIVE.contains(&row.field) {
            continue;
        }
        let name = format!("{}{}", row.name, row.kind.suffix());
        out.family(row.name, row.kind, row.help);
        // In INFO's own digits, where it needs no other unit.
        match row.divisor {
            1.0 => out.sample(&name, &[], words),
            divisor => out.sample(&name, &[], number / divisor),
        }
    }
}

fn labelled(out: &mut Text, fields: &Fields<'_>) {
    let databases = fields.numbered("db");
    for (family, part) in [(&KEYS, "keys"), (&EXPIRING, "expires")] {
        let of = |(db, parts): &(u32, Parts<'_>)| {
            Some(("db", db.to_string(), parts.get(part)?.to_owned()))
        };
        put(out, family, databases.iter(), of);
    }
    let of = |mode: &str| Some(("mode", mode.to_owned(), fields.get(&format!("used_cpu_{mode}"))?));
    put(out, &CPU, ["user", "sys"].into_iter(), of);
    let of = |reason: &str| {
        Some(("reason", reason.to_owned(), fields.get(&format!("acl_access_denied_{reason}"))?))
    };
    put(out, &DENIED, ["auth", "cmd", "key", "channel"].into_iter(), of);
}

fn commands(out: &mut Text, commands: &[CommandLook]) {
    type Count = fn(&CommandLook) -> u64;
    let counts: [(&Family, Count); 3] = [
        (&CALLS, |command| command.calls),
        (&FAILED, |command| command.failed),
        (&REJECTED, |command| command.rejected),
    ];
    for (family, count) in counts {
        let of = |command: &CommandLook| {
            let count = count(command);
            (count > 0 || family.name == CALLS.name).then_some(("command", command.name, count))
        };
        put(out, family, commands.iter(), of);
    }
    DURATION.begin(out);
    let names = ["_bucket", "_count", "_sum"].map(|end| format!("{}{end}", DURATION.name));
    for command in commands {
        let (label, count) = (("command", command.name), command.spread.count());
        if count == 0 {
            continue;
        }
        for (below_ns, calls) in command.spread.doublings(DOUBLINGS.0, DOUBLINGS.1) {
            let below = (below_ns as f64 / 1e9).to_string();
            out.sample(&names[0], &[label, ("le", &below)], calls);
        }
        out.sample(&names[0], &[label, ("le", "+Inf")], count);
        out.sample(&names[1], &[label], count);
        out.sample(&names[2], &[label], command.time_ns as f64 / 1e9);
    }
}

/// The buckets of durations end at these powers of two, in nanoseconds: from 1 us to half a second.
const DOUBLINGS: (u32, u32) = (10, 29);

fn devices(out: &mut Text, fields: &Fields<'_>) {
    let devices = fields.numbered("device");
    if devices.is_empty() {
        return;
    }
    DEVICE_STATE.begin(out);
    for (number, parts) in &devices {
        let (number, word) = (number.to_string(), |part| parts.get(part).unwrap_or_default());
        let labels = [
            ("device", number.as_str()),
            ("path", word("path")),
            ("state", word("state")),
            ("role", word("role")),
        ];
        out.sample(&DEVICE_STATE.sample(), &labels, 1);
    }
    let failed = |(number, parts): &(u32, Parts<'_>)| {
        let has_failed = parts.get("state") == Some("failed");
        Some(("device", number.to_string(), u8::from(has_failed)))
    };
    put(out, &DEVICE_FAILED, devices.iter(), failed);
    for (family, part) in [
        (&DEVICE_USED, "used_bytes"),
        (&DEVICE_LIVE, "live_bytes"),
        (&DEVICE_READS, "reads"),
        (&DEVICE_FAILED_READS, "failed_reads"),
        (&DEVICE_READ, "read_bytes"),
        (&DEVICE_WRITTEN, "written_bytes"),
        (&DEVICE_BUSY, "busy_seconds"),
    ] {
        let of = |(number, parts): &(u32, Parts<'_>)| {
            Some(("device", number.to_string(), parts.get(part)?.to_owned()))
        };
        put(out, family, devices.iter(), of);
    }
}

fn of_guard(out: &mut Text, tenants: &Tenants) {
    one(out, &GUARD, u8::from(tenants.error.is_none()));
    let name = |tenant: &crate::tenants::Tenant| tenant.name.clone();
    let all = || tenants.regions.iter();
    put(out, &TENANT_DIRTY, all(), |one| Some(("tenant", name(one), one.dirty_bytes)));
    put(out, &TENANT_BUDGET, all(), |one| Some(("tenant", name(one), one.budget_bytes)));
    put(out, &TENANT_SHARE, all(), |one| Some(("tenant", name(one), one.share_s?)));
    put(out, &TENANT_THERE, all(), |one| Some(("tenant", name(one), u8::from(one.pid.is_some()))));
    if let Some(battery) = &tenants.battery {
        one(out, &SHARED, battery.flush_s);
        one(out, &SHARED_DIRTY, battery.dirty_s);
    }
}

#[cfg(test)]
mod tests;
