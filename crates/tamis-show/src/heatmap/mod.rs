//! Where reads go and where filter memory follows them: hotness and filter units over levels and
//! keys, of databases with elastic filters.

mod axis;
mod picture;
mod scale;
mod strip;

pub use axis::By;
pub use picture::Picture;
pub use strip::What;

#[cfg(test)]
mod tests {
    use tamis::stats::SegmentStats;

    /// A segment of the default keyspace.
    pub(super) fn segment(level: usize, run: u64, smallest: &str, end: &str, keys: u64) -> SegmentStats {
        filled!(SegmentStats {
            keyspace: "default".to_owned(),
            level,
            run,
            smallest: smallest.into(),
            end: end.into(),
            keys,
            units: 6,
            ..SegmentStats::default()
        })
    }
}
