//! Figures as scripts and people meet them: rows, JSON, HTML.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::drive::drive;
use weir_figures::{Figure, Lab, Ours, PrintedKind, Record, Row, Sheet, Summary, SummaryRow, report};
use weir_flash::{Kind, Mechanism, Parameter};

const FIGURE: &str = r#"
title = "for <tests> & controls"
source = "none"
plot = "bars"
capacity_blocks = 16_384
span_blocks = 8192
writes = 2000
writes_waiting = 200
warm_up_max = 4000
fitted = [["drive", "XnF"]]

[[device]]
profile = "drive"
host = "pc"

[[series]]
name = "XnF"
way = "XnF"
measure = "iops"
over = "P"

[[series]]
name = "X"
way = "X"
measure = "depth-max"

[[series]]
name = "B"
way = "B"
measure = "iops"
over = "P"
mechanism = "plp"

[[series]]
name = "P"
way = "P"
measure = "iops"
"#;

const PAPER: &str = r#"
[[row]]
device = "drive"
series = "XnF"
value = 0.5
kind = "measured"
source = "made up"

[[row]]
device = "drive"
series = "X"
value = 1
kind = "text bound: at most"
source = "made up"

[[row]]
device = "drive"
series = "B"
value = 90
kind = "assumed"
source = "made up"
"#;

fn lab() -> Lab {
    let assumed = Parameter {
        key: "host.latency".to_owned(),
        value: "10 us".to_owned(),
        kind: Kind::Assumed,
        source: "made up".to_owned(),
        range: None,
    };
    let service = Parameter {
        key: "host.ordered_service".to_owned(),
        value: "pipelined".to_owned(),
        range: Some(["serial", "pipelined"].map(str::to_owned)),
        ..assumed.clone()
    };
    Lab::with_devices(1, move |name, changes| {
        assert_eq!((name, changes.len()), ("drive", 0));
        Ok((drive(Mechanism::InOrderRecovery), vec![assumed.clone(), service.clone()]))
    })
}

fn figure() -> Figure {
    Figure::parse("mine", FIGURE, PAPER, "notes with <b>marks</b> & https://example.org/").unwrap()
}

fn sheets(spread: bool) -> Vec<Sheet> {
    let mut lab = lab();
    lab.spread = spread;
    lab.run(&[figure()], &mut |_| {}).unwrap()
}

#[test]
fn rows_are_what_was_measured_beside_what_is_printed() {
    let rows = &sheets(false)[0].rows;
    let texts: Vec<_> = rows
        .iter()
        .map(|row| (row.series.as_str(), row.ours_kind, row.paper_kind, row.error_text()))
        .collect();
    let error = |printed: f64, ours: f64| format!("{:+.1} %", (ours / printed - 1.0) * 100.0);
    let residual = format!("fitted, {} left", error(0.5, rows[0].ours));
    assert_eq!(texts[0], ("XnF", Ours::Fitted, Some(PrintedKind::Measured), residual));
    assert_eq!(rows[0].error, None);
    // What is left over is there for scripts, whether it is an error or not.
    assert_eq!(rows[0].residual, Some(rows[0].ours / 0.5 - 1.0));
    assert_eq!((rows[1].residual, rows[3].residual), (Some(0.0), None));
    assert_eq!(texts[1], ("X", Ours::Bounded, Some(PrintedKind::AtMost), "kept by 0 %".to_owned()));
    assert_eq!(texts[2], ("B", Ours::Predicted, Some(PrintedKind::Assumed), error(90.0, rows[2].ours)));
    assert_eq!(texts[3], ("P", Ours::Predicted, None, "-".to_owned()));
    assert_eq!(rows[1].ours, 1.0);
    assert!(rows[2].ours > 90.0 && rows[2].ours < 110.0 && rows[3].ours > 10_000.0, "{rows:?}");
}

#[test]
fn a_fit_that_missed_has_an_error_for_scripts_too() {
    let paper = PAPER.replace("value = 0.5", "value = 0.8");
    let figure = Figure::parse("mine", FIGURE, &paper, "").unwrap();
    let row = lab().run(&[figure], &mut |_| {}).unwrap().remove(0).rows.remove(0);
    assert!(row.error.unwrap() < -0.05, "{row:?}");
    assert!(row.error_text().starts_with("fitted, -"), "{row:?}");
}

#[test]
fn scripts_get_exactly_the_fields() {
    let value = serde_json::to_value(&sheets(false)[0].rows).unwrap();
    let rows = value.as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        let mut keys: Vec<&str> = row.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        let known = ["device", "error", "figure", "ours", "ours_kind", "paper", "paper_kind", "residual"];
        assert_eq!(keys, [known.as_slice(), &["series", "unit"]].concat());
        assert!(row["ours"].is_f64());
    }
    assert!(rows[3]["paper"].is_null() && rows[3]["error"].is_null());
    assert_eq!(rows[2]["paper"], 90.0);
    assert_eq!((&rows[0]["ours_kind"], &rows[0]["paper_kind"]), (&"fitted".into(), &"measured".into()));
    assert_eq!(rows[1]["ours_kind"], "bounded");
    assert_eq!((&rows[1]["paper_kind"], &rows[0]["unit"]), (&"text bound".into(), &"% of P".into()));
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let bytes = || {
        let sheets = sheets(false);
        (serde_json::to_string(&sheets[0].rows).unwrap(), report(&sheets, 1, false).unwrap())
    };
    assert_eq!(bytes(), bytes());
}

#[test]
fn a_report_refers_to_nothing_outside_and_escapes_everything() {
    for plot in ["bars", "depth"] {
        let figure = Figure::parse(
            "mine",
            &FIGURE.replace("plot = \"bars\"", &format!("plot = {plot:?}")),
            PAPER,
            "notes with <b>marks</b> & a link",
        );
        let mut lab = lab();
        let html = report(&lab.run(&[figure.unwrap()], &mut |_| {}).unwrap(), 1, false).unwrap();
        for word in ["src=", "url(", "@import", "<script", "<link"] {
            assert!(!html.contains(word), "{plot}: {word}");
        }
        // Links lead to places in the report itself, which are there.
        for link in html.split("href=\"").skip(1) {
            let place = link.split('"').next().unwrap().strip_prefix('#').unwrap();
            assert!(html.contains(&format!("id=\"{place}\"")), "{plot}: {place}");
        }
        let addresses = html.matches("http").count() - html.matches("http://www.w3.org/2000/svg").count();
        assert_eq!(addresses, 0, "{plot}");
        assert!(html.contains("for &lt;tests&gt; &amp; controls"), "{plot}");
        assert!(html.contains("&lt;b&gt;marks&lt;/b&gt; &amp; a link"), "{plot}");
        assert!(html.matches("<svg").count() >= 2, "{plot}");
    }
}

#[test]
fn a_spread_lies_around_the_result_of_what_is_predicted() {
    let rows = &sheets(true)[0].rows;
    assert_eq!(rows[0].spread, None, "a fitted row");
    for row in &rows[1..] {
        let [low, high] = row.spread.unwrap();
        assert!(low <= row.ours && row.ours <= high, "{row:?}");
    }
    // Serial ordered service, the other word of its range, costs much more than 20 % of any number.
    let [low, _] = rows[2].spread.unwrap();
    assert!(low < 0.9 * rows[2].ours, "{:?}", rows[2]);
}

#[test]
fn runs_are_shared_and_told_of() {
    let mut lab = lab();
    let mut told = Vec::new();
    lab.run(&[figure(), figure()], &mut |progress| told.push(progress.clone())).unwrap();
    // XnF, P, X, and B on another mechanism; P serves three rows.
    assert_eq!(
        told.iter().map(|progress| (progress.done, progress.total)).collect::<Vec<_>>(),
        [(0, 4), (1, 4), (2, 4), (3, 4)]
    );
}

/// What is read from a record is what was printed there, and sums up to the same.
#[test]
fn a_record_is_what_was_recorded() {
    let sheets = sheets(true);
    let json = serde_json::to_string(&sheets[0].rows).unwrap();
    let record = Record::parse("mine", &json, PAPER).unwrap();
    let words = |rows: &[Row]| {
        let words = |row: &Row| {
            let texts = [row.paper_text(), row.ours_text(), row.error_text(), row.residual_text()];
            (
                row.figure.clone(),
                row.device.clone(),
                row.series.clone(),
                row.unit.clone(),
                row.ours_kind,
                texts,
            )
        };
        rows.iter().map(words).collect::<Vec<_>>()
    };
    assert_eq!(words(&record.rows), words(&sheets[0].rows));
    let summaries = [Summary::from_records(&[record]), Summary::from_sheets(&sheets)];
    let [recorded, run] = summaries.map(|summary| {
        let texts: Vec<String> = summary.rows.iter().map(SummaryRow::text).collect();
        format!("{:?} {texts:?}", Summary { rows: Vec::new(), ..summary })
    });
    assert_eq!(recorded, run);
    for (json, paper) in [("[", PAPER), (json.as_str(), "[[row]]")] {
        let error = Record::parse("mine", json, paper).unwrap_err().to_string();
        assert!(error.starts_with(if json == "[" { "mine/ours.json" } else { "mine/paper.toml" }), "{error}");
    }
}

/// The report lists bars in another order than the paper's at its beginning, and all orders with their figure.
#[test]
fn a_report_tells_of_the_order_of_bars() {
    let orders = "\n[[order]]\ndevice = \"drive\"\nseries = [\"XnF\", \"B\"]\nsource = \"made up\"\n";
    let [kept, broken] =
        [orders.to_owned(), orders.replace("\"XnF\", \"B\"", "\"B\", \"XnF\"")].map(|orders| {
            let figure = Figure::parse("mine", FIGURE, &format!("{PAPER}{orders}"), "").unwrap();
            let sheets = lab().run(&[figure], &mut |_| {}).unwrap();
            let Summary { orders, orders_broken, .. } = Summary::from_sheets(&sheets);
            (orders, orders_broken, report(&sheets, 1, false).unwrap())
        });
    let told = ["&quot;XnF&quot; &lt; &quot;B&quot;: kept", "&quot;B&quot; &lt; &quot;XnF&quot;: broken"];
    let found = [&kept, &broken].map(|(_, _, report)| told.map(|text| report.matches(text).count()));
    assert_eq!(found, [[1, 0], [0, 2]]);
    assert_eq!([(kept.0, kept.1), (broken.0, broken.1)], [(1, 0), (1, 1)]);
}

/// A run whose rate depends on the addresses that are drawn, since the drive cleans.
const CLEANING: &str = r#"
[[series]]
name = "cleaning"
way = { Random = { footprint_mib = 48, size = "small", flush_every = 64 } }
measure = "iops"
"#;

/// A row of several seeds is the median of what each of them gives, between the least and the greatest.
#[test]
fn a_row_of_several_seeds_is_their_median() {
    let rows = |seed, seeds| {
        let mut lab = lab();
        (lab.seed, lab.seeds, lab.jobs) = (seed, seeds, 2);
        let figure = Figure::parse("mine", &format!("{FIGURE}{CLEANING}"), PAPER, "").unwrap();
        lab.run(&[figure], &mut |_| {}).unwrap().remove(0).rows
    };
    let single = [1, 2, 3].map(|seed| rows(seed, 1));
    for (at, row) in rows(1, 3).iter().enumerate() {
        let mut each = single.each_ref().map(|rows| rows[at].ours);
        each.sort_by(f64::total_cmp);
        assert_eq!(
            (row.ours, row.range, row.seeds),
            (each[1], Some([each[0], each[2]]), Some(3)),
            "{}",
            row.series
        );
    }
    assert!(single[0] != single[1], "the seeds draw nothing here");
    let json = serde_json::to_value(rows(1, 2)).unwrap();
    assert_eq!((&json[0]["seeds"], json[0]["range"].as_array().unwrap().len()), (&2.into(), 2));
}

/// Two runs of SQLite, whose library all threads share.
const INSERTS: &str = r#"
[[series]]
name = "inserts"
way = { Sqlite = { on = "EXT4", journal = "delete", synchronous = "extra", syncs = "stock" } }
measure = "inserts"

[[series]]
name = "inserts with a log"
way = { Sqlite = { on = "BarrierFS", journal = "wal", synchronous = "full", syncs = "stock" } }
measure = "inserts"
"#;

/// Several runs at the same time disturb each other in nothing: rows, curves and all digits are the same, in the same order.
#[test]
fn results_do_not_depend_on_the_number_of_jobs() {
    let results = [1, 2, 5].map(|jobs| {
        let figure = Figure::parse("mine", &format!("{FIGURE}{INSERTS}"), PAPER, "").unwrap();
        let mut lab = lab();
        lab.jobs = jobs;
        let mut begun = Vec::new();
        let sheets = lab.run(&[figure], &mut |progress| begun.push(progress.what.clone())).unwrap();
        begun.sort();
        let json = serde_json::to_string(&sheets[0].rows).unwrap();
        (begun, json, format!("{:?} {:?}", sheets[0].rows, sheets[0].curves))
    });
    assert_eq!((results[0].0.len(), &results[1]), (6, &results[0]));
    assert_eq!(results[2], results[0]);
}

/// Of several runs that fail, the first one of the figure is told, on any number of threads.
#[test]
fn a_run_that_fails_is_told_whatever_the_number_of_jobs() {
    let errors = [1, 2, 5].map(|jobs| {
        let text = format!("{FIGURE}{INSERTS}").replace("capacity_blocks = 16_384", "capacity_blocks = 512");
        let mut lab = lab();
        lab.jobs = jobs;
        lab.run(&[Figure::parse("mine", &text, PAPER, "").unwrap()], &mut |_| {}).unwrap_err().to_string()
    });
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
}

#[test]
fn a_share_can_be_of_a_device_with_another_mechanism() {
    let over = FIGURE.replace("over = \"P\"\nmechanism = \"plp\"", "over = \"B\"\nover_mechanism = \"plp\"");
    assert_ne!(over, FIGURE);
    let mut told = 0;
    let figure = Figure::parse("mine", &over, PAPER, "").unwrap();
    let rows = lab().run(&[figure], &mut |progress| told = progress.total).unwrap().remove(0).rows;
    // XnF, P, X, and B on either mechanism.
    assert_eq!((told, rows[2].unit.as_str()), (5, "% of B"));
    assert!(rows[2].ours > 90.0 && rows[2].ours < 110.0, "{:?}", rows[2]);
}

#[test]
fn a_mechanism_that_is_not_known_is_an_error_that_names_the_known_ones() {
    for key in ["mechanism", "over_mechanism"] {
        let text = FIGURE.replace("mechanism = \"plp\"", &format!("{key} = \"prayer\""));
        let figure = Figure::parse("mine", &text, PAPER, "").unwrap();
        let error = lab().run(&[figure], &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains("prayer") && error.contains("in-order-recovery"), "{error}");
    }
}
