//! Runs inside the guest of `cargo xtask test-qemu`: starts an unmodified program with its heap on
//! a NUMA node, and without.
//!
//! The program prints its `/proc/self/numa_maps`. Every page of a bound mapping must be on the
//! node, and no page of another mapping. The same is checked for a heap in a file, for a forked
//! child, and for a program that needs more memory than the node has and gets the rest elsewhere.
//!
//! The host learns the result from lines on the console: for each program `guest: bound_kib N` and
//! `guest: unbound_kib N`, with a prefix for all but the first program, then `guest: run_status 0`;
//! or `guest: FAILED why`. Only the standard library is used.

use std::io;
use std::process::Command;

/// A Perl program that holds about 30 MB of small objects while it prints where its memory is.
const PROGRAM: &str = r#"
    my %kept; $kept{$_} = $_ x 20 for 1 .. 100_000;
    open my $maps, "<", "/proc/self/numa_maps" or die "numa_maps: $!";
    print while <$maps>;
"#;
const LEAST_KIB: u64 = 16 << 10;
/// The most memory that is not bound: Perl itself, libraries, and the heap's tables.
const UNBOUND_KIB_MOST: u64 = 8 << 10;
/// The same program, whose forked child reads the objects and prints where its own memory is,
/// because a child may have a file of its own.
const FORKED: &str = r#"
    my %kept; $kept{$_} = $_ x 20 for 1 .. 100_000;
    my $child = fork // die "fork: $!";
    if ($child) { waitpid $child, 0; exit $? >> 8 }
    my $sum = 0; $sum += unpack "%32C*", $_ for values %kept;
    open my $maps, "<", "/proc/self/numa_maps" or die "numa_maps: $!";
    print while <$maps>;
"#;
/// A Perl program that holds more than the node has, in pieces of 1 MB. Pieces come from elsewhere
/// once the node is full.
const LARGE: &str = r#"
    my @kept; push @kept, "x" x 1_000_000 for 1 .. 450;
    open my $maps, "<", "/proc/self/numa_maps" or die "numa_maps: $!";
    print while <$maps>;
"#;
const LARGE_KIB: u64 = 450 * 1_000_000 / 1024;

/// The memory of a process in KiB, by mapping and place.
#[derive(Default)]
struct Kib {
    /// The memory in mappings that are bound to the node, and the memory of a heap's file that is
    /// on the node. In a child, tables and heap are one mapping of the file, for which the kernel
    /// names the policy of the first page only.
    bound: u64,
    /// The part of `bound` that is not on the node.
    strayed: u64,
    /// The memory in all other mappings.
    unbound: u64,
    /// The part of `unbound` that is on the node.
    intruding: u64,
}

/// Takes one argument: the number of the node.
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

/// Runs a program with these options of `perdura run`, and returns its memory and the maps that it
/// printed. It is an error if a bound page is not on the node, or another page is.
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

/// The rest and the number of each word `PREFIXrest=number` of a line.
fn numbers<'l>(line: &'l str, prefix: &'l str) -> impl Iterator<Item = (&'l str, u64)> {
    let rests = line.split(' ').filter_map(move |word| word.strip_prefix(prefix));
    rests.filter_map(|rest| {
        let (name, number) = rest.split_once('=')?;
        Some((name, number.parse().ok()?))
    })
}
