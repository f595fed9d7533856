//! External programs and privileges.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Reports whether this process may mount.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Directories of system administration programs, which may not be in the path.
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    places.map(|place| place.join(program)).find(|file| file.is_file())
}

/// Returns why a program cannot be used. As root, one that is in Debian's packages is installed
/// first.
pub(crate) fn missing_tool(program: &str, package: &str) -> Option<String> {
    if find(program).is_some() {
        return None;
    }
    let debian = Path::new("/etc/debian_version").exists();
    if debian && is_root() {
        eprintln!("{program} is missing: installing {package}");
        let script =
            format!("apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y {package}");
        let _ = Command::new("sh").args(["-c", &script]).stdout(std::io::stderr()).status();
        if find(program).is_some() {
            return None;
        }
    }
    Some(format!("{program} is missing (package {package}, on Debian: apt-get install {package})"))
}

/// Runs a program; on failure the error is its own output.
pub(super) fn run(program: &str, args: &[&str]) -> Result<String, String> {
    let path = find(program).ok_or_else(|| format!("{program} is missing"))?;
    let output = Command::new(path).args(args).output().map_err(|error| format!("{program}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(format!("{program} {}: {}", args.join(" "), text(&output.stderr))),
    }
}

/// Copies a directory with its contents, as evidence. Unreadable files are skipped.
pub(crate) fn copy_dir(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else if std::fs::copy(entry.path(), &target).is_err() {
            std::fs::write(target.with_extension("unreadable"), b"")?;
        }
    }
    Ok(())
}
