//! The same work on many items by several threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::error::Error;

/// Does `work` on every item, `threads` at a time, and returns the results in the order of the
/// items. After a failure no further item is begun, and the first failure is returned once the
/// begun ones have ended.
pub(crate) fn each<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let done = Mutex::new(Vec::with_capacity(items.len()));
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    let at = next.fetch_add(1, Relaxed);
                    let Some(item) = items.get(at) else { return };
                    match work(item) {
                        Ok(result) => locked(&done).push((at, result)),
                        Err(error) => {
                            stop.store(true, Relaxed);
                            locked(&failure).get_or_insert(error);
                        }
                    }
                }
            });
        }
    });
    if let Some(error) = locked(&failure).take() {
        return Err(error);
    }
    let mut done = std::mem::take(&mut *locked(&done));
    done.sort_unstable_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

/// Locks; what a lock of this crate protects is whole between any two statements.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_their_order_and_a_failure_ends_the_work() {
        let items: Vec<u64> = (0..1000).collect();
        let squares = each(4, &items, |item| Ok(item * item)).unwrap();
        assert!(squares.iter().zip(&items).all(|(square, item)| *square == item * item));
        let begun = AtomicUsize::new(0);
        let failed = each(4, &items, |item| {
            begun.fetch_add(1, Relaxed);
            if *item == 10 { Err(Error::Expired) } else { Ok(()) }
        });
        assert!(matches!(failed, Err(Error::Expired)));
        assert!(begun.load(Relaxed) >= 11);
        assert!(each(4, &[] as &[u64], |_| Ok(())).unwrap().is_empty());
    }
}
