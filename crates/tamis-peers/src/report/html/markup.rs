//! Writes elements that are always closed and text that is always escaped: nothing else can be written.

use std::fmt::Write;

/// What was written so far.
#[derive(Debug, Default)]
pub(super) struct Markup {
    out: String,
    /// Names given out.
    names: usize,
}

impl Markup {
    /// An element around what `content` writes.
    pub(super) fn element(
        &mut self,
        name: &'static str,
        attributes: &[(&'static str, &str)],
        content: impl FnOnce(&mut Markup),
    ) {
        self.start(name, attributes);
        self.out.push('>');
        content(self);
        let _ = write!(self.out, "</{name}>");
        if matches!(name, "div" | "figure" | "li" | "section" | "svg" | "table" | "tr") {
            self.out.push('\n');
        }
    }

    /// An element around text.
    pub(super) fn leaf(&mut self, name: &'static str, attributes: &[(&'static str, &str)], text: &str) {
        self.element(name, attributes, |out| out.text(text));
    }

    /// An element without content.
    pub(super) fn void(&mut self, name: &'static str, attributes: &[(&'static str, &str)]) {
        self.start(name, attributes);
        self.out.push_str("/>");
    }

    /// Text, escaped.
    pub(super) fn text(&mut self, text: &str) {
        escape(text, &mut self.out);
    }

    /// The page's own rules of style. Not escaped: HTML takes the content of `style` as it is.
    pub(super) fn style(&mut self, css: &'static str) {
        debug_assert!(!css.contains(['<', '&']), "rules of style are text in XML, too");
        self.start("style", &[]);
        self.out.push_str(">\n");
        self.out.push_str(css);
        self.out.push_str("</style>\n");
    }

    /// A name that no other element of the page has.
    pub(super) fn name(&mut self) -> String {
        self.names += 1;
        format!("n{}", self.names)
    }

    /// All that was written.
    pub(super) fn finish(self) -> String {
        self.out
    }

    fn start(&mut self, name: &'static str, attributes: &[(&'static str, &str)]) {
        self.out.push('<');
        self.out.push_str(name);
        for (key, value) in attributes {
            let _ = write!(self.out, " {key}=\"");
            escape(value, &mut self.out);
            self.out.push('"');
        }
    }
}

/// Characters that are markup become references. Those that XML does not have, or that turn the direction of the text
/// around them, are replaced.
fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' => out.push('\n'),
            '\t' => out.push(' '),
            c if c.is_control() => out.push('\u{fffd}'),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
}
