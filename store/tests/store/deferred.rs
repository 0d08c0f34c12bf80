//! A change that waits for the commit is seen by all that the operation does: operations of many
//! steps on one key, beside the same with nothing deferred.

use std::sync::Arc;

use crate::harness::{Random, config, store_on};
use perdura_media::SimClock;
use perdura_media::sim::SimDevice;
use perdura_region::Region;
use perdura_store::{Access, Expiry, Key, Store, Tx, TxError};
use rand::{Rng, SeedableRng};

fn step(tx: &mut Tx<'_>, key: Key<'_>, random: &mut Random) -> Result<String, TxError> {
    let value = vec![random.random::<u8>(); random.random_range(0..300)];
    let name = [b'a' + random.random_range(0..60u8)];
    let at_ms = [500, 5_000][random.random_range(0..2)];
    let expiry = [Expiry::None, Expiry::Keep, Expiry::AtMs(at_ms)][random.random_range(0..3)];
    let done = match random.random_range(0..12) {
        0 | 1 => format!("{:?}", tx.put(key, &value, expiry)),
        2 | 3 => format!("{:?}", tx.delete(key)),
        4 => format!("{:?}", tx.append(key, &value)),
        5 => format!("{:?}", tx.patch(key, 7, &value)),
        6 => format!("{:?}", tx.set_expiry(key, Some(at_ms))),
        7 => format!("{:?}", tx.set_expiry(key, None)),
        8 => format!("{:?}", tx.hash_set(key, &name, &value)),
        9 => format!("{:?}", tx.hash_delete(key, &name)),
        10 => format!("{:?}", tx.sorted_add(key, &value, f64::from(name[0]))),
        _ => format!("{:?}", tx.sorted_remove(key, &value)),
    };
    match done.contains("Again") {
        true => Err(TxError::Again),
        false => Ok(format!("{done} {}", seen(tx, key))),
    }
}

fn seen(tx: &Tx<'_>, key: Key<'_>) -> String {
    let mut fields = Vec::new();
    let _ =
        tx.hash_for_each(key, &mut |field, value| fields.push((field.to_vec(), value.to_vec())));
    fields.sort();
    let mut members = Vec::new();
    if let Ok(Some(sorted)) = tx.sorted(key) {
        sorted.assert_sound();
        sorted
            .for_each(0..u64::MAX, false, &mut |name, score| members.push((name.to_vec(), score)));
    }
    let entry = tx.get(key).map(|entry| (entry.string().map(<[u8]>::to_vec), entry.expire_at_ms));
    format!("{entry:?} {fields:?} {members:?}")
}

fn run(store: &Store, access: Access<'_>, key: Key<'_>, seed: u64) -> String {
    let mut told = Vec::new();
    let outcome = store.run(access, |tx| {
        told.clear();
        let mut random = Random::seed_from_u64(seed);
        for _ in 0..random.random_range(1..5) {
            told.push(step(tx, key, &mut random)?);
        }
        if random.random_range(0..5) == 0 { tx.abort("changed its mind") } else { Ok(()) }
    });
    let after = store.run(Access::Key(key), |tx| Ok(seen(tx, key))).unwrap();
    format!("{told:?} {outcome:?} {after} {}", store.len(0))
}

#[test]
fn operations_of_many_steps_see_what_they_have_deferred() {
    for budget_bytes in [128 << 10, 4 << 20] {
        let clock = Arc::new(SimClock::new(1_000 * 1_000_000));
        let open = || {
            let device = Arc::new(SimDevice::new(0, 1));
            store_on(Region::open(device, clock.clone(), config(budget_bytes)).unwrap(), &clock)
        };
        let (deferred, logged) = (open(), open());
        for seed in 0..4_000u64 {
            let name = (seed % 97).to_le_bytes();
            let key = Key::new(&name);
            let a = run(&deferred, Access::Key(key), key, seed);
            let b = run(&logged, Access::Keys(&[key]), key, seed);
            assert_eq!(a, b, "seed {seed}");
        }
        assert_eq!(deferred.keys_with_expiry(0), logged.keys_with_expiry(0));
    }
}
