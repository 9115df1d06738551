//! The pages we ship.

use anyhow::Result;

use super::*;

fn none(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

fn page(path: &str) -> Page {
    Page::new(path, &read(path).unwrap())
}

#[test]
fn links_lead_somewhere() {
    none(links::check(&root(), &pages().unwrap()));
}

#[test]
fn every_page_is_found_from_the_index() {
    none(links::unreachable(&pages().unwrap()));
}

#[test]
fn decisions_say_their_number_date_and_status() {
    none(decisions::check(&pages().unwrap()));
}

#[test]
fn examples_are_taken_by_the_code_that_reads_them() {
    let all: Result<Vec<Vec<String>>> = pages().unwrap().iter().map(examples::check).collect();
    none(all.unwrap().concat());
}

#[test]
fn there_are_examples_of_every_kind() {
    let pages = pages().unwrap();
    let blocks: Vec<_> = pages.iter().flat_map(|page| &page.blocks).collect();
    for (language, word) in [
        ("yaml", "kind: ServiceGroup"),
        ("yaml", "kind: LBNodeAgent"),
        ("yaml", "kind: Service\n"),
        ("toml", "[control]"),
    ] {
        let found = blocks.iter().filter(|b| b.language == language && b.text.contains(word)).count();
        assert!(found > 0, "no {language} block with {word:?}: is it still looked at?");
    }
}

#[test]
fn sample_objects_are_valid() {
    let mut all = String::new();
    for file in ["lbnodeagent", "servicegroup-local", "servicegroup-remote", "service"] {
        all += &format!("---\n{}", read(&format!("deploy/k8s/samples/{file}.yaml")).unwrap());
    }
    none(examples::objects(&all).unwrap());
}

#[test]
fn commands_are_taken_by_the_programs() {
    let all: Result<Vec<Vec<String>>> = pages().unwrap().iter().map(commands::check).collect();
    none(all.unwrap().concat());
}

#[test]
fn settings_and_annotations_that_are_named_exist() {
    let all: Result<Vec<Vec<String>>> = pages().unwrap().iter().map(facts::named).collect();
    none(all.unwrap().concat());
}

#[test]
fn the_references_are_current() {
    let stale: Vec<&str> = reference::stale().unwrap().iter().map(|page| page.path).collect();
    assert!(stale.is_empty(), "run `make reference`: {stale:?}");
}

#[test]
fn every_reason_is_explained() {
    none(facts::headed(&page("docs/troubleshoot.md"), &facts::reasons()));
}

#[test]
fn every_refusal_is_explained() {
    let text = page("docs/troubleshoot.md").text;
    for refusal in facts::refusals().unwrap() {
        assert!(text.contains(&format!("`{refusal}`")), "{refusal} is not explained in docs/troubleshoot.md");
    }
}

/// Words that `status` and `explain` say beside a reason.
#[test]
fn every_cause_of_a_fence_is_explained() {
    use purelb_core::InstanceId;
    use purelb_core::reason::FenceCause;
    let text = page("docs/troubleshoot.md").text;
    let by = InstanceId::new("x").unwrap();
    for cause in [
        FenceCause::NeverRenewed,
        FenceCause::Expired { last_error: None },
        FenceCause::Deleted,
        FenceCause::Taken { by },
        FenceCause::StaleView,
    ] {
        // Compiles only as long as the list above is whole.
        let words = match &cause {
            FenceCause::Taken { .. } => "writes this node's Lease".to_owned(),
            FenceCause::NeverRenewed
            | FenceCause::Expired { .. }
            | FenceCause::Deleted
            | FenceCause::StaleView => cause.to_string(),
        };
        assert!(text.contains(&words), "{words:?} is not explained in docs/troubleshoot.md");
    }
}

#[test]
fn every_annotation_is_in_the_reference() {
    let page = page("docs/reference/annotations.md");
    none(facts::listed(&page, &facts::annotations().unwrap(), "purelb\\.io/[A-Za-z0-9-]+"));
}

#[test]
fn every_event_is_in_the_reference() {
    let page = page("docs/reference/events.md");
    none(facts::listed(&page, &facts::events().unwrap(), "[A-Z][A-Za-z]+"));
}
