//! The header in the repository is the one that the source gives.

use std::path::Path;

/// After a change of the interface: `UPDATE_HEADER=1 cargo test --test header`.
#[test]
fn the_header_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml");
    let bindings =
        cbindgen::Builder::new().with_crate(root).with_config(config).generate().expect("a header");
    let mut generated = Vec::new();
    bindings.write(&mut generated);
    let header = root.join("include/tamis/leveldb.h");
    if std::env::var_os("UPDATE_HEADER").is_some() {
        std::fs::write(&header, &generated).expect("the header can be written");
        return;
    }
    let kept = std::fs::read(&header).expect("the header");
    assert!(kept == generated, "{} is not current: run the test with UPDATE_HEADER=1", header.display());
}
