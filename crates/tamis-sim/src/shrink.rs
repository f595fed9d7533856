//! Shrinks a failing plan.
//!
//! Parts of the plan are removed, the largest first, as long as the rest still fails. Each attempt
//! runs in its own process, since a failed simulation leaves its threads behind and may abort.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::plan::{Op, Plan};

/// Returns the failure of a plan, if it fails.
pub fn failure_of(plan: &Plan) -> std::io::Result<Option<String>> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["replay", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let json = serde_json::to_vec(plan).map_err(std::io::Error::other)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A child that died early has reported why.
        let _ = stdin.write_all(&json);
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    Ok(Some(if text.trim().is_empty() { format!("{}: {errors}", output.status) } else { text }))
}

/// Returns the kind of a failure: its words up to the first detail, without numbers.
fn kind_of(failure: &str) -> String {
    let line = failure.lines().next().unwrap_or("");
    let what = line.rsplit_once("): ").map_or(line, |(_, what)| what);
    what.chars().filter(|c| !c.is_ascii_digit()).take(90).collect()
}

/// Returns the smallest failing plan found within the time limit, and its failure.
pub fn shrink(plan: Plan, limit: Duration) -> std::io::Result<(Plan, String)> {
    let Some(failure) = failure_of(&plan)? else {
        return Err(std::io::Error::other("the plan does not fail"));
    };
    let mut best = Best { plan, failure, deadline: Instant::now() + limit };
    loop {
        let before = best.plan.clone();
        best.sessions()?;
        best.clients()?;
        best.operations()?;
        best.faults()?;
        best.changes()?;
        best.copy()?;
        best.options()?;
        if best.plan == before || best.is_late() {
            return Ok((best.plan, best.failure));
        }
    }
}

struct Best {
    plan: Plan,
    failure: String,
    deadline: Instant,
}

impl Best {
    fn is_late(&self) -> bool {
        Instant::now() > self.deadline
    }

    /// Adopts the plan if it fails, with its own schedule or one of a few others.
    fn takes(&mut self, plan: Plan) -> std::io::Result<bool> {
        for shift in 0..3 {
            if self.is_late() {
                return Ok(false);
            }
            let plan = Plan { seed: plan.seed.wrapping_add(shift), ..plan.clone() };
            if let Some(failure) =
                failure_of(&plan)?.filter(|failure| kind_of(failure) == kind_of(&self.failure))
            {
                (self.plan, self.failure) = (plan, failure);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn sessions(&mut self) -> std::io::Result<()> {
        let mut at = self.plan.sessions.len();
        while at > 0 {
            at -= 1;
            let mut plan = self.plan.clone();
            plan.sessions.remove(at);
            self.takes(plan)?;
        }
        Ok(())
    }

    fn clients(&mut self) -> std::io::Result<()> {
        for session in 0..self.plan.sessions.len() {
            for client in 0..self.plan.sessions[session].clients.len() {
                let mut plan = self.plan.clone();
                if !std::mem::take(&mut plan.sessions[session].clients[client]).is_empty() {
                    self.takes(plan)?;
                }
            }
        }
        Ok(())
    }

    fn operations(&mut self) -> std::io::Result<()> {
        for session in 0..self.plan.sessions.len() {
            for client in 0..self.plan.sessions[session].clients.len() {
                self.in_pieces(|plan| &mut plan.sessions[session].clients[client])?;
            }
        }
        Ok(())
    }

    fn faults(&mut self) -> std::io::Result<()> {
        for session in 0..self.plan.sessions.len() {
            self.in_pieces(|plan| &mut plan.sessions[session].faults)?;
            self.in_pieces(|plan| &mut plan.sessions[session].listener)?;
        }
        Ok(())
    }

    fn copy(&mut self) -> std::io::Result<()> {
        if self.plan.copy.is_some() {
            self.takes(Plan { copy: None, ..self.plan.clone() })?;
        }
        Ok(())
    }

    fn options(&mut self) -> std::io::Result<()> {
        self.in_pieces(|plan| &mut plan.second)?;
        for at in 0..self.plan.others.len() {
            self.in_pieces(|plan| &mut plan.others[at])?;
        }
        for session in 0..self.plan.sessions.len() {
            self.in_pieces(|plan| &mut plan.sessions[session].options)?;
            self.in_pieces(|plan| &mut plan.sessions[session].second)?;
        }
        Ok(())
    }

    fn changes(&mut self) -> std::io::Result<()> {
        for session in 0..self.plan.sessions.len() {
            for client in 0..self.plan.sessions[session].clients.len() {
                for at in 0..self.plan.sessions[session].clients[client].len() {
                    if matches!(&self.plan.sessions[session].clients[client][at], Op::Write { changes, .. } if changes.len() > 1)
                    {
                        self.in_pieces(|plan| match &mut plan.sessions[session].clients[client][at] {
                            Op::Write { changes, .. } => changes,
                            other => unreachable!("{other:?} was a write"),
                        })?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Removes halves of a list, then quarters, and so on down to single parts.
    fn in_pieces<T>(&mut self, list: impl Fn(&mut Plan) -> &mut Vec<T>) -> std::io::Result<()> {
        let mut piece = list(&mut self.plan.clone()).len();
        while piece > 0 && !self.is_late() {
            let mut from = 0;
            while from < list(&mut self.plan.clone()).len() {
                let mut plan = self.plan.clone();
                let parts = list(&mut plan);
                let to = (from + piece).min(parts.len());
                parts.drain(from..to);
                if !self.takes(plan)? {
                    from += piece;
                }
            }
            piece /= 2;
        }
        Ok(())
    }
}
