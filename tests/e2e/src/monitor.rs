//! The monitoring side: a real Prometheus inside the lab, and a real allocator for it to
//! read beside the daemons.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use purelb_kit::controlplane::ServiceAccount;
use purelb_kit::lab::{API_ADDRESS, API_PORT, Node, Process, now};
use purelb_kit::wait::eventually;
use serde_json::Value;

use crate::binary::allocator;
use crate::cluster::Cluster;

/// Where both programs serve their metrics.
const METRICS_PORT: u16 = 7472;
const PROMETHEUS_PORT: u16 = 9090;
/// Looking more often would only cost time that the programs under test need.
const PACE: Duration = Duration::from_millis(200);

/// GET on a port of the node's own loopback: status line and body.
pub fn get(node: &Node, port: u16, path: &str) -> Result<(String, String)> {
    let answer = node.enter(|| -> io::Result<String> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        // 1.0: no chunks in the body.
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: node\r\n\r\n").as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    })??;
    let (head, body) = answer.split_once("\r\n\r\n").context("an HTTP answer")?;
    Ok((head.lines().next().unwrap_or_default().to_owned(), body.to_owned()))
}

/// The allocator as a process on a node.
#[derive(Debug)]
pub struct Allocator {
    node: Node,
    process: Process,
}

impl Allocator {
    pub async fn start(cluster: &Cluster<'_>, on: &str) -> Result<Self> {
        let node = cluster.node(on);
        let account = ServiceAccount::new(&cluster.namespace, "purelb-allocator");
        let url = format!("https://{API_ADDRESS}:{API_PORT}");
        let kubeconfig = cluster.plane.kubeconfig_for(&account, &url).await?;
        let mut command = Command::new(allocator()?);
        command
            .args(["--namespace", &cluster.namespace, "--class", &cluster.class])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .env_clear();
        let process = node.spawn("purelb-allocator", command)?;
        Ok(Self { node, process })
    }

    /// Its metrics, as Prometheus would read them.
    pub fn metrics(&self) -> Result<String> {
        let (status, body) = get(&self.node, METRICS_PORT, "/metrics")?;
        ensure!(status.contains(" 200 "), "{status}\n{}", self.process.log());
        Ok(body)
    }

    pub fn log(&self) -> String {
        self.process.log()
    }
}

/// What to read: job, instance, and the node it is on.
#[derive(Clone, Debug)]
pub struct Target<'a> {
    pub job: &'a str,
    pub instance: &'a str,
    pub node: Node,
    /// Over TLS, trusting this certificate.
    pub trust: Option<PathBuf>,
}

/// Debian's Prometheus, reading targets over the management network.
#[derive(Debug)]
pub struct Prometheus {
    node: Node,
    process: Process,
}

/// An alert that fires: its name and labels.
pub type Firing = (String, BTreeMap<String, String>);

impl Prometheus {
    /// Reads and evaluates every second. Expressions are those of the file; how long they
    /// must hold is cut to a second, or no test would end.
    pub fn start(on: Node, targets: &[Target<'_>], rules: &Path) -> Result<Self> {
        let dir = on.dir();
        let text = fs::read_to_string(rules).with_context(|| format!("reading {}", rules.display()))?;
        let hasty: Vec<String> = text.lines().map(hasten).collect();
        fs::write(dir.join("rules.yml"), hasty.join("\n"))?;
        let mut config = String::from(
            "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n\
             rule_files: [rules.yml]\nscrape_configs:\n",
        );
        for Target { job, instance, node, trust } in targets {
            let address = node.management_address().context("a target on the management network")?;
            let tls = trust
                .as_ref()
                .map(|file| format!("    scheme: https\n    tls_config: {{ca_file: {file:?}}}\n"));
            // The name of a job may be used once; the label may not care.
            config.push_str(&format!(
                "  - job_name: {instance}\n{}    static_configs:\n      - {{targets: ['{address}:{METRICS_PORT}'], \
                 labels: {{instance: {instance}, job: {job}}}}}\n",
                tls.unwrap_or_default(),
            ));
        }
        fs::write(dir.join("prometheus.yml"), config)?;
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", dir.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("tsdb").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{PROMETHEUS_PORT}"))
            .arg("--log.level=warn");
        let process = on.spawn("prometheus", command).context("run `tests/setup.sh monitoring` first")?;
        Ok(Self { node: on, process })
    }

    fn api(&self, path: &str) -> Result<Value> {
        let (status, body) = get(&self.node, PROMETHEUS_PORT, &format!("/api/v1/{path}"))?;
        ensure!(status.contains(" 200 "), "{path}: {status}\n{body}");
        let answer: Value = serde_json::from_str(&body)?;
        Ok(answer["data"].clone())
    }

    /// The values of an instant query without labels that matter, one per series.
    pub fn query(&self, expression: &str) -> Result<Vec<f64>> {
        let encoded: String = expression.bytes().map(|b| format!("%{b:02X}")).collect();
        let data = self.api(&format!("query?query={encoded}"))?;
        let series = data["result"].as_array().cloned().unwrap_or_default();
        let values = series.iter().filter_map(|s| s["value"][1].as_str()?.parse().ok());
        Ok(values.collect())
    }

    pub fn firing(&self) -> Result<Vec<Firing>> {
        let data = self.api("alerts")?;
        let all = data["alerts"].as_array().cloned().unwrap_or_default();
        let firing = all.iter().filter(|a| a["state"] == "firing").map(|alert| {
            let mut labels: BTreeMap<String, String> =
                serde_json::from_value(alert["labels"].clone()).unwrap_or_default();
            (labels.remove("alertname").unwrap_or_default(), labels)
        });
        Ok(firing.collect())
    }

    /// Looks until what it asks Prometheus is as wanted.
    pub async fn until<T>(
        &self,
        what: &str,
        within: Duration,
        look: impl Fn(&Self) -> Result<Result<T, String>>,
    ) -> Result<T> {
        let seen = eventually(what, within, || async {
            let seen = look(self).unwrap_or_else(|error| Err(format!("{error:#}")));
            if seen.is_err() {
                tokio::time::sleep(PACE).await;
            }
            seen
        })
        .await;
        seen.map_err(|error| error.context(self.process.log()))
    }

    /// Waits until an alert with these labels fires, or fires no more; says how long that took.
    pub async fn alert(&self, state: State, name: &str, labels: &[(&str, &str)]) -> Result<Duration> {
        let began = now();
        self.until(&format!("{name} {labels:?} is {state:?}"), Duration::from_secs(60), |prometheus| {
            let firing = prometheus.firing()?;
            let fits = |(alert, have): &&Firing| {
                alert == name && labels.iter().all(|(k, v)| have.get(*k).is_some_and(|h| h == v))
            };
            let fires = firing.iter().any(|alert| fits(&alert));
            Ok(if fires == (state == State::Firing) { Ok(()) } else { Err(format!("{firing:?}")) })
        })
        .await?;
        Ok(now().since(began))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Firing,
    Resolved,
}

/// `for: 5m` to `for: 1s`, and everything else as it is.
fn hasten(line: &str) -> String {
    let indent = line.len() - line.trim_start().len();
    if line.trim_start().starts_with("for: ") {
        format!("{}for: 1s", " ".repeat(indent))
    } else {
        line.to_owned()
    }
}
