use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
};

use super::*;

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Issuer {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn client(issuer: &Issuer, serial: u64) -> Vec<CertificateDer<'static>> {
    let mut params = CertificateParams::default();
    params.serial_number = Some(SerialNumber::from(serial));
    vec![params.signed_by(&KeyPair::generate().unwrap(), issuer).unwrap().der().clone()]
}

fn revocations(issuer: &Issuer, serials: &[u64]) -> String {
    let day = |day| rcgen::date_time_ymd(2026, 1, day);
    let revoked = |serial: &u64| RevokedCertParams {
        serial_number: SerialNumber::from(*serial),
        revocation_time: day(1),
        reason_code: None,
        invalidity_date: None,
    };
    let params = CertificateRevocationListParams {
        this_update: day(1),
        next_update: rcgen::date_time_ymd(2096, 1, 1),
        crl_number: SerialNumber::from(1_u64),
        issuing_distribution_point: None,
        revoked_certs: serials.iter().map(revoked).collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(issuer).unwrap().pem().unwrap()
}

struct Rig {
    directory: tempfile::TempDir,
    control: Control,
}

impl Rig {
    fn new(client_ca: &Issuer) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(vec!["purelbd".to_owned()]).unwrap().self_signed(&key).unwrap();
        std::fs::write(at("tls.crt"), own.pem()).unwrap();
        std::fs::write(at("tls.key"), key.serialize_pem()).unwrap();
        std::fs::write(at("ca.crt"), client_ca.pem()).unwrap();
        let control = Control {
            certificate: at("tls.crt"),
            key: at("tls.key"),
            client_ca: at("ca.crt"),
            ..Control::default()
        };
        Self { directory, control }
    }

    /// Files are told apart by their size and the time they were written.
    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.directory.path().join(name), text).unwrap();
    }
}

/// Ends soon, or the test does.
async fn cut_off(tls: &Arc<ControlTls>, chain: Vec<CertificateDer<'static>>) {
    tokio::time::timeout(Duration::from_secs(10), tls.clone().withdrawn(chain)).await.expect("cut off");
}

#[tokio::test]
async fn who_is_on_a_revocation_list_is_cut_off() {
    let ours = authority("ours");
    let mut rig = Rig::new(&ours);
    rig.control.client_crl = rig.directory.path().join("crl.pem");
    let (good, lost) = (client(&ours, 7), client(&ours, 8));
    let tls = Arc::new(ControlTls::open(&rig.control));
    assert!(tls.config().is_none(), "a list that is not there yet lets nobody in");
    rig.write("crl.pem", &revocations(&ours, &[]));
    tls.reload_if_changed();
    assert!(tls.accepts(&good) && tls.accepts(&lost));
    let watching = tokio::spawn(tls.clone().withdrawn(lost.clone()));
    rig.write("crl.pem", &revocations(&ours, &[8]));
    tls.reload_if_changed();
    tokio::time::timeout(Duration::from_secs(10), watching).await.expect("in time").expect("cut off");
    assert!(tls.accepts(&good) && !tls.accepts(&lost));
    // One that cannot be read changes nothing, and is said.
    rig.write("crl.pem", "nonsense");
    tls.reload_if_changed();
    assert!(tls.accepts(&good) && !tls.accepts(&lost));
    assert!(tls.trouble().unwrap().contains("client_crl"), "{:?}", tls.trouble());
    let others = authority("others");
    assert!(!tls.accepts(&client(&others, 7)));
}

#[tokio::test]
async fn whose_authority_was_taken_out_is_cut_off() {
    let (former, next) = (authority("former"), authority("next"));
    let rig = Rig::new(&former);
    let tls = Arc::new(ControlTls::open(&rig.control));
    let (old, new) = (client(&former, 1), client(&next, 1));
    assert!(tls.accepts(&old) && !tls.accepts(&new));
    rig.write("ca.crt", &format!("{}{}", former.pem(), next.pem()));
    tls.reload_if_changed();
    assert!(tls.accepts(&old) && tls.accepts(&new), "both for a while");
    rig.write("ca.crt", &next.pem());
    tls.reload_if_changed();
    cut_off(&tls, old).await;
    assert!(tls.accepts(&new));
}

#[tokio::test]
async fn an_expired_certificate_is_cut_off() {
    let ours = authority("ours");
    let rig = Rig::new(&ours);
    let tls = Arc::new(ControlTls::open(&rig.control));
    let mut params = CertificateParams::default();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let expired = params.signed_by(&KeyPair::generate().unwrap(), &ours).unwrap().der().clone();
    cut_off(&tls, vec![expired]).await;
}
