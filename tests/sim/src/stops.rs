//! Processes and machines that stand still for a while, and go on.

use purelb_core::messages::Effect;

use crate::actions::ActionKind;
use crate::node::Frozen;
use crate::queue::{MS, SimEvent, T};
use crate::world::World;

impl World {
    pub fn pause(&mut self, node: usize) {
        if let Some(process) = &mut self.nodes[node].process {
            process.paused = true;
        }
    }

    /// What its process knows of its kernel may be old until then.
    pub fn blind(&mut self, node: usize, until: T) {
        let blind = &mut self.nodes[node].blind_until;
        *blind = until.max(*blind);
    }

    /// Stopped after a decision and before anything came of it.
    pub fn stall(&mut self, node: usize, wait: T, effects: Vec<Effect>) {
        self.log(|w| {
            format!("{} is stopped after a step with {} effects", w.nodes[node].name, effects.len())
        });
        self.disturb(node, self.now + wait);
        self.blind(node, self.now + wait + 500 * MS);
        self.pause(node);
        if let Some(process) = &mut self.nodes[node].process {
            process.held_effects = effects;
        }
        self.plan(wait, ActionKind::Resume(node));
    }

    /// What was begun goes on. Everything that queued up comes at once, in order per
    /// channel and in any order between channels.
    pub fn resume(&mut self, node: usize) {
        let life = self.nodes[node].life;
        if self.nodes[node].frozen.is_some() {
            return;
        }
        let Some(process) = &mut self.nodes[node].process else {
            return;
        };
        if !process.paused {
            return;
        }
        process.paused = false;
        process.wake_at = None;
        process.turn_planned = false;
        let ops = std::mem::take(&mut process.held_ops);
        let mut mail: Vec<_> = std::mem::take(&mut process.mail).into();
        let effects = std::mem::take(&mut process.held_effects);
        for (issued, id, op) in ops {
            let ev = SimEvent::KernelOp { node, life, issued, id, op: Box::new(op) };
            self.queue.push(self.now, ev);
        }
        let mut shuffled = Vec::with_capacity(mail.len());
        while !mail.is_empty() {
            let pick = self.rng.below(mail.len() as u64) as usize;
            let channel = mail[pick].0;
            let first = mail.iter().position(|(c, _)| *c == channel).expect("it was just picked");
            shuffled.push(mail.remove(first));
        }
        if let Some(process) = &mut self.nodes[node].process {
            process.mail = shuffled.into();
        }
        let reply = self.nodes[node].process.as_mut().and_then(|p| p.held_reply.take());
        if let Some(reply) = reply {
            self.queue.push(self.now, SimEvent::LeaseReply { node, life, reply: Box::new(reply) });
        }
        let answers = self.carry_out(node, effects);
        if self.nodes[node].life == life && self.violation.is_none() {
            self.step(node, answers);
            self.rearm(node);
            self.plan_turn(node);
        }
        self.plan_read(node);
        self.plan_fence_check(node);
    }

    /// The machine stands still: suspended (`clock_runs`), or a virtual one that its
    /// host stopped together with its clock.
    pub fn freeze(&mut self, node: usize, clock_runs: bool) {
        if self.nodes[node].frozen.is_some() || !self.nodes[node].powered {
            return;
        }
        self.nodes[node].frozen = Some(Frozen { since: self.now, clock_runs });
        self.pause(node);
        self.all_holdings_changed(node);
    }

    /// It goes on. What its kernel counts in ticks has not moved meanwhile.
    pub fn thaw(&mut self, node: usize) {
        let Some(frozen) = self.nodes[node].frozen.take() else {
            return;
        };
        let slept = self.now - frozen.since;
        self.log(|w| format!("{} goes on after {} ms", w.nodes[node].name, slept / MS));
        let n = &mut self.nodes[node];
        if !frozen.clock_runs {
            n.boot -= slept;
        }
        n.thawed = Some((self.now, !frozen.clock_runs));
        let mut ends = Vec::new();
        for addr in &mut n.kernel.addrs {
            if let Some(until) = &mut addr.valid_until {
                *until += slept;
                ends.push((addr.token, *until));
            }
        }
        for (token, until) in ends {
            self.plan_expiry(node, token, until);
        }
        self.all_holdings_changed(node);
        self.resume(node);
    }
}
