//! What each operator makes of a small source, by its text; and, with rustc, by what it does.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::process::Command;

use super::rewrite;
use crate::find::find_in;

/// Returns the mistakes found in the source, as `operator: original → mutated`.
fn found(text: &str) -> BTreeSet<String> {
    let (mutants, _) = find_in(text);
    mutants.iter().map(|one| format!("{}: {} → {}", one.operator, one.original, one.mutated)).collect()
}

fn set(of: &[&str]) -> BTreeSet<String> {
    of.iter().map(|one| (*one).to_owned()).collect()
}

#[test]
fn operators_of_expressions() {
    let text = "fn f(a: &str, b: u8, c: bool, d: bool) -> &str { g(b + b, b << b, b < b, c && d, !c); a }";
    let expected = [
        "arithmetic: b + b → b - b",
        "bits: b << b → b >> b",
        "comparison: b < b → b <= b",
        "logic: c && d → c || d",
        "drop !: !c → c",
        "drop call: g(b + b, b << b, b < b, c && d, !c); → ",
    ];
    assert_eq!(found(text), set(&expected));
}

#[test]
fn conditions_are_turned_around_once() {
    let text = "fn f(a: &str, b: u8) -> &str { if b == g() {} while !h {} match b { x if y => a, _ => a } }";
    let expected = ["condition: b == g() → !(b == g())", "condition: !h → !(!h)", "condition: y → !(y)"];
    assert_eq!(found(text), set(&expected));
}

#[test]
fn a_chain_with_let_keeps_its_let() {
    let text = "fn f(a: &str, b: bool) -> &str { if b && let Some(x) = g() && x {} a }";
    assert_eq!(found(text), set(&["condition: b → !(b)", "condition: x → !(x)"]));
}

#[test]
fn statements_are_left_out() {
    let text = "fn f(a: &mut S) -> &str { a.b = c; a.d += e; a.sync()?; let _ = a.g(); v.reserve(n); a }";
    let expected = [
        "drop assignment: a.b = c; → ",
        "drop assignment: a.d += e; → ",
        "arithmetic: a.d += e → a.d -= e",
        "drop call: a.sync()?; → ",
        "drop call: let _ = a.g(); → ",
    ];
    assert_eq!(found(text), set(&expected));
}

#[test]
fn bodies_return_at_once() {
    let body = |output: &str| found(&format!("type Id = u64; fn f() -> {output} {{ g().h }}"));
    assert_eq!(body("bool"), set(&["body: the body → return true", "body: the body → return false"]));
    assert_eq!(body("Id"), set(&["body: the body → return 0", "body: the body → return 1"]));
    assert_eq!(body("Option<&str>"), set(&["body: the body → return None"]));
    assert_eq!(body("Result<(), E>"), set(&["body: the body → return Ok(())"]));
    assert_eq!(
        body("io::Result<bool>"),
        set(&["body: the body → return Ok(true)", "body: the body → return Ok(false)"])
    );
    assert_eq!(body("&str"), set(&[]));
    assert_eq!(found("fn f() { let a = g(); h(a) }"), set(&["body: the body → return"]));
}

#[test]
fn literals_grow_by_one() {
    assert_eq!(found("fn f() -> &str { g(0x1f_u8, \"7\", 1.5) }"), set(&["literal: 0x1f_u8 → 32u8"]));
}

#[test]
fn constants_tests_and_unsafe_code_are_left_alone() {
    let text = r#"
        const A: usize = 1 + 2;
        static B: [u8; 3 + 4] = [0; 7];
        const fn c(x: u8) -> bool { x < 3 && !false }
        enum D { E = 1 + 1 }
        unsafe fn f(x: bool) -> bool { !x }
        fn g(x: [u8; 2 + 2]) -> S<{ 1 + 1 }> { let y = [x; 1 + 1]; const Z: u8 = 1 + 1; unsafe { h(1 + 1) } }
        fn i(x: u8) -> &str { match x { 1 => a, 2..=3 => b, _ => assert!(1 < 2, "{}", 1 + 1) } }
        impl fmt::Debug for T { fn fmt(&self) -> bool { 1 < 2 } }
        #[cfg(test)] mod tests { fn j() -> bool { 1 < 2 } }
        #[cfg(feature = "simulation")] fn k() -> bool { 1 < 2 }
        #[test] fn l() { m(1) }
    "#;
    assert_eq!(found(text), set(&[]));
    let (_, source) = find_in(text);
    assert_eq!(rewrite(&source, &HashSet::new()).text, text);
}

#[test]
fn dropped_mutants_leave_the_source_as_it_is() {
    let text = "fn f(a: u8) -> u8 { if a < 3 { a + 1 } else { g(); 7 } }";
    let (mutants, source) = find_in(text);
    let all = mutants.iter().map(|one| one.number).collect();
    assert_eq!(rewrite(&source, &all).text, text);
}

#[test]
fn an_error_is_blamed_on_the_text_or_place_around_it() {
    let text = "fn f(a: u8) -> &str { g(a + 1, 5); h }";
    let (mutants, source) = find_in(text);
    let number = |operator: &str| mutants.iter().find(|one| one.operator == operator).unwrap().number;
    let rewritten = rewrite(&source, &HashSet::new());
    let at = |text: &str| {
        let start = rewritten.text.find(text).unwrap();
        start..start + text.len()
    };
    assert_eq!(rewritten.suspects(&at("(a) - (1)")), [number("arithmetic")]);
    assert_eq!(rewritten.suspects(&at("g(")), [number("drop call")]);
    assert!(rewritten.is_within_site(&at("g(")));
    assert!(!rewritten.is_within_site(&at(" h }")));
    assert_eq!(rewritten.suspects(&at(" h }")).len(), mutants.len());
    assert!(rewritten.suspects(&at("-> &str")).is_empty());
}

#[test]
fn names_outlive_changes_elsewhere() {
    let ids = |text: &str| -> Vec<String> { find_in(text).0.into_iter().map(|one| one.id).collect() };
    let before = ids("fn f(a: u8) -> &str { g(a + 1, a + 1) }");
    let after = ids("fn new() -> &str { h(1) } fn f(a: u8) -> &str { g(a + 1, a + 1) }");
    assert_eq!(before.iter().collect::<HashSet<_>>().len(), 4);
    assert!(before.iter().all(|id| after.contains(id)));
}

/// A program that prints what its mutants change; some nested in others.
const PROGRAM: &str = r#"
#[derive(Default)]
struct Sum { calls: u32, total: u32 }

impl Sum {
    fn add(&mut self, number: u32) -> Result<(), String> {
        if number > 100 && self.calls < 50 {
            return Err("too much".to_owned());
        }
        self.calls += 1;
        self.total = self.total + number * 2 + (number << 1);
        Ok(())
    }
}

fn next(sum: &mut Sum) -> u32 {
    sum.calls += 1;
    sum.calls
}

fn all(sum: &mut Sum) -> Result<u32, String> {
    sum.add(3)?;
    sum.add(4)?;
    let total = sum.total;
    let label = match total { seen if seen == next(sum) + 25 => 1, _ => 0 };
    while sum.calls < 6 && !sum.calls.is_power_of_two() {
        next(sum);
    }
    Ok(label + sum.total)
}

fn main() {
    let mut sum = Sum::default();
    println!("{:?} {} {}", all(&mut sum), sum.calls, sum.total);
}
"#;

/// Stands for the switch: the mutants are arguments of the program.
const SWITCH: &str = r#"
mod tamis_mutant {
    pub fn on(mutant: u32) -> bool { std::env::args().nth(1).is_some_and(|one| one == mutant.to_string()) }
    pub fn probe(mutant: u32) -> bool { on(mutant) }
    pub fn seen(_: u32, _: bool, mutated: bool) -> bool { mutated }
}
"#;

#[test]
fn a_program_without_mutants_behaves_as_before_and_with_one_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let build = |name: &str, text: &str| {
        let (source, program) = (dir.path().join(name).with_extension("rs"), dir.path().join(name));
        fs::write(&source, text).unwrap();
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let built = Command::new(rustc)
            .args(["--edition", "2024", "--cap-lints", "allow", "-o"])
            .args([&program, &source])
            .output()
            .unwrap();
        assert!(built.status.success(), "{}\n{text}", String::from_utf8_lossy(&built.stderr));
        program
    };
    let (mutants, source) = find_in(PROGRAM);
    let rewritten = rewrite(&source, &HashSet::new()).text;
    let plain = build("plain", PROGRAM);
    let mutated =
        build("mutated", &format!("{}{SWITCH}", rewritten.replace("::tamis_mutant", "tamis_mutant")));
    let output = |program: &std::path::Path, argument: &str| {
        Command::new(program).arg(argument).output().unwrap().stdout
    };
    let before = output(&plain, "");
    assert!(!before.is_empty());
    assert_eq!(output(&mutated, "0"), before);
    // Mutants of the others may hang.
    let differ = mutants.iter().filter(|one| one.function == "Sum::add");
    let differ = differ.filter(|one| output(&mutated, &one.number.to_string()) != before).count();
    assert!(differ >= 10, "{differ}");
}
