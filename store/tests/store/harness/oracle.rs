//! The oracle: the same operations on maps, written naively.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use perdura_store::{End, Expiry, TxError};

use super::lists::{change_list, push};
use super::streams::{Change, StreamModel};
use super::{Model, Step, Value, live, ranked};

/// Runs a step on the oracle.
pub fn apply_to_model(model: &mut Model, step: &Step, now_ms: u64) {
    let before = model.clone();
    if oracle(model, step, now_ms).is_err() {
        *model = before;
    }
}

fn oracle(model: &mut Model, step: &Step, now_ms: u64) -> Result<(), TxError> {
    let wrong = || TxError::from(perdura_store::WrongType);
    *model = live(model, now_ms);
    match step.clone() {
        Step::Put(keys, value, expiry) => {
            let value = Arc::new(Value::String(value));
            for key in keys {
                let at = match expiry {
                    Expiry::None => None,
                    Expiry::AtMs(at) => Some(at),
                    Expiry::Keep => model.get(&key).and_then(|(_, at)| *at),
                };
                model.insert(key, (Arc::clone(&value), at));
            }
        }
        Step::Delete(db, key) => drop(model.remove(&(db, key))),
        Step::Expire(db, key, at) => {
            if let Some(entry) = model.get_mut(&(db, key)) {
                entry.1 = at;
            }
        }
        Step::Append(db, key, tail) => {
            let entry =
                model.entry((db, key)).or_insert((Arc::new(Value::String(Vec::new())), None));
            let Value::String(value) = Arc::make_mut(&mut entry.0) else { return Err(wrong()) };
            value.extend(tail);
        }
        Step::Patch(db, key, offset, bytes) => {
            if bytes.is_empty() {
                return Ok(());
            }
            let entry =
                model.entry((db, key)).or_insert((Arc::new(Value::String(Vec::new())), None));
            let Value::String(value) = Arc::make_mut(&mut entry.0) else { return Err(wrong()) };
            let end = offset as usize + bytes.len();
            value.resize(value.len().max(end), 0);
            value[offset as usize..end].copy_from_slice(&bytes);
        }
        Step::Move(db, from, to_db, to, is_copy) => {
            if let Some(entry) = model.get(&(db, from.clone())).cloned() {
                if !is_copy {
                    model.remove(&(db, from));
                }
                model.insert((to_db, to), entry);
            }
        }
        Step::HashSet(db, key, fields) => {
            let entry =
                model.entry((db, key)).or_insert((Arc::new(Value::Hash(BTreeMap::new())), None));
            let Value::Hash(hash) = Arc::make_mut(&mut entry.0) else { return Err(wrong()) };
            hash.extend(fields);
        }
        Step::HashDelete(db, key, fields) => {
            let Some(entry) = model.get_mut(&(db, key.clone())) else { return Ok(()) };
            let Value::Hash(hash) = Arc::make_mut(&mut entry.0) else { return Err(wrong()) };
            fields.iter().for_each(|field| drop(hash.remove(field)));
            if hash.is_empty() {
                model.remove(&(db, key));
            }
        }
        Step::SortedAdd(db, key, members) => {
            let entry =
                model.entry((db, key)).or_insert((Arc::new(Value::Sorted(BTreeMap::new())), None));
            let Value::Sorted(sorted) = Arc::make_mut(&mut entry.0) else { return Err(wrong()) };
            sorted.extend(members.into_iter().map(|(name, score)| (name, score.to_bits())));
        }
        Step::SortedRemove(db, key, members) => {
            let Some(entry) = model.get_mut(&(db, key.clone())) else { return Ok(()) };
            let Value::Sorted(sorted) = Arc::make_mut(&mut entry.0) else { return Err(wrong()) };
            sorted.retain(|name, _| !members.contains(name));
            if sorted.is_empty() {
                model.remove(&(db, key));
            }
        }
        Step::SortedRemoveRanks(db, key, from, to) => {
            let Some(entry) = model.get_mut(&(db, key.clone())) else { return Ok(()) };
            let Value::Sorted(sorted) = Arc::make_mut(&mut entry.0) else { return Err(wrong()) };
            let ranked = ranked(sorted);
            let to = ranked.len().min(to as usize);
            for (_, name) in &ranked[to.min(from as usize)..to] {
                sorted.remove(name);
            }
            if sorted.is_empty() {
                model.remove(&(db, key));
            }
        }
        Step::ListPush(db, key, end, elements) => {
            let entry =
                model.entry((db, key)).or_insert((Arc::new(Value::List(VecDeque::new())), None));
            let Value::List(list) = Arc::make_mut(&mut entry.0) else { return Err(wrong()) };
            elements.into_iter().for_each(|element| push(list, end, element));
        }
        Step::ListTurn(db, key, end, count, elements) => {
            oracle(model, &Step::ListCut(db, key.clone(), end, count), now_ms)?;
            let other = if end == End::Front { End::Back } else { End::Front };
            oracle(model, &Step::ListPush(db, key.clone(), other, elements.clone()), now_ms)?;
            oracle(model, &Step::ListPush(db, key, end, elements), now_ms)?;
        }
        Step::ListCut(db, key, ..)
        | Step::ListSet(db, key, ..)
        | Step::ListInsert(db, key, ..)
        | Step::ListRemove(db, key, ..) => {
            let Some(entry) = model.get_mut(&(db, key.clone())) else { return Ok(()) };
            let Value::List(list) = Arc::make_mut(&mut entry.0) else { return Err(wrong()) };
            change_list(list, step);
            if list.is_empty() {
                model.remove(&(db, key));
            }
        }
        Step::SetAdd(db, key, members) => {
            let entry =
                model.entry((db, key)).or_insert((Arc::new(Value::Set(BTreeSet::new())), None));
            let Value::Set(set) = Arc::make_mut(&mut entry.0) else { return Err(wrong()) };
            set.extend(members);
        }
        Step::SetRemove(db, key, members) => {
            let Some(entry) = model.get_mut(&(db, key.clone())) else { return Ok(()) };
            let Value::Set(set) = Arc::make_mut(&mut entry.0) else { return Err(wrong()) };
            set.retain(|name| !members.contains(name));
            if set.is_empty() {
                model.remove(&(db, key));
            }
        }
        Step::Stream(db, key, changes) => {
            for change in changes {
                if !model.contains_key(&(db, key.clone()))
                    && !matches!(change, Change::Add(..) | Change::Create)
                {
                    continue;
                }
                let empty = (Arc::new(Value::Stream(StreamModel::default())), None);
                let entry = model.entry((db, key.clone())).or_insert(empty);
                let Value::Stream(stream) = Arc::make_mut(&mut entry.0) else {
                    return Err(wrong());
                };
                stream.change(&change);
            }
        }
        Step::Aborted(..) => {}
        Step::FlushDb(db) => model.retain(|key, _| key.0 != db),
        Step::FlushAll => model.clear(),
    }
    Ok(())
}
