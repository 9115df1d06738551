//! Every list in every format, from messages as a daemon sends them, compared with what
//! was agreed. `UPDATE_GOLDEN=1` writes anew.

use std::path::Path;

use purelb_proto::control::v1 as pb;
use purelbctl::cli::{Cli, ColorWhen, Command, OutputFormat};
use purelbctl::commands::get::{GetArgs, RowSelection};
use purelbctl::commands::status::{self, NodeStatus};
use purelbctl::output::rows::{self, NodeRow};
use purelbctl::output::table::{self, TableRow};
use purelbctl::output::text_painter::TextPainter;

fn plain() -> TextPainter {
    TextPainter::new(ColorWhen::Never)
}

fn golden(name: &str, seen: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        return std::fs::write(path, seen).expect("the golden file can be written");
    }
    let agreed = std::fs::read_to_string(&path).expect("the golden file is there");
    assert!(seen == agreed, "{name}: not as agreed. Seen:\n{seen}\nAgreed:\n{agreed}");
}

fn in_all_formats<R: TableRow>(rows: &[R]) -> String {
    let all =
        [OutputFormat::Table, OutputFormat::Wide, OutputFormat::Json, OutputFormat::Yaml, OutputFormat::Name];
    let one = |f: OutputFormat| {
        format!("--- {f:?}\n{}", table::render_list(rows, f, true, plain()).expect("plain data"))
    };
    all.into_iter().map(one).collect()
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|t| (*t).to_owned()).collect()
}

fn mk_vip(ip: &str, code: pb::ReasonCode, text: &str, winner: &str, interface: &str) -> rows::VipRow {
    pb::Vip {
        ip: ip.into(),
        services: strings(&["shop/web"]),
        pool_type: pb::PoolType::Local.into(),
        pool: "default".into(),
        reason: Some(pb::Reason {
            code: code.into(),
            text: text.into(),
            retry_in_seconds: 0.0,
            held: false,
            for_seconds: 0.0,
        }),
        winner: winner.into(),
        interface: interface.into(),
    }
    .into()
}

fn mk_vips() -> Vec<rows::VipRow> {
    use pb::ReasonCode as C;
    vec![
        mk_vip("192.0.2.9", C::Announcing, "announcing on eth0", "node-a", "eth0"),
        mk_vip("192.0.2.10", C::NotWinner, "node-b is the winner", "node-b", ""),
        mk_vip(
            "2001:db8::7",
            C::NoEligibleNode,
            "no live node has a subnet that contains the address",
            "",
            "",
        ),
    ]
}

fn mk_members() -> Vec<rows::MemberRow> {
    let member = |node: &str, live, draining, this_node, handoffs| pb::Member {
        node: node.into(),
        live,
        expires_in_seconds: if live { 8.25 } else { 0.0 },
        draining,
        out_of_service: false,
        knows_handoffs: handoffs,
        announced: strings(&["192.0.2.9"]),
        declined: Vec::new(),
        subnets: strings(&["192.0.2.0/24", "2001:db8::/64"]),
        control_endpoint: if this_node { "10.0.0.1:7473".into() } else { String::new() },
        this_node,
        excluded: false,
        ranks_last: false,
    };
    let all = [
        member("node-a", true, false, true, true),
        member("node-b", true, true, false, true),
        member("node-c", false, false, false, false),
    ];
    all.into_iter().map(Into::into).collect()
}

#[test]
fn lists() {
    golden("get-vips", &in_all_formats(&mk_vips()));
    golden("get-services", &in_all_formats(&rows::group_by_service(&mk_vips())));
    golden("get-members", &in_all_formats(&mk_members()));
    let on: Vec<NodeRow<rows::MemberRow>> =
        mk_members().into_iter().map(|row| NodeRow { on: "node-a".into(), row }).collect();
    golden("get-members-all", &in_all_formats(&on));
    let pools = [
        pb::Pool {
            name: "default".into(),
            pool_type: pb::PoolType::Local.into(),
            subnets: strings(&["192.0.2.0/24", "198.51.100.0/24"]),
            in_use: 2,
            unserved_subnets: strings(&["198.51.100.0/24"]),
        },
        pb::Pool { name: "edge".into(), pool_type: pb::PoolType::Remote.into(), ..Default::default() },
    ];
    golden("get-pools", &in_all_formats(&pools.map(rows::PoolRow::from)));
    let subnets = [pb::Subnet {
        cidr: "192.0.2.0/24".into(),
        candidates: 2,
        nodes: strings(&["node-a", "node-b"]),
        local_interfaces: strings(&["eth0"]),
        advertised: true,
    }];
    golden("get-subnets", &in_all_formats(&subnets.map(rows::SubnetRow::from)));
    let event = |sequence, kind: pb::EventKind, before: &str, after: &str, missed| pb::Event {
        sequence,
        time: "2026-01-02T03:04:05Z".into(),
        kind: kind.into(),
        object: "192.0.2.9".into(),
        before: before.into(),
        after: after.into(),
        services: strings(&["shop/web"]),
        missed,
    };
    let events = [
        event(1, pb::EventKind::ReasonChanged, "waiting for the kernel", "announcing on eth0", 0),
        event(2, pb::EventKind::WinnerChanged, "node-a", "", 0),
        event(0, pb::EventKind::Gap, "", "", 12),
    ];
    golden("get-events", &in_all_formats(&events.map(rows::EventRow::from)));
}

fn mk_status(health: pb::Severity) -> NodeStatus {
    let mut message = pb::GetStatusResponse {
        node: "node-a".into(),
        instance: "11111111-1111-4111-8111-111111111111".into(),
        version: "1.2.3".into(),
        fence: Some(pb::Fence { healthy: true, seconds_left: 6.53, cause: String::new() }),
        advertised_subnets: strings(&["192.0.2.0/24", "2001:db8::/64"]),
        members: 3,
        live_members: 3,
        vips_by_reason: vec![
            pb::ReasonCount { reason: pb::ReasonCode::Announcing.into(), count: 12 },
            pb::ReasonCount { reason: pb::ReasonCode::NotWinner.into(), count: 110 },
        ],
        health: health.into(),
        uptime_seconds: 93_784,
        held: 12,
        segments: vec![
            pb::Segment {
                interface: "eth0".into(),
                asked: true,
                interval_seconds: 0.1,
                watched: vec![pb::WatchedOwner {
                    node: "node-b".into(),
                    asked: "192.0.2.7".into(),
                    state: "answers".into(),
                    addresses: 6,
                }],
                witnesses: 2,
                ..Default::default()
            },
            pb::Segment {
                interface: "eth1".into(),
                trouble: "the LBNodeAgent turns the detector off".into(),
                ..Default::default()
            },
        ],
        ..Default::default()
    };
    if health != pb::Severity::Ok {
        message.fence =
            Some(pb::Fence { cause: "no renewal within the deadline".into(), ..Default::default() });
        message.draining_since = "2026-01-02T03:04:05Z".into();
        message.unsynced = strings(&["Leases"]);
        message.segments[0].cut_off = true;
        message.problems = vec![pb::Problem {
            severity: health.into(),
            object: "LBNodeAgent purelb-system/default".into(),
            field: "spec.local.interfaces[0]".into(),
            message: "may not be empty".into(),
            hint: "correct the object".into(),
        }];
    }
    message.into()
}

#[test]
fn status_screens() {
    let screens =
        [pb::Severity::Ok, pb::Severity::Critical].map(|s| status::render_screen(&mk_status(s), plain()));
    let structured = mk_status(pb::Severity::Critical);
    let all = format!(
        "{}\n{}\n{}\n{}",
        screens[0],
        screens[1],
        table::to_json(&structured).unwrap(),
        table::to_yaml(&structured).unwrap()
    );
    golden("status", &all);
    let coloured =
        status::render_screen(&mk_status(pb::Severity::Critical), TextPainter::new(ColorWhen::Always));
    assert!(coloured.contains("\x1b[31mcritical\x1b[0m"), "{coloured:?}");
}

fn args(line: &str) -> GetArgs {
    let cli = <Cli as clap::Parser>::try_parse_from(line.split(' ')).expect("a good command line");
    match cli.command {
        Command::Get(args) => args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn rows_are_chosen_and_ordered_by_columns() {
    let names = |line: &str| -> Vec<String> {
        let selection = RowSelection::new::<rows::VipRow>(&args(line), None).unwrap();
        selection.apply(mk_vips()).iter().map(TableRow::name).collect()
    };
    assert_eq!(names("purelbctl get vips -l reason=announcing"), ["192.0.2.9"]);
    assert_eq!(names("purelbctl get vips -l reason!=Announcing,winner=node-b"), ["192.0.2.10"]);
    assert_eq!(
        names("purelbctl get vips -l service=shop/web --sort-by -ip"),
        ["2001:db8::7", "192.0.2.10", "192.0.2.9"]
    );
    assert_eq!(
        names("purelbctl get vips --sort-by ip"),
        ["192.0.2.9", "192.0.2.10", "2001:db8::7"],
        "by value, not as text"
    );
    assert_eq!(names("purelbctl get vips 192.0.2.10"), ["192.0.2.10"]);
    let wrong = |line: &str| RowSelection::new::<rows::VipRow>(&args(line), None).unwrap_err().to_string();
    assert_eq!(
        wrong("purelbctl get vips --sort-by reasn"),
        "there is no column \"reasn\"\ndid you mean REASON?"
    );
    assert!(wrong("purelbctl get vips -l reason").contains("is not COLUMN=VALUE"));
}

#[test]
fn a_namespace_is_the_services_and_what_is_not_there_is_named() {
    let mut vips = mk_vips();
    vips[1].services = strings(&["bank/api", "shop/web"]);
    vips[2].services.clear();
    let chosen = |line: &str, namespace| {
        let selection = RowSelection::new::<rows::VipRow>(&args(line), namespace).unwrap();
        let rows = selection.apply(vips.clone());
        let missing: Vec<String> = selection.missing(&rows).into_iter().map(str::to_owned).collect();
        (rows.iter().map(TableRow::name).collect::<Vec<_>>(), missing)
    };
    assert_eq!(chosen("purelbctl get vips", Some("shop")).0, ["192.0.2.9", "192.0.2.10"]);
    assert_eq!(chosen("purelbctl get vips", Some("bank")).0, ["192.0.2.10"]);
    assert!(chosen("purelbctl get vips", Some("sho")).0.is_empty());
    // Spelled as people do.
    let there = chosen("purelbctl get vips 2001:DB8:0::7", None);
    assert_eq!(there, (strings(&["2001:db8::7"]), vec![]));
    let gone = chosen("purelbctl get vips 192.0.2.9 203.0.113.1", None);
    assert_eq!(gone, (strings(&["192.0.2.9"]), strings(&["203.0.113.1"])));
    assert_eq!(
        chosen("purelbctl get vips 192.0.2.9", Some("bank")).1,
        ["192.0.2.9"],
        "not in that namespace"
    );
}
