use super::*;

fn candidates(numbers: &[u16]) -> Vec<Candidate> {
    numbers.iter().map(|number| Candidate { number: *number, is_full: false, busy_ns: 0 }).collect()
}

fn wishing(wish: Primaries, numbers: &[u16]) -> Roles {
    let mut roles = Roles::default();
    roles.set_wish(wish, &candidates(numbers));
    roles
}

/// Runs periods in which so many requests a second are asked for, half of them writes, and each
/// primary can do 100: until 10 periods change nothing. Returns the number of trials.
fn settle(roles: &mut Roles, totals: &mut Totals, devices: &mut [Candidate], asked: f64) -> u64 {
    let trials = roles.status().trials;
    let mut quiet = 0;
    while quiet < 10 {
        let before = roles.status().trials;
        let primaries = roles.primaries().to_vec();
        let done = asked.min(100.0 * primaries.len() as f64);
        totals.now_ns += PERIOD_NS;
        let requests = (done * PERIOD_NS as f64 / 1e9) as u64;
        (totals.reads, totals.writes) = (totals.reads + requests / 2, totals.writes + requests / 2);
        for device in devices.iter_mut().filter(|one| primaries.contains(&one.number)) {
            let share = done / 100.0 / primaries.len() as f64;
            device.busy_ns += (share * PERIOD_NS as f64) as u64;
        }
        roles.observe(totals.clone(), devices);
        quiet = if roles.status().trials == before { quiet + 1 } else { 0 };
    }
    roles.status().trials - trials
}

#[test]
fn the_number_of_primaries_follows_the_load_both_ways() {
    let mut devices = candidates(&[0, 1, 2, 3]);
    let mut roles = wishing(Primaries::Auto, &[0, 1, 2, 3]);
    let mut totals = Totals::default();
    assert_eq!(roles.primaries(), [0], "it begins with the fewest");
    for (asked, best) in [(350.0, 4), (50.0, 1), (150.0, 2), (20.0, 1)] {
        let trials = settle(&mut roles, &mut totals, &mut devices, asked);
        assert_eq!(roles.primaries().len(), best, "{asked} asked for");
        assert!(trials <= 3, "{trials} trials for {asked}");
    }
    let status = roles.status();
    assert!(status.activations >= 4 && status.trials_kept <= status.trials, "{status:?}");
    let last = status.last_trial.unwrap();
    assert!(!last.is_up && last.stays, "{last:?}");
}

#[test]
fn a_trial_lasts_a_whole_period_and_the_clock_alone_ends_it() {
    let devices = candidates(&[0, 1]);
    let mut roles = wishing(Primaries::Auto, &[0, 1]);
    let mut at = |now_ns, waiting_ns| {
        roles.observe(Totals { now_ns, reads: 0, writes: now_ns, waiting_ns }, &devices);
        roles.status().trials
    };
    assert_eq!(at(0, 0), 0);
    assert_eq!(at(PERIOD_NS - 1, PERIOD_NS), 0);
    // Writers have waited for a fifth of the time, and then for more.
    assert_eq!(at(PERIOD_NS, PERIOD_NS / 5), 0);
    assert_eq!(at(2 * PERIOD_NS, PERIOD_NS / 5 + PERIOD_NS / 5 + 2), 1);
    assert_eq!(roles.primaries(), [0, 1]);
}

#[test]
fn totals_that_begin_anew_judge_no_trial() {
    let devices = candidates(&[0, 1]);
    let mut roles = wishing(Primaries::Auto, &[0, 1]);
    let totals = |period: u64, writes| {
        let (now_ns, waiting_ns) = (period * PERIOD_NS, period * PERIOD_NS);
        Totals { now_ns, reads: 0, writes, waiting_ns }
    };
    roles.observe(totals(0, 0), &devices);
    roles.observe(totals(1, 1000), &devices);
    assert_eq!(roles.primaries(), [0, 1], "on trial");
    roles.observe(totals(2, 500), &devices);
    assert_eq!((roles.primaries().len(), roles.status().last_trial), (2, None));
    roles.observe(totals(3, 2500), &devices);
    assert!(roles.status().last_trial.unwrap().stays);
}

#[test]
fn another_takes_over_from_a_primary_that_is_full_or_gone_and_no_other_role_changes() {
    let mut devices = candidates(&[0, 1, 2, 3]);
    let mut roles = wishing(Primaries::Number(2), &[0, 1, 2, 3]);
    assert_eq!(roles.primaries(), [0, 1]);
    devices[0].is_full = true;
    roles.assign(&devices);
    assert_eq!(roles.primaries(), [1, 2]);
    assert!(roles.is_idle(0) && roles.is_idle(3) && !roles.is_idle(2));
    devices[0].is_full = false;
    roles.assign(&devices);
    assert_eq!(roles.primaries(), [1, 2], "who has room again waits for its turn");
    devices.remove(1);
    roles.assign(&devices);
    assert_eq!(roles.primaries(), [2, 0]);
    devices.iter_mut().for_each(|one| one.is_full = true);
    roles.assign(&devices);
    assert_eq!(roles.primaries().len(), 2, "there is always a primary");
    devices[2].is_full = false;
    roles.assign(&devices);
    assert_eq!(roles.primaries(), [3]);
    roles.assign(&[]);
    assert!(roles.primaries().is_empty());
    roles.assign(&devices);
    assert_eq!(roles.primaries(), [3]);
}

#[test]
fn a_primary_that_is_lost_ends_the_trial_without_an_outcome() {
    let mut devices = candidates(&[0, 1, 2]);
    let mut roles = wishing(Primaries::Auto, &[0, 1, 2]);
    let pressed = |period: u64| {
        let now_ns = period * PERIOD_NS;
        Totals { now_ns, reads: period * 100, writes: 0, waiting_ns: now_ns }
    };
    roles.observe(pressed(0), &devices);
    roles.observe(pressed(1), &devices);
    assert_eq!(roles.primaries(), [0, 1]);
    devices[0].is_full = true;
    roles.assign(&devices);
    assert_eq!(roles.primaries(), [1], "the trial has ended");
    roles.observe(pressed(2), &devices);
    assert_eq!(roles.status().last_trial, None);
}

#[test]
fn each_primary_has_at_most_three_idle_devices_behind_it() {
    for (devices, least) in [(0, 1), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3), (64, 16)] {
        assert_eq!(primaries_least(devices), least);
        let numbers: Vec<u16> = (0..devices).collect();
        for wish in [Primaries::Number(1), Primaries::Auto] {
            let primaries = wishing(wish, &numbers).primaries().len();
            assert_eq!(primaries, usize::from(least.min(devices)), "{wish} of {devices}");
        }
    }
    let mut roles = wishing(Primaries::Auto, &[0, 1, 2, 3]);
    roles.assign(&candidates(&[0, 1, 2, 3, 4]));
    assert_eq!(roles.primaries(), [0, 1], "a device has come");
}

#[test]
fn with_all_nobody_is_idle() {
    let mut roles = wishing(Primaries::Number(1), &[0, 1, 2]);
    assert!(roles.is_idle(1));
    roles.set_wish(Primaries::All, &candidates(&[0, 1, 2]));
    assert!((0..5).all(|number| !roles.is_idle(number)));
    roles.set_wish(Primaries::Number(9), &candidates(&[0, 1, 2]));
    assert_eq!(roles.primaries(), [0, 1, 2], "there are no more");
}

#[test]
fn a_wish_is_read_as_it_is_shown() {
    for wish in [Primaries::All, Primaries::Auto, Primaries::Number(3)] {
        assert_eq!(wish.to_string().to_uppercase().parse(), Ok(wish));
    }
    for text in ["0", "", "-1", "70000", "some"] {
        assert!(text.parse::<Primaries>().is_err(), "{text}");
    }
}
