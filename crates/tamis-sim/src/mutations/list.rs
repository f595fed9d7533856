//! The bugs, as replacements in the source.

/// A bug, as replacements in the source.
pub struct Mutation {
    /// Its name.
    pub name: &'static str,
    /// What is wrong.
    pub story: &'static str,
    /// The replacements.
    pub edits: &'static [Edit],
}

/// A replacement of a text that is there once.
pub struct Edit {
    /// The file.
    pub file: &'static str,
    /// The text.
    pub find: &'static str,
    /// The other text.
    pub replace: &'static str,
}

/// Bugs for the simulation of clients to find.
pub const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "gaps-not-cut",
        story: "a value that is written among deleted keys does not cut the gap that iterators jump over",
        edits: &[Edit {
            file: "crates/tamis/src/write/commit.rs",
            find: r#"view.gaps.written(batch.ops().filter_map(|op| live_key(&op.ok()?, id)));"#,
            replace: r#"view.gaps.written(batch.ops().filter_map(|op| live_key(&op.ok()?, id)).take(0));"#,
        }],
    },
    Mutation {
        name: "climb-too-high",
        story: "an iterator that moves backwards takes the newest of many versions, whatever its snapshot",
        edits: &[Edit {
            file: "crates/tamis/src/read/iter/resolve.rs",
            find: r#"cursor.climb(key, snapshot)?;"#,
            replace: r#"cursor.climb(key, (1 << 56) - 1)?;"#,
        }],
    },
    Mutation {
        name: "back-to-the-edge",
        story: "a run that passes versions seeks from the first block that has any, and stops at its edge: an iteration never ends",
        edits: &[
            Edit {
                file: "crates/tamis/src/read/run_cursor.rs",
                find: r#"cursor.pass(key, seq)?;"#,
                replace: r#"cursor.seek(key, seq)?;"#,
            },
            Edit {
                file: "crates/tamis-files/src/table/cursor.rs",
                find: r#"if self.defers && !self.ends_with(key)? {"#,
                replace: r#"if self.defers && index.behind_all_of(block.index, key) <= block.index + 1 {"#,
            },
        ],
    },
    Mutation {
        name: "only-in-its-run",
        story: "an iterator that moves backwards returns a version without a look at the other runs",
        edits: &[Edit {
            file: "crates/tamis/src/read/merge.rs",
            find: r#"self.heap[0].rank < self.runner_up && run.current().begins_key()"#,
            replace: r#"run.current().begins_key()"#,
        }],
    },
    Mutation {
        name: "seek-moves-too-little",
        story: "a seek forwards leaves runs where they are that have keys before",
        edits: &[Edit {
            file: "crates/tamis/src/read/merge.rs",
            find: r#"(*source.key() < *key ||"#,
            replace: r#"(prefix_of(source.key()) < prefix_of(key) ||"#,
        }],
    },
    Mutation {
        name: "read-only-moments",
        story: "a read-only opening does not check whether the manifest has changed meanwhile",
        edits: &[Edit {
            file: "crates/tamis/src/open/beside.rs",
            find: r#"mark(&*fs, dir) == before"#,
            replace: r#"mark(&*fs, dir).is_some()"#,
        }],
    },
    Mutation {
        name: "images-too-late",
        story: "an image counts as having the keys of flushes that are not published yet",
        edits: &[Edit {
            file: "crates/tamis/src/select/global/saved.rs",
            find: r#"let unpublished = self.unpublished.lock().iter().copied().min();"#,
            replace: r#"let unpublished: Option<Epoch> = None;"#,
        }],
    },
    Mutation {
        name: "edit-after-failure",
        story: "a failed edit changes the tree in memory, and later edits build on it",
        edits: &[Edit {
            file: "crates/tamis/src/catalogue/mod.rs",
            find: r#"        if let Err(error) = manifest.append(&edit) {"#,
            replace: r#"        self.tree = tree.clone();
        let manifest = self.manifest.as_mut().expect("a writable database has a manifest");
        if let Err(error) = manifest.append(&edit) {"#,
        }],
    },
    Mutation {
        name: "missing-log",
        story: "a log does not name its successor",
        edits: &[Edit {
            file: "crates/tamis/src/log.rs",
            find: r#"old.finish(Some(id));"#,
            replace: r#"old.finish(None);"#,
        }],
    },
    Mutation {
        name: "sync-forgotten",
        story: "a synced write is acknowledged without a sync",
        edits: &[Edit {
            file: "crates/tamis/src/write/commit.rs",
            find: r#"        if sync {
"#,
            replace: r#"        if sync && count == 0 {
"#,
        }],
    },
    Mutation {
        name: "visible-too-early",
        story: "a write is visible before it is in the memtable",
        edits: &[Edit {
            file: "crates/tamis/src/write/commit.rs",
            find: r#"        targets.insert(batch, value, in_log, last - count);
        self.check_inserted(batch)?;
        self.note_deletes(&targets);
        in_flight.land(last)?;"#,
            replace: r#"        in_flight.land(last)?;
        sync::point();
        targets.insert(batch, value, in_log, last - count);"#,
        }],
    },
    Mutation {
        name: "visible-out-of-turn",
        story: "a write is visible before one ahead of it in the log is in the memtable",
        edits: &[Edit {
            file: "crates/tamis/src/session/committer.rs",
            find: r#"self.turns.finish(ticket, last, |last| self.publish(last));"#,
            replace: r#"self.turns.finish(ticket, last, |_| ());
        self.publish(self.visible_seq.load(Ordering::SeqCst).max(last));"#,
        }],
    },
    Mutation {
        name: "sealed-in-flight",
        story: "a memtable is sealed while a write to it is in flight",
        edits: &[Edit {
            file: "crates/tamis/src/write/commit.rs",
            find: r#"if !self.wait_for_flights(log) {"#,
            replace: r#"if false {"#,
        }],
    },
    Mutation {
        name: "edit-unsynced",
        story: "an edit of the manifest is not synced",
        edits: &[Edit {
            file: "crates/tamis-files/src/tree/manifest.rs",
            find: r#"        self.log.append(&[&self.buf])?;
        self.log.sync()?;"#,
            replace: r#"        self.log.append(&[&self.buf])?;"#,
        }],
    },
    Mutation {
        name: "name-unsynced",
        story: "the names of new tables are not synced",
        edits: &[Edit {
            file: "crates/tamis/src/tree/new_tables.rs",
            find: r#"        fs.sync_dir(&self.dir).map_err(|e| StorageError::io("sync", &self.dir, e))?;
"#,
            replace: "",
        }],
    },
    Mutation {
        name: "snapshots-forgotten",
        story: "merges and flushes ignore snapshots",
        edits: &[Edit {
            file: "crates/tamis/src/session/mod.rs",
            find: r#"self.snapshots.lock().numbers()"#,
            replace: r#"Vec::new()"#,
        }],
    },
    Mutation {
        name: "sequence-before-view",
        story: "a read takes its sequence number before its view",
        edits: &[
            Edit {
                file: "crates/tamis/src/session/mod.rs",
                find: r#"        let mut view = keyspace.view.load();"#,
                replace: r#"        let early = self.visible();
        crate::sync::point();
        let mut view = keyspace.view.load();"#,
            },
            Edit {
                file: "crates/tamis/src/session/mod.rs",
                find: r#"break (live_from(expired), self.visible());"#,
                replace: r#"break (live_from(expired), early);"#,
            },
        ],
    },
    Mutation {
        name: "older-logs-unsynced",
        story: "a sync leaves out logs that were rolled and not synced",
        edits: &[Edit {
            file: "crates/tamis/src/log.rs",
            find: r#"        self.sync_rolled()?;
        if log.dirty {"#,
            replace: r#"        if log.dirty {"#,
        }],
    },
    Mutation {
        name: "floor-too-high",
        story: "logs of memtables that wait for their flush are dropped",
        edits: &[Edit {
            file: "crates/tamis/src/jobs/flush.rs",
            find: r#"slot.first_log.load(Relaxed)).min()"#,
            replace: r#"slot.first_log.load(Relaxed)).max()"#,
        }],
    },
    Mutation {
        name: "flush-across-keyspaces",
        story: "a flush survives a power cut that earlier writes of another keyspace do not",
        edits: &[Edit {
            file: "crates/tamis/src/jobs/flush.rs",
            find: r#"if self.keyspaces.directory.load().len() > 1 ||"#,
            replace: r#"if self.keyspaces.directory.load().len() > 1000 ||"#,
        }],
    },
    Mutation {
        name: "linked-log-reused",
        story: "a log that a checkpoint shares is overwritten",
        edits: &[Edit {
            file: "crates/tamis/src/log.rs",
            find: r#"if !log.keep && self.may_recycle"#,
            replace: r#"if self.may_recycle"#,
        }],
    },
    Mutation {
        name: "log-with-values-reused",
        story: "a log is overwritten while memtables or tables refer to values in it",
        edits: &[Edit {
            file: "crates/tamis/src/log.rs",
            find: r#"            && !log.has_values"#,
            replace: r#"            && (!log.has_values || log.id > 0)"#,
        }],
    },
    Mutation {
        name: "values-of-a-group-in-one-place",
        story: "the values of a group's batches are looked for where the first one's are",
        edits: &[Edit {
            file: "crates/tamis/src/write/commit.rs",
            find: r#"place.offset += batch.byte_len() as u64;"#,
            replace: r#"place.offset += 0;"#,
        }],
    },
    Mutation {
        name: "followers-always-succeed",
        story: "followers of a write group succeed although their leader failed",
        edits: &[Edit {
            file: "crates/tamis/src/session/committer.rs",
            find: r#"waiter.give(Turn::Done(result.clone()));"#,
            replace: r#"waiter.give(Turn::Done(Ok(())));"#,
        }],
    },
    Mutation {
        name: "changes-too-early",
        story: "a reader of durable changes sees what a power failure may still take",
        edits: &[Edit {
            file: "crates/tamis/src/handles/changes.rs",
            find: r#"true => db.visible().min(db.log.durable()),"#,
            replace: r#"true => db.visible(),"#,
        }],
    },
    Mutation {
        name: "follower-of-an-old-manifest",
        story: "a follower shows the logs with a manifest that has been replaced meanwhile",
        edits: &[Edit {
            file: "crates/tamis/src/open/follow.rs",
            find: r#"let done = is_whole && !is_newer;"#,
            replace: r#"let done = is_whole;"#,
        }],
    },
    Mutation {
        name: "small-tables-pile-up",
        story: "tables that overlap nothing are moved and never joined",
        edits: &[Edit {
            file: "crates/tamis-policy/src/compaction/policy/small.rs",
            find: r#"if count <= self.most(bytes, 0) {"#,
            replace: r#"if count > 0 {"#,
        }],
    },
    Mutation {
        name: "stop-for-good",
        story: "writers stall on a level 0 that is never compacted",
        edits: &[Edit {
            file: "crates/tamis/src/catalogue/pressure.rs",
            find: r#"            Pressure::Slowdown(1.0)
        }"#,
            replace: r#"            Pressure::Stop
        }"#,
        }],
    },
    Mutation {
        name: "removed-when-idle",
        story: "obsolete files are removed only when nothing is to be flushed or merged",
        edits: &[
            Edit {
                file: "crates/tamis/src/jobs/loops.rs",
                find: r#"                // Not when there is nothing to flush: that may never be.
                db.remove_obsolete();
"#,
                replace: "",
            },
            Edit {
                file: "crates/tamis/src/jobs/compact.rs",
                find: r#"        self.files.garbage.remove_all(&*self.fs);
"#,
                replace: "",
            },
        ],
    },
    Mutation {
        name: "record-of-an-old-run",
        story: "a flush leaves the cached records of its keys",
        edits: &[Edit {
            file: "crates/tamis/src/jobs/flush.rs",
            find: r#"pass.forget(Digest::of(cursor.key()));"#,
            replace: r#"let _ = Digest::of(cursor.key());"#,
        }],
    },
    Mutation {
        name: "record-of-the-future",
        story: "a snapshot reads a cached record that is newer",
        edits: &[Edit {
            file: "crates/tamis/src/records/cache.rs",
            find: r#" && record.seq <= sight.seq"#,
            replace: r#""#,
        }],
    },
    Mutation {
        name: "record-below-the-floor",
        story: "an ingestion leaves the cached records of its keys",
        edits: &[Edit {
            file: "crates/tamis/src/records/cache.rs",
            find: r#"(sight.floor..=sight.edition).contains(&record.edition)"#,
            replace: r#"record.edition <= sight.edition"#,
        }],
    },
    Mutation {
        name: "record-of-another-keyspace",
        story: "a keyspace reads the cached records of others",
        edits: &[
            Edit {
                file: "crates/tamis/src/records/shard.rs",
                find: r#"(digest.get() >> 32) as u32 ^ keyspace.wrapping_mul(0x9e37_79b1)"#,
                replace: r#"(digest.get() >> 32) as u32 ^ (keyspace & 0)"#,
            },
            Edit {
                file: "crates/tamis/src/records/shard.rs",
                find: r#"header.keyspace == name.keyspace && "#,
                replace: r#""#,
            },
        ],
    },
    Mutation {
        name: "record-under-a-range-delete",
        story: "a cached record is returned although a range delete or its age hides it",
        edits: &[Edit {
            file: "crates/tamis/src/read/lookup.rs",
            find: r#"cover if cover > seq => Lookup::DeletedByRange { seq: cover },
            _ => Lookup::Found"#,
            replace: r#"cover if cover == SeqNo::MAX => Lookup::DeletedByRange { seq: cover },
            _ => Lookup::Found"#,
        }],
    },
    Mutation {
        name: "record-from-an-old-view",
        story: "a reader adds what it found in an old version after a flush has removed the key",
        edits: &[Edit {
            file: "crates/tamis/src/records/gate.rs",
            find: r#"self.passes.load(Acquire) == 0 && self.since.load(Relaxed) <= edition"#,
            replace: r#"self.passes.load(Acquire) < 99 || self.since.load(Relaxed) <= edition"#,
        }],
    },
];

/// Bugs of transactions, for [`transactions`](crate::transactions) to find.
pub const OF_TRANSACTIONS: &[Mutation] = &[
    Mutation {
        name: "kept-too-late",
        story: "a flushed memtable is kept only after it left the view",
        edits: &[
            Edit {
                file: "crates/tamis/src/jobs/flush.rs",
                find: r#"        self.keep_for_transactions(keyspace, slots);
"#,
                replace: "",
            },
            Edit {
                file: "crates/tamis/src/jobs/flush.rs",
                find: r#"        // Under the lock, so that the next image includes this flush.
"#,
                replace: r#"        sync::point();
        self.keep_for_transactions(keyspace, slots);
"#,
            },
        ],
    },
    Mutation {
        name: "history-before-view",
        story: "what is kept is asked for before the view",
        edits: &[Edit {
            file: "crates/tamis/src/write/judge.rs",
            find: r#"        let view = part.keyspace.view.load();
"#,
            replace: r#"        let early = self.transactions.history.since(part.keyspace.id, part.since, |_| {});
        crate::sync::point();
        let view = part.keyspace.view.load();
        if early.is_some_and(|kept| kept.is_empty()) {
            let met = view.memtables.iter().find_map(|slot| part.meets_memtable(&slot.memtable));
            return met.map_or(Ok(()), |key| Err(conflict(part, key)));
        }
"#,
        }],
    },
    Mutation {
        name: "judged-up-to-now",
        story: "what was judged ahead of the lock is taken for judged up to the moment of its end",
        edits: &[Edit {
            file: "crates/tamis/src/write/judge.rs",
            find: r#"            part.since = seen;"#,
            replace: r#"            crate::sync::point();
            part.since = self.visible();"#,
        }],
    },
    Mutation {
        name: "group-not-compared",
        story: "a transaction is not compared with the batches before it in its group",
        edits: &[Edit {
            file: "crates/tamis/src/write/judge.rs",
            find: r#"        if let Some((part, key)) = met {
            return Err(conflict(part, key));
        }"#,
            replace: r#"        let _ = met;"#,
        }],
    },
    Mutation {
        name: "floor-forgotten",
        story: "memtables beyond the limit are forgotten without a trace",
        edits: &[Edit {
            file: "crates/tamis/src/conflicts/history.rs",
            find: r#"is_some_and(|floor| *floor > since)"#,
            replace: r#"is_some_and(|floor| *floor > since && since == SeqNo::MAX)"#,
        }],
    },
];
