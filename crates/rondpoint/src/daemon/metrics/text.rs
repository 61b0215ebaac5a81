//! Metric families as text: OpenMetrics 1.0.0, or Prometheus 0.0.4 for older scrapers.

use std::fmt::Write as _;

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    OpenMetrics,
    /// It knows neither info metrics nor `# EOF`, and the family of a counter ends in `_total`.
    Prometheus,
}

impl Format {
    /// Value of the header `Content-Type`.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// What a value means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It only grows while the daemon runs.
    Counter,
    Gauge,
    /// Always 1: its labels are what it says.
    Info,
}

/// Names and values of labels.
pub(super) type Labels = Vec<(&'static str, String)>;

/// Samples of one name.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Family {
    pub(super) kind: Kind,
    /// Without prefix, unit and the suffix of its kind.
    pub(super) name: &'static str,
    /// What the name ends with.
    pub(super) unit: Option<&'static str>,
    /// A sentence without newlines and backslashes.
    pub(super) help: &'static str,
    /// No two of them with the same labels.
    pub(super) samples: Vec<(Labels, f64)>,
}

/// All families. One without samples is left out, and so is a sample that is no number.
pub(super) fn write(families: &[Family], format: Format) -> String {
    let mut text = String::new();
    for family in families {
        let is_there = |sample: &&(Labels, f64)| sample.1.is_finite();
        let mut samples = family.samples.iter().filter(is_there).peekable();
        if samples.peek().is_none() {
            continue;
        }
        let name = head(&mut text, family, format);
        for (labels, value) in samples {
            text += &name;
            write_labels(&mut text, labels);
            // Writing into a text does not fail.
            let _ = writeln!(text, " {value}");
        }
    }
    if format == Format::OpenMetrics {
        text += "# EOF\n";
    }
    text
}

/// Writes what precedes the samples of a family. Returns the name of the samples.
fn head(text: &mut String, family: &Family, format: Format) -> String {
    let unit = family.unit.map_or(String::new(), |unit| format!("_{unit}"));
    let base = format!("rondpoint_{}{unit}", family.name);
    let (suffix, mut kind) = match family.kind {
        Kind::Counter => ("_total", "counter"),
        Kind::Gauge => ("", "gauge"),
        Kind::Info => ("_info", "info"),
    };
    let sample = format!("{base}{suffix}");
    let name = match format {
        Format::OpenMetrics => &base,
        Format::Prometheus => &sample,
    };
    if format == Format::Prometheus && family.kind == Kind::Info {
        kind = "gauge";
    }
    let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", family.help);
    if let (Some(unit), Format::OpenMetrics) = (family.unit, format) {
        let _ = writeln!(text, "# UNIT {name} {unit}");
    }
    sample
}

fn write_labels(text: &mut String, labels: &Labels) {
    for (index, (name, value)) in labels.iter().enumerate() {
        let _ = write!(text, "{}{name}=\"", if index == 0 { '{' } else { ',' });
        for character in value.chars() {
            match character {
                '\\' => *text += "\\\\",
                '"' => *text += "\\\"",
                '\n' => *text += "\\n",
                other => text.push(other),
            }
        }
        text.push('"');
    }
    if !labels.is_empty() {
        text.push('}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn families() -> Vec<Family> {
        let family = |kind, name, unit, samples| Family { kind, name, unit, help: "H", samples };
        let hostile = vec![("command", "a\\b\"c\nd}".to_string()), ("unit", String::new())];
        let version = vec![("version", "1.2".to_string())];
        vec![
            family(Kind::Info, "build", None, vec![(version, 1.0)]),
            family(Kind::Counter, "moved", Some("bytes"), vec![(hostile, 4096.0)]),
            family(Kind::Gauge, "lost", Some("ratio"), vec![(vec![], 0.25)]),
            family(Kind::Gauge, "absent", None, vec![]),
            family(Kind::Gauge, "unknown", None, vec![(vec![], f64::NAN)]),
        ]
    }

    #[test]
    fn open_metrics_have_units_an_end_and_hostile_labels_in_one_line() {
        let expected = "\
# HELP rondpoint_build H
# TYPE rondpoint_build info
rondpoint_build_info{version=\"1.2\"} 1
# HELP rondpoint_moved_bytes H
# TYPE rondpoint_moved_bytes counter
# UNIT rondpoint_moved_bytes bytes
rondpoint_moved_bytes_total{command=\"a\\\\b\\\"c\\nd}\",unit=\"\"} 4096
# HELP rondpoint_lost_ratio H
# TYPE rondpoint_lost_ratio gauge
# UNIT rondpoint_lost_ratio ratio
rondpoint_lost_ratio 0.25
# EOF
";
        assert_eq!(write(&families(), Format::OpenMetrics), expected);
    }

    #[test]
    fn an_older_scraper_gets_the_same_samples_with_types_that_it_knows() {
        let expected = "\
# HELP rondpoint_build_info H
# TYPE rondpoint_build_info gauge
rondpoint_build_info{version=\"1.2\"} 1
# HELP rondpoint_moved_bytes_total H
# TYPE rondpoint_moved_bytes_total counter
rondpoint_moved_bytes_total{command=\"a\\\\b\\\"c\\nd}\",unit=\"\"} 4096
# HELP rondpoint_lost_ratio H
# TYPE rondpoint_lost_ratio gauge
rondpoint_lost_ratio 0.25
";
        assert_eq!(write(&families(), Format::Prometheus), expected);
    }
}
