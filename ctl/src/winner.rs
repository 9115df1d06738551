//! `winner`: who gets an address, and in which order the others follow.

use purelb_core::election::{Candidacy, Election, Restriction, Tier};
use purelb_core::facts::{LeaseFacts, Rank};
use purelb_core::{NodeName, Vip};
use purelb_proto::control::v1 as pb;
use serde::Serialize;

use crate::cli::{Format, WinnerArgs};
use crate::error::{Failure, Outcome};
use crate::paint::{Paint, Tone};
use crate::saved;
use crate::table::{self, Cell};

/// The answer for one address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    pub ip: String,
    pub winner: Option<String>,
    pub order: Vec<Place>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    pub node: String,
    pub score: String,
    /// Preferred nodes come first; the rest only stands in for them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fallback: bool,
    #[serde(rename = "ranksLast", skip_serializing_if = "std::ops::Not::not")]
    pub ranks_last: bool,
}

impl From<pb::Election> for Answer {
    fn from(e: pb::Election) -> Self {
        let order = e.order.into_iter();
        Self {
            ip: e.ip,
            winner: (!e.winner.is_empty()).then_some(e.winner),
            order: order
                .map(|c| Place {
                    node: c.node,
                    score: c.score,
                    fallback: c.fallback,
                    ranks_last: c.ranks_last,
                })
                .collect(),
        }
    }
}

impl From<Answer> for pb::Election {
    fn from(a: Answer) -> Self {
        let order = a.order.into_iter();
        Self {
            ip: a.ip,
            winner: a.winner.unwrap_or_default(),
            order: order
                .map(|p| pb::Candidate {
                    node: p.node,
                    score: p.score,
                    fallback: p.fallback,
                    ranks_last: p.ranks_last,
                })
                .collect(),
        }
    }
}

pub fn parse_ip(text: &str) -> Outcome<Vip> {
    text.parse().map_err(|e| Failure::new(e).code(crate::error::code::CRITICAL))
}

/// An election among saved Leases, all of them live.
pub fn election(leases: &[LeaseFacts]) -> Election {
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

pub fn answer(election: &Election, vip: Vip, restriction: &Restriction) -> Answer {
    let order = election.order_under(vip, restriction);
    Answer {
        ip: vip.to_string(),
        winner: order.first().map(|r| r.node.to_string()),
        order: order
            .into_iter()
            .map(|r| Place {
                node: r.node.to_string(),
                score: r.score.to_string(),
                fallback: r.tier == Tier::Fallback,
                ranks_last: r.rank == Rank::Last,
            })
            .collect(),
    }
}

/// The answers from saved Leases, and what to tell besides.
pub fn offline(args: &WinnerArgs) -> Outcome<(Vec<Answer>, Vec<String>)> {
    let vips = args.ips.iter().map(|ip| parse_ip(ip)).collect::<Outcome<Vec<Vip>>>()?;
    let mut saved = saved::read(&args.files)?;
    let leases = saved.lease_facts();
    if leases.is_empty() {
        let what = format!("there is no node Lease (purelb-node-…) in {}", list(&args.files));
        return Err(
            Failure::new(what).next("save them with `kubectl get leases -n purelb-system -o yaml >FILE`")
        );
    }
    let mut election = election(&leases);
    for node in &args.without {
        let known = leases.iter().map(|l| l.node.as_str());
        crate::target::check_node(node, known)?;
        if let Ok(name) = NodeName::new(node) {
            election.remove_member(&name);
        }
    }
    let demands = crate::offline::Demands::new(&saved);
    let answers = vips.into_iter().map(|vip| answer(&election, vip, &demands.restriction(vip))).collect();
    let mut notes = saved.notes.clone();
    notes.extend(saved.unreadable.iter().map(|u| format!("{}: {}: left out", u.file, u.object)));
    Ok((answers, notes))
}

fn list(files: &[std::path::PathBuf]) -> String {
    files.iter().map(|f| f.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// One address gives one object, several give a list.
pub fn print(answers: &[Answer], format: Format, paint: Paint) -> Outcome<String> {
    Ok(match (format, answers) {
        (Format::Json, [one]) => table::json(one)?,
        (Format::Json, many) => table::json(many)?,
        (Format::Yaml, [one]) => table::yaml(one)?,
        (Format::Yaml, many) => table::yaml(many)?,
        (Format::Name, many) => {
            many.iter().map(|a| format!("{}\n", a.winner.as_deref().unwrap_or("-"))).collect()
        }
        (Format::Table | Format::Wide, many) => text(many, format == Format::Wide, paint),
    })
}

fn text(answers: &[Answer], whole_scores: bool, paint: Paint) -> String {
    let mut lines = vec![["IP", "RANK", "NODE", "SCORE", ""].map(|t| Cell::toned(Tone::Dim, t)).to_vec()];
    for answer in answers {
        if answer.order.is_empty() {
            lines.push(vec![
                answer.ip.as_str().into(),
                "-".into(),
                Cell::toned(Tone::Bad, "(no node can take it)"),
            ]);
        }
        for (i, place) in answer.order.iter().enumerate() {
            let score =
                if whole_scores { &place.score } else { place.score.get(..16).unwrap_or(&place.score) };
            let note = match (i, place.fallback) {
                (0, _) if place.ranks_last => Cell::toned(Tone::Warn, "winner (all rank last)"),
                (_, _) if place.ranks_last => "last".into(),
                (0, false) => Cell::toned(Tone::Good, "winner"),
                (0, true) => Cell::toned(Tone::Warn, "winner (no preferred node)"),
                (_, true) => "fallback".into(),
                _ => "".into(),
            };
            let ip = if i == 0 { answer.ip.as_str() } else { "" };
            lines.push(vec![ip.into(), (i + 1).into(), place.node.as_str().into(), score.into(), note]);
        }
    }
    table::align(&lines, &table::widths(&lines), paint)
}
