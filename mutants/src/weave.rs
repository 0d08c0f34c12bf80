//! Weaves all mutants of a file into its text, each behind a switch.
//!
//! The text stays as it was in the last branch of each choice, and so do the other mutants in it:
//! the text only grows, by insertions.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use anyhow::{Context, Result};
use proc_macro2::LineColumn;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::list::{Mutant, Place};

/// Bytes of a woven text and the mutants that a compiler's error there speaks of.
pub type Region = (Range<usize>, Vec<u32>);

/// A woven file: its text, and where each mutant lies in it.
pub struct Woven {
    pub text: String,
    pub regions: Vec<Region>,
    /// The mutants that cannot lie behind a switch where they are, mostly in constants.
    pub left_out: Vec<u32>,
}

/// Weaves these mutants, all of one file, into `text`.
pub fn weave(text: &str, mutants: &[(u32, &Mutant)]) -> Result<Woven> {
    let file = syn::parse_file(text).context("parse")?;
    let mut at: HashMap<Place, Vec<(u32, &Mutant)>> = HashMap::new();
    for (number, mutant) in mutants {
        at.entry(mutant.span.start).or_default().push((*number, mutant));
    }
    let mut weaver = Weaver { text, lines: line_starts(text), at, edits: Vec::new(), constant: 0 };
    weaver.visit_file(&file);
    let mut left_out: Vec<u32> = weaver.at.values().flatten().map(|(number, _)| *number).collect();
    left_out.sort_unstable();
    let (text, regions) = insert(text, weaver.edits);
    Ok(Woven { text, regions, left_out })
}

/// What is put around the bytes from `start` to `end`: pieces before, each with its mutants, and
/// one piece after.
struct Edit {
    start: usize,
    end: usize,
    before: Vec<(String, u32)>,
    last: &'static str,
    after: &'static str,
}

struct Weaver<'t> {
    text: &'t str,
    lines: Vec<usize>,
    at: HashMap<Place, Vec<(u32, &'t Mutant)>>,
    edits: Vec<Edit>,
    /// How many constant expressions are around the visited place.
    constant: u32,
}

impl<'t> Weaver<'t> {
    /// The mutants of one genre that begin here; they count as woven from now on.
    fn take(&mut self, genre: &str, start: LineColumn) -> Vec<(u32, &'t Mutant)> {
        if self.constant > 0 {
            return Vec::new();
        }
        let Some(here) = self.at.get_mut(&place(start)) else { return Vec::new() };
        here.extract_if(.., |(_, mutant)| mutant.genre == genre).collect()
    }

    fn offset(&self, at: LineColumn) -> usize {
        let line = self.lines[at.line - 1];
        let before = self.text[line..].chars().take(at.column);
        line + before.map(char::len_utf8).sum::<usize>()
    }

    fn range(&self, node: &impl Spanned) -> (usize, usize) {
        let span = node.span();
        (self.offset(span.start()), self.offset(span.end()))
    }

    fn of(&self, node: &impl Spanned) -> &'t str {
        let (start, end) = self.range(node);
        &self.text[start..end]
    }

    /// `node` becomes a choice between replacements and itself.
    fn choose(&mut self, node: &impl Spanned, choices: Vec<(u32, String)>) {
        if choices.is_empty() {
            return;
        }
        let (start, end) = self.range(node);
        let before = choices.into_iter().enumerate().map(|(index, (number, other))| {
            let opening = if index == 0 { "(if" } else { "else if" };
            (format!("{opening} ::mutant_switch::on({number}) {{ {other} }} "), number)
        });
        let before = before.collect();
        self.edits.push(Edit { start, end, before, last: "else { ", after: " })" });
    }

    fn body(&mut self, block: &syn::Block) {
        let Some(first) = block.stmts.first() else { return };
        let taken = self.take("FnValue", first.span().start());
        let (start, end) = (self.range(first).0, self.range(block).1 - 1);
        let before: Vec<_> = taken
            .into_iter()
            .map(|(number, mutant)| {
                let value = &mutant.replacement;
                (format!("if ::mutant_switch::on({number}) {{ return {value}; }} "), number)
            })
            .collect();
        if !before.is_empty() {
            self.edits.push(Edit { start, end, before, last: "", after: "" });
        }
    }

    fn constant(&mut self, is_constant: bool, visit: impl FnOnce(&mut Self)) {
        self.constant += u32::from(is_constant);
        visit(self);
        self.constant -= u32::from(is_constant);
    }
}

impl<'a> Visit<'a> for Weaver<'_> {
    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.constant(item.sig.constness.is_some(), |weaver| {
            weaver.body(&item.block);
            visit::visit_item_fn(weaver, item);
        });
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.constant(item.sig.constness.is_some(), |weaver| {
            weaver.body(&item.block);
            visit::visit_impl_item_fn(weaver, item);
        });
    }

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.body(block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_const(&mut self, item: &'a syn::ItemConst) {
        self.constant(true, |weaver| visit::visit_item_const(weaver, item));
    }

    fn visit_impl_item_const(&mut self, item: &'a syn::ImplItemConst) {
        self.constant(true, |weaver| visit::visit_impl_item_const(weaver, item));
    }

    fn visit_trait_item_const(&mut self, item: &'a syn::TraitItemConst) {
        self.constant(true, |weaver| visit::visit_trait_item_const(weaver, item));
    }

    fn visit_item_static(&mut self, item: &'a syn::ItemStatic) {
        self.constant(true, |weaver| visit::visit_item_static(weaver, item));
    }

    fn visit_expr_const(&mut self, expr: &'a syn::ExprConst) {
        self.constant(true, |weaver| visit::visit_expr_const(weaver, expr));
    }

    fn visit_variant(&mut self, variant: &'a syn::Variant) {
        self.constant(true, |weaver| visit::visit_variant(weaver, variant));
    }

    fn visit_type(&mut self, one: &'a syn::Type) {
        self.constant(true, |weaver| visit::visit_type(weaver, one));
    }

    fn visit_pat(&mut self, pattern: &'a syn::Pat) {
        self.constant(true, |weaver| visit::visit_pat(weaver, pattern));
    }

    fn visit_generic_argument(&mut self, argument: &'a syn::GenericArgument) {
        self.constant(true, |weaver| visit::visit_generic_argument(weaver, argument));
    }

    fn visit_expr_repeat(&mut self, expr: &'a syn::ExprRepeat) {
        self.visit_expr(&expr.expr);
        self.constant(true, |weaver| weaver.visit_expr(&expr.len));
    }

    fn visit_expr_binary(&mut self, expr: &'a syn::ExprBinary) {
        if !is_let(&expr.left) && !is_let(&expr.right) {
            let taken = self.take("BinaryOperator", expr.op.span().start());
            let (left, right) = (self.of(&expr.left), self.of(&expr.right));
            let choices = taken
                .into_iter()
                .map(|(number, mutant)| (number, format!("{left} {} {right}", mutant.replacement)));
            let choices = choices.collect();
            self.choose(expr, choices);
        }
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_unary(&mut self, expr: &'a syn::ExprUnary) {
        let taken = self.take("UnaryOperator", expr.op.span().start());
        let inner = self.of(&expr.expr);
        let choices = taken.into_iter().map(|(number, _)| (number, inner.to_owned())).collect();
        self.choose(expr, choices);
        visit::visit_expr_unary(self, expr);
    }

    fn visit_arm(&mut self, arm: &'a syn::Arm) {
        for (number, _) in self.take("MatchArm", arm.span().start()) {
            let end = self.range(&arm.pat).1;
            let guard = format!(" if !::mutant_switch::on({number})");
            let before = vec![(guard, number)];
            self.edits.push(Edit { start: end, end, before, last: "", after: "" });
        }
        if let Some((_, guard)) = &arm.guard {
            let taken = self.take("MatchArmGuard", guard.span().start());
            let choices =
                taken.into_iter().map(|(number, mutant)| (number, mutant.replacement.clone()));
            let choices = choices.collect();
            self.choose(&**guard, choices);
        }
        visit::visit_arm(self, arm);
    }
}

/// Whether an operand is, or chains, a `let`: such a chain cannot be put into a block.
fn is_let(expr: &syn::Expr) -> bool {
    match expr {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => is_let(&binary.left) || is_let(&binary.right),
        _ => false,
    }
}

fn place(at: LineColumn) -> Place {
    Place { line: at.line, column: at.column + 1 }
}

fn line_starts(text: &str) -> Vec<usize> {
    let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
    std::iter::once(0).chain(ends.map(|(index, _)| index + 1)).collect()
}

/// Makes all insertions, outer ones outside of inner ones.
fn insert(text: &str, mut edits: Vec<Edit>) -> (String, Vec<Region>) {
    edits.sort_by_key(|edit| (edit.start, std::cmp::Reverse(edit.end)));
    // What is to be inserted at each byte: the ends of what ends there, then the beginnings.
    let mut ends: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (index, edit) in edits.iter().enumerate() {
        // Among edits that end together the inner one, which began later, ends first.
        ends.entry(edit.end).or_default().insert(0, index);
    }
    let mut out = String::with_capacity(text.len() * 4);
    let mut regions = Vec::new();
    let mut begun = vec![0; edits.len()];
    let mut next = 0;
    for at in (0..=text.len()).filter(|at| text.is_char_boundary(*at)) {
        for index in ends.get(&at).into_iter().flatten() {
            let edit = &edits[*index];
            if edit.start < edit.end {
                out.push_str(edit.after);
                let numbers = edit.before.iter().map(|(_, number)| *number).collect();
                regions.push((begun[*index]..out.len(), numbers));
            }
        }
        while let Some(edit) = edits.get(next).filter(|edit| edit.start == at) {
            begun[next] = out.len();
            for (piece, number) in &edit.before {
                let start = out.len();
                out.push_str(piece);
                regions.push((start..out.len(), vec![*number]));
            }
            out.push_str(edit.last);
            next += 1;
        }
        out.extend(text[at..].chars().next());
    }
    (out, regions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::Span;

    fn mutant(genre: &str, line: usize, column: usize, replacement: &str) -> Mutant {
        let start = Place { line, column };
        Mutant {
            name: String::new(),
            package: String::new(),
            file: String::new(),
            function: None,
            span: Span { start, end: start },
            replacement: replacement.into(),
            genre: genre.into(),
            key: 0,
        }
    }

    fn woven(text: &str, mutants: &[Mutant]) -> Woven {
        let numbered: Vec<(u32, &Mutant)> = (0..).zip(mutants).collect();
        weave(text, &numbered).unwrap()
    }

    #[test]
    fn each_mutant_lies_behind_its_switch_and_the_last_branch_is_the_text() {
        let text = "fn f(ä: u32, b: u32) -> u32 {\n    ä + b * 2\n}\n";
        let mutants = [
            mutant("FnValue", 2, 5, "0"),
            mutant("BinaryOperator", 2, 7, "-"),
            mutant("BinaryOperator", 2, 11, "+"),
        ];
        let found = woven(text, &mutants);
        let expected = "fn f(ä: u32, b: u32) -> u32 {\n    \
            if ::mutant_switch::on(0) { return 0; } \
            (if ::mutant_switch::on(1) { ä - b * 2 } else { \
            ä + (if ::mutant_switch::on(2) { b + 2 } else { b * 2 }) })\n}\n";
        assert_eq!((found.text.as_str(), found.left_out), (expected, Vec::new()));
        // An error inside the second choice is its mutant's, which begins behind the first.
        let at = found.text.find("b + 2").unwrap();
        let around = found.regions.iter().filter(|(bytes, _)| bytes.contains(&at));
        assert_eq!(around.min_by_key(|(bytes, _)| bytes.len()).unwrap().1, [2]);
    }

    #[test]
    fn arms_guards_and_signs_have_switches_and_constants_have_none() {
        let text = "const N: u32 = 1 + 2;\nfn f(n: u32) -> bool {\n    match n {\n        \
            0 => true,\n        m if m > 1 => !g(m),\n        _ => false,\n    }\n}\n";
        let mutants = [
            mutant("BinaryOperator", 1, 18, "-"),
            mutant("MatchArm", 4, 9, ""),
            mutant("MatchArmGuard", 5, 14, "true"),
            mutant("UnaryOperator", 5, 23, ""),
        ];
        let found = woven(text, &mutants);
        assert_eq!(found.left_out, [0]);
        assert!(syn::parse_file(&found.text).is_ok(), "{}", found.text);
        for part in [
            "0 if !::mutant_switch::on(1) => true",
            "m if (if ::mutant_switch::on(2) { true } else { m > 1 }) =>",
            "(if ::mutant_switch::on(3) { g(m) } else { !g(m) })",
        ] {
            assert!(found.text.contains(part), "{part} in {}", found.text);
        }
    }
}
