//! A headless browser: Chromium, if available on this machine.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The browser is killed after this time: that is a failure, not a measure of speed.
const PATIENCE: Duration = Duration::from_secs(180);

/// A browser, and a directory for its output.
pub(crate) struct Chromium {
    program: PathBuf,
    dir: tempfile::TempDir,
}

/// The output of a run of the browser.
pub(crate) struct Left {
    pub(crate) stdout: String,
    /// The console messages of pages, one line each.
    pub(crate) console: Vec<String>,
}

impl Chromium {
    /// Finds the program that `TAMIS_BROWSER` names, or the first of the usual names in `PATH`. Without one the caller
    /// must return, as the message says, unless `CI_BROWSER=required`: then this panics.
    #[expect(clippy::print_stderr, reason = "a skipped test reports this where its output is shown")]
    pub(crate) fn find() -> Option<Chromium> {
        let given = std::env::var_os("TAMIS_BROWSER").map(PathBuf::from);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let program = given.or_else(|| {
            let names = ["chromium", "chromium-browser", "google-chrome"];
            let mut all = std::env::split_paths(&path).flat_map(|dir| names.map(|name| dir.join(name)));
            all.find(|program| program.is_file())
        });
        let required = std::env::var_os("CI_BROWSER").is_some_and(|value| value == "required");
        match program {
            Some(program) => Some(Chromium { program, dir: tempfile::tempdir().unwrap() }),
            None if required => panic!("CI_BROWSER=required, and there is no browser"),
            None => {
                eprintln!("SKIPPED: no chromium in PATH, and TAMIS_BROWSER names none");
                None
            }
        }
    }

    /// Writes a page and returns its path.
    pub(crate) fn write(&self, name: &str, page: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, page).unwrap();
        path
    }

    /// Returns a path for a file that the browser writes.
    pub(crate) fn place(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Opens a page with additional flags and waits until the browser exits.
    pub(crate) fn open(&self, page: &Path, flags: &[&str]) -> Left {
        let profile = tempfile::tempdir_in(self.dir.path()).unwrap();
        let file = |name: &str| (profile.path().join(name), File::create(profile.path().join(name)).unwrap());
        let ((out_path, out), (err_path, err)) = (file("stdout"), file("stderr"));
        let mut child = Command::new(&self.program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--disable-dev-shm-usage", "--enable-logging=stderr", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", profile.path().join("profile").display()))
            .args(flags)
            .arg(format!("file://{}", page.display()))
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", self.program.display()));
        let began = Instant::now();
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None if began.elapsed() > PATIENCE => {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    panic!("the browser hangs: {}", fs::read_to_string(&err_path).unwrap_or_default());
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        let text = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
        let (stdout, stderr) = (text(&out_path), text(&err_path));
        assert!(status.success(), "{status}: {stderr}");
        let console = stderr.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
        Left { stdout, console }
    }
}
