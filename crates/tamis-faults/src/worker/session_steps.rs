//! The steps of a session, in order. Each is tried whatever the result of the preceding ones; the
//! database is reopened if closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use super::session::Session;
use crate::inject::Injector;
use crate::oracle::{Space, Way};
use crate::turns;
use crate::wire::{Message, tell};

/// A step: its name, which plans of kills refer to, and its code.
type Step = (&'static str, fn(&mut Session));

/// The steps. A kill may happen at every call in them that changes a file.
const STEPS: [Step; 16] = [
    ("open", |session| {
        session.open();
    }),
    ("write", |session| {
        session.write(60, Way::Batch);
    }),
    ("flush", |session| ask(session, "flush", |db, _| db.flush())),
    ("rewrite", |session| {
        session.write(40, Way::Batch);
    }),
    ("compact", |session| {
        ask(session, "compact", |_, spaces| spaces.iter().try_for_each(|keyspace| keyspace.compact()));
    }),
    ("crowd", crowd),
    ("more", |session| {
        session.write(10, Way::Batch);
    }),
    ("checkpoint", Session::copy),
    ("ingest", |session| {
        session.write(2, Way::Ingestion);
    }),
    ("keyspaces", |session| ask(session, "keyspaces", passing_keyspace)),
    ("settle", |session| ask(session, "settle", |db, _| db.wait_for_compaction())),
    ("tail", |session| {
        session.write(8, Way::Batch);
    }),
    ("close", |session| {
        session.close();
    }),
    ("reopen", |session| {
        session.open();
    }),
    ("again", |session| {
        session.write(15, Way::Batch);
        session.copy();
        session.close();
    }),
    // Stays open: its remaining abilities are judged when nothing fails any more.
    ("last", |session| {
        session.write(10, Way::Batch);
    }),
];

/// Returns the names of all steps, which plans of kills refer to.
pub(crate) fn step_names() -> impl Iterator<Item = &'static str> {
    STEPS.iter().map(|(name, _)| *name)
}

/// Executes all steps; the readable contents are judged after each.
pub(super) fn all(session: &mut Session, injector: &Injector) {
    for (name, step) in STEPS {
        tell(&Message::Phase(name.to_owned()));
        injector.phase(name);
        step(session);
        let changes = injector.changes();
        tell(&Message::Count { what: format!("changes {name}"), count: changes });
        injector.phase("between");
        session.look();
    }
}

fn ask(
    session: &mut Session,
    what: &str,
    work: impl FnOnce(&tamis::Db, &[tamis::Keyspace]) -> Result<(), tamis::AdminError>,
) {
    if !session.open() {
        return;
    }
    let Some(spaces) = &session.spaces else { return };
    if let Err(error) = work(&spaces.db, &spaces.spaces) {
        session.failed(what, &error);
    }
}

/// Writes while other threads flush and compact, so that jobs end concurrently: the next one finds
/// what a failed one leaves behind.
fn crowd(session: &mut Session) {
    if !session.open() {
        return;
    }
    let Some(spaces) = &session.spaces else { return };
    let over = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for keyspace in &spaces.spaces {
        type Work = fn(&tamis::Keyspace) -> Result<(), tamis::AdminError>;
        let works: [Work; 2] = [|keyspace| keyspace.flush(), |keyspace| keyspace.compact()];
        for work in works {
            let (keyspace, over) = (keyspace.clone(), over.clone());
            threads.push(std::thread::spawn(move || {
                while !over.load(SeqCst) {
                    work(&keyspace)?;
                    std::thread::yield_now();
                }
                Ok::<(), tamis::AdminError>(())
            }));
        }
    }
    session.write(40, Way::Batch);
    over.store(true, SeqCst);
    for thread in threads {
        // A panic has already been reported where it happened.
        if let Ok(Err(error)) = thread.join() {
            session.failed("crowd", &error);
        }
    }
}

/// Creates and drops a keyspace, and changes the shape of a permanent one.
fn passing_keyspace(db: &tamis::Db, spaces: &[tamis::Keyspace]) -> Result<(), tamis::AdminError> {
    let keyspace = db.create_keyspace("passing", turns::keyspace(5, turns::Sizes::SESSION))?;
    for number in 0..30u64 {
        keyspace.put(number.to_be_bytes(), [7; 300])?;
    }
    keyspace.flush()?;
    db.drop_keyspace("passing")?;
    let wide = &spaces[Space::Wide as usize];
    match wide.set_options(&[("size_ratio", "3")]) {
        Err(tamis::AdminError::Options(_)) => Ok(()),
        other => other,
    }
}
