//! Warnings: what the program should know, but no caller gets as an error.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::observe::Observer;
use crate::observe::events::Event;
use crate::sync::Mutex;

/// What went wrong since the database was opened, in words.
#[derive(Debug)]
pub(crate) struct Warnings {
    dir: PathBuf,
    observer: Arc<Observer>,
    all: Mutex<Vec<String>>,
}

impl Warnings {
    pub(crate) fn new(dir: &Path, observer: &Arc<Observer>) -> Warnings {
        Warnings { dir: dir.to_owned(), observer: observer.clone(), all: Mutex::default() }
    }

    pub(crate) fn add(&self, message: String) {
        log::warn!("{}: {message}", self.dir.display());
        self.observer.raise(|| Event::Warning { message: message.clone() });
        let mut all = self.all.lock();
        // A recurring warning is listed once.
        if !all.iter().rev().take(2).any(|last| *last == message) {
            all.push(message);
        }
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.all.lock().clone()
    }
}
