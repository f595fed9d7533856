//! Writes the licenses of linked crates to where Maven packs them from: beside the library, see `pom.xml`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = std::env::var("OUT_DIR").expect("cargo sets it");
    // target/release/build/tamis-java-0123456789abcdef/out
    let beside = std::path::Path::new(&out).ancestors().nth(3).expect("cargo's directories");
    tamis_notices::write(&beside.join("tamis-java/THIRD-PARTY.txt"));
}
