//! The dummy interface: made, adopted, removed only if we made it.

use purelb_core::messages::{AddressSpec, KernelChange};

use crate::ns::{
    DEADLINE, address_on, addresses_on, applier, apply_all, index_of, ip, ip_json, ip_succeeds, isolated,
    name, pair, spec, until,
};

fn ensure(interface: &str) -> KernelChange {
    KernelChange::EnsureDummy { name: name(interface) }
}

fn discard(interface: &str) -> KernelChange {
    KernelChange::RemoveDummy { name: name(interface) }
}

fn exists(interface: &str) -> bool {
    ip_succeeds(&format!("link show dev {interface}"))
}

#[test]
fn made_where_there_is_none_and_quiet() {
    isolated(|| async {
        // The kernel of the test machine may or may not have the driver.
        let kind = if ip_succeeds("link add probe0 type dummy") { "dummy" } else { "bridge" };
        let mut applier = applier();
        apply_all(&mut applier, vec![ensure("kube-lb0")]);
        let link = ip_json("link show dev kube-lb0")[0].clone();
        assert_eq!(link["linkinfo"]["info_kind"], kind, "{link}");
        assert_eq!(link["ifalias"], "purelb", "{link}");
        let flags = link["flags"].to_string();
        assert!(flags.contains("\"UP\"") && flags.contains("NOARP"), "{link}");
        assert!(addresses_on("kube-lb0").is_empty(), "no link-local address of its own");

        // Addresses of remote pools: for ever, with their route.
        let index = index_of("kube-lb0");
        let remote = |address| {
            KernelChange::Put(AddressSpec {
                valid: None,
                preferred: None,
                no_prefix_route: false,
                no_dad: false,
                ..spec(index, address)
            })
        };
        apply_all(&mut applier, vec![remote("203.0.113.7/32"), remote("2001:db8:1::7/128")]);
        // Without anybody to ask it is settled as soon as the kernel gets to it.
        until("no duplicate address detection", DEADLINE, || {
            let six = address_on("kube-lb0", "2001:db8:1::7").unwrap();
            if six.get("tentative").is_none() { Ok(()) } else { Err(six) }
        })
        .await;
        let local = ip_json("route get 203.0.113.7");
        assert_eq!(local[0]["type"], "local", "{local}");
    });
}

#[test]
fn again_after_a_restart_and_then_removed() {
    isolated(|| async {
        apply_all(&mut applier(), vec![ensure("kube-lb0")]);
        let index = index_of("kube-lb0");
        // Another process: nothing is remembered but what the kernel shows.
        let mut later = applier();
        apply_all(&mut later, vec![ensure("kube-lb0")]);
        assert_eq!(index_of("kube-lb0"), index, "the same link");
        apply_all(&mut later, vec![discard("kube-lb0")]);
        assert!(!exists("kube-lb0"));
        apply_all(&mut later, vec![discard("kube-lb0")]);
    });
}

#[test]
fn an_existing_one_is_adopted_and_never_removed() {
    isolated(|| async {
        ip("link add kube-lb0 type bridge");
        ip("link set kube-lb0 alias mine");
        let mut applier = applier();
        apply_all(&mut applier, vec![ensure("kube-lb0")]);
        let link = ip_json("link show dev kube-lb0")[0].clone();
        assert!(link["flags"].to_string().contains("\"UP\""), "{link}");
        assert_eq!(link["ifalias"], "mine", "{link}");
        assert!(!link["flags"].to_string().contains("NOARP"), "only brought up: {link}");
        apply_all(&mut applier, vec![discard("kube-lb0")]);
        assert!(exists("kube-lb0"));
    });
}

/// A batch may need the interface for the addresses after it.
#[test]
fn links_and_addresses_in_one_batch() {
    isolated(|| async {
        let index = pair("a0", "a1");
        apply_all(
            &mut applier(),
            vec![
                crate::ns::put(index, "192.0.2.1/24"),
                ensure("kube-lb0"),
                crate::ns::put(index, "192.0.2.2/24"),
                discard("kube-lb0"),
                crate::ns::remove(index, "192.0.2.1/24"),
            ],
        );
        assert!(!exists("kube-lb0"));
        assert!(address_on("a0", "192.0.2.2").is_some() && address_on("a0", "192.0.2.1").is_none());
    });
}
