//! tamis in an asynchronous program: calls block, so they go to the threads that tokio has for
//! that: `cargo run -p tamis --example tokio`.
#![allow(clippy::print_stdout, reason = "an example for the terminal")]

use tamis::{Db, Error};
use tokio::task::{JoinError, spawn_blocking};

/// Runs something on a thread that may block. A handle is cheap to clone.
async fn with<T: Send + 'static>(
    db: &Db,
    work: impl FnOnce(&Db) -> Result<T, Error> + Send + 'static,
) -> Result<T, Failure> {
    let db = db.clone();
    Ok(spawn_blocking(move || work(&db)).await??)
}

#[derive(Debug)]
struct Failure(String);

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

impl From<JoinError> for Failure {
    fn from(error: JoinError) -> Failure {
        Failure(error.to_string())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure(error.to_string())
    }
}

/// What an asynchronous task does: a whole transaction is one piece of blocking work, so that
/// nothing is awaited within it.
async fn visit(db: Db, page: u32) -> Result<i64, Failure> {
    with(&db, move |db| {
        let visits = db.increment(format!("page/{page}"), 1)?;
        db.transact(|tx| {
            let last = tx.get("busiest")?;
            if last.is_none_or(|last| i64::from_le_bytes(last[..8].try_into().expect("eight bytes")) < visits)
            {
                tx.put("busiest", [&visits.to_le_bytes()[..], &page.to_le_bytes()].concat())?;
            }
            Ok::<_, Error>(visits)
        })
    })
    .await
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    let done = runtime.block_on(async {
        let tasks: Vec<_> = (0..300).map(|i| tokio::spawn(visit(db.clone(), i % 7 % 5))).collect();
        for task in tasks {
            task.await??;
        }
        // Many small reads are one piece of work, too.
        with(&db, |db| Ok(db.prefix("page/").collect::<Result<Vec<_>, _>>()?)).await
    });
    for (page, visits) in done? {
        println!("{page:?}: {}", i64::from_le_bytes(visits[..].try_into()?));
    }
    Ok(())
}
