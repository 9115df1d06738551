//! The reference in Markdown, written from the comments in the .proto files.

use std::fmt::Write;

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto};
use prost_types::{FileDescriptorSet, ServiceDescriptorProto};

/// Numbers of the fields that a comment's path is made of (descriptor.proto).
const MESSAGES: i32 = 4;
const ENUMS: i32 = 5;
const SERVICES: i32 = 6;
const MEMBERS: i32 = 2;

/// The whole document.
pub fn markdown() -> String {
    let set = FileDescriptorSet::decode(crate::DESCRIPTORS).expect("built with this crate");
    let mut out = String::from(
        "# API reference\n\nWritten from the comments in `proto/` by `cargo run -p purelb-proto --example reference`; \
         edits here are lost.\n",
    );
    let mut package = String::new();
    for file in set.file.iter().filter(|f| f.package().starts_with("purelb.")) {
        let doc = Doc { file };
        if package != file.package() {
            package = file.package().to_owned();
            let about = set.file.iter().filter(|f| f.package() == package);
            let about: Vec<String> =
                about.map(|file| Doc { file }.of(&[2])).filter(|t| !t.is_empty()).collect();
            let _ = write!(out, "\n## Package `{package}`\n\n{}\n", about.join("\n\n"));
        }
        for (i, service) in (0..).zip(&file.service) {
            doc.service(&mut out, i, service);
        }
        for (i, message) in (0..).zip(&file.message_type) {
            doc.message(&mut out, i, message);
        }
        for (i, one) in (0..).zip(&file.enum_type) {
            doc.enumeration(&mut out, i, one);
        }
    }
    out
}

struct Doc<'a> {
    file: &'a FileDescriptorProto,
}

impl Doc<'_> {
    fn of(&self, path: &[i32]) -> String {
        let info = self.file.source_code_info.iter().flat_map(|i| &i.location);
        let found = info.into_iter().find(|l| l.path == path);
        let text = found.map(|l| l.leading_comments().to_owned()).unwrap_or_default();
        text.lines().map(str::trim).collect::<Vec<_>>().join("\n").trim().to_owned()
    }

    /// In a table a line break would end the row.
    fn line(&self, path: &[i32]) -> String {
        self.of(path).replace('\n', " ").replace('|', "\\|")
    }

    fn service(&self, out: &mut String, at: i32, service: &ServiceDescriptorProto) {
        let about = self.of(&[SERVICES, at]);
        let _ = write!(
            out,
            "\n### Service `{}`\n\n{about}\n\n| call | request | answer | |\n|---|---|---|---|\n",
            service.name()
        );
        for (i, call) in (0..).zip(&service.method) {
            let stream = if call.server_streaming() { "stream of " } else { "" };
            let _ = writeln!(
                out,
                "| `{}` | {} | {stream}{} | {} |",
                call.name(),
                link(call.input_type()),
                link(call.output_type()),
                self.line(&[SERVICES, at, MEMBERS, i])
            );
        }
    }

    fn message(&self, out: &mut String, at: i32, message: &DescriptorProto) {
        let _ = write!(out, "\n### `{}`\n\n{}\n", message.name(), self.of(&[MESSAGES, at]));
        if message.field.is_empty() {
            return;
        }
        out.push_str("\n| field | type | number | |\n|---|---|---|---|\n");
        for (i, field) in (0..).zip(&message.field) {
            let _ = writeln!(
                out,
                "| `{}` | {} | {} | {} |",
                field.name(),
                type_of(field, message),
                field.number(),
                self.line(&[MESSAGES, at, MEMBERS, i])
            );
        }
    }

    fn enumeration(&self, out: &mut String, at: i32, one: &EnumDescriptorProto) {
        let _ = write!(
            out,
            "\n### `{}`\n\n{}\n\n| value | number | |\n|---|---|---|\n",
            one.name(),
            self.of(&[ENUMS, at])
        );
        for (i, value) in (0..).zip(&one.value) {
            let about = self.line(&[ENUMS, at, MEMBERS, i]);
            let _ = writeln!(out, "| `{}` | {} | {about} |", value.name(), value.number());
        }
    }
}

fn link(full: &str) -> String {
    let name = full.rsplit('.').next().unwrap_or(full);
    format!("[{name}](#{})", name.to_lowercase())
}

fn type_of(field: &FieldDescriptorProto, message: &DescriptorProto) -> String {
    let entry = message.nested_type.iter().find(|n| field.type_name().ends_with(&format!(".{}", n.name())));
    if let Some([key, value]) = entry.map(|e| e.field.as_slice()) {
        return format!("map of {} to {}", scalar(key), scalar(value));
    }
    let one = scalar(field);
    let list = if field.label() == Label::Repeated { "list of " } else { "" };
    let choice = field.oneof_index.and_then(|i| message.oneof_decl.get(usize::try_from(i).ok()?));
    match choice {
        Some(choice) => format!("{list}{one} (one of `{}`)", choice.name()),
        None => format!("{list}{one}"),
    }
}

fn scalar(field: &FieldDescriptorProto) -> String {
    match field.r#type() {
        Type::Message | Type::Enum => link(field.type_name()),
        other => other.as_str_name().trim_start_matches("TYPE_").to_lowercase(),
    }
}
