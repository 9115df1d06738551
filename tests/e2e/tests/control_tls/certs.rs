//! Certificates: a good authority, one that nobody trusts, and clients of all kinds.

use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};

pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: PathBuf,
    name: String,
}

/// Files of one certificate.
#[derive(Clone, Debug)]
pub struct Files {
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl Files {
    /// The two with which `purelbctl` is told, beside the authority.
    pub fn flags(&self, ca: &Path) -> Vec<String> {
        let text = |p: &Path| p.display().to_string();
        ["--ca", &text(ca), "--cert", &text(&self.cert), "--key", &text(&self.key)]
            .map(str::to_owned)
            .to_vec()
    }
}

/// What a client's certificate says.
#[derive(Clone, Debug, Default)]
pub struct Client<'a> {
    pub unit: Option<&'a str>,
    pub uri: Option<&'a str>,
    pub expired: bool,
}

impl Authority {
    pub fn new(directory: &Path, name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        std::fs::write(directory.join(format!("{name}.crt")), issuer.pem())?;
        Ok(Self { issuer, directory: directory.to_owned(), name: name.to_owned() })
    }

    pub fn file(&self) -> PathBuf {
        self.directory.join(format!("{}.crt", self.name))
    }

    pub fn serving(&self, name: &str) -> Result<Files> {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned(), name.to_owned()])?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params, name)
    }

    pub fn client(&self, name: &str, client: Client<'_>) -> Result<Files> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        if let Some(unit) = client.unit {
            params.distinguished_name.push(DnType::OrganizationalUnitName, unit);
        }
        if let Some(uri) = client.uri {
            params.subject_alt_names.push(SanType::URI(uri.try_into()?));
        }
        if client.expired {
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params, name)
    }

    fn sign(&self, params: CertificateParams, name: &str) -> Result<Files> {
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &self.issuer)?;
        let at = |extension: &str| self.directory.join(format!("{}-{name}.{extension}", self.name));
        let files = Files { cert: at("crt"), key: at("key") };
        std::fs::write(&files.cert, cert.pem())?;
        std::fs::write(&files.key, key.serialize_pem())?;
        Ok(files)
    }
}
