//! From counts to nanoseconds: every term with its formula, the numbers in it, and its value.
//!
//! An operation is a sum of products: how often an event happens ([`Counts`]) times its cost on
//! this machine ([`Machine`]). The papers' T_H is `digest_ns`, T_P the probe of a selector, T_D a
//! block: hash sharing (DAMON 2021, section 3) has the same sum with all levels alike. Pure
//! functions; a prediction grows a tree, which costs O(flushes · levels).

use super::counts::{Counts, counts, zipf_share};
use super::far::Far;
use super::inputs::{Class, Configuration, Data, Machine, ReadPath, Workload};
use super::shape::{Tree, grow};

/// One term of the sum.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Term {
    /// The operation it belongs to.
    pub class: Class,
    /// The name of the term.
    pub name: &'static str,
    /// The formula with symbols: `filters · (T_probe + T_far)`.
    pub formula: String,
    /// The formula with numbers.
    pub numbers: String,
    /// Nanoseconds per operation of its class.
    pub value_ns: f64,
}

/// The expected costs of a configuration.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Prediction {
    /// Nanoseconds per operation of each class, in the order of [`Class::ALL`].
    pub class_ns: [f64; 6],
    /// The counts of one operation of each class, in the same order.
    pub counts: [Counts; 6],
    /// Nanoseconds per operation, weighted by the workload's shares.
    pub mean_ns: f64,
    /// Bytes of filters in memory.
    pub filter_bytes: f64,
    /// Bytes of filters and block cache.
    pub memory_bytes: f64,
    /// Bytes written to tables per byte flushed.
    pub write_amplification: f64,
    /// Average number of runs.
    pub runs: f64,
    /// Every term of every class; those of one class sum to its `class_ns`.
    pub terms: Vec<Term>,
}

impl Prediction {
    /// Returns the nanoseconds per operation of a class.
    pub fn ns(&self, class: Class) -> f64 {
        self.class_ns[class as usize]
    }

    /// Returns the terms, those that the workload spends most on first, each with its contribution
    /// to the mean, in ns.
    pub fn dominant<'a>(&'a self, workload: &Workload) -> Vec<(&'a Term, f64)> {
        let mut terms: Vec<(&Term, f64)> =
            self.terms.iter().map(|term| (term, term.value_ns * workload.share(term.class))).collect();
        terms.retain(|(_, ns)| *ns > 0.0);
        terms.sort_by(|a, b| b.1.total_cmp(&a.1));
        terms
    }
}

/// Number of concurrent cache misses on filters of different runs.
const OVERLAP: f64 = 4.0;

/// Predicts the costs of `configuration` in a tree grown by its shape from this many entries. A
/// workload without puts is assumed to run after all writing.
pub fn predict(
    machine: &Machine,
    data: &Data,
    workload: &Workload,
    configuration: &Configuration,
) -> Prediction {
    let settled = workload.share(Class::Put) == 0.0;
    let tree = grow(&configuration.shape, data, settled);
    predict_tree(machine, data, workload, configuration, &tree)
}

/// The same in a known tree, whatever the configuration's shape says.
pub fn predict_tree(
    machine: &Machine,
    data: &Data,
    workload: &Workload,
    configuration: &Configuration,
    tree: &Tree,
) -> Prediction {
    let counts = counts(tree, data, workload, configuration);
    let filter_bytes = filter_bytes(data, configuration);
    let mut sum = Sum { terms: Vec::new() };
    let costs = Costs::new(machine, data, workload, configuration, tree, &counts);
    for (class, counts) in Class::ALL.into_iter().zip(&counts) {
        match class {
            Class::EmptyGet | Class::ExistingGet => costs.get(class, counts, &mut sum),
            Class::EmptyRange | Class::Seek | Class::Scan => costs.iterator(class, counts, &mut sum),
            Class::Put => costs.put(tree, &mut sum),
        }
    }
    let class_ns =
        Class::ALL.map(|class| sum.terms.iter().filter(|t| t.class == class).map(|t| t.value_ns).sum());
    let mean_ns = Class::ALL.into_iter().map(|class| workload.share(class) * class_ns[class as usize]).sum();
    Prediction {
        class_ns,
        counts,
        mean_ns,
        filter_bytes,
        memory_bytes: filter_bytes + configuration.cache_bytes as f64,
        write_amplification: tree.write_amplification,
        runs: tree.mean_runs(),
        terms: sum.terms,
    }
}

/// Bytes of filters in memory.
pub fn filter_bytes(data: &Data, configuration: &Configuration) -> f64 {
    let bits = configuration.selector.spent_bits(configuration.bits_per_key, data.keys);
    data.entries as f64 * bits / 8.0
}

struct Sum {
    terms: Vec<Term>,
}

/// Formats a number of a formula: few digits, enough to check it.
fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 || v == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.5}"),
    }
}

impl Sum {
    /// Adds `count · (a + b + …)`, each with its symbol; zero factors and zero terms are omitted.
    fn add(&mut self, class: Class, name: &'static str, count: (&str, f64), costs: &[(&str, f64)]) {
        let costs: Vec<_> = costs.iter().filter(|(_, ns)| *ns != 0.0).collect();
        let each: f64 = costs.iter().map(|(_, ns)| ns).sum();
        if count.1 * each == 0.0 {
            return;
        }
        let join = |texts: Vec<String>| match texts.len() {
            1 => texts.into_iter().next().unwrap_or_default(),
            _ => format!("({})", texts.join(" + ")),
        };
        let symbols = join(costs.iter().map(|(symbol, _)| (*symbol).to_owned()).collect());
        let numbers = join(costs.iter().map(|(_, ns)| number(*ns)).collect());
        let (formula, numbers) = match count.0 {
            "" => (symbols, numbers),
            symbol => (format!("{symbol} · {symbols}"), format!("{} · {numbers}", number(count.1))),
        };
        self.terms.push(Term { class, name, formula, numbers, value_ns: count.1 * each });
    }
}

/// Unit costs in this configuration.
struct Costs<'a> {
    machine: &'a Machine,
    data: &'a Data,
    configuration: &'a Configuration,
    far: Far,
    /// A block that may have to be fetched from beyond memory.
    block_ns: f64,
    probe: super::inputs::ProbeCost,
}

impl<'a> Costs<'a> {
    fn new(
        machine: &'a Machine,
        data: &'a Data,
        workload: &Workload,
        configuration: &'a Configuration,
        tree: &Tree,
        counts: &[Counts; 6],
    ) -> Costs<'a> {
        Costs {
            machine,
            data,
            configuration,
            far: Far::new(machine, data, workload, configuration, tree, counts),
            block_ns: block_ns(machine, data, workload, configuration),
            probe: machine.probe(configuration.selector).unwrap_or_default(),
        }
    }

    fn filter(&self, class: Class, probes: (&str, f64), each: (&str, f64), sum: &mut Sum) {
        let overlap =
            if self.configuration.selector.is_global() { 1.0 } else { probes.1.clamp(1.0, OVERLAP) };
        let range = matches!(class, Class::EmptyRange | Class::Seek | Class::Scan);
        let far = self.configuration.selector.misses(range) * self.far.filter_ns / overlap;
        sum.add(class, "filters", probes, &[each, ("T_far", far)]);
    }

    fn get(&self, class: Class, counts: &Counts, sum: &mut Sum) {
        let machine = self.machine;
        sum.add(class, "fixed part, one digest", ("", 1.0), &[("T_get", machine.get_ns)]);
        sum.add(
            class,
            "additional digests",
            ("(digests − 1)", (counts.digests - 1.0).max(0.0)),
            &[("T_H", machine.digest_ns)],
        );
        let asked_about = if self.configuration.selector.is_global() { counts.runs } else { 0.0 };
        sum.add(class, "runs checked", ("runs", asked_about), &[("T_run", self.probe.run_ns)]);
        self.filter(class, ("filters", counts.filter_probes), ("T_P", self.probe.point_ns), sum);
        let found = if class == Class::ExistingGet { 1.0 } else { 0.0 };
        let block = ("T_block", self.block_ns);
        let far = machine.search_misses * self.far.keyed_ns;
        let costs = [("T_search", machine.search_ns), ("T_far", far), block];
        sum.add(class, "the run with the key", ("", found), &costs);
        let vain = (counts.runs_searched - found).max(0.0);
        let far = machine.vain_misses * self.far.other_ns;
        let costs = [("T_vain", machine.vain_ns), ("T_far", far), block];
        sum.add(class, "runs searched in vain", ("vain", vain), &costs);
    }

    fn iterator(&self, class: Class, counts: &Counts, sum: &mut Sum) {
        let machine = self.machine;
        sum.add(class, "fixed part", ("", 1.0), &[("T_iter", machine.iterator_ns)]);
        let asked_about = match self.configuration.selector.is_global() && counts.range_probes > 0.0 {
            true => counts.runs,
            false => 0.0,
        };
        sum.add(class, "runs checked", ("runs", asked_about), &[("T_run", self.probe.run_ns)]);
        let asked = if class == Class::EmptyRange { self.probe.range_ns } else { self.probe.seek_ns };
        self.filter(class, ("filters", counts.range_probes), ("T_P", asked), sum);
        // One of the cursors is at the first entry.
        let other = 1.0 - 1.0 / counts.cursors.max(1.0);
        let far = machine.cursor_misses * (self.far.keyed_ns * (1.0 - other) + self.far.other_ns * other);
        let costs = [("T_cursor", machine.cursor_ns), ("T_far", far), ("T_block", self.block_ns)];
        sum.add(class, "runs opened", ("cursors", counts.cursors), &costs);
        sum.add(
            class,
            "opened one by one",
            ("late", counts.late_cursors),
            &[("T_late", machine.late_open_ns)],
        );
        let step = machine.merge_step_ns * counts.cursors.max(1.0).log2();
        sum.add(
            class,
            "entries",
            ("entries", counts.entries),
            &[("T_next", machine.next_ns), ("T_merge", step)],
        );
        let further = (counts.blocks - counts.cursors).max(0.0);
        sum.add(class, "additional blocks", ("blocks", further), &[("T_block", self.block_ns)]);
    }

    fn put(&self, tree: &Tree, sum: &mut Sum) {
        let (machine, data) = (self.machine, self.data);
        let class = Class::Put;
        sum.add(
            class,
            "log and memtable",
            ("", 1.0),
            &[("T_put", machine.put_ns), ("T_log", machine.log_ns)],
        );
        let share = machine.background_share;
        let written = tree.write_amplification;
        let bytes_ns = data.entry_bytes() * machine.merge_byte_ns;
        let entry = [("T_entry", share * machine.merge_entry_ns), ("bytes · T_byte", share * bytes_ns)];
        sum.add(class, "flushes and merges", ("written", written), &entry);
        sum.add(class, "building filters", ("written", written), &[("T_build", share * self.probe.build_ns)]);
        let copies = data.entries as f64 / data.flush_entries();
        let changes = written / data.flush_entries();
        let change = [("T_change", share * self.probe.change_ns)];
        sum.add(class, "changing the filter", ("written / flush", changes), &change);
        sum.add(
            class,
            "copying the filter",
            ("entries / flush", copies),
            &[("T_copy", share * self.probe.copy_ns)],
        );
    }
}

/// Returns the cost of a block access beyond memory: decompression, system calls, the device, each
/// as often as no cache has the block. The caches are assumed to hold the most frequently read
/// blocks.
fn block_ns(machine: &Machine, data: &Data, workload: &Workload, configuration: &Configuration) -> f64 {
    let entries = (data.entries as f64).max(1.0);
    let block = data.block_bytes.max(1) as f64;
    let in_block = (block / data.entry_bytes()).max(1.0);
    let blocks = (entries / in_block).max(1.0);
    let hits = |bytes: f64| {
        let kept = (bytes / block).min(blocks);
        match workload.skew > 0.0 && !workload.clustered {
            // A block is as hot as its hottest key; the others come with it.
            true => zipf_share(kept, entries, workload.skew).max(kept / blocks),
            false if workload.skew > 0.0 => zipf_share(kept * in_block, entries, workload.skew),
            false => kept / blocks,
        }
    };
    let goes_through_cache = data.compressed || data.read_path != ReadPath::Mapped;
    let cached = if goes_through_cache { hits(configuration.cache_bytes as f64) } else { 0.0 };
    let unpack = if data.compressed { machine.unpack_ns } else { 0.0 };
    let beyond = match data.read_path {
        ReadPath::Direct => machine.device_ns,
        path => {
            let pages = hits(machine.page_cache_bytes);
            let copy = if path == ReadPath::Buffered { machine.page_ns } else { 0.0 };
            copy + (1.0 - pages) * machine.device_ns
        }
    };
    (1.0 - cached) * (unpack + beyond)
}
