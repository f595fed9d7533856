//! Values as JSON.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tamis::Slice;

use crate::error::ValueError;
use crate::value::Value;

/// A value that is stored as JSON, without blanks. It is passed as `&T`.
///
/// JSON names its fields, so a struct may gain fields with `#[serde(default)]` and still read what
/// was stored before. It has no NaN and no infinities, and keys of maps must be strings.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use tamis::Options;
/// use tamis_typed::{Json, Typed};
///
/// #[derive(Serialize, Deserialize)]
/// struct Person {
///     name: String,
///     born: i32,
/// }
///
/// let db = Options::in_memory().open("people")?;
/// let people: Typed<u64, Json<Person>> = Typed::new(db.default_keyspace().clone());
/// people.put(1, &Person { name: "Ada".into(), born: 1815 })?;
/// let Json(person) = people.get(1)?.expect("it was stored");
/// assert_eq!((&person.name[..], person.born), ("Ada", 1815));
/// # Ok::<(), tamis_typed::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Json<T>(pub T);

impl<T: Serialize + DeserializeOwned + 'static> Value for Json<T> {
    type Ref<'a> = &'a T;

    fn encode(value: &T, out: &mut Vec<u8>) -> Result<(), ValueError> {
        serde_json::to_writer(out, value).map_err(ValueError::encoding)
    }

    fn decode(bytes: &Slice) -> Result<Json<T>, ValueError> {
        serde_json::from_slice(bytes).map(Json).map_err(ValueError::decoding)
    }
}
