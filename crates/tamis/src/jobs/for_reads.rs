//! Read-triggered compactions.
//!
//! Policies look only at writes. A tree that they leave alone may keep several runs forever, and
//! every read pays for each. So reads accumulate a debt in bytes: about what a merge moves in the
//! time that runs beyond the first cost them. When the debt covers the bytes that the next step
//! towards a single run would rewrite, and nothing is being written, that step is taken and the
//! debt is paid. So a merge costs about what reads have already lost, and a tree of one run is left
//! alone.
//!
//! LevelDB does the same per table (a table with enough wasted seeks is merged down). Here the debt
//! is per keyspace, gets count, too, and writers have priority: nothing starts within [`IDLE_TIME`]
//! of a write, or while other work is running or due.
//!
//! # Threads and failures
//!
//! The [accounts](ReadDebts) are behind the `state` lock. Idle compaction threads check them at
//! least once a second. A debt is an estimate: a failed or lost merge leaves it unchanged, and no
//! answer depends on it.

use std::sync::Arc;
use std::time::Duration;

use tamis_policy::compaction::plan::{Plan, Reason, Work};

use crate::catalogue::keyspace::KeyspaceInner;
use crate::catalogue::scheduler::input_bytes;
use crate::catalogue::state::State;
use crate::options::{CompactionChoice, KeyspaceOptions};
use crate::session::Session;
use crate::sync;

/// Idle time before a read-triggered compaction.
const IDLE_TIME: Duration = Duration::from_secs(1);

/// Smaller debts are ignored: a few reads do not make a pattern.
const LEAST_DEBT: u64 = 4 << 20;

/// Reports whether the keyspace's runs may be merged for reads: not if it is configured to rewrite
/// little, to drop whole tables, or to have a shape that follows from the flushes alone.
fn wants(options: &KeyspaceOptions) -> bool {
    let joins = matches!(
        options.compaction,
        CompactionChoice::Leveling | CompactionChoice::LazyLeveling | CompactionChoice::Hybrid(_)
    );
    joins && options.read_compaction && options.auto_compaction && !options.deterministic
}

impl Session {
    /// Returns the next step towards a single run that a keyspace's reads have paid for. For
    /// compaction threads with no other work.
    pub(crate) fn next_for_reads(&self, state: &mut State) -> Option<(Arc<KeyspaceInner>, Plan)> {
        let no_writes = state.read_debts.idle_timer.has_lasted(self.visible(), sync::now(), IDLE_TIME);
        let idle = state.scheduler.is_idle();
        if self.background.is_paused() || self.gate.is_waiting() {
            return None;
        }
        for keyspace in state.scheduler.rounds.in_turn(state.catalogue.keyspaces()) {
            let shaping = keyspace.shaping.load();
            // A merge that met a full disk backs off. Without this, a debt that pays for several
            // merges would retry it at once.
            let aside = state.scheduler.is_aside(keyspace.id);
            // The same for all mapped tables.
            let scarce = keyspace.view.load().version.tables.first().is_some_and(|one| one.table.is_scarce());
            let debt = state.read_debts.of(keyspace.id).update(keyspace.reads.read(), scarce);
            if !wants(&shaping.options) || !no_writes || !idle || aside || debt < LEAST_DEBT {
                continue;
            }
            let view = keyspace.view.load();
            if view.version.runs.len() < 2 || !view.memtables.sealed.is_empty() {
                // Debt from before the runs were merged is cancelled.
                state.read_debts.of(keyspace.id).debt = 0;
                continue;
            }
            let shape = self.shape(state, &keyspace);
            let Some(mut plan) = shaping.policy.manual(&shape, None) else { continue };
            let price = if plan.work == Work::Merge {
                input_bytes(&keyspace, &plan, self.space.room.free())
            } else {
                0
            };
            if debt < price || self.lack_of_room(&keyspace, &plan, shape.room).is_some() {
                continue;
            }
            plan.reason = Reason::Reads;
            state.read_debts.of(keyspace.id).debt -= price;
            return Some((keyspace.clone(), plan));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::read_debts::PRICE_OF_PROBE;
    use crate::catalogue::read_debts::PRICE_OF_READ;
    use crate::catalogue::read_debts::PRICE_OF_SEARCH;
    use crate::catalogue::read_debts::PRICE_OF_STEP;
    use crate::catalogue::read_debts::ReadDebt;
    use crate::catalogue::read_debts::loss;
    use crate::error::StorageError;
    use crate::idle::IdleTimer;
    use crate::io::MemFs;
    use crate::maintenance::CompactionPause;
    use crate::observe::cost::ReadCost;
    use crate::{Db, Options};

    #[test]
    fn one_run_costs_nothing_and_each_further_one_its_price() {
        let reads = ReadCost { gets: 100, filter_probes: 100, scans: 10, seeks: 10, ..ReadCost::default() };
        assert_eq!(loss(reads, true), 0);
        let more = ReadCost { filter_probes: 500, false_positives: 3, seeks: 40, ..reads };
        let in_memory = 400 * PRICE_OF_PROBE + 33 * PRICE_OF_SEARCH;
        assert_eq!(loss(more, false), in_memory);
        assert_eq!(loss(more, true), in_memory + 33 * PRICE_OF_READ, "pages of mapped tables are read again");
        let half = ReadCost { block_reads: 20, io_reads: 10, ..more };
        assert_eq!(loss(half, false), in_memory + 16 * PRICE_OF_READ);
        let dead = ReadCost { tombstones_skipped: 50, versions_skipped: 7, ..reads };
        assert_eq!(loss(dead, false), 57 * PRICE_OF_STEP);
        // Gets that a memtable answers probe no filter.
        assert_eq!(loss(ReadCost { gets: 1000, ..reads }, false), 0);
    }

    #[test]
    fn a_debt_grows_by_what_is_new() {
        let mut account = ReadDebt::default();
        let at = |seeks| ReadCost { seeks, ..ReadCost::default() };
        assert_eq!(account.update(at(10), false), 10 * PRICE_OF_SEARCH);
        assert_eq!(account.update(at(10), false), 10 * PRICE_OF_SEARCH);
        account.debt -= 4 * PRICE_OF_SEARCH;
        assert_eq!(account.update(at(11), false), 7 * PRICE_OF_SEARCH);
    }

    #[test]
    fn a_write_resets_the_idle_timer() {
        let mut idle_timer = IdleTimer::seen(7, sync::now() - 2 * IDLE_TIME);
        let mut has_lasted = |written| idle_timer.has_lasted(written, sync::now(), IDLE_TIME);
        assert!(has_lasted(7));
        assert!(!has_lasted(8));
        assert!(!has_lasted(8));
    }

    /// Builds three runs that the policy leaves alone, and reads until the debt covers rewriting
    /// them. Compaction is paused from before the reads on.
    fn read_often(read_compaction: bool) -> (Db, CompactionPause) {
        let keyspace = KeyspaceOptions { read_compaction, ..KeyspaceOptions::default() };
        let fs: Option<Arc<dyn crate::io::FileSystem>> = Some(Arc::new(MemFs::new()));
        let db = Options { keyspace, file_system: fs, ..Options::default() }.open("/db").unwrap();
        for run in 0..3u32 {
            for key in 0..100u32 {
                db.put((key * 3 + run).to_be_bytes(), b"value").unwrap();
            }
            db.flush().unwrap();
        }
        db.wait_for_compaction().unwrap();
        assert_eq!(runs(&db), 3);
        let pause = db.pause_compaction();
        for i in 0..LEAST_DEBT / PRICE_OF_SEARCH {
            let mut found = db.range((i as u32 % 300).to_be_bytes()..);
            assert!(found.next().is_none_or(|item| item.is_ok()));
        }
        (db, pause)
    }

    fn runs(db: &Db) -> usize {
        db.stats().keyspaces[0].runs
    }

    fn next(db: &Db, no_writes: bool) -> Option<Plan> {
        let mut state = db.inner().state();
        if no_writes {
            state.read_debts.idle_timer = IdleTimer::seen(db.inner().visible(), sync::now() - IDLE_TIME);
        }
        db.inner().next_for_reads(&mut state).map(|(_, plan)| plan)
    }

    #[test]
    fn runs_that_reads_paid_for_are_merged_into_one() {
        let (db, pause) = read_often(true);
        assert!(next(&db, true).is_none(), "paused");
        drop(pause);
        let deadline = sync::now() + Duration::from_secs(60);
        while runs(&db) > 1 && sync::now() < deadline {
            sync::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(runs(&db), 1, "nothing was merged for reads within a minute");
        assert_eq!(db.iter().count(), 300);
        assert!(next(&db, true).is_none(), "one run is left alone");
    }

    #[test]
    fn the_option_disables_merging_for_reads() {
        let (db, pause) = read_often(false);
        drop(pause);
        assert!(next(&db, true).is_none());
        assert_eq!(runs(&db), 3);
    }

    /// Such a merge used to be retried without backoff as long as the debt paid for it.
    #[test]
    fn a_merge_that_failed_is_not_retried_at_once() {
        let (db, pause) = read_often(true);
        let id = *db.inner().state().catalogue.keyspaces().keys().next().unwrap();
        let error = StorageError::io("write", std::path::Path::new("x"), std::io::ErrorKind::Other.into());
        // For a minute.
        (0..7).for_each(|_| db.inner().state().scheduler.compaction_failed(id, &error, None));
        drop(pause);
        assert!(next(&db, true).is_none(), "set aside");
        let pause = db.pause_compaction();
        db.inner().state().scheduler.merged(id);
        drop(pause);
        let deadline = sync::now() + Duration::from_secs(60);
        while runs(&db) > 1 && sync::now() < deadline {
            sync::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(runs(&db), 1);
    }

    #[test]
    fn nothing_is_merged_for_reads_during_writes() {
        let (db, pause) = read_often(true);
        db.put(b"key", b"value").unwrap();
        // The first check notes the write, and the idle timer starts over.
        drop(pause);
        let mut state = db.inner().state();
        state.read_debts.idle_timer = IdleTimer::seen(db.inner().visible() - 1, sync::now() - IDLE_TIME);
        assert!(db.inner().next_for_reads(&mut state).is_none(), "written");
        state.read_debts.idle_timer = IdleTimer::seen(db.inner().visible(), sync::now() - IDLE_TIME);
        let (_, plan) = db.inner().next_for_reads(&mut state).expect("a step towards one run");
        assert_eq!((plan.reason, plan.inputs.len()), (Reason::Reads, 3));
    }
}
