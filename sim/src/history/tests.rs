//! The checker on histories made by hand.

use super::check::{Verdict, check};
use super::model::{Answer, End, Key, Model, Op};
use super::record::{Event, parts};

const N: Key = Key::Number(0);
const M: Key = Key::Number(1);
const L: Key = Key::List(0);
const K: Key = Key::List(1);

const STEPS_MAX: u64 = 100_000;

/// A history of commands with client, answer, and the moments of call and return.
fn history(events: &[(usize, Op, Answer, u64, u64)]) -> Vec<Event> {
    let event = |(client, op, answer, called, returned): &(usize, Op, Answer, u64, u64)| Event {
        client: *client,
        op: op.clone(),
        answer: answer.clone(),
        called: *called,
        returned: *returned,
    };
    events.iter().map(event).collect()
}

#[track_caller]
fn assert_is(events: &[(usize, Op, Answer, u64, u64)], linearizable: bool) {
    let verdict = check(&history(events), STEPS_MAX);
    assert_eq!(verdict == Verdict::Linearizable, linearizable, "{verdict:?}");
    assert!(!matches!(verdict, Verdict::Undecided { .. }), "{verdict:?}");
}

fn push(key: Key, element: i64) -> Op {
    Op::Push(key, End::Right, vec![element])
}

fn wait(keys: &[Key]) -> Op {
    Op::WaitPop(keys.to_vec(), End::Left, 10)
}

fn popped(key: Key, element: i64) -> Answer {
    Answer::Many(vec![Answer::Key(key), Answer::Text(element)])
}

#[test]
fn a_read_sees_a_write_at_the_same_time_or_not_and_one_before_it_always() {
    let set = (0, Op::Set(N, 1), Answer::Ok, 0, 5);
    for (answer, called, is_right) in [
        (Answer::Null, 1, true),
        (Answer::Text(1), 1, true),
        (Answer::Null, 6, false),
        (Answer::Text(1), 6, true),
        (Answer::Text(2), 1, false),
    ] {
        assert_is(&[set.clone(), (1, Op::Get(N), answer, called, called + 1)], is_right);
    }
}

#[test]
fn two_readers_agree_about_the_order() {
    let sets = [(0, Op::Set(N, 1), Answer::Ok, 0, 20), (1, Op::Set(N, 2), Answer::Ok, 1, 21)];
    let read = |client, answer, at| (client, Op::Get(N), Answer::Text(answer), at, at + 1);
    for (answers, is_right) in [([1, 2, 2], true), ([2, 1, 1], true), ([1, 2, 1], false)] {
        let [one, two, three] = answers;
        let reads = [read(2, one, 3), read(3, two, 5), read(2, three, 7)];
        assert_is(&[&sets[..], &reads].concat(), is_right);
    }
}

#[test]
fn a_write_that_is_answered_before_it_is_carried_out_is_seen() {
    assert_is(
        &[
            (0, Op::Set(N, 1), Answer::Ok, 0, 1),
            (1, Op::Get(N), Answer::Null, 2, 3),
            (1, Op::Get(N), Answer::Text(1), 4, 5),
        ],
        false,
    );
}

#[test]
fn a_lost_increment_is_seen() {
    let incr = |client, answer| (client, Op::Incr(N), Answer::Int(answer), client as u64, 9);
    assert_is(&[incr(0, 1), incr(1, 2), incr(2, 3)], true);
    assert_is(&[incr(0, 3), incr(1, 1), incr(2, 2)], true);
    assert_is(&[incr(0, 1), incr(1, 1), incr(2, 2)], false);
}

#[test]
fn a_transaction_happens_as_a_whole_and_not_after_a_change() {
    let both = Op::Exec(vec![Op::Set(N, 1), Op::Set(M, 1)]);
    let done = Answer::Many(vec![Answer::Ok, Answer::Ok]);
    let read = |key, answer, at| (1, Op::Get(key), answer, at, at + 1);
    let exec = (0, both.clone(), done.clone(), 0, 9);
    assert_is(&[exec.clone(), read(N, Answer::Null, 1), read(M, Answer::Text(1), 3)], true);
    assert_is(&[exec, read(N, Answer::Text(1), 1), read(M, Answer::Null, 3)], false);
    for (answer, at, is_right) in [
        (done.clone(), 2, false),
        (Answer::Null, 2, true),
        // The change may have come before WATCH, or behind EXEC.
        (done.clone(), 0, true),
        (done, 5, true),
        (Answer::Null, 7, false),
    ] {
        assert_is(
            &[
                (0, Op::Watch(vec![N, M]), Answer::Ok, 0, 1),
                (1, Op::Set(M, 7), Answer::Ok, at, at + 1),
                (0, both.clone(), answer, 4, 6),
            ],
            is_right,
        );
    }
}

#[test]
fn an_element_is_popped_once_and_a_wait_ends_empty_only_where_nothing_was() {
    let pushed = (0, push(L, 7), Answer::Int(1), 1, 2);
    let pop = |client, answer, called, returned| (client, wait(&[K, L]), answer, called, returned);
    assert_is(&[pop(1, popped(L, 7), 0, 3), pushed.clone()], true);
    assert_is(&[pop(1, popped(L, 7), 0, 3), pushed.clone(), pop(2, Answer::Null, 4, 9)], true);
    assert_is(&[pop(1, popped(L, 7), 0, 3), pushed.clone(), pop(2, popped(L, 7), 0, 9)], false);
    assert_is(&[pushed.clone(), pop(1, Answer::Null, 3, 9)], false);
    assert_is(&[pop(1, Answer::Null, 0, 9), pushed.clone()], true);
    // Nobody has popped it, and it is gone.
    assert_is(&[pushed.clone(), (2, Op::Range(L), Answer::Many(Vec::new()), 5, 6)], false);
    // What is moved is in one of the two lists.
    let moved = (1, Op::WaitMove(L, End::Left, K, End::Left, 0), Answer::Text(7), 0, 9);
    let lens = |of_l, of_k| Answer::Many(vec![Answer::Int(of_l), Answer::Int(of_k)]);
    for (answer, is_right) in
        [(lens(1, 0), true), (lens(0, 1), true), (lens(0, 0), false), (lens(1, 1), false)]
    {
        let look = (2, Op::Exec(vec![Op::Len(L), Op::Len(K)]), answer, 4, 5);
        assert_is(&[pushed.clone(), moved.clone(), look], is_right);
    }
}

#[test]
fn keys_that_nothing_connects_are_apart() {
    let events = history(&[
        (0, Op::Get(N), Answer::Null, 0, 1),
        (1, Op::Watch(vec![M]), Answer::Ok, 2, 3),
        (0, push(L, 1), Answer::Int(1), 4, 5),
        (1, Op::Exec(vec![Op::Len(L)]), Answer::Many(vec![Answer::Int(1)]), 6, 7),
        (0, Op::Len(K), Answer::Int(0), 8, 9),
        (1, Op::Exec(Vec::new()), Answer::Many(Vec::new()), 10, 11),
    ]);
    let parts = parts(events);
    let called = |part: &Vec<Event>| part.iter().map(|event| event.called).collect::<Vec<_>>();
    let mut called: Vec<_> = parts.iter().map(called).collect();
    called.sort_unstable();
    assert_eq!(called, [vec![0], vec![2, 4, 6], vec![8], vec![10]]);
}

/// The search is to find what trying all orders finds.
#[test]
fn the_search_agrees_with_trying_all_orders() {
    let mut random = 1_u64;
    let mut draw = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    let (mut right, mut wrong) = (0, 0);
    for _ in 0..3000 {
        // The answers are those of one order; whether the times allow it, or another, is chance.
        let mut model = Model::default();
        let events: Vec<_> = (0..5)
            .map(|client| {
                let op = match draw(5) {
                    0 => Op::Incr(N),
                    1 => Op::Get(N),
                    2 => push(L, client as i64),
                    3 => Op::Range(L),
                    _ => Op::Pop(L, End::Left),
                };
                let answer = model.apply(client, &op);
                let called = draw(8) * 100 + 2 * client as u64;
                (client, op, answer, called, called + 1 + draw(8) * 100)
            })
            .collect();
        let events = history(&events);
        let is_right = some_order(&events, &mut (0..events.len()).collect(), &Model::default());
        let verdict = check(&events, STEPS_MAX);
        assert_eq!(verdict == Verdict::Linearizable, is_right, "{events:?}: {verdict:?}");
        *(if is_right { &mut right } else { &mut wrong }) += 1;
    }
    assert!(right > 200 && wrong > 200, "{right} and {wrong}");
}

/// Tries all orders of the events that are left.
fn some_order(events: &[Event], left: &mut Vec<usize>, model: &Model) -> bool {
    left.is_empty()
        || (0..left.len()).any(|at| {
            let event = &events[left[at]];
            let is_first = left.iter().all(|other| events[*other].returned > event.called);
            let mut next = model.clone();
            if !is_first || next.apply(event.client, &event.op) != event.answer {
                return false;
            }
            let taken = left.remove(at);
            let found = some_order(events, left, &next);
            left.insert(at, taken);
            found
        })
}

#[test]
fn a_search_is_given_up_after_so_many_steps() {
    let events = history(&[(0, Op::Get(N), Answer::Null, 0, 1)]);
    assert_eq!(check(&events, 1), Verdict::Undecided { steps: 1 });
    assert_eq!(check(&events, 2), Verdict::Linearizable);
}
