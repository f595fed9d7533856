//! Keys from files and directories named by the user.

use std::error::Error;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Maximum number of paths read.
const MOST_PATHS: usize = 4_000_000;

fn read(file: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    fs::read(file).map_err(|error| format!("could not read {}: {error}", file.display()).into())
}

/// Returns the lines that are not empty.
pub(super) fn lines(file: &Path) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let bytes = read(file)?;
    let lines = bytes.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    Ok(lines.filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect())
}

fn parsed<T>(file: &Path, what: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, Box<dyn Error>> {
    let text = lines(file)?;
    let items = text.iter().enumerate().map(|(at, line)| {
        let item = std::str::from_utf8(line).ok().and_then(|line| parse(line.trim()));
        item.ok_or_else(|| format!("{}: no {what} in line {} with text", file.display(), at + 1).into())
    });
    items.collect()
}

/// Parses IPv4 addresses, dotted or as numbers.
pub(super) fn addresses(file: &Path) -> Result<Vec<u64>, Box<dyn Error>> {
    parsed(file, "IPv4 address", |line| {
        let dotted = line.parse::<Ipv4Addr>().map(u32::from).ok();
        dotted.or_else(|| line.parse().ok()).map(u64::from)
    })
}

/// Parses latitudes and longitudes in degrees, separated by a comma.
pub(super) fn coordinates(file: &Path) -> Result<Vec<(f64, f64)>, Box<dyn Error>> {
    parsed(file, "LATITUDE,LONGITUDE", |line| {
        let (latitude, longitude) = line.split_once(',')?;
        Some((latitude.trim().parse().ok()?, longitude.trim().parse().ok()?))
    })
}

/// Returns the requested directory, or /usr, or that of the Rust toolchain.
pub(super) fn default_root(asked: Option<&Path>) -> PathBuf {
    let usr = Path::new("/usr");
    if let Some(given) = asked.or(Some(usr).filter(|usr| usr.is_dir())) {
        return given.to_owned();
    }
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().ok();
    let path = sysroot.filter(|out| out.status.success()).and_then(|out| String::from_utf8(out.stdout).ok());
    path.map_or_else(|| ".".into(), |path| PathBuf::from(path.trim()))
}

/// Returns the paths of all files below `root`, without following links. Unreadable directories are skipped.
pub(super) fn walk(root: &Path) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let first = fs::read_dir(root);
    first.map_err(|error: io::Error| format!("could not list {}: {error}", root.display()))?;
    let (mut paths, mut open) = (Vec::new(), vec![root.to_owned()]);
    while let Some(directory) = open.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(entry.path()),
                Ok(_) if paths.len() < MOST_PATHS => {
                    paths.push(entry.path().into_os_string().into_encoded_bytes());
                }
                _ => {}
            }
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("filter-bench-{}-{name}", std::process::id()));
        fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn files_are_read_line_by_line() {
        let path = file("ips", "1.2.3.4\r\n\n16909061\n");
        assert_eq!(addresses(&path).unwrap(), [0x0102_0304, 0x0102_0305]);
        assert!(coordinates(&path).unwrap_err().to_string().contains("line 1"));
        fs::remove_file(path).unwrap();
        let path = file("places", "45.5, 4.25\n-1,-2\n");
        assert_eq!(coordinates(&path).unwrap(), [(45.5, 4.25), (-1.0, -2.0)]);
        fs::remove_file(path).unwrap();
        assert!(lines(Path::new("/no such file")).unwrap_err().to_string().contains("/no such file"));
    }

    #[test]
    fn a_walk_finds_this_file() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let paths = walk(&root).unwrap();
        assert!(paths.iter().any(|path| path.ends_with(b"keysets/files.rs")));
        assert!(walk(Path::new("/no such directory")).is_err());
    }
}
