//! Elements that are closed and text that is escaped: a page is written with nothing else, and so is well-formed.

use super::super::draw::text::clean;

/// A page in the making.
#[derive(Debug, Default)]
pub(super) struct Page(String);

/// Attributes of an element.
pub(super) type With<'a> = &'a [(&'static str, &'a str)];

impl Page {
    /// An element around what `inner` writes.
    pub(super) fn tag(&mut self, name: &'static str, with: With<'_>, inner: impl FnOnce(&mut Page)) {
        self.open(name, with);
        self.0.push('>');
        inner(self);
        self.0.extend(["</", name, ">"]);
        // Lines for those who read the source; not where white space would show.
        if matches!(
            name,
            "article" | "dd" | "div" | "figure" | "header" | "li" | "p" | "section" | "table" | "tr"
        ) {
            self.0.push('\n');
        }
    }

    /// An element around text.
    pub(super) fn text_tag(&mut self, name: &'static str, with: With<'_>, text: &str) {
        self.tag(name, with, |page| page.text(text));
    }

    /// An element that has no content.
    pub(super) fn void(&mut self, name: &'static str, with: With<'_>) {
        self.open(name, with);
        self.0.push_str("/>");
    }

    /// Text.
    pub(super) fn text(&mut self, text: &str) {
        for c in clean(text).chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                c => self.0.push(c),
            }
        }
    }

    /// A document of [`draw`](super::super::draw), which is well-formed.
    pub(super) fn picture(&mut self, svg: &str) {
        self.0.push_str(svg);
    }

    /// The rules of style, which HTML takes as they are.
    pub(super) fn style(&mut self, rules: &'static str) {
        debug_assert!(!rules.contains(['<', '&']));
        self.0.extend(["<style>\n", rules, "</style>\n"]);
    }

    /// All of it.
    pub(super) fn finish(self) -> String {
        self.0
    }

    fn open(&mut self, name: &str, with: With<'_>) {
        self.0.extend(["<", name]);
        for (key, value) in with {
            self.0.extend([" ", key, "=\""]);
            self.text(value);
            self.0.push('"');
        }
    }
}
