mod page;

use proptest::prelude::*;

use super::*;
use crate::error::OptionsError;

#[test]
fn the_defaults_are_the_documented_ones_and_pass_the_check() {
    let options = Options::default();
    options.check().unwrap();
    for info in Options::describe() {
        let mut set = options.clone();
        set.set(info.name, info.default).unwrap();
        assert_eq!(set, options, "{}", info.name);
        let line = format!("{} = {}\n", info.name, info.default);
        assert!(options.to_text().contains(&line), "default of {} is not printed as documented", info.name);
        assert!(info.doc.ends_with('.') && !info.takes.is_empty());
    }
    assert_eq!((options.keyspace.memtable_bytes, options.keyspace.bits_per_key), (64 << 20, 10.0));
    assert_eq!(options.durability, Durability::Buffered);
}

#[test]
fn the_text_form_groups_options_by_class_and_reads_back() {
    let durability = Durability::Every(std::time::Duration::from_millis(250));
    let mut options = Options { durability, ..Default::default() };
    options.keyspace.bits_per_key = 12.3;
    options.keyspace.filter = FilterChoice::Bloom(BloomHashing::Double).into();
    options.keyspace.compression = CompressionPerLevel::uniform(Compression::Lz4);
    let text = options.to_text();
    assert_eq!(Options::from_text(&text).unwrap(), options);
    let (basic, rest) = text.split_once("\n# tuning\n").unwrap();
    let (tuning, expert) = rest.split_once("\n# expert\n").unwrap();
    assert!(basic.starts_with("# basic\ncreate_if_missing = true\n"), "{text}");
    assert!(basic.contains("\ndurability = every 250 ms\n"), "{text}");
    assert!(basic.contains("\nkeyspace.filter = bloom-double\n"), "{text}");
    assert!(tuning.contains("read_mode = ") && expert.contains("\nkeyspace.levels = "), "{text}");

    let keyspace = options.keyspace.to_text();
    assert!(keyspace.contains("\nbits_per_key = 12.3\n"), "{keyspace}");
    assert_eq!(KeyspaceOptions::from_text(&keyspace).unwrap(), options.keyspace);
}

#[test]
fn comments_blank_lines_and_spacing_are_free_and_the_last_line_wins() {
    let text = "\n# head\r\n  cache_bytes=1KiB # note\n\ncache_bytes =  8 MiB\t\nkeyspace.filter = bloom\n";
    let options = Options::from_text(text).unwrap();
    assert_eq!(options.cache_bytes, 8 << 20);
    assert_eq!(options.keyspace.filter, FilterChoice::Bloom(BloomHashing::Rotation).into());
}

#[test]
fn an_option_that_is_gone_is_refused_with_the_reason_and_still_read_where_it_is_stored() {
    for (name, why) in definition::REMOVED {
        let error = Options::default().set(name, "x").unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(why), "{error}");
        let stored = Options::from_stored(&format!("cache_bytes = 1 MiB\n{name} = x\n")).unwrap();
        assert_eq!(stored, Options { cache_bytes: 1 << 20, ..Options::default() });
    }
}

#[test]
fn errors_name_the_line_or_the_option_and_what_it_takes() {
    let unknown = Options::from_text("# x\nbits_per_key = 1").unwrap_err();
    let near = Some("keyspace.bits_per_key");
    assert_eq!(unknown, OptionsError::Unknown { line: 2, name: "bits_per_key".into(), near });
    for text in ["cache_bytes", "= 3", "[keyspace]"] {
        assert!(matches!(Options::from_text(text), Err(OptionsError::Syntax { line: 1, .. })), "{text}");
    }
    let error = Options::from_text("keyspace.restart_interval = 256").unwrap_err().to_string();
    assert!(error.contains("keyspace.restart_interval") && error.contains("from 1 to 255"), "{error}");
    let mut keyspace = KeyspaceOptions::default();
    let error = keyspace.set("restart_intervall", "3").unwrap_err().to_string();
    assert!(!error.contains("line"), "a single option has no line: {error}");
}

#[test]
fn an_option_of_an_earlier_version_is_refused_with_the_reason_and_ignored_where_it_is_stored() {
    for name in ["keyspace.memtable_filter", "memtable_filter"] {
        let error = Options::default().set(name, "true").unwrap_err();
        assert!(matches!(&error, OptionsError::Unavailable { line: 0, .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            format!("option `{name}` is fixed at true: memtables always have a filter")
        );
    }
    let text = "level0_runs = 7\nstop_debt_bytes = 1 GiB\nverify_filters = perhaps\n";
    assert!(matches!(KeyspaceOptions::from_text(text), Err(OptionsError::Unavailable { line: 2, .. })));
    assert_eq!(KeyspaceOptions::from_stored(text).unwrap().level0_runs, 7);
    let of_database = format!("compaction_nice = 3\nkeyspace.{}", text.replace('\n', "\nkeyspace."));
    let stored = of_database.trim_end_matches("keyspace.");
    assert_eq!(Options::from_stored(stored).unwrap().keyspace.level0_runs, 7);
    assert!(KeyspaceOptions::from_stored("no_such_option = 1").is_err());
}

/// A database of an experiment that a normal build opened went on without its options in silence.
#[test]
fn stored_options_that_a_build_lacks_are_named_if_they_have_another_value_than_the_default() {
    let options = KeyspaceOptions { filter_range: 7, ..KeyspaceOptions::default() };
    let is_missing = |name: &str| name == "filter_range" || name == "picker";
    assert_eq!(definition::ignored_where(&options.to_text(), is_missing), ["filter_range = 7"]);
    assert!(definition::ignored_where(&options.to_text(), |_| false).is_empty());
}

#[test]
fn about_ten_options_are_basic_and_none_is_both_known_and_removed() {
    let all = Options::describe();
    let basic = all.iter().filter(|info| info.class == OptionClass::Basic).count();
    assert!((9..=12).contains(&basic), "{basic}");
    assert!(all.iter().all(|info| Options::default().set(info.name, info.default).is_ok()));
}

/// The error named the option that does not exist, and left the search for the right one to the
/// reader.
#[test]
fn a_misspelt_option_brings_a_suggestion() {
    let near = |text: &str| match Options::from_text(text) {
        Err(OptionsError::Unknown { near, .. }) => near,
        other => panic!("{text}: {other:?}"),
    };
    for (wrong, right) in [
        ("bits_per_key", "keyspace.bits_per_key"),
        ("keyspace.cache_bytes", "cache_bytes"),
        ("keyspace.bits_per_kei", "keyspace.bits_per_key"),
        ("cache-bytes", "cache_bytes"),
        ("Durabilty", "durability"),
        ("keyspace.memtable_byte", "keyspace.memtable_bytes"),
    ] {
        assert_eq!(near(&format!("{wrong} = 1")), Some(right), "{wrong}");
    }
    for strange in ["x", "nothing_like_it", "\u{1b}[31m", &"bits_per_key".repeat(20)] {
        assert_eq!(near(&format!("{strange} = 1")), None, "{strange}");
    }
    let own = KeyspaceOptions::from_text("keyspace.bits_per_key = 1").unwrap_err().to_string();
    assert!(own.contains("did you mean `bits_per_key`?"), "{own}");
}

/// Names and values came out of messages as they went in, and did with a terminal what they liked.
#[test]
fn messages_escape_what_they_quote() {
    for text in ["\u{1b}[31m = 1", "\u{202e}", "cache_bytes = \u{1b}[31m\u{200b}"] {
        let message = Options::from_text(text).unwrap_err().to_string();
        let hidden = |c: char| c.is_control() || matches!(c, '\u{200b}' | '\u{202e}');
        assert!(!message.contains(hidden) && message.contains("\\u{"), "{message:?}");
    }
}

#[test]
fn values_out_of_range_are_refused_by_set_and_by_check() {
    let mut options = Options::default();
    assert!(options.set("background_threads", "0").is_err());
    assert_eq!(options, Options::default(), "a refused value changes nothing");
    options.background_threads = 65;
    assert!(options.check().is_err());
    let mut keyspace = KeyspaceOptions { bits_per_key: f64::NAN, ..Default::default() };
    assert!(keyspace.check().is_err());
    keyspace.bits_per_key = 0.5;
    keyspace.check().unwrap();
}

#[test]
fn the_write_limits_must_be_in_order() {
    let keyspace = KeyspaceOptions { level0_runs: 21, ..Default::default() };
    assert!(matches!(keyspace.check(), Err(OptionsError::Value { name: "slowdown_runs", .. })));
    let options =
        Options { keyspace: KeyspaceOptions { stop_runs: 19, ..Default::default() }, ..Default::default() };
    assert!(matches!(options.check(), Err(OptionsError::Value { name: "keyspace.stop_runs", .. })));
    assert!(KeyspaceOptions::from_text("stop_runs = 3").is_err(), "from_text checks too");
    KeyspaceOptions::from_text("stop_runs = 3\nslowdown_runs = 3\nlevel0_runs = 3").unwrap();
}

#[test]
fn a_global_filter_excludes_all_others() {
    for word in ["grf", "external:mine", "auto"] {
        let options = KeyspaceOptions::from_text(&format!("filter = {word}")).unwrap();
        let choice = options.filter.at(5);
        assert!(choice.is_of_tree() && !choice.is_range());
        assert_eq!(options.filter.of_tree(), Some(choice));
        assert_eq!(options.filter.global(), Some(choice).filter(|_| word != "auto"));
        assert_eq!(KeyspaceOptions::from_text(&options.to_text()).unwrap(), options);
        KeyspaceOptions::from_text(&format!("filter = {word},{word}")).unwrap();

        for filter in [format!("blocked-bloom,{word}"), format!("{word},none"), format!("{word},none,{word}")]
        {
            let error = Options::from_text(&format!("keyspace.filter = {filter}")).unwrap_err();
            assert!(
                matches!(&error, OptionsError::Value { name: "keyspace.filter", value, .. } if *value == filter)
            );
            assert!(error.to_string().contains("for all levels or for none"), "{error}");
        }
        for allocation in ["monkey", "mnemosyne"] {
            let text = format!("keyspace.filter_allocation = {allocation}\nkeyspace.filter = {word}");
            let error = Options::from_text(&text).unwrap_err();
            assert!(matches!(&error, OptionsError::Value { name: "keyspace.filter_allocation", .. }));
            assert!(error.to_string().contains(&format!("`keyspace.filter` = {word}")), "{error}");
        }
    }
    let mine = FilterChoice::External(SelectorName::new("mine").unwrap());
    let two = FilterPolicy::split(1, FilterChoice::Grf, mine);
    assert_eq!(two.global(), None);
    assert!(KeyspaceOptions { filter: two, ..Default::default() }.check().is_err(), "two global filters");
    for local in FilterChoice::all().filter(|choice| !choice.is_global()) {
        assert_eq!(FilterPolicy::uniform(local).global(), None);
    }
    assert!(FilterPolicy::grf().global().is_some());
}

/// Databases of before name three filters that the engine no longer has: these are now the
/// program's to supply.
#[test]
fn a_stored_filter_that_the_engine_does_not_ship_is_an_external_one() {
    assert!(KeyspaceOptions::from_text("filter = mine").is_err());
    let options = KeyspaceOptions::from_stored("bits_per_key = 12\nfilter = mine\n").unwrap();
    assert_eq!((options.operators().selector, options.bits_per_key), (Some("mine"), 12.0));
    assert!(options.to_text().contains("filter = external:mine\n"));
    assert_eq!(KeyspaceOptions::from_stored(&options.to_text()).unwrap(), options);
    let stored = KeyspaceOptions::from_stored("filter = bloom-double,elastic-independent,ribbon").unwrap();
    assert_eq!(
        stored.to_text().lines().find(|line| line.starts_with("filter =")).unwrap().matches(',').count(),
        2
    );
    for name in ["", "Mine", "my filter", "a,b", &"m".repeat(33)] {
        assert!(KeyspaceOptions::from_stored(&format!("filter = {name}")).is_err(), "{name}");
        assert_eq!(SelectorName::new(name), None, "{name}");
    }
}

#[test]
fn key_map_and_prefix_filter_read_back() {
    let text = "filter = grf\nkey_map = mixed\nprefix_filter = delimiter 0x23";
    let options = KeyspaceOptions::from_text(text).unwrap();
    assert_eq!(options.key_map, KeyMapChoice::Mixed);
    assert_eq!(options.prefix_filter, PrefixFilter::Delimiter(b'#'));
    assert_eq!(KeyspaceOptions::from_text(&options.to_text()).unwrap(), options);
    assert!(KeyspaceOptions::from_text("prefix_filter = delimiter #").is_err(), "the rest is a comment");
    let equals = KeyspaceOptions::from_text("prefix_filter = delimiter =").unwrap();
    assert_eq!(equals.prefix_filter, PrefixFilter::Delimiter(b'='));
    assert_eq!(KeyspaceOptions::from_text(&equals.to_text()).unwrap(), equals);
    assert!(KeyspaceOptions::from_text("prefix_filter = 8,8").is_err());
    let unsorted = KeyspaceOptions { prefix_filter: PrefixFilter::Lengths(8, 4), ..Default::default() };
    assert!(unsorted.check().is_err());
}

#[test]
fn fewer_levels_than_the_tables_use_are_incompatible() {
    let stored = KeyspaceOptions::default();
    let asked = KeyspaceOptions { levels: 5, ..Default::default() };
    assert_eq!(incompatible(&stored, &asked, 4), None);
    let found = incompatible(&stored, &asked, 5).unwrap();
    assert_eq!((found.name, &found.stored[..], &found.asked[..]), ("levels", "7", "5"));
    assert!(found.advice.contains("at least 6"));
}

#[test]
fn a_corrupted_text_neither_panics_nor_breaks_the_check() {
    let text = Options::default().to_text().into_bytes();
    for at in 0..text.len() {
        for byte in [0, b'\n', b'=', b'#', b'9', b'-', b'x', 0xC3] {
            let mut changed = text.clone();
            changed[at] = byte;
            if let Ok(options) = Options::from_text(&String::from_utf8_lossy(&changed)) {
                options.check().unwrap();
                assert_eq!(Options::from_text(&options.to_text()).unwrap(), options);
            }
        }
    }
}

fn any_value() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "true",
        "false",
        "sync",
        "every 1 s",
        "none",
        "lz4,none",
        "direct",
        "bloom",
        "grf",
        "none,external:mine",
        "monkey",
        "mixed",
        "delimiter =",
        "delimiter 0x20",
        "9,8",
    ]);
    prop_oneof![
        (any::<u64>(), 0u32..64).prop_map(|(v, shift)| (v >> shift).to_string()),
        (0u64..5000, prop::sample::select(vec![" KiB", "MiB", " GiB", " ms"]))
            .prop_map(|(v, unit)| format!("{v}{unit}")),
        any::<f64>().prop_map(|v| v.to_string()),
        word.prop_map(str::to_owned),
        "\\PC{0,100}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_settable_value_reads_back_equal(
        settings in prop::collection::vec((0..Options::describe().len(), any_value()), 0..60),
    ) {
        let infos = Options::describe();
        let mut options = Options::default();
        for (i, value) in settings {
            let _ = options.set(infos[i].name, &value);
        }
        if options.check().is_ok() {
            prop_assert_eq!(Options::from_text(&options.to_text()).unwrap(), options);
        }
    }

    #[test]
    fn hostile_texts_do_not_panic(text in "(\\PC|[\n=# ]|keyspace\\.|cache_bytes|compression){0,60}") {
        let _ = Options::from_text(&text);
        let _ = KeyspaceOptions::from_text(&text);
    }
}
