//! Sentences about the order of reads, and why it does not show the prefetcher's share.

use perdura_media::Bytes;

use super::{Overall, overall, times};
use crate::access::insights::facts::{Facts, Told};
use crate::access::insights::figures::{Order, PlaceFigures, Verdict, Versus};

/// Whether reads in order are faster, and why that is not the prefetcher's share.
pub fn prefetcher(place: &PlaceFigures, facts: &Facts) -> String {
    let mut sizes: Vec<u64> = place.reads.iter().map(|read| read.read_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let against_random = |order| {
        let one = |bytes: &u64| Some((*bytes, place.order_versus(*bytes, order, Order::Random)?));
        sizes.iter().filter_map(one).collect::<Vec<(u64, Versus)>>()
    };
    let ascending = against_random(Order::Ascending);
    if ascending.is_empty() {
        return "no reads were measured in two orders".into();
    }
    let verdicts: Vec<Verdict> = ascending.iter().map(|(_, versus)| versus.verdict()).collect();
    let headline = match overall(&verdicts) {
        (Overall::Helps, false) => "order helps at each size",
        (Overall::Helps, true) => "order helps at each size with a clear result",
        (Overall::Hurts, false) => "order hurts at each size",
        (Overall::Hurts, true) => "order hurts at each size with a clear result",
        (Overall::NoDifference, _) => "order makes no difference",
        (Overall::Depends, _) => "the effect of order depends on the size",
        (Overall::HurtsSome, _) => "order hurts some sizes and helps none",
        (Overall::CannotBeTold, _) => "the rounds differ too much to show whether order helps",
    };
    let share = match &facts.prefetch_switch {
        Told::Known(how) => {
            format!("would need it switched off (MSR 0x1a4; {how}), which this program does not do")
        }
        Told::NotTold(why) => {
            format!("is unknown, because it cannot be switched off here (MSR 0x1a4; {why})")
        }
    };
    let list = |of: &[(u64, Versus)]| {
        let one = |(bytes, versus): &(u64, Versus)| format!("{} {}", Bytes(*bytes), times(versus));
        of.iter().map(one).collect::<Vec<_>>().join("; ")
    };
    let mut said = format!(
        "{headline}; the prefetcher's share of that {share}. Beside random reads: ascending {}",
        list(&ascending)
    );
    for (order, name) in
        [(Order::Descending, "Descending"), (Order::EveryFourth, "Every fourth, ascending:")]
    {
        let versus = against_random(order);
        if !versus.is_empty() {
            said += &format!(". {name} {}", list(&versus));
        }
    }
    said
}

/// How the answer of [`prefetcher`] was found.
pub fn how_prefetcher() -> String {
    "reads a second, one thread, all orders over the same range and in the same rounds; savings in \
     address translation and in the memory's rows are included"
        .into()
}

#[cfg(test)]
mod tests {
    use super::super::tests::facts;
    use super::*;
    use crate::access::insights::figures::ReadIn;

    fn said(reads: &[(Order, u64, f64)]) -> String {
        let read = |(order, read_bytes, per_s): &(Order, u64, f64)| ReadIn {
            order: *order,
            read_bytes: *read_bytes,
            per_s: vec![*per_s, per_s * 1.001],
        };
        let reads = reads.iter().map(read).collect();
        prefetcher(&PlaceFigures { reads, ..PlaceFigures::default() }, &facts())
    }

    #[test]
    fn order_helps_hurts_or_makes_no_difference() {
        use Order::*;
        let two = |ascending: f64, large: f64| {
            said(&[
                (Ascending, 64, ascending),
                (Random, 64, 10.0),
                (Ascending, 4096, large),
                (Random, 4096, 10.0),
            ])
        };
        let depends = two(30.0, 10.0);
        assert!(depends.starts_with("the effect of order depends on the size; "), "{depends}");
        assert!(
            depends.contains("ascending 64 B 3.00 times, 95 % 3.00 to 3.00; 4 KiB 1.00 times"),
            "{depends}"
        );
        assert!(two(30.0, 20.0).starts_with("order helps at each size"));
        assert!(two(5.0, 5.0).starts_with("order hurts at each size"));
        assert!(two(5.0, 10.0).starts_with("order hurts some sizes"));
        assert!(two(10.0, 10.0).starts_with("order makes no difference"));
        assert_eq!(said(&[]), "no reads were measured in two orders");
    }

    #[test]
    fn order_is_never_taken_for_the_prefetcher() {
        use Order::*;
        let reads = [
            (Ascending, 64, 30.0),
            (Random, 64, 10.0),
            (Descending, 64, 20.0),
            (EveryFourth, 64, 15.0),
        ];
        let told = said(&reads);
        assert!(
            told.contains(
                "the prefetcher's share of that is unknown, because it cannot be switched off \
                 here (MSR 0x1a4; /msr"
            ),
            "{told}"
        );
        assert!(told.contains(". Descending 64 B 2.00 times"), "{told}");
        // The ratio has no verdict: these reads touch other bytes than the ascending ones.
        assert!(told.contains(". Every fourth, ascending: 64 B 1.50 times"), "{told}");
        assert!(!told.contains("foreseen"), "{told}");
        let open = Facts { prefetch_switch: Told::Known("/msr can be written".into()), ..facts() };
        let read = |order, per_s| ReadIn { order, read_bytes: 64, per_s: vec![per_s; 2] };
        let reads = vec![read(Ascending, 2.0), read(Random, 1.0)];
        let told = prefetcher(&PlaceFigures { reads, ..PlaceFigures::default() }, &open);
        assert!(told.contains("would need it switched off"), "{told}");
        assert!(how_prefetcher().contains("address translation"));
    }

    #[test]
    fn rounds_that_differ_too_much_tell_nothing() {
        let read = |order, per_s: [f64; 2]| ReadIn { order, read_bytes: 64, per_s: per_s.into() };
        let reads = vec![read(Order::Ascending, [5.0, 30.0]), read(Order::Random, [10.0, 10.0])];
        let told = prefetcher(&PlaceFigures { reads, ..PlaceFigures::default() }, &facts());
        assert!(told.starts_with("the rounds differ too much to show"), "{told}");
    }
}
