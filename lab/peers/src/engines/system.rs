//! Systems, as named on the command line: an engine, or tamis with custom options.
//!
//! ```text
//! tamis                                    tamis with its defaults
//! tamis-grf                                tamis with `keyspace.filter=grf`
//! tamis:keyspace.merge=partitioned         tamis with any options, separated by commas
//! rocksdb, leveldb, fjall, tidesdb,        if compiled in
//! surrealkv, lmdb, mdbx, redb
//! rocksdb-row-cache, bf-tree               if compiled in and named
//! rocksdb-native                           RocksDB for the present processor, mapped: see `--native`
//! ```
//!
//! A value may contain commas: a part without `=` belongs to the value before it.

use std::fmt;
use std::str::FromStr;

use tamis_bench::BenchError;

use crate::engines::{Engine, tamis};

/// The system whose worker is another program: see [`System::is_native`].
pub const NATIVE: &str = "rocksdb-native";

/// Systems that are measured only if they are named: what they are for is in two suites.
const NAMED_ONLY: [&str; 2] = ["rocksdb-row-cache", "bf-tree"];

/// The engines of the command line, and the options of tamis that a name implies.
const KNOWN: [(&str, Kind, &[&str]); 13] = [
    ("tamis", Kind::Tamis, &[]),
    ("tamis-grf", Kind::Tamis, &["keyspace.filter=grf"]),
    ("rocksdb", Kind::RocksDb, &[]),
    (NATIVE, Kind::NativeRocksDb, &[]),
    ("leveldb", Kind::LevelDb, &[]),
    ("fjall", Kind::Fjall, &[]),
    ("tidesdb", Kind::TidesDb, &[]),
    ("surrealkv", Kind::SurrealKv, &[]),
    ("lmdb", Kind::Lmdb, &[]),
    ("mdbx", Kind::Mdbx, &[]),
    ("redb", Kind::Redb, &[]),
    (NAMED_ONLY[0], Kind::RowCachedRocksDb, &[]),
    (NAMED_ONLY[1], Kind::BfTree, &[]),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tamis,
    RocksDb,
    NativeRocksDb,
    RowCachedRocksDb,
    LevelDb,
    Fjall,
    TidesDb,
    SurrealKv,
    Lmdb,
    Mdbx,
    Redb,
    BfTree,
}

impl Kind {
    fn is_compiled_in(self) -> bool {
        match self {
            Kind::Tamis => true,
            Kind::RocksDb | Kind::NativeRocksDb | Kind::RowCachedRocksDb => cfg!(feature = "rocksdb"),
            Kind::LevelDb => cfg!(feature = "leveldb"),
            Kind::Fjall => cfg!(feature = "fjall"),
            Kind::TidesDb => cfg!(feature = "tidesdb"),
            Kind::SurrealKv => cfg!(feature = "surrealkv"),
            Kind::Lmdb => cfg!(feature = "lmdb"),
            Kind::Mdbx => cfg!(feature = "mdbx"),
            Kind::Redb => cfg!(feature = "redb"),
            Kind::BfTree => cfg!(feature = "bf-tree"),
        }
    }
}

/// An engine that is compiled in, with its name and setup in a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    name: String,
    kind: Kind,
    overrides: Vec<String>,
}

/// An operation on an engine that is only known at run time: see [`System::with`].
pub trait Visitor {
    /// Its result.
    type Output;

    /// Executes it.
    fn visit<E: Engine>(self) -> Self::Output;
}

impl System {
    /// Returns the name as given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the checked contents of [`Setup::overrides`](crate::engines::Setup::overrides).
    pub fn overrides(&self) -> &[String] {
        &self.overrides
    }

    /// Reports whether its worker is a program that was built for the present processor: two builds of RocksDB do not fit
    /// into one program.
    pub fn is_native(&self) -> bool {
        self.kind == Kind::NativeRocksDb
    }

    /// Returns the names that can be parsed and measured by this program, without those whose feature is not compiled in.
    pub fn compiled_in() -> Vec<&'static str> {
        KNOWN
            .iter()
            .filter(|(name, kind, _)| kind.is_compiled_in() && *name != NATIVE)
            .map(|(name, ..)| *name)
            .collect()
    }

    /// Returns those of them that are measured by default.
    pub fn by_default() -> Vec<&'static str> {
        System::compiled_in().into_iter().filter(|name| !NAMED_ONLY.contains(name)).collect()
    }

    /// Parses systems separated by commas. A part that does not begin with an engine's name continues the options of
    /// the preceding system. Names must be unique.
    pub fn parse_list(text: &str) -> Result<Vec<System>, BenchError> {
        let mut names: Vec<String> = Vec::new();
        for part in text.split(',') {
            let engine = part.split(':').next().unwrap_or(part).trim();
            let begins = KNOWN.iter().any(|(name, ..)| *name == engine);
            match names.last_mut() {
                Some(before) if !begins && before.contains(':') => {
                    before.push(',');
                    before.push_str(part);
                }
                _ => names.push(part.to_owned()),
            }
        }
        let systems = names.iter().map(|name| name.parse()).collect::<Result<Vec<System>, _>>()?;
        for (i, system) in systems.iter().enumerate() {
            if systems[..i].iter().any(|other| other.name == system.name) {
                return Err(BenchError::Request(format!("the system `{system}` is given twice")));
            }
        }
        Ok(systems)
    }

    /// Calls the visitor with the engine's type.
    pub fn with<V: Visitor>(&self, visitor: V) -> V::Output {
        match self.kind {
            Kind::Tamis => visitor.visit::<tamis::Tamis>(),
            #[cfg(feature = "rocksdb")]
            Kind::RocksDb => visitor.visit::<crate::engines::rocksdb::PortableRocksDb>(),
            #[cfg(feature = "rocksdb")]
            Kind::NativeRocksDb => visitor.visit::<crate::engines::rocksdb::NativeRocksDb>(),
            #[cfg(feature = "rocksdb")]
            Kind::RowCachedRocksDb => visitor.visit::<crate::engines::rocksdb::RowCachedRocksDb>(),
            #[cfg(feature = "leveldb")]
            Kind::LevelDb => visitor.visit::<crate::engines::leveldb::LevelDb>(),
            #[cfg(feature = "fjall")]
            Kind::Fjall => visitor.visit::<crate::engines::fjall::Fjall>(),
            #[cfg(feature = "tidesdb")]
            Kind::TidesDb => visitor.visit::<crate::engines::tidesdb::Tides>(),
            #[cfg(feature = "surrealkv")]
            Kind::SurrealKv => visitor.visit::<crate::engines::surrealkv::SurrealKv>(),
            #[cfg(feature = "lmdb")]
            Kind::Lmdb => visitor.visit::<crate::engines::lmdb::Lmdb>(),
            #[cfg(feature = "mdbx")]
            Kind::Mdbx => visitor.visit::<crate::engines::mdbx::Mdbx>(),
            #[cfg(feature = "redb")]
            Kind::Redb => visitor.visit::<crate::engines::redb::Redb>(),
            #[cfg(feature = "bf-tree")]
            Kind::BfTree => visitor.visit::<crate::engines::bf_tree::BfTree>(),
            #[allow(unreachable_patterns, reason = "with all features there is no other kind")]
            other => unreachable!("{other:?} is not compiled in, and so was not parsed"),
        }
    }
}

impl FromStr for System {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<System, BenchError> {
        let text = text.trim();
        let (engine, options) = match text.split_once(':') {
            Some((engine, options)) => (engine.trim(), Some(options)),
            None => (text, None),
        };
        let Some(&(name, kind, stands_for)) = KNOWN.iter().find(|(name, ..)| *name == engine) else {
            let known: Vec<_> = KNOWN.iter().map(|(name, ..)| *name).collect();
            return Err(BenchError::Request(format!(
                "no system is called `{engine}`; known are {}, and tamis:OPTION=VALUE,…",
                known.join(", ")
            )));
        };
        if !kind.is_compiled_in() {
            return Err(BenchError::Request(format!(
                "{name} is not compiled in: build with `--features {}`, or with `--features all`",
                feature_of(name)
            )));
        }
        let mut overrides: Vec<String> = stands_for.iter().map(|&text| text.to_owned()).collect();
        if let Some(options) = options {
            if kind != Kind::Tamis {
                return Err(BenchError::Request(format!("only tamis takes options, not {name}: `{text}`")));
            }
            overrides.extend(split_options(options));
        }
        tamis::check_overrides(&overrides)?;
        Ok(System { name: text.to_owned(), kind, overrides })
    }
}

/// Returns the feature that a system needs.
fn feature_of(name: &str) -> &str {
    if name.starts_with("rocksdb") { "rocksdb" } else { name }
}

/// Splits a text into assignments; a part without `=` belongs to the value before it.
fn split_options(text: &str) -> Vec<String> {
    let mut options: Vec<String> = Vec::new();
    for part in text.split(',') {
        match options.last_mut() {
            Some(before) if !part.contains('=') => {
                before.push(',');
                before.push_str(part);
            }
            _ => options.push(part.to_owned()),
        }
    }
    options
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Name;

    impl Visitor for Name {
        type Output = &'static str;

        fn visit<E: Engine>(self) -> &'static str {
            E::NAME
        }
    }

    fn refusal(text: &str) -> String {
        text.parse::<System>().unwrap_err().to_string()
    }

    #[test]
    fn every_compiled_engine_is_found_by_its_name() {
        for name in System::compiled_in() {
            let system: System = name.parse().unwrap();
            assert_eq!(system.name(), name);
            let engine = if name == "tamis-grf" { "tamis" } else { name };
            assert_eq!(system.with(Name), engine);
        }
    }

    #[test]
    fn what_must_be_named_is_not_measured_by_default() {
        let (all, default) = (System::compiled_in(), System::by_default());
        assert!(default.contains(&"tamis") && default.iter().all(|name| all.contains(name)));
        assert!(NAMED_ONLY.iter().all(|name| !default.contains(name)));
        assert!(all.iter().all(|name| default.contains(name) || NAMED_ONLY.contains(name)));
    }

    #[test]
    fn variants_of_tamis_carry_their_options() {
        let grf: System = "tamis-grf".parse().unwrap();
        assert_eq!(grf.overrides(), ["keyspace.filter=grf"]);
        let text = "tamis:keyspace.compression=none,none,lz4,keyspace.merge=partitioned";
        let variant: System = text.parse().unwrap();
        assert_eq!(variant.overrides(), ["keyspace.compression=none,none,lz4", "keyspace.merge=partitioned"]);
        assert_eq!(variant.to_string(), text);
        let both: System = "tamis-grf:keyspace.bits_per_key=12".parse().unwrap();
        assert_eq!(both.overrides().len(), 2);
    }

    #[test]
    fn a_list_keeps_the_options_of_each_system_together() {
        let text = "tamis,tamis:keyspace.compression=none,lz4,keyspace.levels=5,tamis-grf";
        let systems = System::parse_list(text).unwrap();
        let names: Vec<_> = systems.iter().map(System::name).collect();
        assert_eq!(names, ["tamis", "tamis:keyspace.compression=none,lz4,keyspace.levels=5", "tamis-grf"]);
        for wrong in ["tamis,tamis", "tamis,rockdb", "", "tamis,", "tamis:keyspace.levels=5,rockdb"] {
            assert!(System::parse_list(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn invalid_systems_are_refused_with_helpful_messages() {
        assert!(refusal("rockdb").contains("rocksdb"));
        assert!(refusal("tamis:keyspace.bits=3").contains("keyspace.bits"));
        assert!(refusal("tamis:").contains("OPTION=VALUE"));
        for (name, kind, _) in KNOWN.iter().filter(|(_, kind, _)| *kind != Kind::Tamis) {
            if kind.is_compiled_in() {
                assert!(refusal(&format!("{name}:cache=1")).contains("only tamis"));
            } else {
                let feature = feature_of(name);
                assert!(refusal(name).contains(&format!("--features {feature}`")));
            }
        }
    }
}
