//! The failing calls as text: `pwrite64:ENOSPC:17:once:before`.

use super::sites::{self, SITES};

macro_rules! errors {
    ($($name:ident),*) => {
        /// An error of a call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(clippy::upper_case_acronyms, reason = "these are their names")]
        pub(crate) enum Errno { $($name),* }

        impl Errno {
            const ALL: &[(&str, Errno)] = &[$((stringify!($name), Errno::$name)),*];

            pub(crate) fn number(self) -> i32 {
                match self { $(Errno::$name => libc::$name),* }
            }

            pub(crate) fn name(self) -> &'static str {
                match self { $(Errno::$name => stringify!($name)),* }
            }
        }
    };
}

errors!(EIO, ENOSPC, EMFILE, ENFILE, EINTR, EAGAIN, EDQUOT, EROFS, EACCES, ENOMEM, ENOLCK);

impl Errno {
    /// Reports whether callers may retry immediately and forever: such an error is never permanent.
    pub(crate) fn is_passing(self) -> bool {
        matches!(self, Errno::EINTR | Errno::EAGAIN)
    }
}

/// The number of failing calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Once,
    /// This call and the two after it.
    Thrice,
    /// This call and all after it.
    On,
}

/// The part of a failing call that is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum When {
    /// Nothing.
    Before,
    /// All.
    After,
    /// Half, which is reported: not an error.
    Short,
}

/// Failing calls of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The index in [`SITES`].
    pub(super) site: usize,
    pub(crate) errno: Errno,
    /// The first failing call, from 1.
    pub(crate) at: u64,
    pub(crate) how: How,
    pub(crate) when: When,
}

const HOWS: [(&str, How); 3] = [("once", How::Once), ("thrice", How::Thrice), ("on", How::On)];
const WHENS: [(&str, When); 3] = [("before", When::Before), ("after", When::After), ("short", When::Short)];

fn word<T: PartialEq>(table: &[(&'static str, T)], value: &T) -> &'static str {
    table.iter().find(|(_, v)| v == value).map_or("?", |(word, _)| word)
}

fn value<T: Copy>(table: &[(&str, T)], word: &str) -> Option<T> {
    table.iter().find(|(w, _)| *w == word).map(|(_, value)| *value)
}

impl Plan {
    pub(crate) fn new(site: &str, errno: Errno, at: u64, how: How, when: When) -> Option<Plan> {
        Some(Plan { site: sites::named(site)?, errno, at, how, when })
    }

    pub(crate) fn site_name(&self) -> &'static str {
        SITES[self.site].name
    }

    /// Reports whether the call with this number, from 1, fails.
    pub(super) fn hits(&self, number: u64) -> bool {
        match self.how {
            How::Once => number == self.at,
            How::Thrice => (self.at..self.at + 3).contains(&number),
            How::On => number >= self.at,
        }
    }

    /// Returns the last failing call, if any.
    pub(super) fn last(&self) -> Option<u64> {
        match self.how {
            How::Once => Some(self.at),
            How::Thrice => Some(self.at + 2),
            How::On => None,
        }
    }

    /// Returns the name in the table of counts.
    pub(crate) fn error_name(&self) -> &'static str {
        if self.when == When::Short { "short" } else { self.errno.name() }
    }
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (how, when) = (word(&HOWS, &self.how), word(&WHENS, &self.when));
        write!(f, "{}:{}:{}:{how}:{when}", self.site_name(), self.errno.name(), self.at)
    }
}

impl std::str::FromStr for Plan {
    type Err = String;

    fn from_str(text: &str) -> Result<Plan, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let read = || {
            let [site, errno, at, how, when] = parts[..] else { return None };
            let at = at.parse().ok().filter(|at| *at > 0)?;
            Plan::new(site, value(Errno::ALL, errno)?, at, value(&HOWS, how)?, value(&WHENS, when)?)
        };
        read().ok_or_else(|| {
            format!("`{text}`: expected SYSCALL:ERROR:NUMBER:once|thrice|on:before|after|short")
        })
    }
}

/// The end of a process: before the call with this number, from 1, among those that change files in
/// a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kill {
    pub(crate) phase: String,
    pub(crate) at: u64,
}

impl std::fmt::Display for Kill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.phase, self.at)
    }
}

impl std::str::FromStr for Kill {
    type Err = String;

    fn from_str(text: &str) -> Result<Kill, String> {
        let read = |(phase, at): (&str, &str)| Some(Kill { phase: phase.to_owned(), at: at.parse().ok()? });
        text.split_once(':').and_then(read).ok_or_else(|| format!("`{text}`: expected PHASE:NUMBER"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_parsed_as_printed() {
        for text in
            ["pwrite64:ENOSPC:17:once:before", "fdatasync:EIO:1:on:after", "pread64:EINTR:3:thrice:short"]
        {
            assert_eq!(text.parse::<Plan>().unwrap().to_string(), text);
        }
        for text in
            ["", "pwrite64", "pwrite64:ENOSPC:0:once:before", "nothing:EIO:1:once:before", "read:EIO:1:x:y"]
        {
            assert!(text.parse::<Plan>().is_err(), "{text}");
        }
        assert_eq!("flush:3".parse::<Kill>().unwrap().to_string(), "flush:3");
        assert!("flush".parse::<Kill>().is_err());
    }

    #[test]
    fn once_thrice_and_on() {
        let hits = |how: &str| {
            let plan: Plan = format!("write:EIO:2:{how}:before").parse().unwrap();
            (1..=6).filter(|n| plan.hits(*n)).collect::<Vec<_>>()
        };
        assert_eq!(hits("once"), [2]);
        assert_eq!(hits("thrice"), [2, 3, 4]);
        let last = |how: &str| format!("write:EIO:2:{how}:before").parse::<Plan>().unwrap().last();
        assert_eq!([last("once"), last("thrice"), last("on")], [Some(2), Some(4), None]);
        assert_eq!(hits("on"), [2, 3, 4, 5, 6]);
    }
}
