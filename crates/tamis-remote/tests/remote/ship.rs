//! Shipping beside a writer.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tamis_remote::{Error, Pinned, ShipOptions, Shipper, Source, Which};

use crate::faulty::{Fault, Faulty};
use crate::world::{World, contents, has_values_in_logs, repository, transfer};

/// A database that is copied each time.
struct Copies(Mutex<World>);

impl Source for Copies {
    fn pin(&self) -> Result<Pinned, Error> {
        self.0.lock().unwrap().copy().pin()
    }
}

fn options(world: &World) -> ShipOptions {
    let mut options = ShipOptions::default();
    options.interval = Duration::from_millis(2);
    options.backup = world.backup_options();
    options
}

fn begin(store: &Faulty, world: World) -> (Arc<Copies>, Shipper, mpsc::Receiver<u64>) {
    let (send, acknowledged) = mpsc::channel();
    let (options, fs) = (options(&world), world.fs.clone());
    let copies = Arc::new(Copies(Mutex::new(world)));
    let repo = repository(store, transfer());
    let acknowledge = move |written: &tamis_remote::Written| {
        let _ = send.send(written.last_seq);
        Ok(())
    };
    let shipper = repo.ship_with(copies.clone(), options, acknowledge, fs).unwrap();
    (copies, shipper, acknowledged)
}

#[test]
fn what_is_shipped_is_a_state_that_the_database_had() {
    let store = Faulty::new();
    let (copies, shipper, acknowledged) = begin(&store, World::new(69));
    let repo = repository(&store, transfer());
    let mut in_logs = false;
    for round in 0..20u64 {
        let (model, seq) = {
            let mut world = copies.0.lock().unwrap();
            world.write(100);
            in_logs |= has_values_in_logs(&world.db);
            (world.model.clone(), world.db.snapshot().seq())
        };
        match round % 4 {
            0 => store.fail_randomly(round, 5, &[Fault::Refused, Fault::Unanswered, Fault::CutShort]),
            // Until it is sound again nothing comes through.
            1 => store.fail_from(round, Fault::Refused),
            _ => store.sound(),
        }
        std::thread::sleep(Duration::from_millis(3));
        store.sound();
        while shipper.ship_now().is_err() {}
        let newest = repo.find(Which::Latest).unwrap();
        assert_eq!((newest.last_seq, contents(&repo, &newest)), (seq, model));
    }
    assert!(in_logs && shipper.is_running());
    let shipped = shipper.shipped();
    assert!(shipped.states >= 20 && shipped.failures == 0, "{shipped:?}");
    shipper.close().unwrap();
    let seqs: Vec<u64> = acknowledged.iter().collect();
    assert!(seqs.is_sorted());
    assert_eq!(seqs.last(), Some(&copies.0.lock().unwrap().db.snapshot().seq()));
}

#[test]
fn nothing_new_sends_nothing() {
    let store = Faulty::new();
    let mut world = World::new(71);
    world.write(100);
    let copy = world.copy();
    let repo = repository(&store, transfer());
    let shipper = repo.ship_with(Arc::new(copy.0), options(&world), |_| Ok(()), world.fs.clone()).unwrap();
    shipper.ship_now().unwrap();
    let names = store.names();
    let requests = repo.requests();
    for _ in 0..50 {
        shipper.ship_now().unwrap();
    }
    assert_eq!((store.names(), repo.requests()), (names, requests));
    assert_eq!(shipper.shipped().states, 1);
}

#[test]
fn a_takeover_ends_shipping() {
    let store = Faulty::new();
    let (copies, shipper, _acknowledged) = begin(&store, World::new(72));
    copies.0.lock().unwrap().write(100);
    shipper.ship_now().unwrap();
    let mut other = World::new(73);
    other.write(100);
    let mut options = other.backup_options();
    options.takeover = true;
    let repo = repository(&store, transfer());
    // It races with states that are shipped meanwhile.
    while let Err(error) = other.backup_with(&repo, options.clone()) {
        assert!(matches!(error, Error::AnotherWriter { .. }), "{error:?}");
    }
    copies.0.lock().unwrap().write(100);
    while shipper.ship_now().is_ok() {}
    assert!(matches!(shipper.close(), Err(Error::AnotherWriter { .. })));
    let newest = repo.find(Which::Latest).unwrap();
    assert_eq!(contents(&repo, &newest), other.model);
}
