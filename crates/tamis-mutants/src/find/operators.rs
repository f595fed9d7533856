//! Which operator takes the place of another.

use syn::{BinOp, Expr};

/// Returns the kind of mistake and the other operator.
pub fn other(op: &BinOp) -> Option<(&'static str, &'static str)> {
    Some(match op {
        BinOp::Add(_) => ("arithmetic", "-"),
        BinOp::Sub(_) => ("arithmetic", "+"),
        BinOp::Mul(_) => ("arithmetic", "/"),
        BinOp::Div(_) => ("arithmetic", "*"),
        BinOp::Rem(_) => ("arithmetic", "/"),
        BinOp::BitAnd(_) => ("bits", "|"),
        BinOp::BitOr(_) => ("bits", "&"),
        BinOp::BitXor(_) => ("bits", "&"),
        BinOp::Shl(_) => ("bits", ">>"),
        BinOp::Shr(_) => ("bits", "<<"),
        BinOp::Lt(_) => ("comparison", "<="),
        BinOp::Le(_) => ("comparison", "<"),
        BinOp::Gt(_) => ("comparison", ">="),
        BinOp::Ge(_) => ("comparison", ">"),
        BinOp::Eq(_) => ("comparison", "!="),
        BinOp::Ne(_) => ("comparison", "=="),
        BinOp::And(_) => ("logic", "||"),
        BinOp::Or(_) => ("logic", "&&"),
        BinOp::AddAssign(_) => ("arithmetic", "-="),
        BinOp::SubAssign(_) => ("arithmetic", "+="),
        BinOp::MulAssign(_) => ("arithmetic", "/="),
        BinOp::DivAssign(_) => ("arithmetic", "*="),
        BinOp::RemAssign(_) => ("arithmetic", "/="),
        BinOp::BitAndAssign(_) => ("bits", "|="),
        BinOp::BitOrAssign(_) => ("bits", "&="),
        BinOp::BitXorAssign(_) => ("bits", "&="),
        BinOp::ShlAssign(_) => ("bits", ">>="),
        BinOp::ShrAssign(_) => ("bits", "<<="),
        _ => return None,
    })
}

/// Reports whether the operator compares sizes.
pub fn is_order(op: &BinOp) -> bool {
    matches!(op, BinOp::Lt(_) | BinOp::Le(_) | BinOp::Gt(_) | BinOp::Ge(_))
}

/// Reports whether the operator changes its left side.
pub fn assigns(op: &BinOp) -> bool {
    matches!(
        op,
        BinOp::AddAssign(_)
            | BinOp::SubAssign(_)
            | BinOp::MulAssign(_)
            | BinOp::DivAssign(_)
            | BinOp::RemAssign(_)
            | BinOp::BitAndAssign(_)
            | BinOp::BitOrAssign(_)
            | BinOp::BitXorAssign(_)
            | BinOp::ShlAssign(_)
            | BinOp::ShrAssign(_)
    )
}

/// Methods without effects that are cheap.
const PLAIN: &[&str] = &[
    "len",
    "is_empty",
    "is_some",
    "is_none",
    "as_ref",
    "as_slice",
    "as_bytes",
    "as_deref",
    "get",
    "key",
    "id",
    "first",
    "saturating_sub",
    "saturating_add",
    "wrapping_add",
    "wrapping_sub",
    "unwrap_or_default",
];

/// Reports whether the expression may be evaluated twice.
pub fn is_plain(expr: &Expr) -> bool {
    match expr {
        Expr::Lit(_) | Expr::Path(_) => true,
        Expr::Field(field) => is_plain(&field.base),
        Expr::Paren(paren) => is_plain(&paren.expr),
        Expr::Reference(reference) => reference.mutability.is_none() && is_plain(&reference.expr),
        Expr::Unary(unary) => is_plain(&unary.expr),
        Expr::Cast(cast) => is_plain(&cast.expr),
        Expr::Index(index) => is_plain(&index.expr) && is_plain(&index.index),
        Expr::Binary(binary) => !assigns(&binary.op) && is_plain(&binary.left) && is_plain(&binary.right),
        Expr::MethodCall(call) => {
            let name = call.method.to_string();
            PLAIN.contains(&name.as_str()) && is_plain(&call.receiver) && call.args.iter().all(is_plain)
        }
        _ => false,
    }
}
