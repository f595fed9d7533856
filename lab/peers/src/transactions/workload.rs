//! The workloads, and what must hold after each.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tamis_bench::random::Random;

use super::data::{Audit, Data, key, number, set_number, write_value};
use super::side::{Session, SideError};

/// Number of accounts between which is transferred.
const ACCOUNTS: u64 = 1000;

/// What each account has at first.
const BALANCE: i64 = 1_000_000;

/// The largest amount transferred at once.
const LARGEST_AMOUNT: u64 = 100;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Workload {
    /// Puts of random keys, without transactions
    Put,
    /// Get, then put of the same key, without transactions: loses updates
    GetPut,
    /// A transaction that increments the number of one random key
    Modify,
    /// The same of a single key, by all threads
    ModifyHot,
    /// A transaction that moves an amount between two of 1,000 accounts
    Transfer,
    /// The same beside one more thread that reads all accounts in read-only transactions
    #[value(name = "transfer+scan")]
    #[serde(rename = "transfer+scan")]
    TransferScan,
}

impl Workload {
    /// All of them, in the order of reports.
    pub(crate) const ALL: [Workload; 6] = [
        Workload::Put,
        Workload::GetPut,
        Workload::Modify,
        Workload::ModifyHot,
        Workload::Transfer,
        Workload::TransferScan,
    ];

    /// Returns the name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Workload::Put => "put",
            Workload::GetPut => "get-put",
            Workload::Modify => "modify",
            Workload::ModifyHot => "modify-hot",
            Workload::Transfer => "transfer",
            Workload::TransferScan => "transfer+scan",
        }
    }

    /// Describes it.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Workload::Put => "put of a random key, without a transaction",
            Workload::GetPut => "get and put of a random key, without a transaction: loses updates",
            Workload::Modify => "a transaction that increments the number of a random key",
            Workload::ModifyHot => {
                "a transaction that increments the number of one key, the same for all threads"
            }
            Workload::Transfer => "a transaction that moves an amount between two of 1,000 accounts",
            Workload::TransferScan => {
                "transfers beside one more thread that reads all accounts in read-only transactions"
            }
        }
    }

    /// Reports whether one more thread scans.
    pub(crate) fn scans(self) -> bool {
        self == Workload::TransferScan
    }

    /// Returns the most keys that one transaction has.
    pub(crate) fn keys_at_once(self) -> usize {
        match self {
            Workload::Put | Workload::GetPut => 0,
            Workload::Modify | Workload::ModifyHot => 1,
            Workload::Transfer | Workload::TransferScan => 2,
        }
    }

    /// Returns the contents of its database, given the number of keys of the large ones.
    pub(crate) fn data(self, keys: u64, value_bytes: usize) -> Data {
        let (keys, initial) = match self {
            Workload::Put | Workload::GetPut | Workload::Modify => (keys, 0),
            Workload::ModifyHot => (1, 0),
            Workload::Transfer | Workload::TransferScan => (ACCOUNTS, BALANCE),
        };
        Data { keys, value_bytes, initial }
    }

    /// Checks the entries after `ops` acknowledged operations by some threads. Returns the number of lost updates, which
    /// only [`Workload::GetPut`] may have.
    pub(crate) fn check(
        self,
        audit: &Audit,
        data: &Data,
        threads: usize,
        ops: u64,
    ) -> Result<u64, SideError> {
        audit.finish()?;
        let sum = audit.sum;
        let wrong =
            |expected: String| Err(SideError::Wrong(format!("the sum is {sum} instead of {expected}")));
        match self {
            Workload::Put => {
                let (least, most) = audit.extent;
                // Numbers count the puts of a thread.
                match least >= 0 && most <= ops as i64 && (most > 0 || ops == 0) {
                    true => Ok(0),
                    false => {
                        Err(SideError::Wrong(format!("numbers from {least} to {most} after {ops} puts")))
                    }
                }
            }
            Workload::GetPut if threads > 1 => match i128::from(ops) - sum {
                lost @ 0.. if sum > 0 || ops == 0 => Ok(lost as u64),
                _ => wrong(format!("at most {ops}")),
            },
            Workload::GetPut | Workload::Modify | Workload::ModifyHot => match sum == i128::from(ops) {
                true => Ok(0),
                false => wrong(format!("{ops} acknowledged increments")),
            },
            Workload::Transfer | Workload::TransferScan => match sum == total(data) {
                true => Ok(0),
                false => wrong(total(data).to_string()),
            },
        }
    }
}

impl std::fmt::Display for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Returns the sum of all numbers at first, which transfers preserve.
pub(crate) fn total(data: &Data) -> i128 {
    i128::from(data.keys) * i128::from(data.initial)
}

/// A thread that executes a workload.
pub(crate) struct Actor<S> {
    session: S,
    workload: Workload,
    data: Data,
    random: Random,
    done: i64,
    one: [Vec<u8>; 1],
    two: [Vec<u8>; 2],
}

impl<S: Session> Actor<S> {
    /// Creates it with its own random choices.
    pub(crate) fn new(session: S, workload: Workload, data: Data, random: Random) -> Actor<S> {
        Actor { session, workload, data, random, done: 0, one: Default::default(), two: Default::default() }
    }

    /// Executes one operation. Returns the number of its failed attempts.
    #[inline]
    pub(crate) fn act(&mut self) -> Result<u64, SideError> {
        self.done += 1;
        let keys = self.data.keys;
        match self.workload {
            Workload::Put => {
                let key = key(self.random.below(keys));
                let [value] = &mut self.one;
                write_value(value, &key, self.data.value_bytes, self.done);
                self.session.put(&key, value)?;
                Ok(0)
            }
            Workload::GetPut => {
                let key = key(self.random.below(keys));
                let [value] = &mut self.one;
                self.session.get(&key, value)?;
                increment(value);
                self.session.put(&key, value)?;
                Ok(0)
            }
            Workload::Modify | Workload::ModifyHot => {
                let key = key(self.random.below(keys));
                self.session.transact([&key], &mut self.one, |[value]| increment(value))
            }
            Workload::Transfer | Workload::TransferScan => {
                let from = self.random.below(keys);
                // Any other account.
                let to = (from + 1 + self.random.below(keys - 1)) % keys;
                let amount = 1 + self.random.below(LARGEST_AMOUNT) as i64;
                let keys = [&key(from), &key(to)];
                self.session.transact(keys, &mut self.two, |[from, to]| {
                    add(from, -amount);
                    add(to, amount);
                })
            }
        }
    }
}

#[inline]
fn increment(value: &mut [u8]) {
    add(value, 1);
}

/// Adds to a value's number. It wraps, since a number that was read may be anything.
#[inline]
fn add(value: &mut [u8], amount: i64) {
    set_number(value, number(value).wrapping_add(amount));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line_and_of_rows() {
        assert_eq!(Workload::ALL, *Workload::value_variants());
        for workload in Workload::ALL {
            assert_eq!(Workload::from_str(workload.name(), false), Ok(workload));
            assert_eq!(serde_json::to_value(workload).unwrap(), workload.name());
            assert!(!workload.about().is_empty());
        }
    }

    /// Returns the pass over data whose first number is another one.
    fn audit(data: Data, first: i64) -> Audit {
        let mut entries: Vec<_> = data.entries().collect();
        set_number(&mut entries[0].1, first);
        entries.sort();
        let mut audit = Audit::of(data);
        entries.iter().for_each(|(key, value)| audit.look(key, value));
        audit
    }

    #[test]
    fn sums_decide_whether_a_run_was_right() {
        let checked = |workload: Workload, first, threads, ops| {
            let data = workload.data(30, 16);
            workload.check(&audit(data, first), &data, threads, ops)
        };
        for workload in [Workload::Modify, Workload::ModifyHot, Workload::GetPut] {
            assert_eq!(checked(workload, 9, 1, 9).unwrap(), 0, "{workload}");
            assert!(checked(workload, 8, 1, 9).is_err(), "{workload}: an increment is lost");
            assert!(checked(workload, 10, 1, 9).is_err(), "{workload}: one too many");
        }
        assert_eq!(checked(Workload::GetPut, 7, 2, 9).unwrap(), 2);
        assert!(checked(Workload::GetPut, 10, 2, 9).is_err());
        assert!(checked(Workload::Modify, 8, 8, 9).is_err());
        for workload in [Workload::Transfer, Workload::TransferScan] {
            assert_eq!(checked(workload, BALANCE, 8, 5).unwrap(), 0);
            assert!(checked(workload, BALANCE - 1, 8, 5).is_err());
        }
        assert!(checked(Workload::Put, 5, 2, 5).is_ok());
        assert!(checked(Workload::Put, 6, 2, 5).is_err());
        assert!(checked(Workload::Put, -1, 2, 5).is_err());
        assert!(checked(Workload::Put, 0, 2, 5).is_err(), "nothing was put");
    }
}
