//! The custom resources, field by field.

use std::fmt::Write;

use purelb_api::crds;
use serde_json::Value;

use super::{cell, note};

pub fn markdown() -> String {
    let mut out = format!(
        "# Custom resources\n\n{}\nWhat they mean, with examples: [configure](../configure.md). A check before applying: `purelbctl \
         validate -f FILE`.\n",
        note("the types in `api/`")
    );
    for file in crds::all() {
        resource(&mut out, &file.crd);
    }
    out
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn resource(out: &mut String, crd: &Value) {
    let (spec, version) = (&crd["spec"], &crd["spec"]["versions"][0]);
    let names = &spec["names"];
    let schema = &version["schema"]["openAPIV3Schema"];
    let short: Vec<&str> = names["shortNames"].as_array().into_iter().flatten().map(text).collect();
    let _ = write!(
        out,
        "\n## {}\n\n{}\n\n`apiVersion: {}/{}`, {}; short names {}.\n",
        text(&names["kind"]),
        text(&schema["description"]),
        text(&spec["group"]),
        text(&version["name"]),
        text(&spec["scope"]).to_lowercase(),
        short.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    );
    for part in ["spec", "status"] {
        let schema = &schema["properties"][part];
        let _ = write!(out, "\n### {} {part}\n\n{}\n", text(&names["kind"]), text(&schema["description"]));
        out.push_str("\n| field | type | default | |\n|---|---|---|---|\n");
        let mut rules = Vec::new();
        fields(out, "", schema, &mut rules);
        refusals(out, part, &rules);
    }
    out.push_str("\nColumns of `kubectl get`: ");
    let columns = version["additionalPrinterColumns"].as_array().into_iter().flatten();
    let column = |c: &Value| {
        let wide = if c["priority"].as_i64().unwrap_or(0) > 0 { " (wide)" } else { "" };
        format!("{}{wide}", text(&c["name"]))
    };
    let _ = writeln!(out, "{}.", columns.map(column).collect::<Vec<_>>().join(", "));
}

/// What the API server says, and of which fields.
fn refusals(out: &mut String, part: &str, rules: &[(String, String)]) {
    if rules.is_empty() {
        return;
    }
    out.push_str("\nWhat the API server refuses, in its words:\n\n| message | of |\n|---|---|\n");
    let mut said: Vec<&str> = Vec::new();
    for (_, message) in rules.iter().filter(|(_, message)| !message.is_empty()) {
        if said.contains(&message.as_str()) {
            continue;
        }
        said.push(message);
        let about = rules.iter().filter(|(_, other)| other == message);
        let fields = about.map(|(field, _)| match field.as_str() {
            "" => format!("`{part}`"),
            field => format!("`{field}`"),
        });
        let _ = writeln!(out, "| {} | {} |", cell(message), fields.collect::<Vec<_>>().join(", "));
    }
}

/// Rows for what is below a schema, and the rules that hold there.
fn fields(out: &mut String, at: &str, schema: &Value, rules: &mut Vec<(String, String)>) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let path = format!("{at}{}", text(&rule["fieldPath"])).trim_start_matches('.').to_owned();
        let rule = (path, text(&rule["message"]).to_owned());
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().map(text).collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{at}.{name}");
        let path = path.trim_start_matches('.');
        let default = match &field["default"] {
            Value::Null if required.contains(&name.as_str()) => "required".to_owned(),
            Value::Null => String::new(),
            value => format!("`{value}`"),
        };
        let mut about = cell(text(&field["description"]));
        // Both have the same ranges and switches: said once.
        let twin = name == "remote" && field["properties"] == schema["properties"]["local"]["properties"];
        if twin {
            about.push_str(" The same fields as `local`.");
        }
        let _ = writeln!(out, "| `{path}` | {} | {default} | {about} |", kind(field));
        // Conditions are the same for every object in Kubernetes.
        if name != "conditions" && !twin {
            fields(out, path, field, rules);
            let items = &field["items"];
            if items["properties"].is_object() {
                fields(out, &format!("{path}[]"), items, rules);
            }
        }
    }
}

/// The type, with its bounds.
fn kind(field: &Value) -> String {
    let mut kind = text(&field["type"]).to_owned();
    if kind == "array" {
        kind = format!("list of {}", text(&field["items"]["type"]));
    }
    if field["additionalProperties"].is_object() {
        kind = "map".to_owned();
    }
    let mut bounds = Vec::new();
    if let Some(values) = field["enum"].as_array() {
        bounds.push(values.iter().map(|v| format!("`{}`", text(v))).collect::<Vec<_>>().join(" or "));
    }
    if let (Some(least), Some(most)) = (number(&field["minimum"]), number(&field["maximum"])) {
        bounds.push(format!("{least} to {most}"));
    }
    if let Some(most) = number(&field["maxItems"]) {
        bounds.push(format!("at most {most}"));
    }
    if let Some(most) = number(&field["maxLength"]) {
        bounds.push(format!("at most {most} characters"));
    }
    if bounds.is_empty() { kind } else { format!("{kind}, {}", bounds.join(", ")) }
}

/// Bounds are written as floating point numbers, and are none.
fn number(value: &Value) -> Option<String> {
    value.as_f64().map(|n| format!("{n:.0}"))
}
