//! The `purelb.io/addresses` annotation: the addresses a user asks for.

use purelb_core::{Family, Vip};
use thiserror::Error;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AddressesError {
    #[error(
        "purelb.io/addresses names no address: write one per family, such as 192.0.2.10 or 192.0.2.10,2001:db8::10"
    )]
    Empty,
    #[error("purelb.io/addresses: {0:?} is not an IP address")]
    NotAnAddress(String),
    #[error(
        "purelb.io/addresses names two {family} addresses, {first} and {second}; one per family can be given"
    )]
    TwoOfOneFamily { family: Family, first: Vip, second: Vip },
}

/// `ip[,ip]`, at most one per family, IPv4 first; spaces are tolerated.
pub fn parse(text: &str) -> Result<Vec<Vip>, AddressesError> {
    let mut found: Vec<Vip> = Vec::new();
    for entry in text.split(',').map(str::trim).filter(|e| !e.is_empty()) {
        let clipped = || entry.chars().take(64).collect();
        let vip: Vip = entry.parse().map_err(|_| AddressesError::NotAnAddress(clipped()))?;
        // Two families, so this list never grows past two.
        match found.iter().find(|v| v.family() == vip.family()) {
            None => found.push(vip),
            Some(first) if *first == vip => {}
            Some(first) => {
                let family = vip.family();
                return Err(AddressesError::TwoOfOneFamily { family, first: *first, second: vip });
            }
        }
    }
    found.sort();
    if found.is_empty() { Err(AddressesError::Empty) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_per_family_in_any_order() {
        let texts = |t: &str| parse(t).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts("192.0.2.1"), ["192.0.2.1"]);
        assert_eq!(texts(" 2001:db8::1 , 192.0.2.1 ,"), ["192.0.2.1", "2001:db8::1"]);
        assert_eq!(texts("192.0.2.1,::ffff:192.0.2.1"), ["192.0.2.1"], "one address, spelled twice");
    }

    #[test]
    fn refuses_with_the_reason() {
        use AddressesError as E;
        assert_eq!(parse(" , "), Err(E::Empty));
        assert!(matches!(parse("192.0.2.1,any"), Err(E::NotAnAddress(t)) if t == "any"));
        assert!(matches!(parse("192.0.2.1,192.0.2.2"), Err(E::TwoOfOneFamily { family: Family::V4, .. })));
    }
}
