//! Network namespaces made of threads. A namespace without a name ends with the last
//! thread and socket in it: nothing is left behind, however a test ends.

use std::future::Future;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use nix::sched::{CloneFlags, unshare};
use purelb_core::ids::{IfIndex, IfName};
use purelb_core::messages::{AddressSpec, Input, KernelChange};
use purelbd::netlink::{AddressOwnership, KernelApplier};
use serde_json::Value;

pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// Runs a test on a new thread in a new network namespace.
pub(crate) fn isolated<F, Fut>(test: F)
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = ()>,
{
    let thread = std::thread::spawn(move || {
        enter_new_namespace();
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test());
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn enter_new_namespace() {
    unshare(CloneFlags::CLONE_NEWNET)
        .expect("this test makes network namespaces: run it as root (CAP_SYS_ADMIN and CAP_NET_ADMIN)");
}

type Job = Box<dyn FnOnce() + Send>;

/// Another host: a thread in another namespace that does what it is told.
pub(crate) struct Other {
    jobs: mpsc::SyncSender<Job>,
    /// Its thread's number, which names its namespace to `ip`.
    pub(crate) tid: String,
}

impl Other {
    pub(crate) fn new() -> Self {
        let (jobs, queue) = mpsc::sync_channel::<Job>(1);
        let (tell, told) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            enter_new_namespace();
            tell.send(nix::unistd::gettid().to_string()).unwrap();
            queue.into_iter().for_each(|job| job());
        });
        Self { jobs, tid: told.recv().expect("the other namespace's thread ended at once") }
    }

    pub(crate) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = mpsc::sync_channel(1);
        self.jobs
            .send(Box::new(move || {
                let _ = tell.send(job());
            }))
            .unwrap();
        told.recv().expect("the job in the other namespace panicked")
    }

    pub(crate) fn ip(&self, command: &str) {
        let command = command.to_owned();
        self.run(move || ip(&command));
    }

    /// A cable: `here` in this namespace, `there` in the other one, both up.
    pub(crate) fn cable(&self, here: &str, there: &str) {
        ip(&format!("link add {here} type veth peer name {there} netns {}", self.tid));
        ip(&format!("link set {here} up"));
        self.ip(&format!("link set {there} up"));
    }
}

fn run_ip(arguments: &[&str]) -> std::process::Output {
    Command::new("ip").args(arguments).output().expect("`ip` could not be run: install iproute2")
}

/// `ip` in the calling thread's namespace; it must succeed.
pub(crate) fn ip(command: &str) {
    let output = run_ip(&command.split_whitespace().collect::<Vec<_>>());
    assert!(output.status.success(), "ip {command}: {}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn ip_succeeds(command: &str) -> bool {
    run_ip(&command.split_whitespace().collect::<Vec<_>>()).status.success()
}

pub(crate) fn ip_json(command: &str) -> Value {
    let mut arguments = vec!["-j", "-d"];
    arguments.extend(command.split_whitespace());
    let output = run_ip(&arguments);
    let text = String::from_utf8_lossy(&output.stdout);
    if text.trim().is_empty() {
        return Value::Array(Vec::new());
    }
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("ip {command}: {error}: {text}"))
}

/// The entries `ip` shows for one interface's addresses.
pub(crate) fn addresses_on(interface: &str) -> Vec<Value> {
    let shown = ip_json(&format!("addr show dev {interface}"));
    let links = shown.as_array().unwrap();
    links.iter().flat_map(|link| link["addr_info"].as_array().cloned().unwrap_or_default()).collect()
}

pub(crate) fn address_on(interface: &str, ip: &str) -> Option<Value> {
    addresses_on(interface).into_iter().find(|a| a["local"] == ip)
}

pub(crate) fn index_of(interface: &str) -> IfIndex {
    let shown = ip_json(&format!("link show dev {interface}"));
    let index = shown[0]["ifindex"].as_u64().unwrap();
    IfIndex(index.try_into().unwrap())
}

/// Two ends of a cable in this namespace, both up.
pub(crate) fn pair(one: &str, two: &str) -> IfIndex {
    ip(&format!("link add {one} type veth peer name {two}"));
    ip(&format!("link set {one} up"));
    ip(&format!("link set {two} up"));
    index_of(one)
}

pub(crate) fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

pub(crate) fn name(text: &str) -> IfName {
    IfName::new(text).unwrap()
}

/// As a local pool's VIP is put there.
pub(crate) fn spec(index: IfIndex, address: &str) -> AddressSpec {
    AddressSpec {
        index,
        net: net(address),
        until: None,
        valid: Some(300),
        preferred: address.contains(':').then_some(0),
        no_prefix_route: true,
        no_dad: true,
    }
}

pub(crate) fn put(index: IfIndex, address: &str) -> KernelChange {
    KernelChange::Put(spec(index, address))
}

pub(crate) fn remove(index: IfIndex, address: &str) -> KernelChange {
    KernelChange::Remove { index, net: net(address) }
}

pub(crate) fn applier() -> KernelApplier {
    KernelApplier::open(AddressOwnership::kernel()).unwrap()
}

/// Carries out operations and returns their results in order.
pub(crate) fn apply(applier: &mut KernelApplier, ops: Vec<KernelChange>) -> Vec<Result<(), String>> {
    let batch: Vec<(u64, KernelChange)> = (100..).zip(ops).collect();
    let ids: Vec<u64> = batch.iter().map(|(id, _)| *id).collect();
    let answers = applier.apply(batch);
    let (answered, results): (Vec<u64>, Vec<_>) = answers
        .into_iter()
        .map(|input| match input {
            Input::Applied { id, result } => (id, result.map_err(|refusal| refusal.to_string())),
            other => panic!("not an answer to an operation: {other:?}"),
        })
        .unzip();
    assert_eq!(answered, ids, "one answer for each operation, in order");
    results
}

/// Carries out operations that must all succeed.
pub(crate) fn apply_all(applier: &mut KernelApplier, ops: Vec<KernelChange>) {
    for result in apply(applier, ops.clone()) {
        result.unwrap_or_else(|error| panic!("{error}; among {ops:?}"));
    }
}

/// Waits for a condition that nothing signals.
pub(crate) async fn until<T: std::fmt::Debug>(
    what: &str,
    within: Duration,
    mut look: impl FnMut() -> Result<(), T>,
) {
    let started = Instant::now();
    while let Err(state) = look() {
        assert!(started.elapsed() < within, "{what}: not within {within:?}; last seen: {state:#?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Somebody who adds and removes addresses of their own, as fast as the kernel lets them.
pub(crate) struct Churn {
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
    thread: std::thread::JoinHandle<u32>,
}

impl Churn {
    /// In the calling thread's namespace.
    pub(crate) fn start(interface: &str) -> Self {
        let stop = std::sync::Arc::<std::sync::atomic::AtomicBool>::default();
        let (interface, stopped) = (interface.to_owned(), stop.clone());
        // A new thread begins in the namespace of the one that makes it.
        let thread = std::thread::spawn(move || {
            let mut lines = String::new();
            for n in 0..500 {
                let address = format!("172.16.{}.{}/32 dev {interface}", n >> 8, n & 255);
                lines.push_str(&format!("addr add {address}\naddr del {address}\n"));
            }
            let mut rounds = 0;
            while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
                let mut batch =
                    Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
                batch.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
                assert!(batch.wait().unwrap().success());
                rounds += 1000;
            }
            rounds
        });
        Self { stop, thread }
    }

    /// How often it did.
    pub(crate) fn stop(self) -> u32 {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        self.thread.join().expect("the churn ended well")
    }
}
