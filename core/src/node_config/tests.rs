use super::*;
use crate::facts::Selector;
use crate::ids::{IfName, NodeName};

fn mk_node(role: &str) -> NodeFacts {
    NodeFacts {
        name: NodeName::new("a").unwrap(),
        uid: "1".to_owned(),
        labels: BTreeMap::from([("role".to_owned(), role.to_owned())]),
        out_of_service: false,
        excluded: false,
        impaired: None,
        addresses: Default::default(),
    }
}

fn mk_agent(name: &str, role: Option<&str>, dummy: &str) -> AgentFacts {
    let match_labels = role.map(|r| ("role".to_owned(), r.to_owned())).into_iter().collect();
    AgentFacts {
        key: ObjectKey::of("purelb-system", name).unwrap(),
        selector: Selector { match_labels, ..Selector::default() },
        config: Ok(AgentConfig { dummy: IfName::new(dummy).unwrap(), ..AgentConfig::default() }),
    }
}

fn mk_bad(name: &str) -> AgentFacts {
    let key = ObjectKey::of("purelb-system", name).unwrap();
    let problem = ConfigProblem { object: key.clone(), field: "spec".to_owned(), message: "bad".to_owned() };
    AgentFacts { key, selector: Selector::default(), config: Err(problem) }
}

fn dummy(agents: &NodeConfig) -> Option<&str> {
    agents.current().map(|c| c.dummy.as_str())
}

#[test]
fn a_specific_selector_beats_a_catch_all_then_the_name_decides() {
    let mut agents = NodeConfig::default();
    agents.update(FactsUpdate::All(vec![
        mk_agent("a-default", None, "all0"),
        mk_agent("z-edge", Some("edge"), "edge1"),
        mk_agent("y-edge", Some("edge"), "edge0"),
    ]));
    agents.decide(Some(&mk_node("edge")));
    assert_eq!(dummy(&agents), Some("edge0"));
    agents.decide(Some(&mk_node("core")));
    assert_eq!(dummy(&agents), Some("all0"));
}

#[test]
fn a_bad_object_keeps_the_last_good_configuration() {
    let mut agents = NodeConfig::default();
    agents.update(FactsUpdate::Set(mk_agent("default", None, "good0")));
    agents.decide(Some(&mk_node("edge")));
    agents.update(FactsUpdate::Set(mk_bad("default")));
    agents.decide(Some(&mk_node("edge")));
    assert_eq!(dummy(&agents), Some("good0"));
    assert!(matches!(agents.standing(), ConfigStatus::Rejected(p) if p.message == "bad"));
    assert_eq!(agents.problems().count(), 1);
}

#[test]
fn a_bad_object_from_the_start_leaves_no_configuration() {
    let mut agents = NodeConfig::default();
    agents.update(FactsUpdate::Set(mk_bad("default")));
    agents.decide(Some(&mk_node("edge")));
    assert_eq!(dummy(&agents), None);
}

#[test]
fn nothing_selects_a_node_without_an_object_or_without_a_node() {
    let mut agents = NodeConfig::default();
    agents.update(FactsUpdate::Set(mk_agent("edge", Some("edge"), "e0")));
    agents.decide(Some(&mk_node("core")));
    assert_eq!(*agents.standing(), ConfigStatus::NotSelected);
    agents.decide(Some(&mk_node("edge")));
    assert_eq!(*agents.standing(), ConfigStatus::Configured);
    agents.decide(None);
    assert_eq!((dummy(&agents), agents.standing()), (None, &ConfigStatus::NotSelected));
}

#[test]
fn with_no_object_at_all_a_node_takes_part_with_the_defaults() {
    let mut agents = NodeConfig::default();
    agents.decide(Some(&mk_node("core")));
    assert_eq!(*agents.standing(), ConfigStatus::NotSelected, "not listed yet");
    agents.update(FactsUpdate::All(vec![]));
    agents.decide(Some(&mk_node("core")));
    assert_eq!(
        (agents.current(), agents.standing()),
        (Some(&AgentConfig::default()), &ConfigStatus::Defaults)
    );
    agents.decide(None);
    assert_eq!((agents.current(), agents.standing()), (None, &ConfigStatus::NotSelected));
    agents.update(FactsUpdate::Set(mk_agent("edge", Some("edge"), "e0")));
    agents.decide(Some(&mk_node("core")));
    assert_eq!(*agents.standing(), ConfigStatus::NotSelected, "somebody decided who takes part");
    agents.update(FactsUpdate::Gone(ObjectKey::of("purelb-system", "edge").unwrap()));
    agents.decide(Some(&mk_node("core")));
    assert_eq!(*agents.standing(), ConfigStatus::Defaults);
}
