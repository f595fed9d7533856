//! The option `workload`: the operations to tune for.

use tamis_model::engine::Workload;

use super::domain::Domain;

const OBSERVED: &str = "auto";

/// A workload in words, or `auto`, the observed one.
pub(super) struct Operations;

impl Domain<Option<Workload>> for Operations {
    fn parse(&self, text: &str) -> Option<Option<Workload>> {
        if text == OBSERVED { Some(None) } else { text.parse().ok().map(Some) }
    }

    fn print(&self, value: &Option<Workload>) -> String {
        value.map_or_else(|| OBSERVED.into(), |workload| workload.to_string())
    }

    fn accepts(&self, value: &Option<Workload>) -> bool {
        value.is_none_or(|workload| workload.is_sound())
    }

    fn expected(&self) -> String {
        "auto, or the shares of the operations and their distribution, like `get 60, empty-get 30, put 10, skew \
         0.99`: of get, empty-get, empty-range, seek, scan, put, range-width, scan-entries, skew, near, clustered"
            .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_accepted_value_reads_back() {
        let declared = Workload { empty_gets: 1.0 / 3.0, puts: 2.0, skew: 0.99, ..Workload::default() };
        for value in [None, Some(declared)] {
            assert!(Operations.accepts(&value));
            assert_eq!(Operations.parse(&Operations.print(&value)), Some(value));
        }
        assert!(!Operations.accepts(&Some(Workload::default())), "no operation at all");
        assert_eq!(Operations.parse("get lots"), None);
    }
}
