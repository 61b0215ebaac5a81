//! The page's part on decisions: moves with reasons, predicted and measured gains, and vetoes.

use rondpoint_core::trial;

use super::chart;
use super::html::Html;
use crate::story::words::percent;
use crate::story::{Deed, Story, Verdict};

/// Rows of a table at most; the rest is in `rondpoint explain`.
const MOST_ROWS: usize = 200;

/// The class of a verdict's colour.
pub(super) fn class(verdict: &Verdict) -> &'static str {
    match verdict.verdict {
        trial::Verdict::Better | trial::Verdict::Traded => "good",
        trial::Verdict::Worse | trial::Verdict::NoWayBack => "bad",
        trial::Verdict::Unclear | trial::Verdict::PhaseChange | trial::Verdict::Returned => {
            "unclear"
        }
    }
}

/// What was done, with its moment's time.
fn done(story: &Story) -> impl Iterator<Item = (f64, &Deed)> {
    let moments = story.moments.iter();
    moments
        .flat_map(|moment| story.deeds_of(moment).iter().map(|deed| (moment.at_s, deed)))
        .filter(|(_, deed)| deed.is_tried())
}

/// The section on what was moved.
pub(super) fn put(html: &mut Html, story: &Story) {
    html.raw("<h2>What was moved, and why</h2>\n");
    let all: Vec<(f64, &Deed)> = done(story).collect();
    if all.is_empty() {
        html.raw("<p>Nothing was moved.</p>\n");
    } else {
        html.raw(
            "<div class=\"scroll\"><table><thead><tr><th class=\"number\">second</th>\
             <th class=\"number\">process</th><th>what, why, and what the host did</th>\
             <th class=\"number\">predicted</th><th class=\"number\">measured</th><th>verdict</th>\
             </tr></thead><tbody>\n",
        );
        for (at_s, deed) in all.iter().take(MOST_ROWS) {
            put_row(html, story, *at_s, deed);
        }
        html.raw("</tbody></table></div>\n");
        put_rest(html, all.len());
    }
    put_comparison(html, story);
    put_vetoes(html, story);
}

fn put_rest(html: &mut Html, rows: usize) {
    if rows > MOST_ROWS {
        html.raw("<p class=\"note\">").text(format!("{} more: ", rows - MOST_ROWS));
        html.raw("<code>rondpoint explain</code> shows all.</p>\n");
    }
}

fn put_row(html: &mut Html, story: &Story, at_s: f64, deed: &Deed) {
    let verdict = story.verdict_on(deed);
    let change = |change: Option<f64>| change.map_or("–".to_string(), percent);
    html.raw("<tr>");
    html.element("td", &[("class", &"number")], format!("{at_s:.3}"));
    let pid = deed.pid.map_or("–".to_string(), |pid| pid.to_string());
    html.element("td", &[("class", &"number")], pid);
    html.open("td", &[("class", &"words")]);
    html.raw("<b>").text(deed.what()).raw("</b><br>").text(&deed.because);
    if let Some(outcome) = deed.came_of_it.text(deed) {
        html.raw("<br><span class=\"muted\">").text(outcome).raw("</span>");
    }
    html.close("td");
    html.element("td", &[("class", &"number")], change(deed.predicted.0));
    html.element("td", &[("class", &"number")], change(verdict.and_then(|one| one.measured)));
    match verdict {
        Some(verdict) => html.element("td", &[("class", &class(verdict))], verdict.word()),
        None => html.element("td", &[], "not judged"),
    };
    html.raw("</tr>\n");
}

fn put_comparison(html: &mut Html, story: &Story) {
    html.raw("<h2>Predicted against measured</h2>\n");
    let pairs = story.verdicts.iter().filter(|one| one.verdict != trial::Verdict::PhaseChange);
    let points: Vec<(f64, f64, &'static str, String)> = pairs
        .filter_map(|verdict| {
            let (predicted, measured) = (verdict.predicted?, verdict.measured?);
            let at_s = story.moments[verdict.moment].at_s;
            let title = format!("{at_s:.3} s, process {}: {}", verdict.pid, verdict.sentence());
            Some((100.0 * predicted, 100.0 * measured, class(verdict), title))
        })
        .collect();
    if points.is_empty() {
        html.raw("<p>No trial that ended had both a prediction and a measurement.</p>\n");
    } else {
        html.raw("<p class=\"note\">Each point is a trial, in the colour of its verdict; on the dotted line both agree.</p>\n");
        chart::scatter(html, "predicted against measured change of speed", &points);
    }
    if story.verdicts.is_empty() {
        return;
    }
    html.raw("<h3>Trials</h3>\n<div class=\"scroll\"><table><tbody>\n");
    for verdict in story.verdicts.iter().take(MOST_ROWS) {
        let at_s = story.moments[verdict.moment].at_s;
        html.raw("<tr>").element("td", &[("class", &"number")], format!("{at_s:.3} s"));
        html.element("td", &[("class", &"number")], verdict.pid);
        html.element("td", &[("class", &class(verdict))], verdict.sentence()).raw("</tr>\n");
    }
    html.raw("</tbody></table></div>\n");
    put_rest(html, story.verdicts.len());
}

/// Vetoes of one rule on one kind of action for one process.
struct Vetoes<'a> {
    first: &'a Deed,
    first_s: f64,
    last_s: f64,
    times: u64,
    won: Option<f64>,
}

fn put_vetoes(html: &mut Html, story: &Story) {
    html.raw("<h2>What was not done, and why</h2>\n");
    let mut all: Vec<Vetoes<'_>> = Vec::new();
    for moment in &story.moments {
        for deed in story.deeds_of(moment) {
            let Some(veto) = &deed.veto else { continue };
            let same = |one: &&mut Vetoes<'_>| {
                let rule = one.first.veto.as_ref().map(|veto| &veto.rule);
                (one.first.pid, one.first.kind, &one.first.policy)
                    == (deed.pid, deed.kind, &deed.policy)
                    && rule == Some(&veto.rule)
            };
            let at_s = moment.at_s;
            match all.iter_mut().find(same) {
                Some(one) => {
                    one.times += 1;
                    one.last_s = at_s;
                    one.won = one.won.into_iter().chain(deed.predicted.0).max_by(f64::total_cmp);
                }
                None => all.push(Vetoes {
                    first: deed,
                    first_s: at_s,
                    last_s: at_s,
                    times: 1,
                    won: deed.predicted.0,
                }),
            }
        }
    }
    if all.is_empty() {
        html.raw("<p>Nothing was held back.</p>\n");
        return;
    }
    html.raw(
        "<div class=\"scroll\"><table><thead><tr><th class=\"number\">times</th><th>when</th>\
         <th class=\"number\">process</th><th>what and why not, the first time</th>\
         <th class=\"number\">most predicted</th></tr></thead><tbody>\n",
    );
    all.sort_by(|a, b| b.times.cmp(&a.times).then(a.first_s.total_cmp(&b.first_s)));
    for one in all.iter().take(MOST_ROWS) {
        html.raw("<tr>").element("td", &[("class", &"number")], one.times);
        let when = match one.times {
            1 => format!("{:.3} s", one.first_s),
            _ => format!("{:.3} to {:.3} s", one.first_s, one.last_s),
        };
        html.element("td", &[], when);
        let pid = one.first.pid.map_or("–".to_string(), |pid| pid.to_string());
        html.element("td", &[("class", &"number")], pid);
        let why = one.first.veto.as_ref().map_or("", |veto| &veto.because);
        html.open("td", &[("class", &"words")]);
        html.raw("<b>").text(why).raw("</b><br>").text(one.first.what()).close("td");
        let won = one.won.map_or("–".to_string(), percent);
        html.element("td", &[("class", &"number")], won).raw("</tr>\n");
    }
    html.raw("</tbody></table></div>\n");
    put_rest(html, all.len());
}
