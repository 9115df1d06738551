//! Examples that a reader may copy: objects and settings, read by the code that will
//! read them in earnest.

use anyhow::Result;
use purelb_api::names;
use purelbctl::commands::validate;
use purelbctl::offline::saved_objects::{self, SavedObjects};
use purelbd::config::{self, Sources};
use serde_json::Value;

use crate::Page;
use crate::facts::annotations;

/// What is wrong with the YAML and TOML blocks of a page.
pub fn check(page: &Page) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for block in &page.blocks {
        let found = match block.language.as_str() {
            "yaml" => objects(&block.text)?,
            "toml" => settings(&block.text)?,
            _ => continue,
        };
        wrong.extend(found.into_iter().map(|what| page.at(block.line, what)));
    }
    Ok(wrong)
}

/// Kubernetes objects: ours pass `purelbctl validate`, Services name what we know.
pub fn objects(text: &str) -> Result<Vec<String>> {
    let documents = match saved_objects::parse_documents("the example", text) {
        Ok(documents) => documents,
        Err(failure) => return Ok(vec![failure.to_string()]),
    };
    let mut wrong = Vec::new();
    let mut saved = SavedObjects::default();
    for document in documents {
        if document["kind"] == "Service" {
            wrong.extend(service(&document)?);
        }
        saved.add("the example", document);
    }
    let found = validate::check_all(&mut saved);
    wrong.extend(found.iter().map(|f| format!("{}: {}: {}", f.object, f.field, f.message)));
    Ok(wrong)
}

fn service(object: &Value) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let known = annotations()?;
    for key in object["metadata"]["annotations"].as_object().into_iter().flat_map(|map| map.keys()) {
        if key.starts_with("purelb.io/") && !known.contains(key) {
            wrong.push(format!("there is no annotation {key}"));
        }
    }
    if object["spec"]["type"] != "LoadBalancer" {
        wrong.push("the Service is not of type LoadBalancer".to_owned());
    }
    match &object["spec"]["loadBalancerClass"] {
        Value::Null => {}
        class if class == names::DEFAULT_CLASS => {}
        class => wrong.push(format!("loadBalancerClass {class} is not ours")),
    }
    Ok(wrong)
}

/// Settings of purelbd.
pub fn settings(text: &str) -> Result<Vec<String>> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("purelbd.toml");
    std::fs::write(&file, text)?;
    let flags = match text.contains("[node]") {
        true => Vec::new(),
        // The machine that checks need not have a name that a Node can have.
        false => vec![("node.name".to_owned(), "worker-1".to_owned())],
    };
    let sources = Sources { file: Some(file), environment: Vec::new(), flags };
    Ok(config::load(&sources).err().map(|error| error.to_string()).into_iter().collect())
}

#[cfg(test)]
mod tests;
