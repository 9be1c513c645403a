//! What was found of a program, as a page of HTML: each failure with the timeline of its calls.

use maud::{PreEscaped, html};
use weir_program::StateFailure;

use crate::plain;

/// The beginning of a page, by which one is known that may be overwritten.
pub(super) const PAGE_BEGINNING: &str =
    "<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>weir crash program</title>";

/// It needs nothing from elsewhere, and shows what became of a call by its words, too.
const STYLE: &str = "body{font-family:sans-serif;max-width:70em;margin:2em auto;padding:0 1em}\
pre{background:#f4f4f4;padding:.6em;overflow:auto;white-space:pre-wrap}\
table{border-collapse:collapse;font-size:.9em}td,th{padding:.15em .6em;text-align:left;vertical-align:top}\
tr{border-left:.5em solid #bbb}tr.missing,tr.partly{background:#fdd;border-color:#c00}tr.there{border-color:#6a6}\
tr.durable{border-color:#060}tr.synchronised,tr.failed{background:#def;border-color:#06c}\
tr.acknowledged{background:#ffd;border-color:#cc0}tr.cut td{border-top:.2em solid #c00;font-weight:bold}";

/// A page on a run, with what a person reads of it, and its failures with what a person reads of each.
pub(super) fn to_page(run: &str, text: &str, failures: &[(&StateFailure, String)]) -> String {
    let body = html! {
        style { (PreEscaped(STYLE)) }
        h1 { "Power cuts under a program" }
        pre { (plain::of_text(run)) }
        @if failures.is_empty() { pre { (plain::of_text(text)) } }
        @for (nth, (failure, described)) in (1..).zip(failures) {
            h2 { "Failure " (nth) }
            pre { (plain::of_text(described)) }
            table {
                tr { th { "call" } th { "by" } th { "what" } th { "in this state" } }
                @for entry in &failure.timeline {
                    tr class=(entry.fate.name()) {
                        td { (entry.number) }
                        td { (plain::of_text(&entry.command)) }
                        td { (plain::of_text(&entry.call)) }
                        td { (entry.fate.name()) }
                    }
                }
                tr class="cut" { td colspan="4" { "The power is cut." } }
            }
        }
        @if !failures.is_empty() {
            h2 { "In all" }
            pre { (plain::of_text(text.lines().last().unwrap_or_default())) }
        }
    };
    format!("{PAGE_BEGINNING}{}</html>\n", body.into_string())
}
