use object_store::memory::InMemory;
use tamis::io::{MemFs, read_file, write_file_atomically};
use tamis::{Db, Options};

use super::*;
use crate::prune::Retention;
use crate::source::Source;
use crate::store::Transfer;

/// A database, its repository, and the file system of both caches.
struct World {
    fs: Arc<dyn FileSystem>,
    db: Db,
    repo: Repository,
}

impl World {
    fn new() -> World {
        let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new());
        let options = Options { file_system: Some(fs.clone()), ..Options::default() };
        let db = options.open("/db").unwrap();
        let repo = Repository::with_store(Arc::new(InMemory::new()), "", Transfer::default());
        World { fs, db, repo }
    }

    fn begin(&self, cache: &str, takeover: bool) -> Result<Uploader, Error> {
        let options = BackupOptions { cache: Some(cache.into()), takeover, ..BackupOptions::default() };
        Uploader::begin(&self.repo, self.fs.clone(), options)
    }

    /// Changes the database, and writes a state of it.
    fn write(&self, uploader: &mut Uploader) -> Result<Written, Error> {
        self.db.put("key", vec![uploader.base.number() as u8; 1000]).unwrap();
        self.db.flush().unwrap();
        uploader.write(&self.db.pin()?)
    }

    /// As a copy of the directory would.
    fn copy_cache(&self) {
        let bytes = read_file(&*self.fs, CACHE.as_ref()).unwrap();
        write_file_atomically(&*self.fs, COPY.as_ref(), &bytes).unwrap();
    }
}

const CACHE: &str = "/db/backup-cache.json";
const COPY: &str = "/db/copy-of-backup-cache.json";

fn is_refused<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::AnotherWriter { .. }))
}

#[test]
fn what_a_long_session_has_sent_can_be_pruned() {
    for (span, all_goes) in [(Duration::from_secs(3600), false), (Duration::ZERO, true)] {
        let world = World::new();
        let mut uploader = world.begin(CACHE, false).unwrap();
        uploader.session_span = span;
        for _ in 0..8 {
            world.write(&mut uploader).unwrap();
            world.db.compact().unwrap();
        }
        world.write(&mut uploader).unwrap();
        let retention = Retention { grace: Duration::ZERO, ..Retention::default() };
        world.repo.prune(&retention).unwrap();
        let newest = world.repo.newest().unwrap().unwrap();
        let needed: std::collections::HashSet<_> = newest.objects().map(|piece| &piece.object).collect();
        let mut there = 0;
        for under in ["files", "parts", "lists"] {
            there += world.repo.store.list(under, None).unwrap().len();
        }
        assert_eq!(there == needed.len(), all_goes, "{there} objects, {} needed", needed.len());
        assert!(world.repo.verify(&newest, false, None).unwrap().problems.is_empty());
        assert_eq!(world.repo.store.list("sessions", None).unwrap().len(), 1);
        uploader.end().unwrap();
        assert!(world.repo.store.list("sessions", None).unwrap().is_empty());
        // The runs of all sessions are known: the next process continues.
        let mut next = world.begin(CACHE, false).unwrap();
        world.write(&mut next).unwrap();
    }
}

#[test]
fn a_takeover_is_made_once() {
    let world = World::new();
    let mut first = world.begin(CACHE, false).unwrap();
    world.write(&mut first).unwrap();
    let mut second = world.begin("/db/second", true).unwrap();
    world.write(&mut second).unwrap();
    // After a failure, while nobody else has written, it goes on.
    second.renew().unwrap();
    world.write(&mut second).unwrap();
    let mut third = world.begin("/db/third", true).unwrap();
    world.write(&mut third).unwrap();
    assert!(is_refused(world.write(&mut second)));
    assert!(is_refused(second.renew()));
    world.write(&mut third).unwrap();
    assert_eq!(world.repo.newest().unwrap().unwrap().epoch, 2);
}

#[test]
fn a_takeover_whose_answer_was_lost_is_not_made_again() {
    let world = World::new();
    let mut first = world.begin(CACHE, true).unwrap();
    let mut second = world.begin(CACHE, false).unwrap();
    world.write(&mut second).unwrap();
    first.renew().unwrap();
    assert!(!first.options.takeover);
}

#[test]
fn of_a_directory_and_its_copy_one_keeps_the_repository() {
    let world = World::new();
    let mut uploader = world.begin(CACHE, false).unwrap();
    world.write(&mut uploader).unwrap();
    uploader.end().unwrap();
    world.copy_cache();
    let mut copy = world.begin(COPY, false).unwrap();
    world.write(&mut copy).unwrap();
    copy.end().unwrap();
    assert!(is_refused(world.begin(CACHE, false)));
    // Until it takes over: then the copy is refused.
    let mut original = world.begin(CACHE, true).unwrap();
    world.write(&mut original).unwrap();
    original.end().unwrap();
    world.begin(CACHE, false).unwrap().end().unwrap();
    assert!(is_refused(world.begin(COPY, false)));
    let states = world.repo.states().unwrap();
    let epochs: Vec<_> = states.iter().map(|state| world.repo.state(state.number).unwrap().epoch).collect();
    assert_eq!(epochs, [0, 0, 1]);
}

#[test]
fn a_copy_that_is_made_during_an_upload_is_told_apart() {
    let world = World::new();
    let mut uploader = world.begin(CACHE, false).unwrap();
    world.write(&mut uploader).unwrap();
    // With the session, which lives.
    world.copy_cache();
    let mut copy = world.begin(COPY, false).unwrap();
    assert_eq!(copy.session.id, uploader.session.id);
    world.write(&mut copy).unwrap();
    assert!(matches!(world.write(&mut uploader), Err(Error::Superseded { .. })));
    assert!(is_refused(uploader.renew()));
    drop(uploader);
    let uploader = world.begin(CACHE, true).unwrap();
    assert_ne!(copy.session.id, uploader.session.id);
}

#[test]
fn a_copy_of_an_earlier_run_is_refused() {
    let world = World::new();
    let mut uploader = world.begin(CACHE, false).unwrap();
    uploader.session_span = Duration::ZERO;
    world.write(&mut uploader).unwrap();
    world.copy_cache();
    for _ in 0..2 {
        world.write(&mut uploader).unwrap();
    }
    assert!(is_refused(world.begin(COPY, false)));
    world.write(&mut uploader).unwrap();
}

#[test]
fn processes_of_one_directory_are_one_writer_from_the_first_backup_on() {
    let world = World::new();
    let mut first = world.begin(CACHE, false).unwrap();
    let mut second = world.begin(CACHE, false).unwrap();
    assert!(first.lock.is_some() && second.lock.is_none());
    for _ in 0..3 {
        world.write(&mut second).unwrap();
        assert!(matches!(world.write(&mut first), Err(Error::Superseded { .. })));
        first.renew().unwrap();
        world.write(&mut first).unwrap();
        assert!(matches!(world.write(&mut second), Err(Error::Superseded { .. })));
        second.renew().unwrap();
    }
    world.write(&mut second).unwrap();
    // What the first saves leaves the runs of the second in the file.
    first.end().unwrap();
    drop(second);
    let mut later = world.begin(CACHE, false).unwrap();
    assert_eq!(world.write(&mut later).unwrap().number, 8);
}

#[test]
fn hashes_are_saved_between_states() {
    for (every, saved) in [(Duration::from_secs(3600), false), (Duration::ZERO, true)] {
        let world = World::new();
        let mut uploader = world.begin(CACHE, false).unwrap();
        uploader.save_every = every;
        world.write(&mut uploader).unwrap();
        let bytes = read_file(&*world.fs, CACHE.as_ref()).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap().contains(".tam"), saved);
    }
}

#[test]
fn a_state_behind_a_newer_one_is_not_written() {
    let world = World::new();
    let mut first = world.begin(CACHE, false).unwrap();
    world.write(&mut first).unwrap();
    let mut second = world.begin(CACHE, false).unwrap();
    for _ in 0..3 {
        world.write(&mut first).unwrap();
    }
    // A prune takes the numbers that the second would find.
    let retention = Retention { grace: Duration::ZERO, ..Retention::default() };
    world.repo.prune(&retention).unwrap();
    let puts = |world: &World| world.repo.store.list("states", None).unwrap().len();
    assert_eq!(puts(&world), 1);
    let refused = world.write(&mut second);
    assert!(matches!(refused, Err(Error::Superseded { number: 4 })), "{refused:?}");
    assert_eq!(puts(&world), 1);
}

#[test]
fn pieces_stay_few_and_bytes_are_sent_few_times() {
    for step in [100u64, 5_000, 10_000, 70_000, 1_000_000] {
        let (mut pieces, mut sent, mut len): (Vec<u64>, u64, u64) = (Vec::new(), 0, 0);
        while len < 64 << 20 && pieces.len() < 1000 && sent < 1 << 31 {
            pieces.truncate(kept(&pieces, step));
            len += step;
            let mut offset: u64 = pieces.iter().sum();
            while offset < len {
                let piece = LONGEST_PART.min(len - offset);
                pieces.push(piece);
                sent += piece;
                offset += piece;
            }
            let short = pieces.iter().filter(|piece| **piece < 1 << 20).count();
            assert!(short <= 5 * SAME_LENGTH, "{short} short pieces of {len} bytes, by {step}");
        }
        assert!(sent <= 6 * len, "{sent} bytes sent of {len}, by {step}");
    }
}
