//! Samples of a device's rate, and what is judged from them.

use super::*;

const MIB: u64 = 1 << 20;
const PROVEN: u64 = 1000 * MIB;

fn watching() -> Observed {
    let mut observed = Observed::default();
    observed.watch(PROVEN, 64 * MIB, 0);
    observed
}

/// Keeps the queue full: `mib` writes of 1 MiB that complete at `rate`.
fn saturate(observed: &mut Observed, now_ns: &mut u64, rate: u64, mib: u64) -> u64 {
    let mut samples = 0;
    observed.submitted(16 * MIB, *now_ns);
    observed.looked(*now_ns, 0);
    for _ in 0..mib {
        *now_ns += MIB * NS_PER_S / rate;
        samples += u64::from(observed.looked(*now_ns, MIB));
        observed.submitted(MIB, *now_ns);
    }
    // The rest ends at any time, because nobody looks for a while.
    *now_ns += NS_PER_S;
    observed.looked(*now_ns, 16 * MIB);
    samples
}

fn close_to(rate: u64, expected: u64) -> bool {
    rate.abs_diff(expected) <= expected / 20
}

#[test]
fn the_size_of_samples_follows_the_limit_between_bounds() {
    let mut observed = Observed::default();
    for (limit_bytes, deep_bytes, sample_bytes) in [
        (64 * MIB, 4 * MIB, 8 * MIB),
        (30 * MIB, 30 * MIB / 16, 30 * MIB / 8),
        (MIB, MIB / 8, MIB),
        (1 << 40, 4 * MIB, 32 * MIB),
    ] {
        observed.watch(PROVEN, limit_bytes, 0);
        assert_eq!((observed.deep_bytes, observed.sample_bytes), (deep_bytes, sample_bytes));
        observed.outstanding_bytes = 2 * deep_bytes - 1;
        assert!(!observed.is_deep());
        observed.submitted(1, 0);
        assert!(observed.is_deep() && !observed.is_idle());
        observed.looked(0, 2 * deep_bytes);
        assert!(observed.is_idle());
    }
    observed.watch(0, MIB, 0);
    assert!(!observed.is_watching() && !observed.is_deep() && !observed.is_idle());
}

#[test]
fn a_saturated_queue_shows_the_rate_and_never_more_than_was_proven() {
    let (mut observed, mut now) = (watching(), 0);
    assert_eq!(observed.rate(), 0);
    assert_eq!(saturate(&mut observed, &mut now, 300 * MIB, 80), 10);
    assert!(close_to(observed.rate(), 300 * MIB), "{}", observed.rate());
    saturate(&mut observed, &mut now, 5000 * MIB, 400);
    assert_eq!(observed.rate(), PROVEN);
}

#[test]
fn what_was_submitted_before_is_outstanding_until_it_has_ended_and_gives_no_sample() {
    let mut observed = Observed::default();
    observed.submitted(100 * MIB, 0);
    assert!(!observed.looked(0, 40 * MIB));
    observed.watch(PROVEN, 64 * MIB, 0);
    // The first look comes long after all that.
    assert!(!observed.is_idle() && !observed.looked(1000 * NS_PER_S, 20 * MIB));
    assert_eq!((observed.busy.bytes, observed.at_least.bytes), (0, 0));
    assert!(observed.looked(1000 * NS_PER_S + 1, 20 * MIB), "the second shows the rate");
    observed.looked(2000 * NS_PER_S, 20 * MIB);
    assert!(observed.is_idle());
    observed.submitted(MIB, 0);
    observed.looked(0, MIB);
    observed.watch(PROVEN, 64 * MIB, 0);
    assert!(observed.is_idle());
}

#[test]
fn what_is_submitted_behind_it_is_timed_from_the_beginning_of_the_watch() {
    let mut observed = Observed::default();
    observed.submitted(10 * MIB, 0);
    observed.watch(PROVEN, 64 * MIB, 50 * NS_PER_S);
    observed.submitted(MIB, 50 * NS_PER_S);
    observed.looked(51 * NS_PER_S, 11 * MIB);
    assert_eq!((observed.at_least.bytes, observed.at_least.ns), (MIB, NS_PER_S));
}

#[test]
fn a_cleaner_that_is_slow_itself_says_nothing_of_the_device() {
    let (mut observed, mut now) = (watching(), 0);
    for _ in 0..10_000 {
        // Writes of 4 MiB one after another, each seen long after its end: 4 MiB/s.
        observed.submitted(4 * MIB, now);
        now += NS_PER_S;
        observed.looked(now, 4 * MIB);
        assert_eq!(observed.judge(now, PROVEN), Judgement::Kept);
    }
    assert_eq!((observed.samples(), observed.rate()), (0, 0));
    // Small writes outstanding all the time are no burden either.
    observed.submitted(64 << 10, now);
    for _ in 0..10_000 {
        observed.submitted(4 << 10, now);
        now += NS_PER_S;
        observed.looked(now, 4 << 10);
    }
    assert_eq!(observed.samples(), 0);
}

#[test]
fn slow_is_said_late_and_taken_back_when_it_is_over() {
    let (mut observed, mut now) = (watching(), 0);
    saturate(&mut observed, &mut now, 200 * MIB, 400);
    assert_eq!(observed.judge(now, PROVEN), Judgement::Kept);
    assert_eq!(observed.judge(now + SLOW_FOR_NS - 1, PROVEN), Judgement::Kept);
    let Judgement::Slow(rate) = observed.judge(now + SLOW_FOR_NS, PROVEN) else { panic!() };
    assert!(close_to(rate, 200 * MIB));
    now += SLOW_FOR_NS;
    // A promise that needs less is kept.
    assert_eq!(observed.judge(now, 200 * MIB), Judgement::Kept);
    assert_eq!(observed.judge(now, PROVEN), Judgement::Kept);
    assert!(matches!(observed.judge(now + SLOW_FOR_NS, PROVEN), Judgement::Slow(_)));
    // The device is faster, but not fast enough: the judgement follows it.
    saturate(&mut observed, &mut now, 850 * MIB, 400);
    let Judgement::Slow(rate) = observed.judge(now, PROVEN) else { panic!() };
    assert!(close_to(rate, 850 * MIB));
    saturate(&mut observed, &mut now, PROVEN, 400);
    assert_eq!(observed.judge(now, PROVEN), Judgement::Kept);
}

#[test]
fn a_pause_now_and_then_is_not_slowness() {
    let (mut observed, mut now) = (watching(), 0);
    for round in 0..100 {
        saturate(&mut observed, &mut now, PROVEN, 80);
        if round % 10 == 0 {
            saturate(&mut observed, &mut now, 20 * MIB, 8);
        }
        now += SLOW_FOR_NS;
        assert_eq!(observed.judge(now, PROVEN), Judgement::Kept, "round {round}");
    }
}

#[test]
fn a_lower_bound_raises_what_is_believed_and_never_lowers_it() {
    let (mut observed, mut now) = (watching(), 0);
    saturate(&mut observed, &mut now, 200 * MIB, 400);
    let shallow = |observed: &mut Observed, now: &mut u64, rate: u64| {
        for _ in 0..400 {
            observed.looked(*now, 0);
            observed.submitted(MIB, *now);
            *now += MIB * NS_PER_S / rate;
            observed.looked(*now, MIB);
        }
    };
    shallow(&mut observed, &mut now, 50 * MIB);
    assert!(close_to(observed.rate(), 200 * MIB));
    shallow(&mut observed, &mut now, 600 * MIB);
    assert!(close_to(observed.rate(), 600 * MIB), "{}", observed.rate());
}

#[test]
fn a_device_is_surely_fast_enough_for_a_while_after_it_was_seen_to_be() {
    assert!(Observed::default().may_be_short(0), "nothing is promised");
    let (mut observed, mut now) = (watching(), 0);
    assert!(!observed.may_be_short(now));
    let one_at_a_time = |observed: &mut Observed, now: &mut u64, rate: u64| {
        for _ in 0..8 {
            observed.looked(*now, 0);
            observed.submitted(MIB, *now);
            *now += MIB * NS_PER_S / rate;
            observed.looked(*now, MIB);
        }
    };
    one_at_a_time(&mut observed, &mut now, PROVEN / 100 * SLOW_PERCENT - MIB);
    assert!(!observed.may_be_short(now), "a deeper queue may be faster");
    one_at_a_time(&mut observed, &mut now, PROVEN / 100 * SLOW_PERCENT + MIB);
    assert!(
        observed.may_be_short(now + SURE_FOR_NS - 1) && !observed.may_be_short(now + SURE_FOR_NS)
    );
    now += SURE_FOR_NS;
    saturate(&mut observed, &mut now, PROVEN / 2, 80);
    assert!(!observed.may_be_short(now));
    saturate(&mut observed, &mut now, PROVEN, 80);
    // The end of the last sample is up to a second before that.
    assert!(observed.may_be_short(now));
    observed.watch(PROVEN, 64 * MIB, now);
    assert!(!observed.may_be_short(now), "another promise");
}

#[test]
fn a_short_queue_that_is_far_slower_than_a_deep_one_is_given_up_for_a_while() {
    let (mut observed, mut now) = (watching(), 0);
    saturate(&mut observed, &mut now, PROVEN, 400);
    let one_at_a_time = |observed: &mut Observed, now: &mut u64, rate: u64, mib: u64| {
        for _ in 0..mib {
            observed.looked(*now, 0);
            observed.submitted(MIB, *now);
            *now += MIB * NS_PER_S / rate;
            observed.looked(*now, MIB);
        }
    };
    // A cleaner that is late itself says nothing of a short queue, if it has none.
    one_at_a_time(&mut observed, &mut now, MIB, 1);
    saturate(&mut observed, &mut now, PROVEN, 400);
    assert!(observed.may_be_short(now));
    observed.set_short(true);
    one_at_a_time(&mut observed, &mut now, PROVEN / SHORT_PART + MIB, 8);
    assert!(observed.may_be_short(now));
    one_at_a_time(&mut observed, &mut now, PROVEN / SHORT_PART - MIB, 8);
    assert!(!observed.may_be_short(now));
    // The deep queue is as fast as ever, which says nothing of the short one.
    observed.set_short(false);
    now += DEAR_FOR_NS - 2 * NS_PER_S;
    saturate(&mut observed, &mut now, PROVEN, 400);
    assert!(!observed.may_be_short(now));
    now += DEAR_FOR_NS;
    saturate(&mut observed, &mut now, PROVEN, 400);
    assert!(observed.may_be_short(now));
    // A device that has become very slow is judged by time, and not by a whole sample.
    observed.set_short(true);
    one_at_a_time(&mut observed, &mut now, MIB / 2, 1);
    assert!(!observed.may_be_short(now));
}

#[test]
fn the_time_of_flushes_counts_for_whether_a_device_is_fast_enough() {
    let (mut observed, mut now) = (watching(), 0);
    for _ in 0..10 {
        observed.flushed(4 << 10, 5_000_000);
        observed.flushed(4 * MIB, 5_000_000 + 4 * NS_PER_S / 100);
    }
    saturate(&mut observed, &mut now, PROVEN, 400);
    assert!(!observed.may_be_short(now));
}

#[test]
fn a_flush_that_takes_time_per_byte_counts_and_a_fixed_cost_does_not() {
    let (mut observed, mut now) = (watching(), 0);
    saturate(&mut observed, &mut now, PROVEN, 400);
    for _ in 0..10 {
        observed.flushed(4 << 10, 5_000_000);
        observed.flushed(4 * MIB, 5_000_000);
    }
    assert!(close_to(observed.rate(), PROVEN));
    for _ in 0..20 {
        observed.flushed(4 * MIB, 5_000_000 + 4 * NS_PER_S / 100);
    }
    // 1 ms to write a MiB, 10 ms to flush it.
    assert!(close_to(observed.rate(), MIB * 1000 / 11), "{}", observed.rate());
}

#[test]
fn a_flush_of_middling_bytes_counts_neither_as_a_small_nor_as_a_large_one() {
    let mut observed = watching();
    let deep_bytes = observed.deep_bytes;
    for (bytes, counted) in [
        (0, (1, 0)),
        (deep_bytes / 8, (2, 0)),
        (deep_bytes / 8 + 1, (2, 0)),
        (deep_bytes - 1, (2, 0)),
        (deep_bytes, (2, 1)),
        (100 * deep_bytes, (2, 2)),
    ] {
        observed.flushed(bytes, 1_000);
        let found = (observed.small_flushes_ns.len(), observed.large_flushes.len());
        assert_eq!(found, counted, "{bytes}");
    }
}

#[test]
fn a_device_that_is_fast_for_a_moment_has_been_slow_all_the_same() {
    for fine in 0..=SAMPLES_FINE {
        let mut observed = watching();
        let mut judged = |rate: u64, now_ns: u64| {
            observed.push_rate(rate);
            observed.judge(now_ns, PROVEN)
        };
        for _ in 0..SAMPLES_MAX {
            assert_eq!(judged(200 * MIB, 0), Judgement::Kept);
        }
        for now in 0..fine as u64 {
            assert_eq!(judged(PROVEN, now), Judgement::Kept);
        }
        // Only several fast samples in a row end what began.
        let is_slow = matches!(judged(200 * MIB, SLOW_FOR_NS), Judgement::Slow(_));
        assert_eq!(is_slow, fine < SAMPLES_FINE, "{fine} fast samples");
        assert!(matches!(judged(200 * MIB, 2 * SLOW_FOR_NS), Judgement::Slow(_)));
    }
}

#[test]
fn a_hiccup_before_a_pause_is_not_slowness() {
    let (mut observed, mut now) = (watching(), 0);
    saturate(&mut observed, &mut now, PROVEN, 400);
    saturate(&mut observed, &mut now, 20 * MIB, 16);
    assert!(observed.rate() < PROVEN / 2);
    assert_eq!(observed.judge(now, PROVEN), Judgement::Kept);
    now += 100 * SLOW_FOR_NS;
    for _ in 0..50 {
        saturate(&mut observed, &mut now, PROVEN, 8);
        assert_eq!(observed.judge(now, PROVEN), Judgement::Kept);
    }
}

#[test]
fn a_device_that_is_slow_in_its_flushes_is_slow() {
    let (mut observed, mut now) = (watching(), 0);
    saturate(&mut observed, &mut now, PROVEN, 400);
    for _ in 0..20 {
        observed.flushed(4 << 10, 5_000_000);
        observed.flushed(4 * MIB, 5_000_000 + 4 * NS_PER_S / 100);
    }
    assert_eq!(observed.judge(now, PROVEN), Judgement::Kept);
    assert!(matches!(observed.judge(now + SLOW_FOR_NS, PROVEN), Judgement::Slow(_)));
}
