//! R4: an operator's address is never changed and never removed.

use purelb_core::messages::{AddressSpec, KernelChange};
use serde_json::Value;

use crate::ns::{addresses_on, applier, apply, apply_all, ip, isolated, pair, put, remove, spec};

/// Without the lifetimes, which count down by themselves.
fn shown() -> Vec<Value> {
    let mut all = addresses_on("a0");
    for address in &mut all {
        let fields = address.as_object_mut().unwrap();
        fields.retain(|key, _| !key.ends_with("life_time"));
    }
    all
}

#[test]
fn an_operators_address_is_left_alone() {
    isolated(|| async {
        let index = pair("a0", "a1");
        ip("link set a0 addrgenmode none");
        ip("-6 addr flush dev a0");
        ip("addr add 192.0.2.10/24 dev a0");
        ip("addr add 192.0.2.11/24 dev a0 valid_lft 500 preferred_lft 500");
        ip("addr add 192.0.2.12 peer 198.51.100.1/32 dev a0");
        ip("-6 addr add 2001:db8::10/64 dev a0 nodad");
        ip("-6 addr add 2001:db8::11/128 dev a0 nodad valid_lft 500 preferred_lft 500");
        let before = shown();
        let foreign =
            ["192.0.2.10/24", "192.0.2.11/24", "192.0.2.12/32", "2001:db8::10/64", "2001:db8::11/128"];
        let mut applier = applier();

        for address in foreign {
            for op in [put(index, address), remove(index, address)] {
                let result = apply(&mut applier, vec![op.clone()]);
                let words = result[0].as_ref().expect_err(&format!("{op:?} was carried out"));
                assert!(words.contains("not ours"), "{words}");
            }
        }
        // Nor with another prefix length: the address would be ours and theirs.
        for address in ["192.0.2.10/32", "2001:db8::10/128", "2001:db8::11/64"] {
            let result = apply(&mut applier, vec![put(index, address)]);
            assert!(result[0].as_ref().unwrap_err().contains("not ours"), "{result:?}");
            apply_all(&mut applier, vec![remove(index, address)]);
        }
        assert_eq!(shown(), before);
    });
}

/// One batch may remove ours and find the operator's beside it.
#[test]
fn ours_goes_and_theirs_stays() {
    isolated(|| async {
        let index = pair("a0", "a1");
        let mut applier = applier();
        apply_all(&mut applier, vec![put(index, "192.0.2.1/24"), put(index, "2001:db8::1/64")]);
        ip("addr add 192.0.2.2/24 dev a0");
        let results = apply(
            &mut applier,
            vec![
                remove(index, "192.0.2.1/24"),
                remove(index, "192.0.2.2/24"),
                put(index, "192.0.2.2/24"),
                remove(index, "2001:db8::1/64"),
            ],
        );
        let fine: Vec<bool> = results.iter().map(Result::is_ok).collect();
        assert_eq!(fine, [true, false, false, true], "{results:?}");
        let left: Vec<_> = addresses_on("a0").into_iter().filter(|a| a["scope"] == "global").collect();
        assert_eq!(left.len(), 1, "{left:?}");
    });
}

#[test]
fn ipv6_of_ours_with_another_length_has_to_go_first() {
    isolated(|| async {
        let index = pair("a0", "a1");
        let mut applier = applier();
        apply_all(&mut applier, vec![put(index, "2001:db8::1/64")]);
        let refused = apply(&mut applier, vec![put(index, "2001:db8::1/128")]);
        assert!(refused[0].as_ref().unwrap_err().contains("has it as /64"), "{refused:?}");
        apply_all(&mut applier, vec![remove(index, "2001:db8::1/64"), put(index, "2001:db8::1/128")]);
        // IPv4 can have both.
        let other = KernelChange::Put(AddressSpec { ..spec(index, "192.0.2.1/32") });
        apply_all(&mut applier, vec![put(index, "192.0.2.1/24"), other]);
    });
}
