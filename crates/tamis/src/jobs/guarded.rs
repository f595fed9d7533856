//! Work of a background thread that may panic: writes stop then, and the thread goes on.

use crate::session::Session;

/// Does a job. A panic stops writes for good, but the thread continues, so that no other thread
/// waits for it forever.
pub(crate) fn guarded<T>(db: &Session, job: &str, work: impl FnOnce() -> T) -> Option<T> {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    result
        .inspect_err(|_| {
            db.monitor.poison(&format!("{job} panicked; please report this, with the panic message"))
        })
        .ok()
}
