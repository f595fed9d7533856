//! Why writes wait.

macro_rules! causes {
    ($($(#[$doc:meta])* $variant:ident $name:literal,)*) => {
        /// Why writes wait.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
        #[non_exhaustive]
        pub enum StallCause { $($(#[$doc])* $variant,)* }

        impl StallCause {
            /// Every cause.
            pub const ALL: &'static [StallCause] = &[$(StallCause::$variant,)*];

            /// Returns its name, as in metrics.
            pub fn name(self) -> &'static str {
                match self { $(StallCause::$variant => $name,)* }
            }
        }
    };
}

causes! {
    /// Stopped: compactions lag too far behind (`stop_runs`, four times
    /// `slowdown_debt_bytes`).
    Compactions "compactions",
    /// Stopped: the keyspace has as many memtables waiting for a flush as allowed
    /// (`max_memtables`).
    Memtables "memtables",
    /// Stopped: all memtables together exceed `memtable_budget_bytes`.
    MemtableBudget "memtable_budget",
    /// Stopped: the memtables of all databases that share write memory exceed it.
    SharedMemory "shared_memory",
    /// Stopped: the logs exceed `max_log_bytes`.
    LogSpace "log_space",
    /// Slowed down: compactions lag behind (`slowdown_runs`, `slowdown_debt_bytes`).
    SlowedByCompactions "slowed_by_compactions",
    /// Slowed down: the last free memtable fills up faster than flushes empty the others.
    SlowedByFlushes "slowed_by_flushes",
}
