//! The bindings are released with the engine: one version, one license, the same lints and profiles.

use std::collections::BTreeMap;
use std::path::Path;

/// The lines of each section of a manifest, without comments.
fn sections(path: &str) -> BTreeMap<String, Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let text = std::fs::read_to_string(path).expect("a manifest");
    let mut sections: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with('[') {
            name = line.to_owned();
        } else {
            sections.entry(name.clone()).or_default().push(line.to_owned());
        }
    }
    sections
}

#[test]
fn version_license_lints_and_profiles_are_the_engines() {
    let (engine, bindings) = (sections("../../Cargo.toml"), sections("../Cargo.toml"));
    for line in &engine["[workspace.package]"] {
        assert!(bindings["[workspace.package]"].contains(line), "{line}");
    }
    for section in ["[workspace.lints.clippy]", "[profile.release]", "[profile.bench]", "[profile.dev]"] {
        assert_eq!(engine[section], bindings[section], "{section}");
    }
    let lints = engine["[workspace.lints.rust]"].iter().filter(|line| !line.contains("loom"));
    assert_eq!(lints.collect::<Vec<_>>(), bindings["[workspace.lints.rust]"].iter().collect::<Vec<_>>());
}

/// Maven reads no manifest of Cargo.
#[test]
fn the_java_package_has_the_same_version() {
    let bindings = sections("../Cargo.toml");
    let version = bindings["[workspace.package]"].iter().find_map(|line| line.strip_prefix("version = "));
    let version = version.expect("a version").trim_matches('"');
    let pom = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../java/pom.xml"));
    let of_package = format!("<artifactId>tamis</artifactId>\n  <version>{version}</version>");
    assert!(pom.expect("a project").contains(&of_package), "{version}");
}
