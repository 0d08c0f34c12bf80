//! Inside the guest of `cargo xtask test-qemu`: a program that knows nothing of capacity memory runs with its heap
//! on a NUMA node, and without. By its own `/proc/self/numa_maps`, every page of what is bound must be on the
//! node, and none of anything else. One that wants more than the node has gets the rest elsewhere. Its console lines are
//! all that the host learns: `guest: bound_kib N`, `guest: unbound_kib N`, the same with `large_` before it, `guest:
//! run_status 0`, or `guest: FAILED why`. Standard library only.

use std::io;
use std::process::Command;

/// Some 30 MB of small objects, alive while the program shows where its memory is.
const PROGRAM: &str = r#"
    my %kept; $kept{$_} = $_ x 20 for 1 .. 100_000;
    open my $maps, "<", "/proc/self/numa_maps" or die "numa_maps: $!";
    print while <$maps>;
"#;
const LEAST_KIB: u64 = 12 << 10;
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
    /// In mappings bound to the node.
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
    let (plain, maps) = kib_of(PROGRAM, None, node)?;
    if plain.bound != 0 || plain.unbound < LEAST_KIB {
        return Err(wrong("the program by itself has memory on the node, or too little", &maps));
    }
    let (bound, maps) = kib_of(PROGRAM, Some(node), node)?;
    if bound.bound < LEAST_KIB {
        return Err(wrong("its heap is not on the node", &maps));
    }
    println!("guest: bound_kib {}", bound.bound);
    println!("guest: unbound_kib {}", bound.unbound);
    let (large, maps) = kib_of(LARGE, Some(node), node)?;
    if large.bound < LARGE_KIB / 2 || large.bound + large.unbound < LARGE_KIB {
        return Err(wrong("a heap larger than the node is not all there", &maps));
    }
    println!("guest: large_bound_kib {}", large.bound);
    println!("guest: large_unbound_kib {}", large.unbound);
    Ok(())
}

fn wrong(what: &str, maps: &str) -> io::Error {
    io::Error::other(format!("{what}\n{maps}"))
}

/// What a program has, and says of it, with its heap on a node, or anywhere. Bound or not decides where pages are.
fn kib_of(program: &str, bound_to: Option<u64>, node: u64) -> io::Result<(Kib, String)> {
    let mut command = Command::new("perdura");
    command.args(["run", "--report"]);
    if let Some(node) = bound_to {
        command.args(["--numa-node", &node.to_string()]);
    }
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
        let page_kib = numbers(line, "kernelpagesize_kB").next().map_or(4, |(_, kib)| kib);
        for (at, pages) in numbers(line, "N") {
            let there = pages * page_kib;
            let is_on_node = at.parse() == Ok(node);
            if is_bound {
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
