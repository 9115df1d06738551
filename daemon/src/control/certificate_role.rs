//! The role a client certificate gives.
//!
//! Either an organizational unit of the subject, `OU=purelb:operator`, or a subject
//! alternative name of type URI, `urn:purelb:role:operator`. The highest one counts. An
//! authority that signs for other purposes, too, signs no roles by accident: neither
//! text comes up by itself.

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::peer::ClientRole;

pub const ROLE_URI: &str = "urn:purelb:role:";
const ROLE_UNIT: &str = "purelb:";

/// Subject and role; `None` if the certificate cannot be read, which TLS has ruled out.
pub fn subject_and_role(der: &[u8]) -> Option<(String, Option<ClientRole>)> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    let units = subject.iter_organizational_unit().filter_map(|unit| unit.as_str().ok());
    let by_unit = units.filter_map(|unit| ClientRole::parse(unit.strip_prefix(ROLE_UNIT)?));
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.iter().flat_map(|extension| &extension.value.general_names);
    let by_uri = names.filter_map(|name| match name {
        GeneralName::URI(uri) => ClientRole::parse(uri.strip_prefix(ROLE_URI)?),
        _ => None,
    });
    let role = by_unit.chain(by_uri).max();
    // It goes into the log: bounded, and without control characters.
    let text = subject.to_string().chars().filter(|c| !c.is_control()).take(256).collect();
    Some((text, role))
}

/// Seconds since 1970 at which the certificate ends.
pub fn expiry(der: &[u8]) -> Option<i64> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(certificate.validity().not_after.timestamp())
}
