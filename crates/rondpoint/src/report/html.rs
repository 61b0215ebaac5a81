//! Writes a page. All text that is not a constant of the program is escaped, so text of a recording
//! never becomes markup.

use std::fmt::{Display, Write as _};

use crate::terminal;

/// HTML, with SVG inside.
#[derive(Debug, Default)]
pub(crate) struct Html(String);

impl Html {
    /// Markup of ours.
    pub(crate) fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Text, from wherever.
    pub(crate) fn text(&mut self, text: impl Display) -> &mut Self {
        put_escaped(&mut self.0, &text.to_string());
        self
    }

    /// The beginning of an element, with its attributes.
    pub(crate) fn open(
        &mut self,
        tag: &'static str,
        attributes: &[(&'static str, &dyn Display)],
    ) -> &mut Self {
        self.0.push('<');
        self.0.push_str(tag);
        for (name, value) in attributes {
            let _ = write!(self.0, " {name}=\"");
            put_escaped(&mut self.0, &value.to_string());
            self.0.push('"');
        }
        self.0.push('>');
        self
    }

    /// The end of an element.
    pub(crate) fn close(&mut self, tag: &'static str) -> &mut Self {
        let _ = writeln!(self.0, "</{tag}>");
        self
    }

    /// An element that holds text only.
    pub(crate) fn element(
        &mut self,
        tag: &'static str,
        attributes: &[(&'static str, &dyn Display)],
        text: impl Display,
    ) -> &mut Self {
        self.open(tag, attributes).text(text).close(tag)
    }

    /// The page.
    pub(crate) fn into_text(self) -> String {
        self.0
    }
}

fn put_escaped(page: &mut String, text: &str) {
    for one in terminal::clean_lines(text).chars() {
        match one {
            '&' => page.push_str("&amp;"),
            '<' => page.push_str("&lt;"),
            '>' => page.push_str("&gt;"),
            '"' => page.push_str("&quot;"),
            '\'' => page.push_str("&#39;"),
            other => page.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_attributes_never_become_markup() {
        let attack = "</title><script>alert('1')</script>\" onload=\"x&\u{1b}[2J\u{202e}";
        let mut page = Html::default();
        page.element("p", &[("title", &attack)], attack);
        let page = page.into_text();
        assert_eq!(page.matches('<').count(), 2, "{page}");
        assert_eq!(page.matches('"').count(), 2, "{page}");
        assert!(!page.contains(['\u{1b}', '\u{202e}', '\'']), "{page}");
        assert!(page.contains("&lt;script&gt;") && page.contains("x&amp;"), "{page}");
    }
}
