//! Gives the shared library the name by which programs find it when they run.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let windows_or_mac =
        std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "macos" || os == "windows");
    if !windows_or_mac {
        let major = std::env::var("CARGO_PKG_VERSION_MAJOR").expect("cargo sets the version");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtamis_leveldb.so.{major}");
    }
}
