//! What a guard does for many servers, and with its parent.

use perdura_warning::Response;

use super::*;
use crate::parent::Inheritance;
use crate::tenancy::{Battery, Tenant, Whose};

/// What the parent hears next, but for signs of life.
fn heard(parent: &OwnedFd) -> (Message, Vec<OwnedFd>) {
    loop {
        match receive(parent).unwrap().unwrap() {
            (Message::Ready, _) => {}
            other => return other,
        }
    }
}

#[test]
fn a_guard_holds_for_many_tells_its_parent_first_and_passes_warnings_on() {
    let (dir, one, two) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (parent, mut guard) = guard(dir.path(), 8);
    let mut links = Vec::new();
    for place in [one.path(), two.path()] {
        let fds = left(place);
        let link = ask(
            &mut guard,
            dir.path(),
            &Message::Hold { times: TIMES, rate_bytes_per_s: RATE },
            &fds,
        );
        let (kept, fds) = heard(&parent);
        assert!(matches!(kept, Message::Keep { .. }) && fds.len() == 4, "{kept:?}");
        assert_eq!(answer(&link), Message::Ready);
        // No battery is shared.
        assert_eq!(answer(&link), Message::Share { serial: 0, share_us: u64::MAX });
        links.push(link);
    }
    say(&mut guard, dir.path(), "on-battery 5m");
    for link in &links {
        let Message::Warning { reading } = answer(link) else { panic!("no warning") };
        assert!(reading.starts_with("fresh on-battery 300000ms "), "{reading}");
    }
    // One server dies, the other one says goodbye.
    guard.held[0].server = Process::of(0);
    drop(links.remove(0));
    let name_of_two = name(two.path());
    until(&mut guard, |guard| guard.held[0].is_alone());
    let (kept, fds) = heard(&parent);
    assert!(matches!(kept, Message::Keep { .. }) && fds.is_empty(), "{kept:?}");
    send(&links[0], &Message::Goodbye, &[]).unwrap();
    until(&mut guard, |guard| guard.held.len() == 1);
    assert!(!guard.is_over(), "a guard goes on");
    let (forgot, _) = heard(&parent);
    assert_eq!(forgot, Message::Forget { image: name_of_two });
    say(&mut guard, dir.path(), "low");
    until(&mut guard, |guard| guard.held.is_empty());
    assert!(!guard.is_over(), "power may come back");
    say(&mut guard, dir.path(), "ending");
    assert!(guard.is_over());
    let fds = left(&dir.path().join("."));
    let said = asked(
        &mut guard,
        dir.path(),
        &Message::Hold { times: TIMES, rate_bytes_per_s: RATE },
        &fds,
    );
    assert!(matches!(said, Message::Failed { why } if why.contains("the power is ending")));
}

#[test]
fn a_guard_takes_no_foreign_descriptors_and_no_more_regions_than_it_may() {
    let (dir, one, two) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_parent, mut guard) = guard(dir.path(), 1);
    let good = left(one.path());
    let copy = |fd: &OwnedFd| fd.try_clone().unwrap();
    let [memory, ledger, image] = [&good[0], &good[1], &good[2]];
    let pipe = rustix::pipe::pipe().unwrap().0;
    let bad = [
        (vec![], "0 descriptors"),
        (vec![copy(memory), copy(ledger)], "2 descriptors"),
        (vec![copy(image), copy(ledger), copy(image)], "as many as its ledger says"),
        (vec![copy(memory), copy(image), copy(image)], "another version"),
        (vec![copy(memory), copy(memory), copy(image)], ""),
        (vec![copy(ledger), copy(ledger), copy(image)], "as many as its ledger says"),
        (vec![copy(memory), copy(ledger), copy(&pipe)], "neither a file nor a block device"),
        (vec![copy(memory), copy(ledger), read_only(one.path())], "not open for reading and"),
    ];
    let hold = Message::Hold { times: TIMES, rate_bytes_per_s: RATE };
    for (fds, expected) in bad {
        let said = asked(&mut guard, dir.path(), &hold, &fds);
        assert!(matches!(&said, Message::Failed { why } if why.contains(expected)), "{said:?}");
        assert!(guard.held.is_empty());
    }
    let link = ask(&mut guard, dir.path(), &hold, &good);
    assert_eq!(answer(&link), Message::Ready);
    let said = asked(&mut guard, dir.path(), &hold, &good);
    assert!(matches!(&said, Message::Failed { why } if why.contains("is held")), "{said:?}");
    let said = asked(&mut guard, dir.path(), &hold, &left(two.path()));
    assert!(matches!(&said, Message::Failed { why } if why.contains("at most 1")), "{said:?}");
    // Its own server comes back after it has lost the link.
    drop(link);
    until(&mut guard, |guard| guard.held[0].is_alone());
    let again = ask(&mut guard, dir.path(), &hold, &good);
    assert_eq!(answer(&again), Message::Ready);
    // A peer with another user's memory.
    drop(again);
    until(&mut guard, |guard| guard.held[0].is_alone());
    (guard.held[0].owner, guard.held[0].server) = (4242, Process::of(0));
    let image = name(one.path());
    let other = Peer { user: 4243, process: Process::of(1) };
    let refused = guard.check_use(image, other);
    assert!(matches!(refused, Err(Message::Failed { why }) if why.contains("4242")));
    assert_eq!(guard.check_use(image, Peer { user: 4242, process: Process::of(1) }), Ok(()));
    assert_eq!(guard.check_use(image, Peer { user: 0, process: Process::of(1) }), Ok(()));
}

#[test]
fn the_next_guard_has_the_memory_and_the_links_of_the_one_before() {
    let (dir, one, two) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (server, link) = socket_pair().unwrap();
    let (parent, child) = socket_pair().unwrap();
    let keep = |dir: &Path| Message::Keep {
        image: name(dir),
        is_trusted: true,
        owner: 5,
        times: TIMES,
        pid: 77,
        started: 78,
        rate_bytes_per_s: RATE,
        granted_us: 0,
    };
    let fds = left(one.path());
    let linked: Vec<_> = borrowed(&fds).into_iter().chain([link.as_fd()]).collect();
    send(&parent, &keep(one.path()), &linked).unwrap();
    let fds = left(two.path());
    send(&parent, &keep(two.path()), &borrowed(&fds)).unwrap();
    // One that cannot be held again does not keep the others from it.
    send(&parent, &keep(two.path()), &borrowed(&fds[..2])).unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    send(&parent, &Message::Ready, &[null.as_fd()]).unwrap();
    let Inherited { parent: to_parent, held, .. } =
        inherit(child, &Closings::default(), &RealClock).unwrap();
    drop(link);
    let role =
        Role::Guard { regions_max: 8, regions_of_one_max: 8, parent: to_parent, tenancy: None };
    let mut guard = holding(dir.path(), role, Arc::new(RealClock));
    guard.resume(held);
    let states: Vec<_> = guard.held.iter().map(|held| (held.owner, held.is_alone())).collect();
    assert_eq!(states, [(5, false), (5, true)]);
    assert_eq!(answer(&server), Message::Ready);
    drop(server);
    until(&mut guard, |guard| guard.held[0].is_alone());
    // A guard without a parent goes on.
    drop(parent);
    guard.turn().unwrap();
    say(&mut guard, dir.path(), "low");
    until(&mut guard, |guard| guard.held.is_empty());
}

/// A guard whose servers share a battery of 1 s.
fn sharing(dir: &Path, tenants: Vec<Tenant>) -> (OwnedFd, Holding) {
    let (parent, mut guard) = guard(dir, 8);
    let grace = Duration::from_millis(1_100);
    let battery = Battery { grace, file: None, response: Response::new(grace, None), tenants };
    if let Role::Guard { tenancy, .. } = &mut guard.role {
        *tenancy = Some(Box::new(Tenancy::new(battery, &*guard.clock)));
    }
    (parent, guard)
}

/// The next order on a link.
fn order(guard: &mut Holding, link: &OwnedFd) -> (u64, u64) {
    loop {
        guard.turn().unwrap();
        let mut ready = [PollFd::new(link, PollFlags::IN)];
        poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
        if !ready[0].revents().is_empty()
            && let Message::Share { serial, share_us } = answer(link)
        {
            return (serial, share_us);
        }
    }
}

/// The rate at which the smallest budget of a region takes a tenth of a second.
fn slow_rate(fds: &[OwnedFd; 3]) -> u64 {
    let [memory, ledger, _] = fds.each_ref().map(|fd| fd.try_clone().unwrap());
    let region = perdura_region::Attachment::new(memory, ledger).unwrap();
    (region.flush_time(1, region.budget_bytes()).as_secs_f64() * 10.0) as u64
}

#[test]
fn time_is_given_on_when_the_newest_order_is_kept_and_the_parent_knows_first() {
    let (dir, one, two) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (parent, mut guard) = sharing(dir.path(), Vec::new());
    let fds = left(one.path());
    let hold = Message::Hold { times: TIMES, rate_bytes_per_s: slow_rate(&fds) };
    let first = ask(&mut guard, dir.path(), &hold, &fds);
    let (serial, all_us) = order(&mut guard, &first);
    assert!((900_000..1_000_000).contains(&all_us), "{all_us}");
    let granted = std::iter::repeat_with(|| heard(&parent).0).find_map(|message| match message {
        Message::Keep { granted_us, .. } if granted_us >= all_us => Some(granted_us),
        _ => None,
    });
    assert_eq!(granted, Some(all_us), "the parent knows before the server does");
    send(&first, &Message::Kept { serial }, &[]).unwrap();

    // What a second one needs to begin with is lent to the first.
    let fds = left(two.path());
    assert!(matches!(asked(&mut guard, dir.path(), &hold, &fds), Message::Later { .. }));
    assert_eq!(guard.held.len(), 1);
    let (serial, less_us) = order(&mut guard, &first);
    assert!(less_us <= all_us - 89_000, "it is taken back: {less_us} of {all_us}");
    send(&first, &Message::Kept { serial }, &[]).unwrap();
    let third = ask(&mut guard, dir.path(), &hold, &fds);
    assert_eq!(answer(&third), Message::Ready);
    send(&third, &Message::Goodbye, &[]).unwrap();
    until(&mut guard, |guard| guard.held.len() == 1);
    while guard.share_us(name(one.path())) < 600_000 {
        guard.turn().unwrap();
    }
    let small = Message::Hold { times: TIMES, rate_bytes_per_s: u64::MAX >> 20 };
    let second = ask(&mut guard, dir.path(), &small, &fds);
    let (serial, share_us) = order(&mut guard, &first);
    assert!(share_us < 600_000, "half of it: {share_us}");
    let (second_serial, second_us) = order(&mut guard, &second);
    assert!(second_us < 20_000, "nothing is free yet: {second_us}");
    for (link, serial) in [(&second, second_serial), (&first, serial - 1)] {
        send(link, &Message::Kept { serial }, &[]).unwrap();
    }
    for _ in 0..5 {
        guard.turn().unwrap();
    }
    assert!(guard.share_us(name(two.path())) < 20_000, "an old order is kept");
    send(&first, &Message::Kept { serial }, &[]).unwrap();
    let (_, second_us) = order(&mut guard, &second);
    assert!(second_us > 300_000, "{second_us}");

    // One that dies keeps what its dirty data need.
    drop(first);
    until(&mut guard, |guard| guard.held[0].is_alone());
    assert!(guard.share_us(name(one.path())) <= 100_100);
    let (_, second_us) = order(&mut guard, &second);
    assert!(second_us > 800_000, "{second_us}");
}

#[test]
fn one_that_is_not_trusted_is_charged_its_whole_region_or_refused() {
    let (dir, one, two) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let distrusted = Tenant { is_trusted: false, ..Tenant::default() };
    let (_parent, mut guard) = sharing(dir.path(), vec![distrusted]);
    let fds = left(one.path());
    // 1 MiB, which may grow to 4 MiB, at 16 MiB/s.
    let hold = |rate| Message::Hold { times: TIMES, rate_bytes_per_s: rate };
    let link = ask(&mut guard, dir.path(), &hold(16 << 20), &fds);
    let (_, share_us) = order(&mut guard, &link);
    assert!(share_us >= 250_000 && share_us == guard.share_us(name(one.path())), "{share_us}");
    let refused = asked(&mut guard, dir.path(), &hold(4 << 20), &left(two.path()));
    let Message::Failed { why } = refused else { panic!("{refused:?}") };
    assert!(why.contains("entitled"), "{why}");
}

/// A child of a dead server may have its memory and its ledger mapped, and write to both.
#[test]
fn one_that_is_not_trusted_is_charged_its_whole_region_until_that_is_let_go() {
    let (dir, one) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let distrusted = Tenant { is_trusted: false, ..Tenant::default() };
    let (_parent, mut guard) = sharing(dir.path(), vec![distrusted]);
    let fds = left(one.path());
    let ledger = {
        let memory = SharedMemory::from_fd(fds[1].try_clone().unwrap()).unwrap();
        Ledger::attach(memory).unwrap()
    };
    let hold = Message::Hold { times: TIMES, rate_bytes_per_s: 16 << 20 };
    let link = ask(&mut guard, dir.path(), &hold, &fds);
    let (serial, whole_us) = order(&mut guard, &link);
    send(&link, &Message::Kept { serial }, &[]).unwrap();
    let image = name(one.path());
    let is_whole = |guard: &Holding| guard.share_us(image) == whole_us;
    drop(link);
    until(&mut guard, |guard| guard.held[0].is_alone());
    assert!(is_whole(&guard), "{} of {whole_us}", guard.share_us(image));

    // A server that comes back after the ledger was made to say that the region is small.
    let region_bytes = ledger.region_bytes().swap(BLOCK_BYTES, Relaxed);
    let link = ask(
        &mut guard,
        dir.path(),
        &Message::TakeOver { times: TIMES, image, layout: LIVE_LAYOUT },
        &[],
    );
    assert!(matches!(answer(&link), Message::Held { .. }));
    assert!(is_whole(&guard), "{} of {whole_us}", guard.share_us(image));
    let (_, share_us) = order(&mut guard, &link);
    assert_eq!(share_us, whole_us);
    drop(link);
    until(&mut guard, |guard| guard.held[0].is_alone());
    assert!(is_whole(&guard), "{} of {whole_us}", guard.share_us(image));
    ledger.region_bytes().store(region_bytes, Relaxed);
    // Nothing is flushed beside a server that runs, and this process does.
    guard.held[0].server = Process::of(0);
    say(&mut guard, dir.path(), "low");
    until(&mut guard, |guard| guard.held.is_empty());
    assert_eq!(guard.share_us(image), 0);
}

#[test]
fn one_that_is_not_trusted_stays_so_wherever_its_image_is_moved() {
    let (dir, one, two) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let whose = Whose::Directory(one.path().into());
    let distrusted = Tenant { whose, is_trusted: false, ..Tenant::default() };
    let (parent, mut guard) = sharing(dir.path(), vec![distrusted.clone()]);
    let hold = Message::Hold { times: TIMES, rate_bytes_per_s: 16 << 20 };
    let link = ask(&mut guard, dir.path(), &hold, &left(one.path()));
    let (_, share_us) = order(&mut guard, &link);
    let name = name(one.path());
    std::fs::rename(one.path().join("image"), two.path().join("image")).unwrap();
    guard.held[0].server = Process::of(0);
    drop(link);
    until(&mut guard, |guard| guard.held[0].is_alone());
    assert_eq!(guard.share_us(name), share_us);
    let Some(Message::Battery { dirty_us, .. }) =
        guard.tenancy().map(|tenancy| tenancy.describe(&guard.held))
    else {
        panic!("no battery")
    };
    assert_eq!(dirty_us, share_us, "what an operator sees");
    // The next guard knows it by what this one has told the parent.
    let kept = std::iter::repeat_with(|| heard(&parent)).find_map(|(said, fds)| match said {
        Message::Keep { is_trusted, granted_us, .. } if fds.is_empty() => {
            Some((is_trusted, granted_us))
        }
        _ => None,
    });
    let Some((is_trusted, granted_us)) = kept else { panic!("nothing is kept") };
    assert!(!is_trusted && granted_us == share_us);
    let (_parent, mut next) = sharing(dir.path(), vec![distrusted]);
    let held = guard.held.remove(0);
    next.resume(vec![Inheritance { held, granted_us: 0, is_trusted }]);
    assert_eq!(next.share_us(name), share_us);
}

#[test]
fn one_that_takes_more_than_its_share_is_reckoned_with() {
    let (dir, one) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let small = Tenant { limit: Some(Duration::from_millis(20)), ..Tenant::default() };
    let (_parent, mut guard) = sharing(dir.path(), vec![small]);
    let fds = left(one.path());
    let rate = slow_rate(&fds) * 10;
    let ledger = {
        let memory = SharedMemory::from_fd(fds[1].try_clone().unwrap()).unwrap();
        Ledger::attach(memory).unwrap()
    };
    let hold = Message::Hold { times: TIMES, rate_bytes_per_s: rate };
    let link = ask(&mut guard, dir.path(), &hold, &fds);
    let (serial, share_us) = order(&mut guard, &link);
    assert!(share_us <= 20_000, "{share_us}");
    send(&link, &Message::Kept { serial }, &[]).unwrap();
    ledger.budget_limit().store(ledger.budget_limit().load(Relaxed) * 10, Release);
    let one = name(one.path());
    until(&mut guard, |guard| guard.share_us(one) > 90_000);
}

#[test]
fn a_rate_claimed_later_takes_nothing_that_others_are_entitled_to() {
    let (dir, one, two) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let half = Tenant { reservation: Duration::from_millis(400), ..Tenant::default() };
    let (_parent, mut guard) = sharing(dir.path(), vec![half]);
    let hold = Message::Hold { times: TIMES, rate_bytes_per_s: u64::MAX >> 20 };
    let first = ask(&mut guard, dir.path(), &hold, &left(one.path()));
    let (serial, _) = order(&mut guard, &first);
    send(&first, &Message::Kept { serial }, &[]).unwrap();
    guard.turn().unwrap();
    let second = ask(&mut guard, dir.path(), &hold, &left(two.path()));
    assert_eq!(answer(&second), Message::Ready);
    for rate_bytes_per_s in [1, 0, u64::MAX] {
        send(&second, &Message::Claim { rate_bytes_per_s }, &[]).unwrap();
        guard.turn().unwrap();
        for _ in 0..5 {
            guard.turn().unwrap();
        }
        let held: Vec<_> = guard.held.iter().map(|held| held.rate_bytes_per_s).collect();
        let claimed = if rate_bytes_per_s > 1 { rate_bytes_per_s } else { u64::MAX >> 20 };
        assert_eq!(held, [u64::MAX >> 20, claimed]);
    }
}
