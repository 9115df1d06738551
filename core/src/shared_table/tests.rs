use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pair(u16, u8);

impl TableRow for Pair {
    type Key = u16;

    fn key(&self) -> &u16 {
        &self.0
    }
}

fn rows(table: &SharedTable<Pair>) -> Vec<Pair> {
    table.iter().cloned().collect()
}

#[test]
fn a_change_copies_its_own_part_only() {
    let before: SharedTable<Pair> = (0..10_000).map(|n| Pair(n, 0)).collect();
    let mut after = before.clone();
    after.set(Pair(5_000, 1));
    let shared = before.parts.iter().zip(after.parts.iter()).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
    assert_eq!(shared, before.parts.len() - 1);
    assert!(before.parts.len() > 70);
    let changes: Vec<_> = after.changes_since(&before).collect();
    assert_eq!(changes, [(Some(&Pair(5_000, 0)), Some(&Pair(5_000, 1)))]);
    after.set(Pair(5_000, 0));
    assert_eq!(after, before, "equal without being the same");
}

proptest! {
    #[test]
    fn it_is_a_map_and_tells_what_changed(
        first in prop::collection::vec((0u16..400, 0u8..3), 0..500),
        then in prop::collection::vec((any::<bool>(), 0u16..400, 0u8..3), 0..300),
    ) {
        let mut model: BTreeMap<u16, u8> = BTreeMap::new();
        let mut table = SharedTable::default();
        for (key, value) in first {
            let was = table.set(Pair(key, value)).map(|row| row.1);
            prop_assert_eq!(was, model.insert(key, value));
        }
        let (before, model_before) = (table.clone(), model.clone());
        for (put, key, value) in then {
            if put {
                table.set(Pair(key, value));
                model.insert(key, value);
            } else {
                prop_assert_eq!(table.remove(&key).map(|row| row.1), model.remove(&key));
            }
        }
        let all: Vec<Pair> = model.iter().map(|(k, v)| Pair(*k, *v)).collect();
        prop_assert_eq!(rows(&table), all);
        prop_assert_eq!(table.len(), model.len());
        prop_assert_eq!(table.is_empty(), model.is_empty());
        let old: Vec<Pair> = model_before.iter().map(|(k, v)| Pair(*k, *v)).collect();
        prop_assert_eq!(rows(&before), old, "a copy stays as it was");
        for key in 0..400 {
            prop_assert_eq!(table.get(&key).map(|row| row.1), model.get(&key).copied());
        }
        let mut expected = Vec::new();
        for key in 0..400 {
            let (was, is) = (model_before.get(&key), model.get(&key));
            if was != is {
                expected.push((was.map(|v| Pair(key, *v)), is.map(|v| Pair(key, *v))));
            }
        }
        let changes: Vec<_> = table.changes_since(&before).map(|(a, b)| (a.cloned(), b.cloned())).collect();
        prop_assert_eq!(table == before, expected.is_empty());
        prop_assert_eq!(changes, expected);
    }
}
