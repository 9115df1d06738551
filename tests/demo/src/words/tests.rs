use super::*;

const LOST: &str = "192.0.2.100";
const OTHER: &str = "192.0.2.101";

fn row(vip: &str, on: &[&str], sent: u64, lost: u64) -> Row {
    Row {
        service: "web".into(),
        vip: vip.parse().unwrap(),
        on: on.iter().map(ToString::to_string).collect(),
        answers: "-".into(),
        sent,
        lost,
    }
}

fn at(millis: u64) -> Mono {
    Mono::ZERO + Duration::from_millis(millis)
}

fn timeline(vip: &str, spans: &[(u64, u64, &[&str])]) -> Timeline {
    let span = |(from, to, owners): &(u64, u64, &[&str])| Span {
        from: at(*from),
        to: at(*to),
        owners: owners.iter().map(ToString::to_string).collect(),
    };
    Timeline { vip: vip.parse().unwrap(), spans: spans.iter().map(span).collect() }
}

/// a has LOST, b has OTHER; then a is gone, and the table says what it says.
fn power_lost(other_lost: u64) -> String {
    let (before, after) = (
        [row(LOST, &["a"], 100, 0), row(OTHER, &["b"], 100, 3)],
        [row(LOST, &["b"], 1100, 900), row(OTHER, &["b"], 1100, 3 + other_lost)],
    );
    let its = [LOST.parse().unwrap()];
    let step = Step {
        node: "a",
        its: &its,
        before: &before,
        after: &after,
        timelines: &[],
        from: at(0),
        took: Duration::from_millis(9_840),
    };
    step.power_lost(Duration::from_secs(10))
}

#[test]
fn the_other_nodes_lost_what_the_table_says() {
    let calm = power_lost(0);
    assert!(calm.contains("1 of its 1 address were on other nodes"), "{calm}");
    assert!(calm.contains("The client lost 900 of 1000 probes to these."), "{calm}");
    assert!(calm.contains("Of the addresses of the other nodes it lost none of 1000 probes."), "{calm}");
    let storm = power_lost(240);
    assert!(storm.contains("Of the addresses of the other nodes it lost 240 of 1000 probes."), "{storm}");
}

#[test]
fn a_drain_says_what_the_kernels_saw() {
    let (before, after) = ([row(LOST, &["a"], 100, 0)], [row(LOST, &["b"], 300, 2)]);
    let its = [LOST.parse().unwrap()];
    let mut step = Step {
        node: "a",
        its: &its,
        before: &before,
        after: &after,
        timelines: &[timeline(LOST, &[(0, 1000, &["a"]), (1000, 1200, &["a", "b"]), (1200, 3000, &["b"])])],
        from: at(900),
        took: Duration::from_millis(310),
    };
    let said = step.drained();
    assert!(said.contains("1 of them are on other nodes now, 0.31 s after"), "{said}");
    assert!(said.contains("none of them was without an owner for a moment"), "{said}");
    assert!(said.contains("together for 200 ms at most"), "{said}");
    assert!(said.contains("lost 2 of 200 probes"), "{said}");
    let gap = [timeline(LOST, &[(0, 1000, &["a"]), (1000, 1070, &[]), (1070, 3000, &["b"])])];
    step.timelines = &gap;
    assert!(step.drained().contains("one of them was without an owner for 70 ms"), "{}", step.drained());
    // What was before the step is not the step's.
    step.from = at(1070);
    assert!(step.drained().contains("none of them was without"), "{}", step.drained());
}

#[test]
fn two_owners_after_the_power_loss_are_said() {
    let spans: &[(u64, u64, &[&str])] =
        &[(0, 10, &["a"]), (10, 210, &["a", "b"]), (210, 400, &["b"]), (400, 900, &["b", "c"])];
    let seen = [timeline(LOST, spans)];
    let calm = together(&seen, at(2000));
    assert!(
        calm.ends_with("(handovers) 2 times, for 500 ms at most; from the power loss on never."),
        "{calm}"
    );
    let bad = together(&seen, at(300));
    assert!(bad.ends_with("(handovers) once, for 200 ms; from the power loss on once, for 500 ms."), "{bad}");
}
