//! People by city: a keyspace as the index of another one. `cargo run -p tamis --example
//! secondary_index`.
#![allow(clippy::print_stdout, reason = "an example for the terminal")]

use tamis::{Db, Error, Keyspace, KeyspaceOptions, ReadError, Readable};

struct People {
    db: Db,
    /// The city of each person.
    city_of: Keyspace,
    /// The index: a key for each person, with the city first. The values are empty.
    by_city: Keyspace,
}

/// The byte between city and name keeps Lyon's people apart from Lyons's. No city contains it.
fn index_key(city: &[u8], name: &str) -> Vec<u8> {
    [city, b"\0", name.as_bytes()].concat()
}

impl People {
    /// The old city has to be read for its index key to be deleted, so this is a transaction:
    /// another move of the same person in between makes it start again.
    fn move_to(&self, name: &str, city: &str) -> Result<(), Error> {
        self.db.transact(|tx| {
            let old = tx.keyspace(&self.city_of).get(name)?;
            if let Some(old) = old {
                tx.delete_in(&self.by_city, index_key(&old, name))?;
            }
            tx.put_in(&self.city_of, name, city)?;
            tx.put_in(&self.by_city, index_key(city.as_bytes(), name), "")?;
            Ok::<_, Error>(())
        })
    }
}

/// Returns the people in a city, in order.
fn people_in(index: impl Readable, city: &str) -> Result<Vec<String>, ReadError> {
    let prefix = index_key(city.as_bytes(), "");
    let name = |key: &[u8]| String::from_utf8_lossy(&key[prefix.len()..]).into_owned();
    index.prefix(&prefix).keys().map(|key| key.map(|key| name(&key))).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path())?;
    let city_of = db.create_keyspace("city-of", KeyspaceOptions::default())?;
    let by_city = db.create_keyspace("by-city", KeyspaceOptions::default())?;
    let people = People { db, city_of, by_city };
    for (name, city) in [("ada", "Lyon"), ("bob", "Lyon"), ("eve", "Lyons"), ("kurt", "Vík")] {
        people.move_to(name, city)?;
    }
    println!("in Lyon: {:?}", people_in(&people.by_city, "Lyon")?);
    assert_eq!(people_in(&people.by_city, "Lyon")?, ["ada", "bob"]);

    // A snapshot shows data and index as of one moment.
    let before = people.db.snapshot();
    people.move_to("ada", "Vík")?;
    assert_eq!(people_in(&people.by_city, "Vík")?, ["ada", "kurt"]);
    assert_eq!(people_in(before.keyspace(&people.by_city), "Vík")?, ["kurt"]);
    assert_eq!(before.keyspace(&people.city_of).get("ada")?.ok_or("no ada")?, "Lyon");

    // Threads move the same people about, and the index stays true.
    std::thread::scope(|scope| {
        for cities in [["Lyon", "Vík"], ["Lyons", "Lyon"], ["Vík", "Lyons"]] {
            let people = &people;
            scope.spawn(move || {
                for n in 0..200 {
                    let name = ["ada", "bob", "eve", "kurt"][n % 4];
                    people.move_to(name, cities[n / 4 % 2]).expect("a hundred attempts are enough");
                }
            });
        }
    });
    for item in &people.city_of {
        let (name, city) = item?;
        assert!(people.by_city.contains_key(index_key(&city, std::str::from_utf8(&name)?))?);
    }
    assert_eq!(people.by_city.iter().count(), 4);
    Ok(())
}
