//! The page in a browser: on a telephone, on a screen, in print. Skipped where there is no browser.

use std::fs;

use serde_json::Value;
use tamis_lab::figures::report::html;

use crate::chromium::Chromium;
use crate::{measured, samples};

/// Returns the observations of `look.js` on a page in a frame of this width.
fn look(browser: &Chromium, page: &str, width: u32, dark: bool) -> Value {
    // In a script, `<` could end it.
    let text = serde_json::to_string(page).unwrap().replace('<', "\\u003c");
    let around = format!(
        "<!DOCTYPE html><meta charset=utf-8><iframe id=frame style=\"width:{width}px;height:800px;border:0\"></iframe>\
         <pre id=out></pre><script>{}\nconst frame = document.getElementById('frame');\n\
         frame.onload = () => look(frame);\nframe.srcdoc = {text};</script>",
        include_str!("look.js"),
    );
    let path = browser.write("around.html", &around);
    let scheme = format!("--blink-settings=preferredColorScheme={}", u8::from(!dark));
    let left = browser
        .open(&path, &["--dump-dom", "--window-size=1400,1000", "--virtual-time-budget=20000", &scheme]);
    assert_eq!(left.console, Vec::<String>::new());
    let found = left.stdout.split_once("<pre id=\"out\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (json, _) = found.unwrap_or_else(|| {
        panic!("there are no observations: {}", &left.stdout[..left.stdout.len().min(2000)])
    });
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

fn none(saw: &Value, what: &str) {
    assert_eq!(saw[what], serde_json::json!([]), "{what}");
}

/// Checks what holds at any width.
fn check(saw: &Value, width: u32, figures: usize, pictures: usize) {
    assert_eq!(saw["width"], width);
    assert!(
        saw["scrollWidth"].as_u64().unwrap() <= u64::from(width),
        "{} {}",
        saw["scrollWidth"],
        saw["beyond"]
    );
    for what in ["beyond", "resources", "faint"] {
        none(saw, what);
    }
    let headings = saw["headings"].as_array().unwrap();
    assert_eq!(headings.len(), figures);
    assert!(headings.iter().all(|heading| heading["shown"] == true), "{headings:?}");
    let seen = saw["pictures"].as_array().unwrap();
    assert_eq!(seen.len(), pictures);
    for picture in seen {
        let size = |what: &str| picture[what].as_f64().unwrap();
        assert!(size("width") >= 250.0 && size("height") >= 40.0, "{picture}");
        assert!(picture["least"].is_null() || size("least") >= 11.0, "{picture}");
        none(picture, "cross");
        none(picture, "out");
    }
}

fn picture_count(page: &str) -> usize {
    page.matches("<svg").count()
}

#[test]
fn the_page_fits_a_telephone_a_screen_and_the_dark() {
    let Some(browser) = Chromium::find() else { return };
    let page = html(&samples::all(), &[]);
    for (width, dark, ground) in [
        (360, false, "rgb(255, 255, 255)"),
        (360, true, "rgb(20, 23, 26)"),
        (768, false, "rgb(255, 255, 255)"),
        (1200, false, "rgb(255, 255, 255)"),
    ] {
        let saw = look(&browser, &page, width, dark);
        assert_eq!(saw["colours"], ground, "{width} {dark}");
        check(&saw, width, 4, picture_count(&page));
    }
}

#[test]
fn hostile_names_change_nothing_on_a_telephone() {
    let Some(browser) = Chromium::find() else { return };
    let page = html(&[samples::hostile()], &[samples::HOSTILE.repeat(20)]);
    check(&look(&browser, &page, 360, false), 360, 1, 2);
}

/// Real results, measured just now.
#[test]
fn measured_results_are_shown() {
    let Some(browser) = Chromium::find() else { return };
    let results = measured::results();
    let page = html(&results, &[]);
    assert!(picture_count(&page) > 0);
    check(&look(&browser, &page, 360, false), 360, results.len(), picture_count(&page));
}

#[test]
fn the_file_opens_without_a_word_and_prints() {
    let Some(browser) = Chromium::find() else { return };
    let path = browser.write("report.html", &html(&samples::all(), &[]));
    let pdf = browser.place("report.pdf");
    let print = format!("--print-to-pdf={}", pdf.display());
    let left = browser.open(&path, &[&print, "--no-pdf-header-footer"]);
    assert_eq!(left.console, Vec::<String>::new());
    let pdf = fs::read(pdf).unwrap();
    assert!(pdf.starts_with(b"%PDF-"));
    let pages = pdf.windows(11).filter(|at| at.starts_with(b"/Type /Page") && at.len() == 11).count()
        - pdf.windows(12).filter(|at| *at == b"/Type /Pages").count();
    // Each paper begins on its own page, and so does the summary.
    assert!(pages >= 5, "{pages}");
    let picture = browser.place("report.png");
    let shot = format!("--screenshot={}", picture.display());
    browser.open(&path, &[&shot, "--window-size=1200,1600"]);
    assert!(fs::read(picture).unwrap().starts_with(b"\x89PNG"));
}

/// The checks work: they find the faults of a faulty page.
#[test]
fn faults_are_seen() {
    let Some(browser) = Chromium::find() else { return };
    let bad = "<!DOCTYPE html><meta http-equiv=Content-Security-Policy content=\"img-src 'none'\"><body style=\"color:#999;background:#fff\">\
        <article><h3 style=\"display:none\">hidden</h3></article><div style=\"width:900px\">wide</div>\
        <svg viewBox=\"0 0 100 100\" width=\"100\"><title>t</title><text x=\"90\" y=\"50\">one over</text><text x=\"92\" y=\"51\">another</text></svg>";
    let saw = look(&browser, bad, 360, false);
    assert!(saw["scrollWidth"].as_u64().unwrap() >= 900);
    assert_eq!(saw["headings"][0]["shown"], false);
    assert!(
        saw["beyond"].as_array().unwrap().iter().any(|name| name.as_str().unwrap().contains("wide")),
        "{saw}"
    );
    assert!(
        !saw["faint"].as_array().unwrap().is_empty()
            && saw["pictures"][0]["cross"].as_array().unwrap().len() == 1,
        "{saw}"
    );
    assert_eq!(saw["pictures"][0]["out"].as_array().unwrap().len(), 2, "{saw}");
    let path = browser.write("bad.html", &format!("{bad}<img src=\"x.png\">"));
    assert_eq!(browser.open(&path, &["--dump-dom"]).console.len(), 1);
}
