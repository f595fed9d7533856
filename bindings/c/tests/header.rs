//! `tamis.h` is what cbindgen makes of the sources. UPDATE_HEADER=1 writes it anew.

use std::path::{Path, PathBuf};

use tamis_bindings::Code;

fn generated() -> String {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(crate_dir.join("cbindgen.toml")).expect("a configuration");
    let mut sources: Vec<PathBuf> = std::fs::read_dir(crate_dir.join("src"))
        .expect("the sources")
        .map(|entry| entry.expect("a file").path())
        // It names the others as its modules, and all of them would be there twice.
        .filter(|path| !path.ends_with("lib.rs"))
        .collect();
    sources.sort();
    // The order of the sections in the header: what everything needs comes first.
    let order = [
        "error", "options", "merge", "database", "keyspace", "output", "read", "iterator", "write", "update",
    ];
    let rank = |path: &PathBuf| {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        order.iter().position(|first| **first == name).unwrap_or(order.len())
    };
    sources.sort_by_key(rank);
    let mut builder = cbindgen::Builder::new().with_config(config);
    builder = builder.with_src(crate_dir.join("../common/src/code.rs"));
    for source in sources {
        builder = builder.with_src(source);
    }
    let mut header = Vec::new();
    builder.generate().expect("the sources parse").write(&mut header);
    String::from_utf8(header).expect("text")
}

#[test]
fn the_header_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/tamis.h");
    let generated = generated();
    if std::env::var_os("UPDATE_HEADER").is_some() {
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(&path, &generated).expect("the header can be written");
    }
    let checked_in = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(checked_in == generated, "include/tamis.h is not current; UPDATE_HEADER=1 writes it anew");
}

#[test]
fn the_header_has_every_code_and_every_function_once() {
    let header = generated();
    let code: Vec<&str> = header.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    for code in Code::ALL {
        let name = code.name().to_uppercase().replace('-', "_");
        assert!(header.contains(&format!("TAMIS_CODE_{name} = {},", code.number())), "{name}");
    }
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).expect("the sources") {
        let source = std::fs::read_to_string(entry.expect("a file").path()).expect("text");
        for rest in source.split("extern \"C\" fn tamis_").skip(1) {
            let name = rest.split('(').next().expect("a name");
            // Behind the type that it returns; as a parameter it would be in brackets.
            let declared = [format!(" tamis_{name}("), format!("*tamis_{name}(")];
            let count =
                code.iter().filter(|line| declared.iter().any(|declared| line.contains(declared))).count();
            assert_eq!(count, 1, "tamis_{name}");
        }
    }
}
