//! HTML pages: closed elements and escaped text. Pages are written with nothing else, and so are well-formed.
//!
//! A [`document`] is self-contained and inert: it has no scripts, fonts or external images, and forbids itself to load
//! any. It is also well-formed XML, so that a parser can check it.

use crate::figures::draw::text::clean;

/// Forbids a page to load or run anything.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Returns a whole page: its head with the style sheet, and the body that `body` writes.
pub fn document(title: &str, style: &'static str, body: impl FnOnce(&mut Page)) -> String {
    let mut page = Page::default();
    page.tag("html", &[("lang", "en")], |page| {
        page.tag("head", &[], |page| {
            page.void("meta", &[("charset", "utf-8")]);
            page.void("meta", &[("http-equiv", "Content-Security-Policy"), ("content", POLICY)]);
            page.void("meta", &[("name", "viewport"), ("content", "width=device-width, initial-scale=1")]);
            page.void("meta", &[("name", "color-scheme"), ("content", "light dark")]);
            page.text_tag("title", &[], title);
            page.style(style);
        });
        page.tag("body", &[], body);
    });
    format!("<!DOCTYPE html>\n{}\n", page.finish())
}

/// A page under construction.
#[derive(Debug, Default)]
pub struct Page {
    out: String,
    /// Number of names assigned.
    names: usize,
}

/// Attributes of an element.
pub type With<'a> = &'a [(&'static str, &'a str)];

impl Page {
    /// Writes an element around the output of `inner`.
    pub fn tag(&mut self, name: &'static str, with: With<'_>, inner: impl FnOnce(&mut Page)) {
        self.open(name, with);
        self.out.push('>');
        inner(self);
        self.out.extend(["</", name, ">"]);
        // Line breaks for readers of the source, only where white space is not rendered.
        if matches!(
            name,
            "article" | "dd" | "div" | "figure" | "header" | "li" | "p" | "section" | "svg" | "table" | "tr"
        ) {
            self.out.push('\n');
        }
    }

    /// Writes an element that contains text.
    pub fn text_tag(&mut self, name: &'static str, with: With<'_>, text: &str) {
        self.tag(name, with, |page| page.text(text));
    }

    /// Writes an element without content.
    pub fn void(&mut self, name: &'static str, with: With<'_>) {
        self.open(name, with);
        self.out.push_str("/>");
    }

    /// Writes text. Line breaks remain, where white space is rendered.
    pub fn text(&mut self, text: &str) {
        for (n, line) in text.split('\n').enumerate() {
            if n > 0 {
                self.out.push('\n');
            }
            for c in clean(line).chars() {
                match c {
                    '&' => self.out.push_str("&amp;"),
                    '<' => self.out.push_str("&lt;"),
                    '>' => self.out.push_str("&gt;"),
                    '"' => self.out.push_str("&quot;"),
                    c => self.out.push(c),
                }
            }
        }
    }

    /// Returns a name that is unique in the page, provided that all names come from here.
    pub fn name(&mut self) -> String {
        self.names += 1;
        format!("n{}", self.names)
    }

    /// Embeds a document of [`draw`](crate::figures::draw), which is well-formed.
    pub fn picture(&mut self, svg: &str) {
        self.out.push_str(svg);
    }

    /// Writes the style sheet, which HTML takes verbatim.
    fn style(&mut self, rules: &'static str) {
        debug_assert!(!rules.contains(['<', '&']));
        self.out.extend(["<style>\n", rules, "</style>\n"]);
    }

    /// Returns the whole page.
    fn finish(self) -> String {
        self.out
    }

    fn open(&mut self, name: &str, with: With<'_>) {
        self.out.extend(["<", name]);
        for (key, value) in with {
            self.out.extend([" ", key, "=\""]);
            self.text(value);
            self.out.push('"');
        }
    }
}
