//! The page's part on the machine: traffic, controllers, links, free memory.

use rondpoint_core::Topology;

use super::chart::{self, COLOURS, Mark, Time};
use super::html::Html;
use super::series::{Slice, mean_between, over_time};
use crate::story::{Story, Unit};

/// Traffic matrices that stand side by side.
const MATRICES: usize = 6;
/// Links that are shown, the fullest first.
const MOST_LINKS: usize = 24;
/// The unit of memory in charts.
const GIB: f64 = (1_u64 << 30) as f64;

/// Names with their colours.
pub(super) fn legend(html: &mut Html, names: &[(&'static str, String)]) {
    html.open("div", &[("class", &"legend")]);
    for (class, name) in names {
        html.raw("<span>").open("i", &[("class", class)]).close("i").text(name).raw("</span>");
    }
    html.close("div");
}

/// `node 0`, `node 8`: the kernel's numbers of the first nodes.
fn node_names(topology: &Topology, nodes: usize) -> Vec<String> {
    let nodes = 0..nodes.min(topology.node_count());
    nodes.map(|node| format!("node {}", topology.kernel_node(node))).collect()
}

pub(super) fn node_legend(html: &mut Html, topology: &Topology, nodes: usize) {
    let names = node_names(topology, nodes);
    legend(html, &COLOURS.into_iter().zip(names).collect::<Vec<_>>());
}

/// Figures by node: areas that add up, or a strip for each where there are more nodes than colours.
pub(super) fn by_node(
    html: &mut Html,
    (topology, time): (&Topology, &Time<'_>),
    label: &str,
    unit: &str,
    (slices, top): (&[Slice<Vec<f64>>], Option<f64>),
) {
    let nodes = slices.first().map_or(0, |slice| slice.value.len());
    if nodes <= COLOURS.len() {
        node_legend(html, topology, nodes);
        chart::stack(html, time, label, unit, (slices, top));
        return;
    }
    let most = slices.iter().flat_map(|slice| &slice.value).copied().fold(0.0, f64::max);
    let names = node_names(topology, nodes);
    legend(html, &[("heat", format!("darkest: {most:.1}{unit}"))]);
    chart::strips(html, time, label, &names, (slices, most.max(f64::MIN_POSITIVE)));
}

/// The section on the machine.
pub(super) fn put(html: &mut Html, story: &Story, marks: &[Mark]) {
    let time = Time { seconds: story.seconds().max(1e-3), marks };
    html.raw("<h2>The machine</h2>\n");
    put_marks(html);
    put_controllers(html, story, &time);
    put_local(html, story, &time);
    put_matrices(html, story);
    put_links(html, story, &time);
    put_free(html, story, &time);
}

/// What the marks above the charts mean.
fn put_marks(html: &mut Html) {
    let marks = [
        ("deed", "▼", "something was moved"),
        ("good", "●", "judged better"),
        ("bad", "●", "judged worse"),
        ("unclear", "●", "no clear change, or no verdict"),
    ];
    html.open("div", &[("class", &"legend")]);
    for (class, shape, what) in marks {
        html.raw("<span>").element("b", &[("class", &class)], shape).text(what).raw("</span>");
    }
    html.close("div");
    html.raw("<p class=\"note\">Gaps: nothing was counted, because nothing was to be done.</p>\n");
}

fn put_controllers(html: &mut Html, story: &Story, time: &Time<'_>) {
    let topology = &story.header.topology;
    let share = over_time(story, |known| {
        let shares = known.controllers.iter().map(|one| one.of_all_percent);
        (known.controllers.iter().any(|one| one.of_all_percent > 0.0)).then(|| shares.collect())
    });
    if share.is_empty() {
        html.raw("<p class=\"muted\">No sensor showed which node's memory was used.</p>\n");
        return;
    }
    html.raw("<h3>What each node's memory serves, % of all traffic</h3>\n");
    by_node(
        html,
        (topology, time),
        "share of the memory traffic by node",
        " %",
        (&share, Some(100.0)),
    );
    let full: Vec<Slice<Vec<f64>>> = over_time(story, |known| {
        known.controllers.iter().map(|one| one.of_bandwidth_percent).collect()
    });
    let nodes = full.first().map_or(0, |slice| slice.value.len());
    if nodes == 0 {
        return;
    }
    html.raw("<h3>Use of each memory controller, % of its bandwidth</h3>\n");
    if nodes > COLOURS.len() {
        by_node(html, (topology, time), "use of the controllers", " %", (&full, None));
        return;
    }
    let of_node = |node: usize| full.iter().map(move |slice| part(slice, node)).collect();
    let series: Vec<Vec<Slice<f64>>> = (0..nodes).map(of_node).collect();
    node_legend(html, topology, nodes);
    chart::lines(html, time, "use of the controllers", " %", &series);
}

fn part(slice: &Slice<Vec<f64>>, place: usize) -> Slice<f64> {
    Slice { from_s: slice.from_s, to_s: slice.to_s, value: slice.value[place] }
}

fn put_local(html: &mut Html, story: &Story, time: &Time<'_>) {
    let local = over_time(story, |known| known.local_percent);
    let imbalance = over_time(story, |known| known.imbalance_percent);
    if local.is_empty() && imbalance.is_empty() {
        return;
    }
    html.raw("<h3>Local accesses, and imbalance of the controllers</h3>\n");
    let names = ["local accesses, % of all", "imbalance, standard deviation over mean, %"];
    let names = COLOURS.into_iter().zip(names.map(String::from)).collect::<Vec<_>>();
    legend(html, &names);
    chart::lines(html, time, "local accesses and imbalance", " %", &[local, imbalance]);
    let latency = over_time(story, |known| known.latency_cycles);
    if !latency.is_empty() {
        html.raw("<h3>Mean latency of an access to memory, cycles</h3>\n");
        chart::lines(html, time, "latency of an access in cycles", "", &[latency]);
    }
}

fn put_matrices(html: &mut Html, story: &Story) {
    let topology = &story.header.topology;
    let nodes: Vec<u32> =
        (0..topology.node_count()).map(|node| topology.kernel_node(node)).collect();
    let traffic = over_time(story, |known| known.traffic_per_us.clone());
    let (Some(first), Some(last)) = (traffic.first(), traffic.last()) else { return };
    let (from_s, length) = (first.from_s, (last.to_s - first.from_s) / MATRICES as f64);
    let spans = (0..MATRICES).map(|place| from_s + length * place as f64);
    let means = spans.filter_map(|from_s| {
        let to_s = from_s + length;
        Some((from_s, to_s, mean_between(&traffic, from_s, to_s)?))
    });
    let means: Vec<(f64, f64, Vec<Vec<f64>>)> = means.collect();
    let cells = means.iter().flat_map(|(_, _, rows)| rows.iter().flatten());
    let most = cells.copied().fold(0.0, f64::max);
    let faults = story.moments.iter().filter_map(|moment| moment.known.as_ref());
    let unit = match faults.clone().any(|known| known.unit == Unit::HintFaults) {
        true => "Hint faults per microsecond: proportions hold, rates are those of the scanner.",
        false => "Requests per microsecond.",
    };
    html.raw("<h3>Traffic from node to node over time</h3>\n<p class=\"note\">").text(unit);
    html.raw(" The row accesses, the column holds the memory. All share one scale.</p>\n");
    html.open("div", &[("class", &"matrices")]);
    for (from_s, to_s, rows) in &means {
        let span = format!("{from_s:.2} to {to_s:.2} s");
        html.raw("<figure>");
        let label = format!("traffic from node to node, {span}");
        chart::matrix(html, &label, &nodes, rows, most);
        html.element("figcaption", &[], &span).close("figure");
    }
    html.close("div");
}

fn put_links(html: &mut Html, story: &Story, time: &Time<'_>) {
    let topology = &story.header.topology;
    let links = topology.links();
    let uses = over_time(story, |known| known.link_use.clone());
    if links.is_empty() || uses.is_empty() {
        return;
    }
    let most_of = |place: usize| {
        let of_link = uses.iter().filter_map(|slice| slice.value.get(place));
        of_link.copied().fold(0.0, f64::max)
    };
    let mut shown: Vec<usize> = (0..links.len()).collect();
    shown.sort_by(|a, b| most_of(*b).total_cmp(&most_of(*a)).then(a.cmp(b)));
    shown.truncate(MOST_LINKS);
    shown.sort_unstable();
    let name = |place: &usize| {
        let [from, to] =
            [links[*place].from, links[*place].to].map(|node| topology.kernel_node(node));
        format!("{from}→{to}")
    };
    let names: Vec<String> = shown.iter().map(name).collect();
    let pick = |slice: &Slice<Vec<f64>>| Slice {
        from_s: slice.from_s,
        to_s: slice.to_s,
        value: shown.iter().map(|place| slice.value.get(*place).copied().unwrap_or(0.0)).collect(),
    };
    let uses: Vec<Slice<Vec<f64>>> = uses.iter().map(pick).collect();
    html.raw("<h3>Links</h3>\n<p class=\"note\">Data flows from the first node to the second.");
    if links.len() > MOST_LINKS {
        html.text(format!(" The {MOST_LINKS} fullest of {}.", links.len()));
    }
    html.raw("</p>\n");
    legend(html, &[("heat", "darkest: 100 % of the link's bandwidth".to_string())]);
    chart::strips(html, time, "use of the links", &names, (&uses, 1.0));
}

fn put_free(html: &mut Html, story: &Story, time: &Time<'_>) {
    let topology = &story.header.topology;
    let nodes = topology.node_count();
    let used = over_time(story, |known| {
        let free = known.free_bytes.as_ref()?;
        let memory = |node: usize| topology.memory(node).0;
        let used = free.iter().enumerate();
        Some(used.map(|(node, free)| memory(node).saturating_sub(*free) as f64 / GIB).collect())
    });
    let is_known = used.iter().any(|slice: &Slice<Vec<f64>>| slice.value.iter().sum::<f64>() > 0.0);
    if !is_known || nodes == 0 {
        return;
    }
    html.raw("<h3>Memory in use by node, GiB</h3>\n");
    by_node(html, (topology, time), "memory in use by node", "", (&used, None));
}
