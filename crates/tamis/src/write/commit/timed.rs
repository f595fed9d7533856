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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use crate::io::MemFs;
    use crate::observe::events::{Event, EventListener};
    use crate::{Options, WriteBatch, sync};

    #[derive(Default)]
    struct Explanations(Mutex<Vec<String>>);

    impl EventListener for Explanations {
        fn event(&self, event: &Event) {
            if let Event::SlowOperation(slow) = event {
                self.0.lock().unwrap().push(format!("{}: {}", slow.keyspace, slow.explanation));
            }
        }
    }

    #[test]
    fn a_slow_commit_is_explained_by_what_was_counted_meanwhile() {
        let told = Arc::new(Explanations::default());
        let options = Options {
            file_system: Some(Arc::new(MemFs::new())),
            slow_operation_threshold: Some(Duration::from_micros(1)),
            listeners: vec![told.clone()],
            ..Options::default()
        };
        let db = options.open("/db").unwrap();
        let mut batch = WriteBatch::new();
        batch.put("a", "1").delete("b");
        let (bytes, mut expected) = (batch.byte_len(), BTreeSet::new());
        for sync in [false, true] {
            let before = db.stats().write;
            // The commit within this one may be slow, too, and says the same.
            let timed = db.inner().begin_timed(&batch, bytes, sync, false);
            db.inner().write(batch.clone(), sync).unwrap();
            sync::thread::sleep(Duration::from_millis(1));
            db.inner().end_timed(timed);
            let log_bytes = (db.stats().write - before).log_bytes;
            let (synced, log_syncs) = if sync { (", synced", ", log_syncs 1") } else { ("", "") };
            expected.insert(format!(
                "default: 2 operations of {bytes} bytes{synced}; meanwhile, by all writers: \
                 writes 2, user_bytes {bytes}, log_bytes {log_bytes}{log_syncs}, groups 1"
            ));
        }
        db.close().unwrap();
        let told = told.0.lock().unwrap();
        let commits = told.iter().filter(|one| one.contains("meanwhile"));
        assert_eq!(commits.cloned().collect::<BTreeSet<_>>(), expected);
    }
}
