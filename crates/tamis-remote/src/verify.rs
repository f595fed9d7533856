//! Checking that a state can be restored.

use std::collections::{HashMap, HashSet};

use crate::error::Error;
use crate::hash::Hasher;
use crate::parallel::each;
use crate::repository::Repository;
use crate::state::{Piece, State};
use crate::upload::{Meter, OnProgress};

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Objects that were checked.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What is missing or damaged, a line each.
    pub problems: Vec<String>,
}

impl Repository {
    /// Checks that everything is there that a state names. With `quick` only the sizes are
    /// compared, by listings; otherwise all bytes are fetched and hashed.
    ///
    /// # Errors
    ///
    /// When the store cannot be reached. What is missing or damaged is in the report.
    pub fn verify(
        &self,
        state: &State,
        quick: bool,
        progress: Option<OnProgress>,
    ) -> Result<Verified, Error> {
        let mut seen = HashSet::new();
        let objects: Vec<&Piece> = state.objects().filter(|piece| seen.insert(&piece.object)).collect();
        let bytes = objects.iter().map(|piece| piece.len).sum();
        let meter = Meter::new(progress, bytes, objects.len());
        let found = match quick {
            true => self.compare_sizes(&objects)?,
            false => each(self.store.transfer().parallel, &objects, |piece| {
                let problem = self.check(piece, &meter)?;
                meter.file();
                Ok(problem)
            })?,
        };
        Ok(Verified { objects: objects.len() as u64, bytes, problems: found.into_iter().flatten().collect() })
    }

    fn compare_sizes(&self, objects: &[&Piece]) -> Result<Vec<Option<String>>, Error> {
        let mut sizes = HashMap::new();
        let directories: HashSet<&str> =
            objects.iter().filter_map(|piece| Some(piece.object.rsplit_once('/')?.0)).collect();
        for directory in directories {
            let listed = self.store.list(directory, None)?;
            sizes.extend(listed.into_iter().map(|object| (object.name, object.len)));
        }
        let problem = |piece: &&Piece| match sizes.get(&piece.object) {
            Some(len) if *len == piece.len => None,
            Some(len) => Some(format!("{} has {len} bytes instead of {}", piece.object, piece.len)),
            None => Some(format!("{} is missing", piece.object)),
        };
        Ok(objects.iter().map(problem).collect())
    }

    /// Fetches an object, and says what is wrong with it.
    fn check(&self, piece: &Piece, meter: &Meter) -> Result<Option<String>, Error> {
        let mut hasher = Hasher::default();
        let fetched = self.fetch_pieces(piece, |bytes| {
            hasher.update(bytes);
            meter.bytes(bytes.len() as u64);
            Ok(())
        });
        match fetched {
            Ok(()) if hasher.finish() == piece.hash => Ok(None),
            Ok(()) => Ok(Some(format!("{} has other bytes than were written", piece.object))),
            Err(Error::Gone { .. }) => Ok(Some(format!("{} is missing", piece.object))),
            // The range is not there: the object is too short.
            Err(Error::Request { what, source }) => match self.store.head(&piece.object)? {
                None => Ok(Some(format!("{} is missing", piece.object))),
                Some(there) if there.len != piece.len => {
                    Ok(Some(format!("{} has {} bytes instead of {}", piece.object, there.len, piece.len)))
                }
                Some(_) => Err(Error::Request { what, source }),
            },
            Err(error) => Err(error),
        }
    }

    /// Fetches an object piece by piece, in order. Nothing of it is checked but the length.
    pub(crate) fn fetch_pieces(
        &self,
        piece: &Piece,
        mut take: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let step = self.store.transfer().piece_bytes.max(1) as u64;
        let mut offset = 0;
        while offset < piece.len {
            let end = piece.len.min(offset + step);
            take(&self.store.get_range(&piece.object, offset..end)?)?;
            offset = end;
        }
        Ok(())
    }
}
