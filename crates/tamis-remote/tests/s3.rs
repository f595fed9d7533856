//! Backups and replicas over the S3 protocol, through a proxy that fails: by `s3-test`, which
//! starts the server.

#![cfg(feature = "aws")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests that print figures")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use object_store::ClientOptions;
use object_store::aws::AmazonS3Builder;
use tamis::{Db, Options};
use tamis_remote::{
    BackupOptions, Error, ReplicaOptions, Repository, RestoreOptions, Retention, Transfer, Which,
};
use tamis_testkit::Rng;

/// What the proxy does to one in so many requests, each with the same odds: nothing, status 500,
/// silence, an answer that breaks off.
#[derive(Debug)]
struct Proxy {
    address: SocketAddr,
    odds: Arc<AtomicU64>,
    requests: Arc<AtomicU64>,
    faults: Arc<AtomicU64>,
}

/// The time that the client waits; the proxy is silent for a little longer.
const PATIENCE: Duration = Duration::from_millis(1500);

impl Proxy {
    fn start(server: SocketAddr, seed: u64) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (odds, requests, faults) = (Arc::default(), Arc::default(), Arc::default());
        let proxy = Proxy { address, odds, requests, faults };
        let rng = Arc::new(Mutex::new(Rng::new(seed)));
        let (odds, requests, faults) = (proxy.odds.clone(), proxy.requests.clone(), proxy.faults.clone());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { continue };
                let rng = rng.clone();
                let (odds, requests, faults) = (odds.clone(), requests.clone(), faults.clone());
                std::thread::spawn(move || {
                    requests.fetch_add(1, SeqCst);
                    let fault = match odds.load(SeqCst) {
                        0 => 0,
                        odds => {
                            let mut rng = rng.lock().unwrap();
                            if rng.one_in(odds) { 1 + rng.below(4) } else { 0 }
                        }
                    };
                    faults.fetch_add(u64::from(fault > 0), SeqCst);
                    let _ = forward(client, server, fault);
                });
            }
        });
        proxy
    }
}

/// Passes one request on and its answer back; every connection has one request.
fn forward(mut client: TcpStream, server: SocketAddr, fault: u64) -> std::io::Result<()> {
    client.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && head.len() < 64 << 10 {
        client.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&head).to_string();
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let mut body = vec![0; length.unwrap_or(0)];
    client.read_exact(&mut body)?;
    let refused = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    match fault {
        1 => return client.write_all(refused),
        2 => {
            std::thread::sleep(PATIENCE + Duration::from_millis(500));
            return Ok(());
        }
        _ => {}
    }
    let mut upstream = TcpStream::connect(server)?;
    let first = text.find("\r\n").unwrap_or(0) + 2;
    upstream.write_all(&head[..first])?;
    upstream.write_all(b"Connection: close\r\n")?;
    let rest: String = text[first..]
        .split_inclusive("\r\n")
        .filter(|line| !line.to_ascii_lowercase().starts_with("connection:"))
        .collect();
    upstream.write_all(rest.as_bytes())?;
    upstream.write_all(&body)?;
    let mut answer = Vec::new();
    upstream.read_to_end(&mut answer)?;
    match fault {
        // It took effect, and nobody hears of it.
        3 => return client.write_all(refused),
        4 => answer.truncate(answer.len() - answer.len().min(1 + answer.len() / 3)),
        _ => {}
    }
    client.write_all(&answer)?;
    client.shutdown(Shutdown::Both)
}

fn server() -> SocketAddr {
    std::env::var("TAMIS_S3_SERVER").expect("s3-test sets it").parse().unwrap()
}

fn bucket(name: &str) {
    let mut server = TcpStream::connect(server()).unwrap();
    let request = format!(
        "PUT /{name} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\nAuthorization: AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x\r\n\r\n"
    );
    server.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    server.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

fn repository(proxy: &Proxy, bucket: &str) -> Repository {
    tamis_remote::install_tls();
    let client =
        ClientOptions::new().with_allow_http(true).with_timeout(PATIENCE).with_pool_max_idle_per_host(0);
    let retry = object_store::RetryConfig { max_retries: 2, ..object_store::RetryConfig::default() };
    let store = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        .with_endpoint(format!("http://{}", proxy.address))
        .with_region("us-east-1")
        .with_access_key_id("x")
        .with_secret_access_key("x")
        .with_client_options(client)
        .with_retry(retry)
        .build()
        .unwrap();
    let mut transfer = Transfer::default();
    transfer.attempts = 10;
    // The smallest part that S3 takes is 5 MiB.
    transfer.piece_bytes = 5 << 20;
    transfer.parallel = 4;
    transfer.backoff = Duration::from_millis(20);
    Repository::with_store(Arc::new(store), "backups/places", transfer)
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn all(db: &Db) -> Map {
    db.iter()
        .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())))
        .collect::<Result<_, _>>()
        .unwrap()
}

fn write(db: &Db, model: &mut Map, rng: &mut Rng, count: u64, value: usize) {
    for _ in 0..count {
        let key = format!("key {:06}", rng.below(100_000)).into_bytes();
        let bytes: Vec<u8> = (0..value).map(|_| rng.next_u64() as u8).collect();
        db.put(&key, &bytes).unwrap();
        model.insert(key, bytes);
    }
}

#[test]
#[ignore = "needs a server: s3-test"]
fn histories_through_a_proxy_that_fails() {
    bucket("histories");
    let proxy = Proxy::start(server(), 1);
    let repo = repository(&proxy, "histories");
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path().join("db")).unwrap();
    let options = BackupOptions { cache: Some(dir.path().join("known.json")), ..BackupOptions::default() };
    let (mut model, mut rng) = (Map::new(), Rng::new(1));
    let mut held = BTreeMap::new();
    proxy.odds.store(12, SeqCst);
    let mut retention = Retention::default();
    retention.grace = Duration::ZERO;
    retention.keep_last = 3;
    let replica = loop {
        write(&db, &mut model, &mut rng, 10, 100);
        let written = repo.backup(&db, options.clone()).unwrap();
        held.insert(written.number, model.clone());
        let mut options = ReplicaOptions::default();
        options.options.cache_bytes = 0;
        match repo.open_replica(&dir.path().join("cache"), options) {
            Ok(replica) => break replica,
            Err(error) => println!("opened later: {error}"),
        }
    };
    for round in 0..12 {
        write(&db, &mut model, &mut rng, 800, 1000);
        if round % 2 == 0 {
            db.flush().unwrap();
        }
        let written = repo.backup(&db, options.clone()).unwrap();
        held.insert(written.number, model.clone());
        if round % 4 == 3 {
            repo.prune(&retention).unwrap();
        }
        while let Err(error) = replica.catch_up() {
            println!("caught up later: {error}");
        }
        assert_eq!(all(&replica.db()), model);
    }
    for (at, listing) in repo.states().unwrap().into_iter().enumerate() {
        let state = repo.state(listing.number).unwrap();
        let verified = repo.verify(&state, false, None).unwrap();
        assert!(verified.problems.is_empty(), "{verified:?}");
        let target = dir.path().join(format!("restored-{at}"));
        while let Err(error) = repo.restore(&state, &target, &RestoreOptions::default()) {
            assert!(matches!(error, Error::Request { .. }), "{error}");
        }
        assert_eq!(all(&Db::open(&target).unwrap()), held[&listing.number]);
    }
    let (requests, faults) = (proxy.requests.load(SeqCst), proxy.faults.load(SeqCst));
    println!("{requests} requests, {faults} of them failed by the proxy; {:?}", repo.requests());
    assert!(faults > 10);
}

#[test]
#[ignore = "needs a server: s3-test"]
fn two_writers_and_large_files() {
    bucket("writers");
    let proxy = Proxy::start(server(), 2);
    let dir = tempfile::tempdir().unwrap();
    // Tables of more than two parts.
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 32 << 20;
    let db = options.open(dir.path().join("db")).unwrap();
    let (mut model, mut rng) = (Map::new(), Rng::new(2));
    write(&db, &mut model, &mut rng, 24_000, 1000);
    db.flush().unwrap();
    let repo = repository(&proxy, "writers");
    let backup = BackupOptions { cache: Some(dir.path().join("known.json")), ..BackupOptions::default() };
    let begin = Instant::now();
    let written = repo.backup(&db, backup.clone()).unwrap();
    let took = begin.elapsed().as_secs_f64();
    println!("backup: {} bytes in {took:.1} s, {:?}", written.bytes_sent, repo.requests());
    assert!(repo.find(Which::Latest).unwrap().files.iter().any(|file| file.len > 10 << 20));

    let other = Db::open(dir.path().join("other")).unwrap();
    other.put("a", "b").unwrap();
    let refused = repo.backup(&other, BackupOptions::default());
    assert!(matches!(refused, Err(Error::AnotherWriter { .. })), "{refused:?}");
    let takeover = BackupOptions { takeover: true, ..BackupOptions::default() };
    assert_eq!(repo.backup(&other, takeover).unwrap().number, 2);
    assert!(matches!(repo.backup(&db, backup), Err(Error::AnotherWriter { .. })));

    let before = repo.requests();
    let begin = Instant::now();
    let target = dir.path().join("restored");
    repo.restore(&repo.state(1).unwrap(), &target, &RestoreOptions::default()).unwrap();
    let took = begin.elapsed().as_secs_f64();
    let requests = repo.requests().since(&before);
    println!("restore: {} bytes in {took:.1} s, {requests:?}", written.bytes);
    assert_eq!(all(&Db::open(&target).unwrap()), model);
}
