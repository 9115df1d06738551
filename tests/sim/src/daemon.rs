//! The process around an engine: it carries effects out and brings answers back, as
//! the real adapters do, and can be stopped, killed and started again.

use purelb_core::Engine;
use purelb_core::config::EngineConfig;
use purelb_core::io::{Command, Effect, Input, Op, Shutdown, Source, Update};
use purelb_core::{IfIndex, InstanceId, Vip};

use crate::node::{Process, WATCHED};
use crate::queue::{Channel, Ev, MS, SEC, T, US};
use crate::world::World;

/// An operation the applier could not send for this long is refused instead: the
/// lifetime in it was counted from when it was decided.
const STALE_OP: T = SEC;

impl World {
    pub fn start(&mut self, node: usize) {
        if self.nodes[node].runs() || !self.nodes[node].powered || !self.nodes[node].joined {
            return;
        }
        if self.nodes[node].legacy {
            return;
        }
        self.nodes[node].life += 1;
        let life = self.nodes[node].life;
        let n = &self.nodes[node];
        let instance = InstanceId::new(&format!("{}.{life}", n.name)).expect("a valid instance id");
        let mut config = EngineConfig::new(n.name.clone(), instance.clone());
        config.timers = self.setup.timers;
        config.draining.clone_from(&n.drain);
        self.mutate_config(&mut config);
        let engine = Engine::new(config);
        self.log(|w| format!("{} starts as instance {life}", w.nodes[node].name));
        self.nodes[node].process = Some(Process::new(engine, instance, self.now));
        for source in WATCHED {
            self.false_listing(node, source);
            let after = self.rng.below(80 * MS);
            self.relist(node, source, after);
        }
        let after = self.rng.below(30 * MS);
        self.plan_dump(node, after);
        self.rearm(node);
    }

    /// The process is gone at once; what it put into the kernel is not.
    pub fn kill(&mut self, node: usize) {
        if self.nodes[node].process.take().is_some() {
            self.nodes[node].life += 1;
            self.log(|w| format!("{}: the process is gone", w.nodes[node].name));
        }
    }

    pub fn command(&mut self, node: usize, command: Command) {
        let Some(process) = &mut self.nodes[node].process else {
            return;
        };
        if let Command::Shutdown { mode, .. } = &command {
            process.stopping = Some(*mode);
        }
        self.deliver(node, Channel::Commands, MS, Input::Command(command));
    }

    pub fn shut_down(&mut self, node: usize, how: Shutdown) {
        let since = format!("stopped-at-{}", self.now);
        self.command(node, Command::Shutdown { mode: how, since });
    }

    pub fn pause(&mut self, node: usize) {
        if let Some(process) = &mut self.nodes[node].process {
            process.paused = true;
        }
    }

    /// Everything that queued up comes at once, in order per channel and in any
    /// order between channels; the clock has gone on all the while.
    pub fn resume(&mut self, node: usize) {
        let life = self.nodes[node].life;
        let Some(process) = &mut self.nodes[node].process else {
            return;
        };
        process.paused = false;
        process.wake_at = None;
        let ops = std::mem::take(&mut process.held_ops);
        let mut inbox = std::mem::take(&mut process.inbox);
        for (issued, id, op) in ops {
            let ev = Ev::KernelOp { node, life, issued, id, op: Box::new(op) };
            self.queue.push(self.now, ev);
        }
        if self.rng.percent(50) {
            self.feed(node, Input::Tick);
        }
        while !inbox.is_empty() && self.nodes[node].life == life {
            let pick = self.rng.below(inbox.len() as u64) as usize;
            let channel = inbox[pick].0;
            let first = inbox.iter().position(|(c, _)| *c == channel).expect("it was just picked");
            let (_, input) = inbox.remove(first);
            self.feed(node, input);
        }
        self.rearm(node);
    }

    pub fn input_arrives(&mut self, node: usize, life: u32, generation: u32, channel: Channel, input: Input) {
        if self.nodes[node].life != life {
            return;
        }
        let Some(process) = &mut self.nodes[node].process else {
            return;
        };
        if process.generation(channel) != generation {
            return;
        }
        if process.paused {
            process.inbox.push((channel, input));
        } else {
            self.feed(node, input);
        }
    }

    pub fn wake(&mut self, node: usize, life: u32) {
        let now = self.now;
        let mono = self.mono(node);
        if self.nodes[node].life != life {
            return;
        }
        let Some(process) = &mut self.nodes[node].process else {
            return;
        };
        if process.paused || process.wake_at.is_none_or(|at| at > now) {
            return;
        }
        process.wake_at = None;
        if process.engine.deadline(mono).is_some_and(|d| d <= mono) {
            self.feed(node, Input::Tick);
        } else {
            self.rearm(node);
        }
    }

    fn rearm(&mut self, node: usize) {
        let mono = self.mono(node);
        let (now, life) = (self.now, self.nodes[node].life);
        let Some(process) = &mut self.nodes[node].process else {
            return;
        };
        if process.paused {
            return;
        }
        let Some(deadline) = process.engine.deadline(mono) else {
            return;
        };
        let overdue = deadline <= mono;
        process.idle_wakes = if overdue { process.idle_wakes + 1 } else { 0 };
        if process.idle_wakes > 100 {
            let name = self.nodes[node].name.clone();
            self.violate(
                "liveness",
                format!("{name}'s engine asks to be called at {deadline}, again and again, and it is {mono}"),
            );
            return;
        }
        // Timers fire late, now and then very late, never early.
        let late = if self.rng.permille(3) { self.rng.below(40 * MS) } else { self.rng.below(MS) };
        let process = self.nodes[node].process.as_mut().expect("it runs");
        let at = now + mono.until(deadline).as_nanos() as T + late.max(US);
        if process.wake_at.is_none_or(|planned| at < planned) {
            process.wake_at = Some(at);
            self.queue.push(at, Ev::Wake { node, life });
        }
    }

    /// One step of the engine, and everything it asks for.
    pub fn feed(&mut self, node: usize, input: Input) {
        let Some(input) = self.mutate_input(node, input) else {
            return;
        };
        let mono = self.mono(node);
        self.log(|w| format!("{} <- {input:?}", w.nodes[node].name));
        let second = self.now / SEC;
        let Some(process) = &mut self.nodes[node].process else {
            return;
        };
        note_listing(process, &input);
        if process.second != second {
            process.second = second;
            process.steps = 0;
        }
        process.steps += 1;
        self.stats.steps += 1;
        let steps = process.steps;
        let effects = process.engine.step(mono, input);
        self.trace.mix([self.now, node as u64, effects.len() as u64 + 1000 * u64::from(steps)]);
        if steps > 1500 + 300 * self.setup.addresses.len() as u32 {
            let name = self.nodes[node].name.clone();
            self.violate("liveness", format!("{name}'s engine took {steps} steps in one second"));
            return;
        }
        let life = self.nodes[node].life;
        for effect in effects {
            if self.nodes[node].life != life || self.violation.is_some() {
                return;
            }
            self.effect(node, effect);
        }
        self.rearm(node);
    }

    fn effect(&mut self, node: usize, effect: Effect) {
        self.log(|w| format!("{} -> {effect:?}", w.nodes[node].name));
        match effect {
            Effect::WriteLease(write) => {
                self.trace.mix([1, write.seq, write.content.announced.len() as u64]);
                self.send_lease(node, write);
            }
            Effect::DeleteLease => self.send_delete(node),
            Effect::Apply { id, op } => {
                self.check_apply(node, &op);
                let (now, life) = (self.now, self.nodes[node].life);
                let slow = if self.rng.permille(5) { 200 * MS } else { MS / 2 };
                let delay = self.rng.range(20 * US, slow);
                let process = self.nodes[node].process.as_mut().expect("it runs");
                let at = process.kernel_queue.max(now) + delay;
                process.kernel_queue = at;
                let ev = Ev::KernelOp { node, life, issued: now, id, op: Box::new(op) };
                self.queue.push(at, ev);
            }
            Effect::Announce { id, vip, index, .. } => self.announce(node, id, vip, index),
            Effect::WriteSlot { service, vip, interface } => self.send_slot(node, service, vip, interface),
            Effect::Event(_) => {}
            Effect::Relist(source) => {
                let after = self.rng.below(20 * MS);
                self.relist(node, source, after);
            }
            Effect::Exit => {
                self.check_exit(node);
                self.kill(node);
            }
        }
    }

    fn announce(&mut self, node: usize, id: u64, vip: Vip, index: IfIndex) {
        self.check_announce(node, vip, index);
        self.trace.mix([2, id, u64::from(index.0)]);
        let usable = self.nodes[node].kernel.usable(index);
        let result = if self.nodes[node].mute {
            Err("No buffer space available (os error 105)".to_owned())
        } else {
            Ok(())
        };
        if usable
            && result.is_ok()
            && let Some(segment) = self.nodes[node].segment_of(index)
        {
            for cache in &mut self.caches[segment] {
                cache.insert(vip, node);
            }
        }
        self.deliver(node, Channel::Answers, MS, Input::Announced { id, result });
    }

    pub fn kernel_op(&mut self, node: usize, life: u32, issued: T, id: u64, op: Op) {
        if self.nodes[node].life != life {
            return;
        }
        let Some(process) = &mut self.nodes[node].process else {
            return;
        };
        if process.paused {
            process.held_ops.push((issued, id, op));
            return;
        }
        let result = if self.now - issued > STALE_OP {
            Err("decided too long ago".to_owned())
        } else {
            self.kernel_apply(node, issued, op)
        };
        let delay = self.rng.below(MS);
        self.deliver(node, Channel::Answers, delay, Input::Applied { id, result });
    }

    /// Tells the process's netlink monitor, unless its socket overflows just now.
    pub fn monitor(&mut self, node: usize, input: Input) {
        if self.nodes[node].overrun {
            return;
        }
        let dumping = self.nodes[node].process.as_ref().is_some_and(|p| p.dumped || p.dumping);
        if dumping {
            let slow = if self.rng.permille(5) { 80 * MS } else { 2 * MS };
            let delay = self.rng.range(50 * US, slow);
            self.deliver(node, Channel::Monitor, delay, input);
        }
    }

    pub fn plan_dump(&mut self, node: usize, after: T) {
        let life = self.nodes[node].life;
        self.queue.push(self.now + after, Ev::Dump { node, life });
    }

    pub fn dump(&mut self, node: usize, life: u32) {
        if self.nodes[node].life != life || self.nodes[node].overrun {
            return;
        }
        let dump = self.nodes[node].kernel.dump();
        if let Some(process) = &mut self.nodes[node].process {
            process.dumping = true;
        }
        let delay = self.rng.range(MS, 10 * MS);
        self.deliver(node, Channel::Monitor, delay, Input::Kernel(dump));
    }
}

fn note_listing(process: &mut Process, input: &Input) {
    let source = match input {
        Input::Services(Update::All(_)) => Source::Services,
        Input::Groups(Update::All(_)) => Source::ServiceGroups,
        Input::Agents(Update::All(_)) => Source::NodeAgents,
        Input::Endpoints(Update::All(_)) => Source::EndpointSlices,
        Input::Nodes(Update::All(_)) => Source::Nodes,
        Input::Leases(Update::All(_)) => Source::Leases,
        Input::Kernel(_) => {
            process.dumped = true;
            Source::Kernel
        }
        _ => return,
    };
    process.listed.insert(source);
}
