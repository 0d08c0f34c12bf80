//! Inside the guest of `cargo xtask test-qemu`: a program that knows nothing of capacity memory
//! runs with its heap on a NUMA node, and without. By its own `/proc/self/numa_maps`, every page of
//! what is bound must be on the node, and none of anything else; so too of a file's, of a forked
//! child's, and of a program's that wants more than the node has, which gets the rest elsewhere.
//! Its console lines are all that the host learns: of each program `guest: bound_kib N` and `guest:
//! unbound_kib N`, all but the first with a name before it, then `guest: run_status 0`; or `guest:
//! FAILED why`. Standard library only.

use std::io;
use std::process::Command;

/// Some 30 MB of small objects, alive while the program shows where its memory is.
const PROGRAM: &str = r#"
    my %kept; $kept{$_} = $_ x 20 for 1 .. 100_000;
    open my $maps, "<", "/proc/self/numa_maps" or die "numa_maps: $!";
    print while <$maps>;
"#;
const LEAST_KIB: u64 = 16 << 10;
/// Perl itself, libraries, and the heap's tables.
const UNBOUND_KIB_MOST: u64 = 8 << 10;
/// The same, and a child shows where its memory is, once it has looked at it: it may have a file of
/// its own.
const FORKED: &str = r#"
    my %kept; $kept{$_} = $_ x 20 for 1 .. 100_000;
    my $child = fork // die "fork: $!";
    if ($child) { waitpid $child, 0; exit $? >> 8 }
    my $sum = 0; $sum += unpack "%32C*", $_ for values %kept;
    open my $maps, "<", "/proc/self/numa_maps" or die "numa_maps: $!";
    print while <$maps>;
"#;
/// More than the node has, in pieces that come from elsewhere once it is full.
const LARGE: &str = r#"
    my @kept; push @kept, "x" x 1_000_000 for 1 .. 450;
    open my $maps, "<", "/proc/self/numa_maps" or die "numa_maps: $!";
    print while <$maps>;
"#;
const LARGE_KIB: u64 = 450 * 1_000_000 / 1024;

/// What a process has, KiB.
#[derive(Default)]
struct Kib {
    /// In mappings bound to the node; and of a heap's file what is on it: one piece of tables and
    /// heap in a child, for which the kernel names the policy of the first page.
    bound: u64,
    /// Of these, elsewhere.
    strayed: u64,
    /// In all other mappings.
    unbound: u64,
    /// Of these, on the node.
    intruding: u64,
}

/// Word: the node.
fn main() {
    let node = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(1);
    match run(node) {
        Ok(()) => println!("guest: run_status 0"),
        Err(error) => println!("guest: FAILED {error}"),
    }
}

fn run(node: u64) -> io::Result<()> {
    let on_node = ["--numa-node", &node.to_string()];
    let in_file = [&on_node[..], &["--capacity", "/tmp"]].concat();
    let (plain, maps) = kib_of(PROGRAM, &[], node)?;
    if plain.bound != 0 || plain.unbound < LEAST_KIB {
        return Err(wrong("the program by itself has memory on the node, or too little", &maps));
    }
    for (name, program, options) in [
        ("", PROGRAM, &on_node[..]),
        ("file_", PROGRAM, &in_file),
        ("forked_", FORKED, &on_node),
        ("forked_file_", FORKED, &in_file),
    ] {
        let (bound, maps) = kib_of(program, options, node)?;
        if bound.bound < LEAST_KIB || bound.unbound > UNBOUND_KIB_MOST {
            return Err(wrong(&format!("{options:?}: the heap is not on the node"), &maps));
        }
        say(name, &bound);
    }
    let (large, maps) = kib_of(LARGE, &on_node, node)?;
    if large.bound < LARGE_KIB / 2 || large.bound + large.unbound < LARGE_KIB {
        return Err(wrong("a heap larger than the node is not all there", &maps));
    }
    say("large_", &large);
    Ok(())
}

fn say(name: &str, kib: &Kib) {
    println!("guest: {name}bound_kib {}", kib.bound);
    println!("guest: {name}unbound_kib {}", kib.unbound);
}

fn wrong(what: &str, maps: &str) -> io::Error {
    io::Error::other(format!("{what}\n{maps}"))
}

/// What a program has, and says of it, with these options of `perdura run`. Bound or not decides
/// where pages are.
fn kib_of(program: &str, options: &[&str], node: u64) -> io::Result<(Kib, String)> {
    let mut command = Command::new("perdura");
    command.args(["run", "--report"]).args(options);
    let output = command.args(["--", "perl", "-e", program]).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || !said.contains("capacity_bytes=") {
        return Err(io::Error::other(format!("{command:?} ended with {}: {said}", output.status)));
    }
    let maps = String::from_utf8_lossy(&output.stdout).into_owned();
    let kib = count(&maps, node)?;
    if kib.strayed + kib.intruding != 0 {
        return Err(wrong("memory is bound and elsewhere, or on the node and not bound", &maps));
    }
    Ok((kib, maps))
}

fn count(maps: &str, node: u64) -> io::Result<Kib> {
    let mut kib = Kib::default();
    for line in maps.lines() {
        let is_bound = line.split(' ').nth(1) == Some(&format!("bind:{node}"));
        let is_file = line.contains("/tmp/") && line.contains("(deleted)");
        let page_kib = numbers(line, "kernelpagesize_kB").next().map_or(4, |(_, kib)| kib);
        for (at, pages) in numbers(line, "N") {
            let there = pages * page_kib;
            let is_on_node = at.parse() == Ok(node);
            if is_bound || is_file && is_on_node {
                kib.bound += there;
                kib.strayed += if is_on_node { 0 } else { there };
            } else {
                kib.unbound += there;
                kib.intruding += if is_on_node { there } else { 0 };
            }
        }
    }
    if kib.bound + kib.unbound == 0 {
        return Err(io::Error::other(format!("no pages in {maps:?}")));
    }
    Ok(kib)
}

/// The words `PREFIXrest=number` of a line: rest and number.
fn numbers<'l>(line: &'l str, prefix: &'l str) -> impl Iterator<Item = (&'l str, u64)> {
    let rests = line.split(' ').filter_map(move |word| word.strip_prefix(prefix));
    rests.filter_map(|rest| {
        let (name, number) = rest.split_once('=')?;
        Some((name, number.parse().ok()?))
    })
}
