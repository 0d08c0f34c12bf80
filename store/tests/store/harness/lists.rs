//! Operations on lists, drawn from a seed, and the oracle that runs them.

use std::collections::VecDeque;

use perdura_store::End;
use rand::Rng;

use super::{Random, Step, bytes, key};

/// An element of a list: mostly one of few, so that some are equal.
fn element(random: &mut Random) -> Vec<u8> {
    match random.random_range(0..40) {
        0 => bytes(random, 3_000),
        1..5 => bytes(random, 300),
        5..20 => random.random_range(-300_000..300_000).to_string().into_bytes(),
        _ => format!("element {}", random.random_range(0..12)).into_bytes(),
    }
}

pub fn draw_list(random: &mut Random, db: u8) -> Step {
    let name = match random.random_bool(0.95) {
        true => format!("list:{}", random.random_range(0..7)).into_bytes(),
        false => key(random).1,
    };
    let end = if random.random_bool(0.5) { End::Front } else { End::Back };
    let index = match random.random_bool(0.5) {
        true => random.random_range(0..10),
        false => random.random_range(0..400),
    };
    let elements = |random: &mut Random, count| (0..count).map(|_| element(random)).collect();
    match random.random_range(0..20) {
        0..9 => {
            let count = [1, 3, 20, 150][random.random_range(0..4)];
            Step::ListPush(db, name, end, elements(random, count))
        }
        9..12 => Step::ListCut(db, name, end, [1, 2, 40, index][random.random_range(0..4)]),
        12..14 => Step::ListTurn(db, name, end, index % 9, elements(random, 5)),
        14..16 => Step::ListSet(db, name, index, element(random)),
        16..18 => Step::ListInsert(db, name, index, element(random)),
        _ => {
            let most = [1, 3, u64::MAX][random.random_range(0..3)];
            Step::ListRemove(db, name, element(random), most, random.random_bool(0.5))
        }
    }
}

/// Adds an element at an end.
pub fn push(list: &mut VecDeque<Vec<u8>>, end: End, element: Vec<u8>) {
    match end {
        End::Front => list.push_front(element),
        End::Back => list.push_back(element),
    }
}

/// Runs a step that changes a list which is there.
pub fn change_list(list: &mut VecDeque<Vec<u8>>, step: &Step) {
    match step {
        Step::ListPush(_, _, end, elements) => {
            elements.iter().for_each(|element| push(list, *end, element.clone()));
        }
        Step::ListCut(_, _, end, count) => {
            for _ in 0..*count {
                match end {
                    End::Front => list.pop_front(),
                    End::Back => list.pop_back(),
                };
            }
        }
        Step::ListSet(_, _, index, element) => {
            if let Some(old) = list.get_mut(*index as usize) {
                old.clone_from(element);
            }
        }
        Step::ListInsert(_, _, index, element)
            if !list.is_empty() && *index <= list.len() as u64 =>
        {
            list.insert(*index as usize, element.clone());
        }
        Step::ListRemove(_, _, element, most, down) => {
            for _ in 0..*most {
                let is_equal = |other: &Vec<u8>| other == element;
                let at = match down {
                    true => list.iter().rposition(is_equal),
                    false => list.iter().position(is_equal),
                };
                let Some(at) = at else { break };
                list.remove(at);
            }
        }
        _ => {}
    }
}
