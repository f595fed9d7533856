//! Commits that are timed: a sample, and every one that waits for a sync or where slow ones are to
//! be reported.

use std::time::Instant;

use tamis_base::ids::KeyspaceId;

use crate::batch::WriteBatch;
use crate::observe::Explained;
use crate::observe::latency::Operation;
use crate::observe::write_counters::WriteCost;
use crate::session::Session;
use crate::sync;

/// A commit that is timed.
#[derive(Debug)]
pub(super) struct Timed {
    kind: Operation,
    started: Instant,
    /// What is told of it if it is slow, where that is asked for.
    about: Option<Box<About>>,
}

#[derive(Debug)]
struct About {
    operations: usize,
    bytes: usize,
    synced: bool,
    keyspace: Option<KeyspaceId>,
    /// The counters of all writers when it began.
    before: WriteCost,
}

impl Session {
    #[cold]
    #[inline(never)]
    pub(super) fn begin_timed(
        &self,
        batch: &WriteBatch,
        bytes: usize,
        synced: bool,
        is_judged: bool,
    ) -> Timed {
        let kind = if synced || is_judged { Operation::GroupWrite } else { Operation::Write };
        let about = || {
            Box::new(About {
                operations: batch.len(),
                bytes,
                synced,
                keyspace: batch.keyspaces().first().copied(),
                before: self.observed.write_counters.read(),
            })
        };
        let about = self.observed.observer.times_all().then(about);
        Timed { kind, about, started: sync::now() }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn end_timed(&self, Timed { kind, started, about }: Timed) {
        self.observed.observer.timed(kind, started, || {
            let Some(about) = about else { return Explained::default() };
            let cost = self.observed.write_counters.read() - about.before;
            let meanwhile = cost.fields().filter(|(_, count)| *count > 0);
            let meanwhile: Vec<String> = meanwhile.map(|(name, count)| format!("{name} {count}")).collect();
            let directory = self.keyspaces.directory.load();
            let keyspace = about.keyspace.and_then(|id| directory.get(&id));
            Explained {
                keyspace: keyspace.map_or_else(String::new, |keyspace| keyspace.name().to_owned()),
                key: None,
                explanation: format!(
                    "{} operations of {} bytes{}; meanwhile, by all writers: {}",
                    about.operations,
                    about.bytes,
                    if about.synced { ", synced" } else { "" },
                    meanwhile.join(", ")
                ),
            }
        });
    }
}
