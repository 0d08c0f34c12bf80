//! Primaries and idle devices under a store.

use super::*;
use crate::devices::members::target;
use crate::devices::roles::PERIOD_NS;

fn status(world: &World, number: u16) -> DeviceStatus {
    world.devices.status().devices.into_iter().find(|one| one.number == number).unwrap()
}

fn world_of(devices: &[SimDevice]) -> World {
    sized_world_of(devices, 16 * MIB)
}

fn sized_world_of(devices: &[SimDevice], region_bytes: u64) -> World {
    let named = devices.iter().enumerate().map(|(n, one)| named_sim(n, one)).collect();
    open(&SimDevice::new(0, 1), region_bytes, named)
}

#[test]
fn idle_devices_take_no_value_while_a_primary_has_room_and_another_takes_over_from_a_full_one() {
    let devices = three();
    let named = devices.iter().enumerate();
    let named =
        named.map(|(n, one)| on(n, Arc::new(one.clone()), [8, 8, 24][n] * MIB + 4096)).collect();
    let mut world = open(&SimDevice::new(0, 1), 16 * MIB, named);
    world.devices.set_primaries(Primaries::Number(1)).unwrap();
    let mut count = 0;
    let mut writes_until = |world: &mut World, is_over: fn(&World) -> bool| {
        while !is_over(world) {
            // Nobody waits because a role was wrong: `put` fails where a step moves nothing.
            world.put(count, &value(count, 1000)).unwrap();
            count += 1;
        }
        count
    };
    writes_until(&mut world, |world| status(world, 0).is_full);
    let written = |world: &World| [1, 2].map(|number| status(world, number).written_bytes);
    assert!(status(&world, 0).written_bytes > 6 * MIB);
    writes_until(&mut world, |world| status(world, 1).written_bytes > 2 * MIB);
    assert!(written(&world)[1] == 0, "device 1 took over: {:#?}", world.devices.status());
    assert!(status(&world, 0).is_idle && !status(&world, 1).is_idle && status(&world, 2).is_idle);
    let count = writes_until(&mut world, |world| status(world, 2).written_bytes > 2 * MIB);
    assert_eq!(world.unreadable(count), 0);
    assert!(world.devices.roles().activations >= 3);
    // An idle device is as good as any where no primary has room.
    let members = world.devices.members();
    let index = |number| members.iter().position(|one| one.number() == number).unwrap();
    for (full, expected) in [(vec![2], [0, 1]), (vec![2, 0], [1, 1]), (vec![2, 1], [0, 0])] {
        members.iter().for_each(|one| one.is_full.store(full.contains(&one.number()), Relaxed));
        for number in 0..200 {
            let home = target(&members, 0, &key(number)).unwrap();
            assert!(expected.map(index).contains(&home), "{full:?}");
        }
    }
    members.iter().for_each(|one| one.is_full.store(true, Relaxed));
    assert_eq!(target(&members, 0, b"key"), None);
}

#[test]
fn another_takes_over_from_a_primary_that_fails_or_leaves() {
    let plugs: Vec<_> = three()
        .into_iter()
        .map(|device| Arc::new(Plug { device, is_out: AtomicBool::new(false) }))
        .collect();
    let named = plugs.iter().enumerate();
    let named = named.map(|(n, plug)| on(n, plug.clone(), u64::MAX)).collect();
    let mut world = open(&SimDevice::new(0, 1), 16 * MIB, named);
    world.devices.set_primaries(Primaries::Number(1)).unwrap();
    let count = world.fill(25_000);
    plugs[0].is_out.store(true, Relaxed);
    for number in count..count + 10_000 {
        world.put(number, &value(number, 1000)).unwrap();
    }
    assert!(matches!(status(&world, 0).state, DeviceState::Failed(_)));
    assert!(!status(&world, 1).is_idle && status(&world, 1).written_bytes > 5 * MIB);
    assert_eq!(status(&world, 2).written_bytes, 0);
    // Plugged in again it has all its values, and waits for its turn.
    plugs[0].is_out.store(false, Relaxed);
    world.devices.add(&world.store, on(0, plugs[0].clone(), u64::MAX)).unwrap();
    assert!(world.devices.members().iter().all(|one| one.takes_values()));
    assert!(status(&world, 0).is_idle);
    assert_eq!(world.unreadable(count + 10_000), 0);
    // What a primary that leaves has goes to the next one.
    let before = status(&world, 2).written_bytes + status(&world, 0).written_bytes;
    world.devices.remove(1).unwrap();
    world.steps(100);
    let left = world.devices.status().devices;
    assert!(left.iter().all(|one| one.number != 1), "it is gone: {left:#?}");
    assert!(status(&world, 2).written_bytes + status(&world, 0).written_bytes > before + 3 * MIB);
    assert!([0, 2].iter().filter(|number| status(&world, **number).is_idle).count() == 1);
    assert_eq!(world.unreadable(count + 10_000), 0);
}

#[test]
fn what_is_read_from_an_idle_device_wakes_it_once_and_leaves_to_a_primary() {
    // In less memory than this the reserve is all that the mover keeps free.
    let mut world = sized_world_of(&three(), 32 * MIB);
    let count = world.fill(50_000);
    world.devices.set_primaries(Primaries::Number(1)).unwrap();
    let idle = |world: &World| status(world, 1).reads + status(world, 2).reads;
    let written = |world: &World| status(world, 1).written_bytes + status(world, 2).written_bytes;
    let written_before = written(&world);
    let passes: Vec<_> = (0..3)
        .map(|_| {
            let before = idle(&world);
            for number in 0..count {
                assert_eq!(world.get(number), Some(value(number, 1000)));
                if number % 500 == 0 {
                    // What comes back takes budget, and no thread cleans here.
                    world.store.region().checkpoint().unwrap();
                    world.steps(1);
                }
            }
            let after = idle(&world);
            after - before
        })
        .collect();
    assert!(passes[0] > 8_000, "{passes:?}");
    assert!(passes[2] * 20 < passes[0], "{passes:?}");
    assert_eq!(written(&world), written_before, "nothing is written there");
    // With all, what is read once stays where it is.
    let mut world = sized_world_of(&three(), 32 * MIB);
    let count = world.fill(50_000);
    for _ in 0..3 {
        (0..count).for_each(|number| assert!(world.get(number).is_some()));
        world.store.region().checkpoint().unwrap();
        world.steps(1);
    }
    let kept = world.store.far_stats();
    assert!(kept.kept < kept.reads / 2, "{kept:?}");
}

#[test]
fn an_idle_device_is_tidied_up_in_one_go_and_only_when_two_thirds_are_garbage() {
    let mut world = world_of(&three());
    let count = world.fill(48_000);
    world.steps(20);
    world.devices.set_primaries(Primaries::Number(1)).unwrap();
    let read = |world: &World| [0, 1, 2].map(|number| status(world, number).read_bytes);
    let delete = |world: &World, keeps: u32| {
        for number in (0..count).filter(|number| number % 10 >= keeps) {
            world.store.delete(Key::new(&key(number))).unwrap();
        }
    };
    let before = read(&world);
    let written = [1, 2].map(|number| status(&world, number).written_bytes);
    delete(&world, 5);
    world.steps(30);
    let half = read(&world);
    assert!(half[0] > before[0] + 2 * MIB, "the primary is tidied up");
    assert_eq!((half[1], half[2]), (before[1], before[2]), "the idle ones sleep");
    delete(&world, 2);
    world.steps(60);
    for number in [1, 2] {
        let one = status(&world, number);
        // The open segment is used, and up to seven that are empty and wait for a checkpoint.
        assert!(one.used_bytes <= (one.live_bytes * 2).max(8 * MIB), "{one:?}");
        assert!(read(&world)[usize::from(number)] > half[usize::from(number)] + 2 * MIB);
    }
    let now = [1, 2].map(|number| status(&world, number).written_bytes);
    assert_eq!(now, written, "what is left goes to the primary");
    for number in (0..count).filter(|number| number % 10 < 2) {
        assert_eq!(world.get(number), Some(value(number, 1000)));
    }
}

#[test]
fn trials_are_made_with_what_clients_and_devices_did() {
    let world = &mut world_of(&three());
    world.devices.set_primaries(Primaries::Auto).unwrap();
    let members = world.devices.members();
    let primaries =
        |world: &World| world.devices.status().devices.iter().filter(|one| !one.is_idle).count();
    let at = |seconds: u64, reads, writes| {
        let now_ns = seconds * PERIOD_NS;
        world.devices.count_requests(reads, writes);
        world.devices.look_at_roles(&members, now_ns);
        primaries(world)
    };
    assert_eq!(at(10, 0, 0), 1);
    members[0].busy.begin(0);
    assert_eq!(at(11, 1000, 1000), 1, "the clock of its time stands still");
    world.devices.waiting.begin(11 * PERIOD_NS);
    assert_eq!(at(12, 2000, 2000), 2, "a writer waits: a trial");
    // Reads gain a twentieth and writes as much: a tenth.
    assert_eq!(at(13, 3051, 3051), 3, "it stays, and the next one is tried");
    assert_eq!(at(14, 4102, 4102), 2, "which gains nothing");
    let roles = world.devices.roles();
    assert_eq!((roles.trials, roles.trials_kept), (2, 1), "{roles:?}");
    assert!(!roles.last_trial.unwrap().stays);
}

#[test]
fn a_number_of_primaries_that_cannot_be_is_refused_with_those_that_can() {
    let world = world_of(&three());
    for asked in [0, 4] {
        let refused = world.devices.set_primaries(Primaries::Number(asked)).unwrap_err();
        assert!(refused.to_string().contains("expected 1 to 3"), "{refused}");
    }
    assert_eq!(world.devices.roles().wish, Primaries::All);
    for (number, idle) in [(3, 0), (2, 1), (1, 2)] {
        world.devices.set_primaries(Primaries::Number(number)).unwrap();
        let status = world.devices.status();
        assert_eq!(status.devices.iter().filter(|one| one.is_idle).count(), idle);
    }
    let added = SimDevice::new(0, 9);
    let number = world.devices.add(&world.store, named_sim(3, &added)).unwrap();
    assert!(status(&world, number).is_idle, "from the beginning");
    world.devices.set_primaries(Primaries::All).unwrap();
    assert!(world.devices.status().devices.iter().all(|one| !one.is_idle));
}
