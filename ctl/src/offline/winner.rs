//! Elections among saved Leases.

use std::path::PathBuf;

use purelb_core::election::{Candidacy, CandidateTier, Election, Restriction};
use purelb_core::facts::{LeaseFacts, Rank};
use purelb_core::{NodeName, Vip};

use crate::commands::winner::WinnerArgs;
use crate::error::{CommandError, CommandResult, check_node_known};
use crate::offline::saved_demands::SavedDemands;
use crate::offline::saved_objects;
use crate::output::election_result::{ElectionResult, RankedNode, parse_ip};

/// The results from saved Leases, and notes on what was left out.
pub fn elect_from_files(args: &WinnerArgs) -> CommandResult<(Vec<ElectionResult>, Vec<String>)> {
    let vips = args.ips.iter().map(|ip| parse_ip(ip)).collect::<CommandResult<Vec<Vip>>>()?;
    let mut saved = saved_objects::read_files(&args.files)?;
    let leases = saved.lease_facts();
    if leases.is_empty() {
        let what = format!("there is no node Lease (purelb-node-…) in {}", join_paths(&args.files));
        return Err(CommandError::new(what)
            .next("save them with `kubectl get leases -n purelb-system -o yaml >FILE`"));
    }
    let mut election = election_among(&leases);
    for node in &args.without {
        let known = leases.iter().map(|l| l.node.as_str());
        check_node_known(node, known)?;
        if let Ok(name) = NodeName::new(node) {
            election.remove_member(&name);
        }
    }
    let demands = SavedDemands::new(&saved);
    let results =
        vips.into_iter().map(|vip| rank_candidates(&election, vip, &demands.restriction(vip))).collect();
    let mut notes = saved.notes.clone();
    notes.extend(saved.unreadable.iter().map(|u| format!("{}: {}: left out", u.file, u.object)));
    Ok((results, notes))
}

fn join_paths(files: &[PathBuf]) -> String {
    files.iter().map(|f| f.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// An election among saved Leases, all of them live.
pub fn election_among(leases: &[LeaseFacts]) -> Election {
    let mut election = Election::new();
    // As the daemons do: ranks count once everybody has one.
    let ranked = leases.iter().all(|lease| lease.rank.is_some());
    for lease in leases {
        let candidacy = Candidacy {
            subnets: lease.subnets.iter().copied().collect(),
            eligible: lease.draining.is_none(),
            declined: lease.declined.clone().unwrap_or_default(),
            rank: lease.rank.filter(|_| ranked).unwrap_or_default(),
        };
        election.upsert_member(lease.node.clone(), candidacy);
    }
    election
}

pub fn rank_candidates(election: &Election, vip: Vip, restriction: &Restriction) -> ElectionResult {
    let order = election.order_under(vip, restriction);
    ElectionResult {
        ip: vip.to_string(),
        winner: order.first().map(|r| r.node.to_string()),
        order: order
            .into_iter()
            .map(|r| RankedNode {
                node: r.node.to_string(),
                score: r.score.to_string(),
                fallback: r.tier == CandidateTier::Fallback,
                ranks_last: r.rank == Rank::Last,
            })
            .collect(),
    }
}
