//! Which sources are mutated, and the group under which the results of each are counted.

/// The crates of the engine, from the bottom up.
pub const CRATES: &[&str] =
    &["tamis-base", "tamis-env", "tamis-filter", "tamis-files", "tamis-policy", "tamis"];

/// The groups, those first whose mistakes lose data.
pub const GROUPS: &[&str] =
    &["log", "manifest", "recovery", "commit", "compaction", "read path", "filters", "others"];

/// The rooms of each group but the last. Files of `tamis-env` are its `io`, its locks or its clock.
const ROOMS: &[(&str, &[&str])] = &[
    ("log", &["tamis/log", "tamis-files/wal"]),
    ("manifest", &["tamis/catalogue", "tamis-files/tree", "tamis-files/settings"]),
    ("recovery", &["tamis/open"]),
    ("commit", &["tamis/write", "tamis/session/committer", "tamis/batch", "tamis/gate", "tamis/conflicts"]),
    ("compaction", &["tamis/compaction", "tamis/jobs", "tamis-policy/compaction"]),
    (
        "read path",
        &[
            "tamis/read",
            "tamis/select",
            "tamis/memtable",
            "tamis/tree",
            "tamis/records",
            "tamis-files/table",
            "tamis-files/blob",
        ],
    ),
    ("filters", &["tamis-filter"]),
];

/// Returns the group of a file, given its place below the crates with `src` left out and without
/// its extension, as in `tamis/session/committer`.
pub fn group(place: &str) -> &'static str {
    let within = |room: &&str| {
        place.strip_prefix(*room).is_some_and(|rest| matches!(rest.chars().next(), None | Some('/')))
    };
    ROOMS.iter().find(|(_, rooms)| rooms.iter().any(&within)).map_or("others", |(group, _)| group)
}

/// Returns the room of a module: the crate and the first part of the module's path.
pub fn room(krate: &str, module: &[String]) -> String {
    module.first().map_or(krate.to_owned(), |first| format!("{krate}/{first}"))
}

#[cfg(test)]
mod tests {
    use super::group;

    #[test]
    fn files_and_directories_of_a_room_are_in_its_group() {
        assert_eq!(group("tamis/log"), "log");
        assert_eq!(group("tamis/session/committer"), "commit");
        assert_eq!(group("tamis/session/committer/turns"), "commit");
        assert_eq!(group("tamis/session/expiry"), "others");
        assert_eq!(group("tamis-filter/global/grf/map"), "filters");
        assert_eq!(group("tamis-files/settings"), "manifest");
    }

    #[test]
    fn a_room_is_no_prefix_of_another() {
        assert_eq!(group("tamis/opening"), "others");
        assert_eq!(group("tamis/logs"), "others");
    }
}
