//! Drills whose servers do not answer.

use super::*;

/// A guard with a clock of its own, two regions, and the links of their servers.
fn two_regions(dir: &Path, places: [&Path; 2]) -> (Holding, Arc<SimClock>, [OwnedFd; 2]) {
    let (_, mut guard) = guard(dir, 8);
    let clock = Arc::new(SimClock::new(0));
    guard.clock = clock.clone();
    let links = places.map(|place| {
        let hold = Message::Hold { times: TIMES, rate_bytes_per_s: RATE };
        let link = ask(&mut guard, dir, &hold, &left(place));
        assert_eq!(answer(&link), Message::Ready);
        assert!(matches!(answer(&link), Message::Share { .. }));
        link
    });
    (guard, clock, links)
}

fn drilled(image: &str) -> Message {
    let image = image.to_owned();
    Message::Drilled { used_bytes: 1, budget_bytes: 2, device_bytes: 3, elapsed_ns: 4, image }
}

fn has_said(socket: &OwnedFd) -> bool {
    let mut ready = [PollFd::new(socket, PollFlags::IN)];
    poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
}

#[test]
fn a_drill_whose_server_hangs_ends_at_its_limit_and_no_other_begins_before_it_has_answered() {
    let [dir, one, two] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let (mut guard, clock, [quick, hanging]) = two_regions(dir.path(), [one.path(), two.path()]);
    let [image, hung_image] =
        [&one, &two].map(|place| place.path().join("image").display().to_string());
    let drill = Message::Drill { fills: false };
    let operator = ask(&mut guard, dir.path(), &drill, &[]);
    assert_eq!([answer(&quick), answer(&hanging)], [drill.clone(), drill.clone()]);
    send(&quick, &drilled(""), &[]).unwrap();
    guard.turn().unwrap();
    assert_eq!(answer(&operator), drilled(&image));

    // Twice the grace, and a moment for what is read.
    clock.sleep_ns(120 * SECOND_NS);
    guard.look_after();
    assert!(!has_said(&operator), "the limit is over too early");
    clock.sleep_ns(SECOND_NS);
    guard.look_after();
    assert!(has_said(&operator), "it goes on for ever");
    let Message::NotDrilled { why } = answer(&operator) else { panic!("no error") };
    assert!(why.starts_with(&format!("{hung_image}: ")) && !why.contains(&image), "{why}");
    for part in ["may not be on the SSD", "nothing is lost", "see whether its disk answers"] {
        assert!(why.contains(part), "{why}");
    }
    assert_eq!(answer(&operator), Message::Ready);
    guard.look_after();
    assert!(receive(&operator).unwrap().is_none(), "it is told once");

    let refused = asked(&mut guard, dir.path(), &drill, &[]);
    assert!(matches!(&refused, Message::Failed { why } if why.contains(&hung_image)));
    assert!(!has_said(&quick) && !has_said(&hanging));
    // What it owed is no answer to a later drill.
    send(&hanging, &drilled(""), &[]).unwrap();
    guard.turn().unwrap();
    let operator = ask(&mut guard, dir.path(), &drill, &[]);
    assert!(!has_said(&operator));
    for (link, image) in [(&quick, image), (&hanging, hung_image)] {
        assert_eq!(answer(link), drill);
        send(link, &drilled(""), &[]).unwrap();
        guard.turn().unwrap();
        assert_eq!(answer(&operator), drilled(&image));
    }
    assert_eq!(answer(&operator), Message::Ready);
}

#[test]
fn a_drill_has_a_limit_whatever_its_servers_promise() {
    for (grace_ms, rate_bytes_per_s, limit_s) in
        [(1, RATE, 10), (1, 0, 3_300), (u64::MAX, 1, 3_300)]
    {
        let [dir, one, two] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let (mut guard, clock, _links) = two_regions(dir.path(), [one.path(), two.path()]);
        for held in &mut guard.held {
            held.times.grace = Duration::from_millis(grace_ms);
            held.rate_bytes_per_s = rate_bytes_per_s;
        }
        let operator = ask(&mut guard, dir.path(), &Message::Drill { fills: true }, &[]);
        clock.sleep_ns(limit_s * SECOND_NS - 1);
        guard.look_after();
        assert!(!has_said(&operator));
        clock.sleep_ns(1);
        guard.look_after();
        assert!(has_said(&operator), "it goes on for ever");
        for _ in 0..2 {
            assert!(matches!(answer(&operator), Message::NotDrilled { .. }));
        }
        assert_eq!(answer(&operator), Message::Ready);
    }
}

#[test]
fn a_server_that_does_not_hear_of_a_drill_has_not_drilled() {
    let [dir, one, two] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let (mut guard, _, [deaf, hears]) = two_regions(dir.path(), [one.path(), two.path()]);
    let link = guard.find(name(one.path())).unwrap().link().unwrap();
    while send_now(link, &Message::Ready, &[]).is_ok() {}
    let operator = ask(&mut guard, dir.path(), &Message::Drill { fills: true }, &[]);
    let Message::NotDrilled { why } = answer(&operator) else { panic!("no error") };
    let image = one.path().join("image").display().to_string();
    assert!(why.starts_with(&image) && why.contains("reads nothing"), "{why}");
    send(&hears, &drilled(""), &[]).unwrap();
    guard.turn().unwrap();
    assert!(matches!(answer(&operator), Message::Drilled { .. }));
    assert_eq!(answer(&operator), Message::Ready);
    drop(deaf);
}
