//! Pages of HTML: elements that are closed and text that is escaped. A page is written with nothing else, and so is well-formed.
//!
//! A [`document`] needs nothing else and runs nothing: no script, no font, no picture from elsewhere, and it forbids itself to
//! load any. It is well-formed XML as well, so that a parser can check it.

use crate::figures::draw::text::clean;

/// Forbids a page to load or run anything.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// A whole page: its head with the rules of style, and around what `body` writes its body.
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

/// A page in the making.
#[derive(Debug, Default)]
pub struct Page {
    out: String,
    /// Names given out.
    names: usize,
}

/// Attributes of an element.
pub type With<'a> = &'a [(&'static str, &'a str)];

impl Page {
    /// An element around what `inner` writes.
    pub fn tag(&mut self, name: &'static str, with: With<'_>, inner: impl FnOnce(&mut Page)) {
        self.open(name, with);
        self.out.push('>');
        inner(self);
        self.out.extend(["</", name, ">"]);
        // Lines for those who read the source; not where white space would show.
        if matches!(
            name,
            "article" | "dd" | "div" | "figure" | "header" | "li" | "p" | "section" | "svg" | "table" | "tr"
        ) {
            self.out.push('\n');
        }
    }

    /// An element around text.
    pub fn text_tag(&mut self, name: &'static str, with: With<'_>, text: &str) {
        self.tag(name, with, |page| page.text(text));
    }

    /// An element that has no content.
    pub fn void(&mut self, name: &'static str, with: With<'_>) {
        self.open(name, with);
        self.out.push_str("/>");
    }

    /// Text. Its lines stay lines, where white space shows.
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

    /// A name that no other element of the page has, if all are made so.
    pub fn name(&mut self) -> String {
        self.names += 1;
        format!("n{}", self.names)
    }

    /// A document of [`draw`](crate::figures::draw), which is well-formed.
    pub fn picture(&mut self, svg: &str) {
        self.out.push_str(svg);
    }

    /// The rules of style, which HTML takes as they are.
    fn style(&mut self, rules: &'static str) {
        debug_assert!(!rules.contains(['<', '&']));
        self.out.extend(["<style>\n", rules, "</style>\n"]);
    }

    /// All of it.
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
