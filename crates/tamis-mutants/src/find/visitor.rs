//! Walks through a source and collects its places.

use std::collections::HashSet;
use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr, Stmt};

use super::conditional::is_built;
use super::operators::{assigns, is_order, is_plain, other};
use super::values::values;
use crate::site::{Mutant, Shape, Site};

/// Names that all mutants of a source share.
pub struct Names {
    pub file: String,
    pub group: &'static str,
    pub room: String,
    pub module: String,
}

pub struct Visitor<'a> {
    names: Names,
    text: &'a str,
    integers: &'a HashSet<String>,
    /// The number of the next mutant.
    next: u32,
    mutants: Vec<Mutant>,
    sites: Vec<Site>,
    /// The types and functions around.
    around: Vec<String>,
    /// Where conditions begin that are turned around, so that another mistake would be the same.
    flipped: HashSet<(usize, usize)>,
}

/// Calls whose absence nobody can observe, except by time or memory.
const UNOBSERVABLE: &[&str] =
    &["reserve", "with_capacity", "shrink_to_fit", "point", "yield_now", "spin_loop"];

/// Traits whose output is for people.
const FOR_PEOPLE: &[&str] = &["Debug", "Display", "Error", "Serialize"];

impl<'a> Visitor<'a> {
    pub fn new(names: Names, text: &'a str, integers: &'a HashSet<String>, next: u32) -> Visitor<'a> {
        let (mutants, sites, around, flipped) = (Vec::new(), Vec::new(), Vec::new(), HashSet::new());
        Visitor { names, text, integers, next, mutants, sites, around, flipped }
    }

    /// Returns the mutants of the source, and its places in order.
    pub fn visit(mut self, file: &syn::File) -> (Vec<Mutant>, Vec<Site>) {
        self.visit_file(file);
        // Stable: of places with one range, the one that was found first is the outer one.
        self.sites.sort_by_key(|site| (site.range.start, std::cmp::Reverse(site.range.end)));
        (self.mutants, self.sites)
    }

    fn source(&self, of: &impl Spanned) -> &'a str {
        &self.text[of.span().byte_range()]
    }

    /// Makes a mutant and returns its number.
    fn mutant(&mut self, at: proc_macro2::Span, operator: &str, original: &str, mutated: &str) -> u32 {
        let number = self.next;
        self.next += 1;
        self.mutants.push(Mutant {
            number,
            id: String::new(),
            group: self.names.group.to_owned(),
            room: self.names.room.clone(),
            file: self.names.file.clone(),
            line: at.start().line,
            column: at.start().column + 1,
            function: self.around.join("::"),
            operator: operator.to_owned(),
            original: short(original),
            mutated: short(mutated),
            module: self.names.module.clone(),
        });
        number
    }

    fn site(&mut self, range: Range<usize>, shape: Shape) {
        self.sites.push(Site { range, shape });
    }

    fn binary(&mut self, binary: &syn::ExprBinary) {
        let Some((operator, op)) = other(&binary.op) else { return };
        let range = binary.span().byte_range();
        // Half of a `let` chain.
        if matches!(binary.op, BinOp::And(_)) && has_let(&binary.left) | has_let(&binary.right) {
            return;
        }
        if matches!(binary.op, BinOp::Eq(_) | BinOp::Ne(_))
            && self.flipped.contains(&(range.start, range.end))
        {
            return;
        }
        let (left, right) = (self.source(&binary.left), self.source(&binary.right));
        let shown = format!("{left} {op} {right}");
        let text = if assigns(&binary.op) { shown.clone() } else { format!("({left}) {op} ({right})") };
        let number = self.mutant(binary.op.span(), operator, self.source(binary), &shown);
        let is_plain = is_order(&binary.op) && is_plain(&binary.left) && is_plain(&binary.right);
        let shape = if is_plain { Shape::Compare(number, text) } else { Shape::Choice(vec![(number, text)]) };
        self.site(range, shape);
    }

    fn literal(&mut self, literal: &syn::ExprLit) {
        let syn::Lit::Int(int) = &literal.lit else { return };
        let Ok(value) = int.base10_parse::<u128>() else { return };
        let Some(more) = value.checked_add(1) else { return };
        let text = format!("{more}{}", int.suffix());
        let number = self.mutant(int.span(), "literal", self.source(literal), &text);
        self.site(literal.span().byte_range(), Shape::Choice(vec![(number, text)]));
    }

    /// Turns a condition around, or, in a chain with `let`, each of its other parts.
    fn condition(&mut self, condition: &Expr) {
        match condition {
            Expr::Let(_) | Expr::Macro(_) => {}
            Expr::Binary(binary) if matches!(binary.op, BinOp::And(_)) && has_let(condition) => {
                self.condition(&binary.left);
                self.condition(&binary.right);
            }
            _ => {
                let range = condition.span().byte_range();
                let original = self.source(condition);
                let number = self.mutant(condition.span(), "condition", original, &format!("!({original})"));
                self.flipped.insert((range.start, range.end));
                self.site(range, Shape::Flip(number));
            }
        }
    }

    /// Leaves a statement out, if it is a call or an assignment.
    fn guard(&mut self, statement: &impl Spanned, expr: &Expr) {
        let operator = match expr {
            Expr::Assign(_) => "drop assignment",
            Expr::Binary(binary) if assigns(&binary.op) => "drop assignment",
            _ => match called(expr) {
                Some(name) if !UNOBSERVABLE.contains(&name.as_str()) => "drop call",
                _ => return,
            },
        };
        let number = self.mutant(statement.span(), operator, self.source(statement), "");
        self.site(statement.span().byte_range(), Shape::Guard(number));
    }

    fn function(&mut self, attributes: &[syn::Attribute], signature: &syn::Signature, block: &Block) {
        let is_inner = |one: &syn::Attribute| matches!(one.style, syn::AttrStyle::Inner(_));
        if !is_built(attributes)
            || attributes.iter().any(is_inner)
            || signature.constness.is_some()
            || signature.unsafety.is_some()
        {
            return;
        }
        self.around.push(signature.ident.to_string());
        self.site(block.span().byte_range(), Shape::Function);
        self.entry(signature, block);
        self.visit_block(block);
        self.around.pop();
    }

    /// Lets a function return at once.
    fn entry(&mut self, signature: &syn::Signature, block: &Block) {
        // Where the only statement can be left out, that is the same.
        let is_done = match block.stmts.as_slice() {
            [] => true,
            [Stmt::Expr(only, Some(_))] => called(only).is_some() || matches!(only, Expr::Assign(_)),
            _ => false,
        };
        if is_done {
            return;
        }
        let body = match block.stmts.as_slice() {
            [Stmt::Expr(only, None)] => self.source(only),
            _ => "",
        };
        let mut all = Vec::new();
        for value in values(&signature.output, self.integers) {
            if value != body || value.is_empty() {
                let shown = if value.is_empty() { "return".to_owned() } else { format!("return {value}") };
                all.push((self.mutant(signature.ident.span(), "body", "the body", &shown), value));
            }
        }
        if !all.is_empty() {
            let start = block.brace_token.span.open().byte_range().end;
            self.site(start..start, Shape::Entry(all));
        }
    }
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if item.sig.ident != "fmt" {
            self.function(&item.attrs, &item.sig, &item.block);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.attrs, &item.sig, block);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let of = item.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
        if !is_built(&item.attrs) || of.is_some_and(|of| FOR_PEOPLE.contains(&of.ident.to_string().as_str()))
        {
            return;
        }
        let name = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        self.around.push(name.unwrap_or_else(|| "_".to_owned()));
        for item in &item.items {
            if let syn::ImplItem::Fn(function) = item {
                self.visit_impl_item_fn(function);
            }
        }
        self.around.pop();
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        if is_built(&item.attrs) {
            self.around.push(item.ident.to_string());
            for item in &item.items {
                if let syn::TraitItem::Fn(function) = item {
                    self.visit_trait_item_fn(function);
                }
            }
            self.around.pop();
        }
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        match item {
            syn::Item::Fn(item) => self.visit_item_fn(item),
            syn::Item::Impl(item) => self.visit_item_impl(item),
            syn::Item::Trait(item) => self.visit_item_trait(item),
            syn::Item::Mod(item) if is_built(&item.attrs) => visit::visit_item_mod(self, item),
            _ => {}
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        match statement {
            Stmt::Local(local) => {
                if !is_built(&local.attrs) {
                    return;
                }
                if let (syn::Pat::Wild(_), Some(init)) = (&local.pat, &local.init) {
                    self.guard(statement, &init.expr);
                }
            }
            Stmt::Expr(expr, Some(_)) if is_built(attributes(expr)) => self.guard(statement, expr),
            _ => {}
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if !is_built(&arm.attrs) {
            return;
        }
        if let Some((_, guard)) = &arm.guard {
            self.condition(guard);
        }
        if matches!(&*arm.body, Expr::Assign(_))
            || matches!(&*arm.body, Expr::Binary(one) if assigns(&one.op))
        {
            self.guard(&arm.body, &arm.body);
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        if !is_built(attributes(expr)) {
            return;
        }
        match expr {
            Expr::Binary(binary) => self.binary(binary),
            Expr::Lit(literal) => self.literal(literal),
            Expr::Unary(unary) if matches!(unary.op, syn::UnOp::Not(_)) => {
                let range = unary.span().byte_range();
                if !self.flipped.contains(&(range.start, range.end)) {
                    let text = self.source(&unary.expr).to_owned();
                    let number = self.mutant(unary.span(), "drop !", self.source(unary), &text);
                    self.site(range, Shape::Choice(vec![(number, text)]));
                }
            }
            Expr::If(one) => self.condition(&one.cond),
            Expr::While(one) => self.condition(&one.cond),
            // The length of an array is a constant.
            Expr::Repeat(repeat) => return self.visit_expr(&repeat.expr),
            Expr::Unsafe(_) | Expr::Const(_) | Expr::Macro(_) => return,
            Expr::Call(_) | Expr::MethodCall(_)
                if called(expr).is_some_and(|name| UNOBSERVABLE.contains(&name.as_str())) =>
            {
                return;
            }
            _ => {}
        }
        visit::visit_expr(self, expr);
    }

    // Constants and types, and what looks like an expression in them.
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_macro(&mut self, _: &'ast syn::Macro) {}
}

/// Returns the name of the function or method that is called, also before a `?`.
fn called(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Try(inner) => called(&inner.expr),
        Expr::MethodCall(call) => Some(call.method.to_string()),
        Expr::Call(call) => match &*call.func {
            Expr::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => Some(String::new()),
        },
        _ => None,
    }
}

fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) if matches!(binary.op, BinOp::And(_)) => {
            has_let(&binary.left) || has_let(&binary.right)
        }
        _ => false,
    }
}

/// Returns the attributes of those expressions that have some in practice.
fn attributes(expr: &Expr) -> &[syn::Attribute] {
    match expr {
        Expr::Block(one) => &one.attrs,
        Expr::Call(one) => &one.attrs,
        Expr::MethodCall(one) => &one.attrs,
        Expr::If(one) => &one.attrs,
        Expr::Match(one) => &one.attrs,
        Expr::Return(one) => &one.attrs,
        Expr::Assign(one) => &one.attrs,
        Expr::ForLoop(one) => &one.attrs,
        Expr::While(one) => &one.attrs,
        Expr::Struct(one) => &one.attrs,
        _ => &[],
    }
}

/// Returns the text on one line, at most as long as a report needs it.
fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(160) {
        Some((end, _)) => format!("{} …", &line[..end]),
        None => line,
    }
}
