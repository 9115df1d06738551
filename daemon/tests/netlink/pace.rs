//! How long a node full of addresses takes. The figures are printed; what is checked is
//! the outcome.

use std::time::Instant;

use purelb_core::ids::IfIndex;
use purelb_core::messages::{Input, KernelChange};
use purelbd::netlink::ApplierHandle;
use tokio::sync::mpsc;

use crate::ns::{addresses_on, applier, apply_all, isolated, pair, put, remove};

const COUNT: usize = 1000;

fn four(n: usize) -> String {
    format!("10.0.{}.{}/16", n / 250, n % 250 + 1)
}

fn six(n: usize) -> String {
    format!("2001:db8::{n:x}/64")
}

fn timed(what: &str, ops: Vec<KernelChange>) {
    let mut applier = applier();
    let count = ops.len();
    let started = Instant::now();
    apply_all(&mut applier, ops);
    println!("{what} {count} addresses: {:?}", started.elapsed());
}

fn all(
    index: IfIndex,
    address: fn(usize) -> String,
    op: fn(IfIndex, &str) -> KernelChange,
) -> Vec<KernelChange> {
    (0..COUNT).map(|n| op(index, &address(n))).collect()
}

#[test]
fn a_thousand_addresses() {
    isolated(|| async {
        let index = pair("a0", "a1");
        for (family, address) in [("IPv4", four as fn(usize) -> String), ("IPv6", six)] {
            let before = addresses_on("a0").len();
            timed(&format!("{family}: add"), all(index, address, put));
            assert_eq!(addresses_on("a0").len(), before + COUNT);
            timed(&format!("{family}: refresh"), all(index, address, put));
            timed(&format!("{family}: refresh one of"), vec![put(index, &address(7))]);
            timed(&format!("{family}: remove"), all(index, address, remove));
            assert_eq!(addresses_on("a0").len(), before);
        }
    });
}

#[test]
fn the_thread_answers_every_operation_in_order() {
    isolated(|| async {
        let index = pair("a0", "a1");
        let (sender, mut inputs) = mpsc::channel(16);
        let handle = ApplierHandle::spawn(applier(), sender).unwrap();
        let ops = all(index, four, put).into_iter().take(300);
        let numbered: Vec<(u64, KernelChange)> = (0..).zip(ops).collect();
        let started = Instant::now();
        for batch in numbered.chunks(10) {
            handle.submit(batch.to_vec()).expect("room for 64 batches");
        }
        for expected in 0..300 {
            match inputs.recv().await {
                Some(Input::Applied { id, result: Ok(()) }) => assert_eq!(id, expected),
                other => panic!("expected the answer to {expected}, got {other:?}"),
            }
        }
        println!("300 operations in 30 batches through the thread: {:?}", started.elapsed());
        handle.finish();
    });
}
