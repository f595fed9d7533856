//! [`Expiry`]: the clock that entries expire by, the filter that drops those that have, and how an
//! expiry is stored.
//!
//! Invariants:
//! * An entry has expired if its expiry is at or before the moment that one goes by.
//! * The filter drops only what has expired by the clock. A value that it cannot decode stays.
//! * The filter deletes the key, so that no older version of it comes back.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tamis::operators::{CompactionFilter, Decision};
use tamis::{Db, Keyspace, KeyspaceOptions, Options, OptionsError, Slice};

use crate::error::{DecodeError, Error, ValueError};
use crate::expiring::Expiring;
use crate::key::Key;
use crate::value::Value;

/// The expiry of what never expires.
pub(crate) const NEVER: u64 = u64::MAX;

/// Returns a time as it is stored: whole milliseconds since 1970.
pub(crate) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(NEVER)
}

pub(crate) fn has_expired(expiry: u64, moment: u64) -> bool {
    expiry != NEVER && expiry <= moment
}

/// Returns the expiry in front of a stored value.
fn expiry_of(stored: &[u8]) -> Option<u64> {
    stored.first_chunk().copied().map(u64::from_be_bytes)
}

/// The clock that entries expire by, and the compaction filter that drops those that have.
///
/// [`register`](Expiry::register) it whenever the database is opened: an opening without it fails.
///
/// Flushes and compactions drop what has expired as they pass it. An entry in the last level waits
/// until newer writes are merged into its table, and [`Keyspace::compact`] does not rewrite what is
/// all in the last level. The policies `fifo` and `time-window` merge little, and may never pass an
/// entry again. To learn the expiry of a large value in a blob file, a compaction reads the value.
///
/// If the clock is set back, entries live longer, and those that were not dropped come back.
#[derive(Clone)]
pub struct Expiry {
    clock: Arc<dyn Fn() -> SystemTime + Send + Sync>,
}

impl Expiry {
    /// The value of the keyspace option `compaction_filter`.
    pub const NAME: &'static str = "tamis-typed.expiring";

    /// Goes by a clock of your own, for tests. Many threads call it, and it must not panic: see
    /// [`CompactionFilter`].
    pub fn with_clock(clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Expiry {
        Expiry { clock: Arc::new(clock) }
    }

    /// Adds the filter to the operators of a database that is about to be opened.
    #[must_use]
    pub fn register(&self, mut options: Options) -> Options {
        options.operators = options.operators.with_filter(Arc::new(self.clone()));
        options
    }

    /// Creates a keyspace with these options and with the filter.
    ///
    /// # Errors
    ///
    /// [`Error::Tamis`]: those of [`Db::create_keyspace`], of which
    /// [`AdminError::Unregistered`](tamis::AdminError::Unregistered) says that the database was
    /// opened without the filter; and that of [`open`](Expiry::open) for options with another one.
    pub fn create<K: Key, V: Value>(
        &self,
        db: &Db,
        name: &str,
        mut options: KeyspaceOptions,
    ) -> Result<Expiring<K, V>, Error> {
        options.compaction_filter.get_or_insert_with(|| Expiry::NAME.to_owned());
        check(&options)?;
        self.open(db.create_keyspace(name, options)?)
    }

    /// Gives types to a keyspace that has the filter. Nothing checks that its entries have them,
    /// until they are read.
    ///
    /// # Errors
    ///
    /// [`Error::Tamis`] with an [`OptionsError::Value`] if the option `compaction_filter` is not
    /// [`NAME`](Expiry::NAME): what has expired would stay forever.
    pub fn open<K: Key, V: Value>(&self, keyspace: Keyspace) -> Result<Expiring<K, V>, Error> {
        check(&keyspace.options())?;
        Ok(Expiring::new(keyspace, self.clone()))
    }

    pub(crate) fn now(&self) -> u64 {
        millis((self.clock)())
    }

    /// Returns the expiry of what lives for `life` from now on.
    pub(crate) fn after(&self, life: Duration) -> u64 {
        (self.clock)().checked_add(life).map_or(NEVER, millis)
    }
}

fn check(options: &KeyspaceOptions) -> Result<(), Error> {
    match options.compaction_filter.as_deref() {
        Some(Expiry::NAME) => Ok(()),
        other => Err(Error::Tamis(tamis::Error::Options(OptionsError::Value {
            name: "compaction_filter",
            value: other.unwrap_or("none").to_owned(),
            expected: format!("entries that expire need `{}`", Expiry::NAME),
        }))),
    }
}

/// Goes by the clock of the operating system.
impl Default for Expiry {
    fn default() -> Expiry {
        Expiry::with_clock(SystemTime::now)
    }
}

impl CompactionFilter for Expiry {
    fn name(&self) -> &str {
        Expiry::NAME
    }

    fn filter(&self, _level: usize, _key: &[u8], value: &[u8]) -> Decision {
        match expiry_of(value).is_some_and(|expiry| has_expired(expiry, self.now())) {
            true => Decision::Remove,
            false => Decision::Keep,
        }
    }
}

impl fmt::Debug for Expiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expiry").finish_non_exhaustive()
    }
}

/// A value with its expiry in front. It is decoded only if it is to be seen.
pub(crate) struct Stored<V> {
    pub(crate) expiry: u64,
    /// The value, behind the bytes of its expiry.
    bytes: Slice,
    value: PhantomData<fn() -> V>,
}

impl<V: Value> Stored<V> {
    /// Returns the value as of a moment.
    pub(crate) fn as_of(&self, moment: u64) -> Result<Option<V>, ValueError> {
        let alive = !has_expired(self.expiry, moment);
        alive.then(|| V::decode(&Slice::copy_of(&self.bytes[size_of::<u64>()..]))).transpose()
    }
}

impl<V: Value> Value for Stored<V> {
    type Ref<'a> = (u64, V::Ref<'a>);

    fn encode((expiry, value): (u64, V::Ref<'_>), out: &mut Vec<u8>) -> Result<(), ValueError> {
        out.extend_from_slice(&expiry.to_be_bytes());
        V::encode(value, out)
    }

    fn decode(bytes: &Slice) -> Result<Stored<V>, ValueError> {
        let too_short = DecodeError::new("expiry: fewer than eight bytes");
        let expiry = expiry_of(bytes).ok_or_else(|| ValueError::decoding(too_short))?;
        Ok(Stored { expiry, bytes: bytes.clone(), value: PhantomData })
    }
}
