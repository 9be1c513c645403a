//! A figure's notes, from Markdown to HTML.

use std::borrow::Cow;

use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html::push_html};

/// Renders notes, as a part of a report that has the figures `shown`. Links to the notes of these figures lead there;
/// other links lead out of the report, which needs nothing else, so their text alone stays. Markup in the notes is
/// text.
pub(crate) fn rendered(notes: &str, shown: &[&str]) -> String {
    let mut left_out = Vec::new();
    let events = Parser::new_ext(notes, Options::ENABLE_TABLES).filter_map(|event| match event {
        Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
            let inside = target(&dest_url, shown);
            left_out.push(inside.is_none());
            let dest_url = CowStr::from(inside?.into_owned());
            Some(Event::Start(Tag::Link { link_type, dest_url, title, id }))
        }
        Event::End(TagEnd::Link) => (left_out.pop() == Some(false)).then_some(event),
        Event::Start(Tag::Heading { level, id, classes, attrs }) => {
            Some(Event::Start(Tag::Heading { level: below(level), id, classes, attrs }))
        }
        Event::End(TagEnd::Heading(level)) => Some(Event::End(TagEnd::Heading(below(level)))),
        // Comments are for programs.
        Event::Html(text) if text.starts_with("<!--") => None,
        Event::Html(text) | Event::InlineHtml(text) => Some(Event::Text(text)),
        Event::Start(Tag::Image { .. }) | Event::End(TagEnd::Image) => None,
        other => Some(other),
    });
    let mut html = String::new();
    push_html(&mut html, events);
    html
}

/// Where a link to another figure's notes leads in the report, if it has that figure.
fn target<'n>(link: &str, shown: &[&'n str]) -> Option<Cow<'n, str>> {
    let name = link.strip_prefix("../")?.split('/').next()?;
    shown.iter().find(|shown| **shown == name).map(|name| Cow::Owned(format!("#{name}")))
}

/// A heading of notes stands below the figure's own, which is of the second level.
fn below(level: HeadingLevel) -> HeadingLevel {
    match level {
        HeadingLevel::H1 => HeadingLevel::H3,
        HeadingLevel::H2 => HeadingLevel::H4,
        _ => HeadingLevel::H5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_into_the_report_or_nowhere() {
        let notes = "# Title\n\n[one](../fig01/README.md#x), [two](../fig02/README.md), [out](https://example.org) <b>";
        assert_eq!(
            rendered(notes, &["fig01"]),
            "<h3>Title</h3>\n<p><a href=\"#fig01\">one</a>, two, out &lt;b&gt;</p>\n"
        );
    }

    #[test]
    fn comments_of_their_own_are_left_out() {
        let notes = "a\n\n<!-- rows: begin -->\nb\n\n<!-- rows: end -->\n\nc\n";
        assert_eq!(rendered(notes, &[]), "<p>a</p>\n<p>b</p>\n<p>c</p>\n");
    }

    #[test]
    fn tables_are_tables() {
        assert!(rendered("| a | b |\n|---|---|\n| 1 | 2 |\n", &[]).contains("<td>1</td>"));
    }
}
