//! The top-level command line, and the arguments shared by several subcommands.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use tamis::operators::Operators;
use tamis::options::OnDamage;
use tamis::{Db, Keyspace, OpenError, Options};

use crate::commands::*;
use crate::complete;
use crate::failure::Failure;
use crate::values::{FilterArgs, KEYSPACE_PREFIX, OptionArgs};

/// The rule for keys on the command line, shown with every subcommand that takes one.
pub(crate) const KEYS_HELP: &str = "\
Keys and values are used byte for byte as typed; with --hex, all of them (input and output) are hexadecimal
digits (00ff10). The form of a key is never guessed: without --hex, `0x61` is a key of four bytes.
Whatever begins with a dash is an option: keys and values that do come after `--`, bounds after `=` (--start=-5).";

#[derive(Parser)]
#[command(
    name = "tamis",
    version,
    about = "An embeddable LSM key-value store that hashes a key once per read: the command-line program.",
    long_about = "An embeddable LSM key-value store that hashes a key once per read: the command-line \
                  program.\n\nWithout a subcommand it runs the main job: it loads the bundled sample \
                  (171,075 places from GeoNames), reads it back with hash sharing on and off, and prints what \
                  the reads cost. The database is kept so that you can try the other subcommands on it.",
    after_help = "Exit codes: 0 success; 1 not found, or a problem found; 2 wrong usage or bad input, and no database where one \
                  is to be read; 3 the database or the system failed.\n\nExamples:\n  tamis --db ./tamis-demo                        the main job\n  \
                  tamis stats --db ./tamis-demo                  the resulting tree\n  \
                  tamis scan --db ./tamis-demo --prefix IS/      all places in Iceland\n  \
                  tamis bench --workload get-empty,get-existing  a measurement\n\nEnvironment:\n  \
                  TMPDIR          where a database is made that is given no directory\n  \
                  TAMIS_COMPLETE  set by the script of `tamis completions`, which asks\n                  \
                  this program what to offer",
    args_conflicts_with_subcommands = true,
    // Narrower terminals are asked for their width.
    max_term_width = 80
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) demo: demo::DemoArgs,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Load(load::LoadArgs),
    BuildTable(build_table::BuildTableArgs),
    Ingest(ingest::IngestArgs),
    Export(export::ExportArgs),
    Import(import::ImportArgs),
    Get(get::GetArgs),
    Put(put::PutArgs),
    Del(del::DelArgs),
    Scan(scan::ScanArgs),
    Explain(explain::ExplainArgs),
    Stats(stats::StatsArgs),
    Top(top::TopArgs),
    Serve(serve::ServeArgs),
    Heatmap(heatmap::HeatmapArgs),
    Dump(dump::DumpArgs),
    Verify(verify::VerifyArgs),
    Salvage(salvage::SalvageArgs),
    #[command(subcommand)]
    Keyspaces(keyspaces::KeyspacesCommand),
    Checkpoint(checkpoint::CheckpointArgs),
    #[cfg(feature = "object-store")]
    #[command(subcommand)]
    Backup(backup::BackupCommand),
    #[cfg(not(feature = "object-store"))]
    Backup(no_backup::NoBackupArgs),
    Compact(compact::CompactArgs),
    Options(options::OptionsArgs),
    Advise(advise::AdviseArgs),
    Bench(Box<bench::BenchArgs>),
    Experiment(experiment::ExperimentArgs),
    Stress(stress::StressArgs),
    Soak(soak::SoakArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
    #[command(hide = true)]
    StressChild(stress::child::ChildArgs),
}

/// Returns the definition of all commands. In a page of help, lines that follow each other are one
/// paragraph, which is wrapped; lines that begin with a blank stay as they are.
pub(crate) fn command() -> clap::Command {
    fn wrapped(command: clap::Command) -> clap::Command {
        let flowing = |text: Option<&clap::builder::StyledStr>| text.map(|text| flowing(&text.to_string()));
        let (help, long) = (flowing(command.get_after_help()), flowing(command.get_after_long_help()));
        let command = match help {
            Some(text) => command.after_help(text),
            None => command,
        };
        let command = match long {
            Some(text) => command.after_long_help(text),
            None => command,
        };
        command.mut_subcommands(wrapped)
    }
    wrapped(Cli::command())
}

/// Joins the lines of each paragraph.
fn flowing(text: &str) -> String {
    let mut out = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        out.push_str(line);
        let flows = |line: &str| !line.is_empty() && !line.starts_with(' ');
        match lines.peek() {
            Some(next) if flows(line) && flows(next) => out.push(' '),
            Some(_) => out.push('\n'),
            None => {}
        }
    }
    out
}

/// Returns the options that the database in `dir` was last opened with (the defaults for a new
/// one). Operators that its program supplies are unknown here: such keyspaces can be read and
/// copied.
pub(crate) fn stored_options(dir: &Path) -> Result<Options, Failure> {
    refuse_file(dir)?;
    let mut options = Options::stored_in(dir)?.unwrap_or_default();
    options.operators = Operators::new().with_unknown();
    Ok(options)
}

/// Fails if something else than a directory is where a database is looked for.
pub(crate) fn refuse_file(dir: &Path) -> Result<(), Failure> {
    match fs::metadata(dir) {
        Ok(it) if it.is_file() => {
            Err(Failure::usage(format!("{} is a file; a database is a directory", dir.display())))
        }
        Ok(it) if !it.is_dir() => {
            Err(Failure::usage(format!("{} is not a directory, as a database is", dir.display())))
        }
        // What else is wrong, the opening says.
        _ => Ok(()),
    }
}

/// A directory that is given as for all commands, or alone.
#[derive(Args, Clone, Debug)]
pub(crate) struct DirArgs {
    /// The database's directory
    #[arg(value_name = "DIR", required_unless_present = "db")]
    dir: Option<PathBuf>,
    /// The database's directory, as for the other commands
    #[arg(long, value_name = "DIR", conflicts_with = "dir")]
    db: Option<PathBuf>,
}

impl DirArgs {
    /// Returns the directory.
    pub(crate) fn path(&self) -> &Path {
        self.dir.as_deref().or(self.db.as_deref()).unwrap_or(Path::new(""))
    }
}

/// The database and the options to open it with.
#[derive(Args, Clone, Debug)]
pub(crate) struct DbArgs {
    /// The database's directory
    #[arg(long, value_name = "DIR")]
    pub(crate) db: PathBuf,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
}

/// The keyspace of a command that reads or writes one. Options named `keyspace.…` are those of this
/// keyspace.
#[derive(Args, Clone, Debug)]
pub(crate) struct KeyspaceArgs {
    /// The keyspace; `tamis keyspaces` lists and creates them
    #[arg(long, value_name = "NAME", default_value = DEFAULT, add = ArgValueCompleter::new(complete::keyspaces))]
    pub(crate) keyspace: String,
}

/// The name of the keyspace that every database has.
pub(crate) const DEFAULT: &str = "default";

impl DbArgs {
    /// Returns the same with a filter among the options.
    pub(crate) fn with(&self, filter: &FilterArgs) -> DbArgs {
        DbArgs { db: self.db.clone(), options: filter.among(&self.options) }
    }

    /// Returns the options that the database was last opened with (the defaults for a new one),
    /// with those given applied.
    fn to_options(&self) -> Result<Options, Failure> {
        self.to_options_with(None)
    }

    /// Like `to_options`; `on_damage` is the policy for damaged tables unless one was given.
    pub(crate) fn to_options_with(&self, on_damage: Option<OnDamage>) -> Result<Options, Failure> {
        let mut options = stored_options(&self.db)?;
        options.on_damage = on_damage.unwrap_or(options.on_damage);
        // These restrict one opening; they do not describe the database.
        options.set("create_if_missing", "true")?;
        options.set("create_among_others", "false")?;
        options.set("error_if_exists", "false")?;
        self.options.apply(&mut options)?;
        Ok(options)
    }

    /// Opens for inspection: a damaged table must not hide the others.
    pub(crate) fn open_to_look(&self) -> Result<Db, Failure> {
        Ok(self.to_options_with(Some(OnDamage::Quarantine))?.open_read_only(&self.db)?)
    }

    /// The same, to catch up with a writer.
    pub(crate) fn open_to_watch(&self) -> Result<Db, Failure> {
        Ok(self.to_options_with(Some(OnDamage::Quarantine))?.open_follower(&self.db)?)
    }

    /// Opens read-only; other readers may have the database open too.
    pub(crate) fn open_read_only(&self) -> Result<Db, Failure> {
        Ok(self.to_options()?.open_read_only(&self.db)?)
    }

    /// Opens an existing database for writing.
    pub(crate) fn open_existing(&self) -> Result<Db, Failure> {
        Ok(self.try_open_existing()??)
    }

    /// The same, for a command that knows what to do if it cannot.
    pub(crate) fn try_open_existing(&self) -> Result<Result<Db, OpenError>, Failure> {
        let mut options = self.to_options()?;
        options.create_if_missing = false;
        Ok(options.open(&self.db))
    }

    /// Opens beside a writer, to copy what it has written.
    pub(crate) fn open_to_copy(&self) -> Result<Db, Failure> {
        Ok(self.to_options()?.open_follower(&self.db)?)
    }

    /// Opens for writing, creating the database if there is none.
    pub(crate) fn open_or_create(&self) -> Result<Db, Failure> {
        Ok(self.to_options()?.open(&self.db)?)
    }
}

impl KeyspaceArgs {
    /// Opens a keyspace read-only.
    pub(crate) fn open_read_only(&self, args: &DbArgs) -> Result<Keyspace, Failure> {
        let (args, own) = self.split(args);
        if let Some((name, _)) = own.first() {
            let (keyspace, prefix) = (&self.keyspace, KEYSPACE_PREFIX);
            return Err(Failure::usage(format!(
                "`{prefix}{name}` cannot be set here: this command changes no option of keyspace `{keyspace}`"
            )));
        }
        Ok(args.open_read_only()?.keyspace(&self.keyspace)?)
    }

    /// Opens a keyspace of an existing database for writing.
    pub(crate) fn open_existing(&self, args: &DbArgs) -> Result<Keyspace, Failure> {
        let (args, own) = self.split(args);
        self.with_options(&args.open_existing()?, &own)
    }

    /// Opens a keyspace for writing. Creates the database if there is none, which has the default
    /// keyspace only.
    pub(crate) fn open_or_create(&self, args: &DbArgs) -> Result<Keyspace, Failure> {
        match self.keyspace == DEFAULT {
            true => self.with_options(&args.open_or_create()?, &[]),
            false => self.open_existing(args),
        }
    }

    fn with_options(&self, db: &Db, options: &[(String, String)]) -> Result<Keyspace, Failure> {
        let keyspace = db.keyspace(&self.keyspace)?;
        if !options.is_empty() {
            let changes: Vec<_> = options.iter().map(|(name, value)| (&name[..], &value[..])).collect();
            keyspace.set_options(&changes)?;
        }
        Ok(keyspace)
    }

    /// Separates the options of a keyspace other than the default one, whose options are among
    /// those of the database.
    fn split(&self, args: &DbArgs) -> (DbArgs, Vec<(String, String)>) {
        match self.keyspace == DEFAULT {
            true => (args.clone(), Vec::new()),
            false => {
                let (options, own) = args.options.split();
                (DbArgs { db: args.db.clone(), options }, own)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use tamis_bench::ValueSizes;

    use crate::values::assignment;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_command_line_is_well_formed() {
        command().debug_assert();
    }

    /// Paragraphs were broken at about a hundred columns by hand, and again by the terminal.
    #[test]
    fn help_fits_80_columns() {
        fn check(command: &mut clap::Command) {
            for page in [command.render_help(), command.render_long_help()] {
                let page = page.to_string();
                let long: Vec<&str> = page.lines().filter(|line| line.chars().count() > 80).collect();
                assert!(long.is_empty(), "{}: {long:#?}", command.get_name());
            }
            command.get_subcommands_mut().for_each(check);
        }
        // As in a terminal of that width; the test may run in any.
        let mut command = command().term_width(80);
        command.build();
        check(&mut command);
        assert_eq!(flowing("a\nb\n\n  c\n  d\ne\nf"), "a b\n\n  c\n  d\ne f");
    }

    /// A misspelt option must not pass for a key. `experiment`, and `backup` where there is none,
    /// take any words and do nothing.
    #[test]
    fn no_argument_takes_what_looks_like_an_option() {
        fn check(command: &clap::Command) {
            for arg in command.get_arguments() {
                let (command, arg_id) = (command.get_name(), arg.get_id());
                let lax = arg.is_allow_hyphen_values_set() || arg.is_allow_negative_numbers_set();
                assert!(!lax || matches!(command, "experiment" | "backup"), "{command} {arg_id}");
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    /// Commands without `--json`, and why.
    const WITHOUT_JSON: &[(&str, &str)] = &[
        ("put", "prints nothing"),
        ("keyspaces create", "prints nothing"),
        ("keyspaces set", "prints nothing"),
        ("checkpoint", "prints nothing"),
        ("dump", "shows a file to a person, its keys and values cut; programs get them from `export`"),
        ("completions", "prints a script"),
        ("man", "prints a manual page"),
        ("experiment", "prints nothing, and names another program"),
        ("stress-child", "is for `stress`, which reads what it prints"),
        #[cfg(not(feature = "object-store"))]
        ("backup", "prints nothing, and names another build"),
    ];

    /// Calls a function with each command that has no commands below it, and its name.
    fn each_command(of: &clap::Command, name: &str, act: &mut impl FnMut(&str, &clap::Command)) {
        for command in of.get_subcommands() {
            let name = format!("{name} {}", command.get_name());
            match command.has_subcommands() {
                true => each_command(command, &name, act),
                false => act(name.trim(), command),
            }
        }
    }

    #[test]
    fn what_prints_prints_json() {
        let mut without = Vec::new();
        let mut check = |name: &str, command: &clap::Command| match command
            .get_arguments()
            .find(|arg| arg.get_long() == Some("json"))
        {
            Some(json) => assert!(!json.get_action().takes_values() && json.get_help().is_some(), "{name}"),
            None => without.push(name.to_owned()),
        };
        check("", &command());
        each_command(&command(), "", &mut check);
        let mut known: Vec<&str> = WITHOUT_JSON.iter().map(|(name, _)| *name).collect();
        without.sort();
        known.sort();
        assert_eq!(without, known, "each command has --json, or a reason why it has not");
    }

    /// A shell is offered every command and every option of each.
    #[test]
    fn completions_are_complete() {
        let offered = |words: &[&str]| -> Vec<String> {
            let words: Vec<OsString> = ["tamis"].iter().chain(words).map(OsString::from).collect();
            let last = words.len() - 1;
            let offered = clap_complete::engine::complete(&mut command(), words, last, None).unwrap();
            offered.iter().map(|one| one.get_value().to_string_lossy().into_owned()).collect()
        };
        fn check(command: &clap::Command, path: &[&str], offered: &impl Fn(&[&str]) -> Vec<String>) {
            let (commands, options) = (offered(&[path, &[""]].concat()), offered(&[path, &["--"]].concat()));
            for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
                assert!(
                    commands.iter().any(|name| name == below.get_name()),
                    "{path:?} {}",
                    below.get_name()
                );
                check(below, &[path, &[below.get_name()]].concat(), offered);
            }
            for option in
                command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(|arg| arg.get_long())
            {
                assert!(options.contains(&format!("--{option}")), "{path:?} --{option}: {options:?}");
            }
        }
        check(&command(), &[], &offered);
    }

    #[test]
    fn no_subcommand_runs_the_main_job() {
        let cli = parse("tamis --db x --json").unwrap();
        assert!(cli.command.is_none() && cli.demo.json);
        assert_eq!(cli.demo.db, PathBuf::from("x"));
        assert_eq!(parse("tamis").unwrap().demo.db, PathBuf::from("./tamis-demo"));
    }

    #[test]
    fn options_are_set_by_name_and_bad_ones_are_rejected() {
        let cli = parse("tamis stats --db x -o hash_sharing=false -o keyspace.bits_per_key = 12");
        assert!(cli.is_err(), "a space starts another argument");
        let cli = parse("tamis stats --db x -o hash_sharing=false -o keyspace.bits_per_key=12").unwrap();
        let Some(Command::Stats(stats)) = cli.command else { panic!("stats") };
        let options = stats.db.to_options().unwrap();
        assert!(!options.hash_sharing);
        assert_eq!(options.keyspace.bits_per_key, 12.0);
        for wrong in ["nothing=1", "keyspace.bits_per_key=many"] {
            let mut options = Options::default();
            let args = OptionArgs { set: vec![assignment(wrong).unwrap()] };
            assert!(matches!(args.apply(&mut options), Err(Failure::Usage(_))), "{wrong}");
        }
        assert!(assignment("novalue").is_err() && assignment("=1").is_err());
    }

    #[test]
    fn bench_accepts_lists_of_workloads_and_rejects_unknown_ones() {
        let cli = parse("tamis bench --workload get-empty,seek --keys 10 --unsettled").unwrap();
        let Some(Command::Bench(bench)) = cli.command else { panic!("bench") };
        assert_eq!(bench.workload.len(), 2);
        assert!(bench.unsettled);
        assert!(parse("tamis bench --workload get-nothing").is_err());
        assert!(parse("tamis bench --settled --unsettled").is_err());
    }

    #[test]
    fn bench_accepts_fixed_and_mixed_value_lengths() {
        let sizes = |more: &str| {
            let cli = parse(&format!("tamis bench --workload mixgraph {more}"))?;
            let Some(Command::Bench(bench)) = cli.command else { panic!("bench") };
            Ok::<_, clap::Error>(bench.value_bytes)
        };
        assert_eq!(sizes("").unwrap(), ValueSizes::Fixed(256));
        assert_eq!(sizes("--value-bytes 40").unwrap(), ValueSizes::Fixed(40));
        assert_eq!(sizes("--value-bytes mixed").unwrap(), ValueSizes::Pareto);
        let refused = sizes("--value-bytes some").unwrap_err().to_string();
        assert!(refused.contains("`mixed`"), "{refused}");
        // Such a value used to be built in memory before the database rejected it.
        let refused = sizes("--value-bytes 99999999999").unwrap_err().to_string();
        assert!(refused.contains("4294967295"), "{refused}");
    }

    #[test]
    fn bounds_and_prefix_exclude_each_other() {
        assert!(parse("tamis scan --db x --prefix a --start b").is_err());
        assert!(parse("tamis scan --db x --start b --end c --limit 3 --reverse").is_ok());
        assert!(parse("tamis del --db x").is_err());
        assert!(parse("tamis del --db x a --prefix b").is_err());
        assert!(parse("tamis get --db x").is_err());
    }
}
