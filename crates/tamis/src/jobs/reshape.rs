//! Changing a keyspace's options while it is in use.
//!
//! The options that concern the tree's shape are in a [`Shaping`], which is replaced as a whole. A
//! policy accepts any shape, so the next compaction simply follows the new policy. Only a
//! deterministic policy is not replaced in the middle of a compaction round, since its shape is a
//! function of the round's flushes: the new policy waits until the compaction that ends the round
//! is published.
//!
//! # Threads and failures
//!
//! [`Reshaping`](crate::catalogue::reshaping::Reshaping) is behind the `state` lock, which also
//! guards the replacement; readers load a [`Shaping`] without a lock. A change takes effect only
//! after the edit that stores it. If that fails, the options stay as they were, in memory and on
//! disk.

use std::sync::Arc;

use tamis_files::tree::edit::VersionEdit;
use tamis_policy::compaction::plan::Plan;

use crate::catalogue::keyspace::KeyspaceInner;
use crate::catalogue::shaping::Shaping;
use crate::catalogue::state::State;
use crate::error::{AdminError, OptionsError};
use crate::session::Session;

/// The options that may change while a keyspace is in use.
pub(crate) const CHANGEABLE: &[&str] = &[
    "auto_compaction",
    "read_compaction",
    "compaction",
    "merge",
    "picker",
    "deterministic",
    "size_ratio",
    "table_bytes",
    "level0_runs",
    "slowdown_runs",
    "stop_runs",
    "slowdown_debt_bytes",
    "retain_bytes",
    "time_window",
    "filter",
    "bits_per_key",
    "filter_allocation",
    "filter_range",
    "blob_threshold",
    "blob_garbage",
    "blob_file_bytes",
];

impl Session {
    /// Changes options of a keyspace, all or none.
    pub(crate) fn set_options(
        &self,
        keyspace: &KeyspaceInner,
        changes: &[(&str, &str)],
    ) -> Result<(), AdminError> {
        self.check_ready()?;
        let mut state = self.state();
        // A policy that drops data pins views for snapshots. A snapshot taken under the next policy
        // pins none, so it must not see tables that are still being dropped.
        let drops =
            |state: &State| state.scheduler.running(keyspace.id).iter().any(|job| job.progress.drops());
        while drops(&state) {
            state = self.monitor.wait(state);
        }
        let waiting = state.reshaping.waiting(keyspace.id).cloned();
        let current = keyspace.shaping.load_full();
        let mut options = waiting.as_ref().unwrap_or(&current).options.clone();
        for (name, value) in changes {
            options.set(name, value)?;
            if !CHANGEABLE.contains(name) {
                return Err(OptionsError::Fixed { name: (*name).to_owned() }.into());
            }
        }
        options.check()?;
        if options.filter.of_tree() != current.options.filter.of_tree() {
            // The source of the versions' selectors is fixed at opening.
            return Err(OptionsError::Fixed { name: "filter".to_owned() }.into());
        }
        if keyspace.is_dropped() {
            return Err(AdminError::NoKeyspace { name: keyspace.name().to_owned() });
        }
        let stored = state.reshaping.to_store(keyspace.id, &options);
        let edit =
            VersionEdit { set_options: vec![(keyspace.id, stored.to_text())], ..VersionEdit::default() };
        self.commit_without_tables(&mut state, edit)?;
        let next = Arc::new(Shaping::new(options));
        if current.options.deterministic && !keyspace.view.load().version.runs.is_empty() {
            state.reshaping.of(keyspace.id).waiting = Some(next);
        } else {
            self.put_into_effect(&mut state, keyspace, next);
        }
        drop(state);
        self.monitor.notify();
        Ok(())
    }

    /// Reports whether the options that wait for the end of a compaction round take effect once
    /// `plan` is published. Called before that.
    pub(crate) fn round_ends(&self, state: &State, keyspace: &KeyspaceInner, plan: &Plan) -> bool {
        state.reshaping.waiting(keyspace.id).is_some()
            && keyspace.shaping.load().policy.ends_round(&self.shape(state, keyspace), plan)
    }

    /// Puts waiting options into effect, if there are any.
    pub(crate) fn begin_round(&self, state: &mut State, keyspace: &KeyspaceInner) {
        if let Some(next) = state.reshaping.of(keyspace.id).waiting.take() {
            log::info!("keyspace {}: {} from now on", keyspace.name(), next.policy.name());
            self.put_into_effect(state, keyspace, next);
        }
    }

    fn put_into_effect(&self, state: &mut State, keyspace: &KeyspaceInner, next: Arc<Shaping>) {
        let allocation = next.options.filter_allocation;
        let before = keyspace.shaping.swap(next).options.filter_allocation;
        if allocation != before && keyspace.filter.accesses().is_some() {
            // The selector determines whether gets are counted.
            state.catalogue.publish_selector(keyspace);
        }
        // Before live snapshots are told: later snapshots see the new policy.
        state.catalogue.policy_changed(keyspace.id);
        state.scheduler.note_change(keyspace.id);
        self.update_pressure(state, keyspace);
        self.hold_for_snapshots(keyspace);
    }
}
