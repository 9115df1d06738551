//! The process around an engine: it carries effects out and brings answers back, as
//! the real adapters do, and can be stopped, killed and started again.

use purelb_core::Engine;
use purelb_core::config::EngineConfig;
use purelb_core::messages::{Command, Effect, FactsUpdate, Input, KernelChange, ShutdownMode, Source};
use purelb_core::segment::SightingKind;
use purelb_core::{IfIndex, InstanceId, Mono, Vip};

use crate::node::{Process, WATCHED};
use crate::queue::{Channel, MS, SEC, SimEvent, T, US};
use crate::setup::Batches;
use crate::wire::Station;
use crate::world::World;

/// Every so many steps an engine is asked what a look at everything would change.
const LOOK_AGAIN: u64 = 7;
/// Inputs of one turn, as in the driver.
const TURN: usize = 512;

impl World {
    pub fn start(&mut self, node: usize) {
        if self.nodes[node].runs() || !self.nodes[node].powered || !self.nodes[node].joined {
            return;
        }
        if self.nodes[node].legacy || self.nodes[node].frozen.is_some() {
            return;
        }
        if let Some(timers) = self.nodes[node].next_timers.take() {
            self.nodes[node].timers = timers;
        }
        self.nodes[node].life += 1;
        let life = self.nodes[node].life;
        let n = &self.nodes[node];
        let instance = InstanceId::new(&format!("{}.{life}", n.name)).expect("a valid instance id");
        let mut config = EngineConfig::new(n.name.clone(), instance.clone());
        config.timers = n.timers;
        config.draining.clone_from(&n.drain);
        config.detector.enabled = self.setup.detector;
        self.mutate_config(&mut config);
        let engine = Engine::new(config);
        self.log(|w| format!("{} starts as instance {life}", w.nodes[node].name));
        self.nodes[node].process = Some(Process::new(engine, instance, self.now));
        self.nodes[node].fence_from = None;
        let slow = self.slow_listing(node);
        for source in WATCHED {
            self.false_listing(node, source);
            let after = match slow {
                Some((which, long)) if which == source => long,
                _ => self.rng.below(80 * MS),
            };
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

    pub fn shut_down(&mut self, node: usize, how: ShutdownMode) {
        let since = format!("stopped-at-{}", self.now);
        self.command(node, Command::Shutdown { mode: how, since });
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
        process.mail.push_back((channel, input));
        self.plan_turn(node);
    }

    /// The task that owns the engine gets to run: at once, or after what else the
    /// machine has to do.
    pub fn plan_turn(&mut self, node: usize) {
        let (now, life) = (self.now, self.nodes[node].life);
        let Some(process) = &mut self.nodes[node].process else {
            return;
        };
        if process.paused || process.turn_planned || process.mail.is_empty() {
            return;
        }
        process.turn_planned = true;
        let longest = match (self.setup.batches, self.rng.below(100)) {
            (Batches::Single, _) => 1,
            (Batches::Moments, 0..90) => 200 * US,
            (Batches::Moments, _) => 5 * MS,
            (Batches::Heaps, 0..95) => 10 * MS,
            (Batches::Heaps, _) => 60 * MS,
        };
        let after = self.rng.below(longest);
        self.queue.push(now + after, SimEvent::Turn { node, life });
    }

    /// One turn, as the driver takes it: the deadline first, then commands, then what
    /// has arrived, all of it or a part.
    pub fn turn(&mut self, node: usize, life: u32) {
        if self.nodes[node].life != life {
            return;
        }
        let mono = self.mono(node);
        let Some(process) = &mut self.nodes[node].process else {
            return;
        };
        process.turn_planned = false;
        if process.paused {
            return;
        }
        if process.engine.deadline(mono).is_some_and(|d| d <= mono) {
            let inputs = self.tick_inputs(node);
            self.step(node, inputs);
        } else if let Some(first) = process.mail.iter().position(|(c, _)| *c == Channel::Commands) {
            let command = process.mail.remove(first).map(|(_, input)| input);
            let again = command == Some(Input::Command(Command::Resync));
            self.step(node, command.into_iter().collect());
            if again && self.nodes[node].life == life {
                WATCHED.into_iter().for_each(|source| self.relist(node, source, 0));
                self.plan_dump(node, MS);
            }
        } else {
            let most = process.mail.len().min(TURN);
            let count = match self.setup.batches {
                Batches::Single => 1,
                _ if self.rng.percent(70) => most,
                _ => self.rng.range(1, most as u64 + 1) as usize,
            };
            let Some(process) = &mut self.nodes[node].process else {
                return;
            };
            let inputs: Vec<Input> = process.mail.drain(..count.min(most)).map(|(_, input)| input).collect();
            self.step(node, inputs);
        }
        if self.nodes[node].life == life {
            self.plan_turn(node);
        }
    }

    /// The timer has fired: that is a step, as in the driver, whatever is due by now.
    pub fn wake(&mut self, node: usize, life: u32) {
        let now = self.now;
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
        let inputs = self.tick_inputs(node);
        self.step(node, inputs);
    }

    /// Sets the timer, a moment after the step: a picture may have been drawn meanwhile.
    pub fn rearm(&mut self, node: usize) {
        let drawing = if self.rng.percent(5) { self.rng.below(8 * MS) } else { 0 };
        let mono = self.mono(node) + std::time::Duration::from_nanos(drawing);
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
        let at = now + drawing + mono.until(deadline).as_nanos() as T + late.max(US);
        if process.wake_at.is_none_or(|planned| at < planned) {
            process.wake_at = Some(at);
            self.queue.push(at, SimEvent::DeadlineQueue { node, life });
        }
    }

    /// One step of the engine and everything it asks for; answers known at once are
    /// taken in at once.
    pub fn step(&mut self, node: usize, inputs: Vec<Input>) {
        let mut inputs: Vec<Input> =
            inputs.into_iter().filter_map(|input| self.mutate_input(node, input)).collect();
        let life = self.nodes[node].life;
        while !inputs.is_empty() {
            for input in &inputs {
                self.log(|w| format!("{} <- {input:?}", w.nodes[node].name));
                self.note_renewal(node, input);
            }
            let mono = self.mono(node);
            let second = self.now / SEC;
            let Some(process) = &mut self.nodes[node].process else {
                return;
            };
            inputs.iter().for_each(|input| note_listing(process, input));
            if process.second != second {
                process.second = second;
                process.steps = 0;
            }
            process.steps += 1;
            self.stats.steps += 1;
            let steps = process.steps;
            let effects = process.engine.step_all(mono, inputs.drain(..));
            // As the driver does: what is drawn anew next is what changed since.
            process.engine.snapshot(mono);
            // Looking at everything again costs several steps: done now and then. What an
            // input failed to touch stays wrong until something else touches it.
            let overlooked = self
                .stats
                .steps
                .is_multiple_of(LOOK_AGAIN)
                .then(|| process.engine.overlooked(mono))
                .flatten();
            self.trace.mix([self.now, node as u64, effects.len() as u64 + 1000 * u64::from(steps)]);
            if steps > 1500 + 300 * self.setup.addresses.len() as u32 {
                let name = self.nodes[node].name.clone();
                self.violate("liveness", format!("{name}'s engine took {steps} steps in one second"));
                return;
            }
            if let Some(overlooked) = overlooked {
                let name = self.nodes[node].name.clone();
                self.violate("overlooked", format!("{name}, had it looked at everything: {overlooked}"));
                return;
            }
            if let Some(wait) = process_of(self, node).and_then(|p| p.stall_next.take()) {
                self.stall(node, wait, effects);
                return;
            }
            inputs = self.carry_out(node, effects);
            if self.nodes[node].life != life || self.violation.is_some() {
                return;
            }
        }
        self.rearm(node);
    }

    /// Answers that are known at once come back.
    pub fn carry_out(&mut self, node: usize, effects: Vec<Effect>) -> Vec<Input> {
        let life = self.nodes[node].life;
        let mut answers = Vec::new();
        for effect in effects {
            if self.nodes[node].life != life || self.violation.is_some() {
                return Vec::new();
            }
            answers.extend(self.effect(node, effect));
        }
        answers
    }

    fn effect(&mut self, node: usize, effect: Effect) -> Option<Input> {
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
                let busy = self.nodes[node].busy_until;
                let process = self.nodes[node].process.as_mut().expect("it runs");
                let at = process.kernel_queue.max(now).max(busy) + delay;
                process.kernel_queue = at;
                let ev = SimEvent::KernelOp { node, life, issued: now, id, op: Box::new(op) };
                self.queue.push(at, ev);
            }
            Effect::Announce { id, vip, index, until, .. } => {
                return Some(self.announce(node, id, vip, index, until));
            }
            Effect::WriteSlot { service, vip, interface } => self.send_slot(node, service, vip, interface),
            // Slots are for people to read; here nobody does.
            Effect::ClearSlot { .. } | Effect::Event(_) | Effect::LeftBehind(_) => {}
            Effect::Listen(interfaces) => self.listen(node, &interfaces),
            Effect::Ask(question) => self.ask(node, question),
            Effect::Relist(source) => {
                let after = self.rng.below(20 * MS);
                self.relist(node, source, after);
            }
            Effect::Exit => {
                self.check_exit(node);
                self.kill(node);
            }
        }
        None
    }

    fn announce(&mut self, node: usize, id: u64, vip: Vip, index: IfIndex, until: Mono) -> Input {
        if self.mono(node) > until {
            return Input::Announced { id, result: Err("its moment has passed".to_owned()) };
        }
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
            self.claim_sent(segment, Station::Node(node), vip, SightingKind::Announcement);
        }
        Input::Announced { id, result }
    }

    pub fn kernel_op(&mut self, node: usize, life: u32, issued: T, id: u64, op: KernelChange) {
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
        let result = self.kernel_apply(node, issued, op);
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
        self.queue.push(self.now + after, SimEvent::Dump { node, life });
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

fn process_of(world: &mut World, node: usize) -> Option<&mut Process> {
    world.nodes[node].process.as_mut()
}

fn note_listing(process: &mut Process, input: &Input) {
    let source = match input {
        Input::Services(FactsUpdate::All(_)) => Source::Services,
        Input::Groups(FactsUpdate::All(_)) => Source::ServiceGroups,
        Input::Agents(FactsUpdate::All(_)) => Source::NodeAgents,
        Input::Endpoints(FactsUpdate::All(_)) => Source::EndpointSlices,
        Input::Nodes(FactsUpdate::All(_)) => Source::Nodes,
        Input::Leases(FactsUpdate::All(_)) => Source::Leases,
        Input::Kernel(_) => {
            process.dumped = true;
            Source::Kernel
        }
        _ => return,
    };
    process.listed.insert(source);
}
