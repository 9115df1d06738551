//! Takes every address of ours off this node, without asking anybody: for
//! `purelbd --withdraw`, when the daemon is stopped for good or cannot run.

use std::fmt;

use ipnet::IpNet;
use purelb_core::ids::IfIndex;
use purelb_core::messages::KernelChange;

use crate::netlink::apply::kernel_applier::KernelApplier;
use crate::netlink::ownership::AddressOwnership;

/// What became of it. Errors do not stop it: the rest is still removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Withdrawn {
    pub removed: Vec<(IfIndex, IpNet)>,
    pub errors: Vec<String>,
}

impl fmt::Display for Withdrawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} removed", self.removed.len())?;
        for error in &self.errors {
            write!(f, "; {error}")?;
        }
        Ok(())
    }
}

/// In the calling thread's network namespace. Blocks.
pub fn withdraw_all(ownership: &AddressOwnership) -> Withdrawn {
    let mut done = Withdrawn::default();
    if let Err(error) = withdraw(ownership, &mut done) {
        done.errors.push(error);
    }
    done
}

fn withdraw(ownership: &AddressOwnership, done: &mut Withdrawn) -> Result<(), String> {
    let mut applier = KernelApplier::open(ownership.clone()).map_err(|error| format!("netlink: {error}"))?;
    let targets = ours(&mut applier, ownership)?;
    let ops: Vec<KernelChange> =
        targets.iter().map(|(index, net)| KernelChange::Remove { index: *index, net: *net }).collect();
    for (target, result) in targets.iter().zip(applier.carry_out(&ops)) {
        match result {
            Ok(()) => done.removed.push(*target),
            Err(error) => done.errors.push(error.to_string()),
        }
    }
    // Believe the kernel, not its acknowledgements.
    let still = ours(&mut applier, ownership)?;
    for target in done.removed.extract_if(.., |target| still.contains(target)) {
        let (index, net) = target;
        done.errors.push(format!("{net} is on interface {} again: is the daemon still running?", index.0));
    }
    Ok(())
}

fn ours(applier: &mut KernelApplier, ownership: &AddressOwnership) -> Result<Vec<(IfIndex, IpNet)>, String> {
    let shown = applier.addresses().map_err(|error| format!("listing addresses: {error}"))?;
    Ok(shown
        .found
        .iter()
        .filter(|address| ownership.is_ours(address))
        .map(|address| (address.index, address.net))
        .collect())
}
