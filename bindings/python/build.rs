//! Writes the licenses of linked crates to where maturin packs them from: see `pyproject.toml`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    tamis_notices::write(
        &std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("python/tamis/THIRD-PARTY.txt"),
    );
}
