//! The request of a client of the metrics, RFC 9112 and RFC 9110.

use super::super::metrics::Format;

/// Bytes at the end of a request that may be in two pieces.
pub(super) const END: usize = 3;

/// A good request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) format: Format,
    /// HEAD: the answer has no body.
    pub(super) is_head: bool,
}

/// A request that gets no metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The status of the answer, and the header that belongs to it.
    pub(super) head: &'static str,
    pub(super) is_head: bool,
}

impl Refusal {
    fn new(head: &'static str) -> Self {
        Self { head, is_head: false }
    }

    pub(super) fn too_long() -> Self {
        Self::new("431 Request Header Fields Too Large")
    }
}

/// Where a request ends: behind its first empty line. A line may end without a carriage return, as
/// RFC 9112 lets a server accept.
pub(super) fn end(bytes: &[u8]) -> Option<usize> {
    let of = |end: &[u8]| {
        let at = bytes.windows(end.len()).position(|window| window == end);
        at.map(|at| at + end.len())
    };
    [of(b"\n\r\n"), of(b"\n\n")].into_iter().flatten().min()
}

/// What a complete request asks for.
///
/// # Errors
/// What it gets instead.
pub(super) fn parse(request: &[u8]) -> Result<Asked, Refusal> {
    let text = std::str::from_utf8(request).map_err(|_| Refusal::new("400 Bad Request"))?;
    let mut lines = text.lines();
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = words[..] else { return Err(Refusal::new("400 Bad Request")) };
    if !version.starts_with("HTTP/1.") {
        return Err(Refusal::new("505 HTTP Version Not Supported"));
    }
    let is_head = method == "HEAD";
    // A proxy sends the whole address.
    let path = target
        .strip_prefix("http://")
        .map_or(target, |rest| rest.find('/').map_or("/", |begin| &rest[begin..]));
    if path.split('?').next() != Some("/metrics") {
        return Err(Refusal { head: "404 Not Found", is_head });
    }
    if !is_head && method != "GET" {
        return Err(Refusal::new("405 Method Not Allowed\r\nAllow: GET, HEAD"));
    }
    let headers = lines.filter_map(|line| line.split_once(':'));
    let accepted = headers.filter(|(name, _)| name.eq_ignore_ascii_case("accept"));
    let format = format_of(accepted.flat_map(|(_, value)| value.split(',')));
    Ok(Asked { format, is_head })
}

/// OpenMetrics for a client that names it and does not prefer plain text; else the older format,
/// which every scraper reads.
fn format_of<'a>(ranges: impl Iterator<Item = &'a str>) -> Format {
    let (mut open, mut plain) = (0.0_f64, 0.0_f64);
    for range in ranges {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let (mut quality, mut version) = (1.0, None);
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name.trim() {
                name if name.eq_ignore_ascii_case("q") => {
                    quality = value.trim().parse().unwrap_or(0.0);
                }
                name if name.eq_ignore_ascii_case("version") => {
                    version = Some(value.trim().trim_matches('"'));
                }
                _ => {}
            }
        }
        let has = |known| version.is_none_or(|version| version == known);
        if kind.eq_ignore_ascii_case("application/openmetrics-text") && has("1.0.0") {
            open = open.max(quality);
        } else if kind.eq_ignore_ascii_case("text/plain") && has("0.0.4") {
            plain = plain.max(quality);
        }
    }
    if open > 0.0 && open >= plain { Format::OpenMetrics } else { Format::Prometheus }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scraper_gets_the_format_that_it_asks_for_and_an_old_one_plain_text() {
        let prometheus_2 = "application/openmetrics-text;version=1.0.0,\
                            application/openmetrics-text;version=0.0.1;q=0.75,\
                            text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                            text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
                            text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, expected) in [
            (prometheus_2, Format::OpenMetrics),
            (prometheus_3, Format::OpenMetrics),
            ("Application/OpenMetrics-Text", Format::OpenMetrics),
            ("application/openmetrics-text; version=\"1.0.0\"; Q=1", Format::OpenMetrics),
            ("application/openmetrics-text;version=0.0.1", Format::Prometheus),
            ("application/openmetrics-text;q=0, */*", Format::Prometheus),
            ("application/openmetrics-text;q=0.1, text/plain", Format::Prometheus),
            ("text/plain;version=0.0.4", Format::Prometheus),
            ("*/*", Format::Prometheus),
            ("", Format::Prometheus),
        ] {
            let request = format!("GET /metrics HTTP/1.1\r\nhost: a\r\nACCEPT: {accept}\r\n\r\n");
            let asked = parse(request.as_bytes()).expect("a good one");
            assert_eq!(asked, Asked { format: expected, is_head: false }, "{accept}");
        }
        let asked = parse(b"GET /metrics HTTP/1.0\n\n").expect("a good one");
        assert_eq!(asked.format, Format::Prometheus);
    }

    #[test]
    fn whatever_bytes_come_in_whatever_pieces_the_end_is_found_where_it_is() {
        assert_eq!(end(b"GET /metrics HTTP/1.1\r\nA: b\r\n\r\nrest"), Some(31));
        assert_eq!(end(b"GET /metrics HTTP/1.0\n\nrest"), Some(23));
        assert_eq!(end(b"GET /metrics HTTP/1.0\r\n\r"), None);
    }

    #[test]
    fn a_mutated_request_ends_at_one_place_and_is_answered() {
        let seeds = [
            "GET /metrics HTTP/1.1\r\nhost: a\r\naccept: text/plain;version=0.0.4;q=0.5\r\n\r\n",
            "HEAD http://a:9/metrics?x HTTP/1.0\n\n",
            "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text; q=1, */*\r\n\r\n",
        ];
        crate::seeded::check(&seeds, |bytes| {
            let Some(at) = end(bytes) else { return false };
            assert_eq!((end(&bytes[..at]), end(&bytes[..at - 1])), (Some(at), None));
            parse(&bytes[..at]).is_ok()
        });
    }
}
