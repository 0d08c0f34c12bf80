//! Steps that are done without a transaction where they can be.

use perdura_store::{End, Expiry, Key, Store};

use super::Step;

/// Does a step in place. `None`: nothing has changed. Of the steps that could be done in place,
/// about half are not, so that both ways are tested.
pub fn apply(store: &Store, step: &Step) -> Option<()> {
    let key = |db: u8, bytes| Key { db, bytes };
    match step {
        Step::Put(keys, value, expiry @ (Expiry::None | Expiry::Keep)) => {
            let [(db, name)] = &keys[..] else { return None };
            let key = key(*db, name);
            is_tried(value).then_some(())?;
            store.replace_at(key, store.place(key), *expiry, |_| Some((&value[..], ())))
        }
        Step::HashSet(db, name, fields) => {
            let [(field, value)] = &fields[..] else { return None };
            let key = key(*db, name);
            is_tried(field).then_some(())?;
            store.hash_set_at(key, store.place(key), field, value).map(drop)
        }
        Step::ListPush(db, name, end, elements) => {
            let (key, all) = (key(*db, name), elements.iter().map(Vec::as_slice));
            is_tried(elements.first()?).then_some(())?;
            store.list_push_at(key, store.place(key), *end, all).map(drop)
        }
        Step::ListCut(db, name, end, 1) => {
            let key = key(*db, name);
            let len = |store: &Store| store.read(key, |entry| Some(entry?.list()?.len()));
            is_tried(&len(store)?.to_le_bytes()).then_some(())?;
            store.list_pop_at(key, store.place(key), *end, |_| ())
        }
        Step::SetAdd(db, name, members) => {
            let [member] = &members[..] else { return None };
            let key = key(*db, name);
            is_tried(member).then_some(())?;
            store.set_add_at(key, store.place(key), member).map(drop)
        }
        Step::SortedAdd(db, name, members) => {
            let [(member, score)] = &members[..] else { return None };
            let key = key(*db, name);
            is_tried(member).then_some(())?;
            store.sorted_change_at(key, store.place(key), member, |_| Some(*score)).map(drop)
        }
        Step::SortedRemoveRanks(db, name, from, to) if *to == from + 1 => {
            let key = key(*db, name);
            let len = store.read(key, |entry| Some(entry?.sorted()?.len()))?;
            let end = if *from == 0 { End::Front } else { End::Back };
            (is_tried(&len.to_le_bytes()) && (*from == 0 || *to == len)).then_some(())?;
            store.sorted_pop_at(key, store.place(key), end, |_, _| ())
        }
        _ => None,
    }
}

fn is_tried(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte)) & 1 == 0
}
