//! Clients by real sockets. Time is that of the test, so a slow machine changes nothing.

use super::*;

/// For a client that hears nothing: long enough for a machine that does ten other things.
const SILENCE: Duration = Duration::from_secs(120);

struct Served {
    http: Http,
    now: Instant,
    /// Texts that were made so far.
    made: usize,
    text: String,
}

impl Served {
    fn new() -> Self {
        let http = Http::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        Self { http, now: Instant::now(), made: 0, text: "a 1\n# EOF\n".to_string() }
    }

    fn connect(&self, request: &[u8]) -> TcpStream {
        let mut client = TcpStream::connect(self.http.listener.local_addr().unwrap()).unwrap();
        client.write_all(request).unwrap();
        client.set_nonblocking(true).unwrap();
        client
    }

    /// As the station does.
    fn turn(&mut self) {
        while let Some(format) = self.http.turn(self.now) {
            self.made += 1;
            self.http.give(format, self.text.clone(), self.now);
        }
    }

    /// What a client has read when its connection ends.
    fn heard(&mut self, client: &mut TcpStream) -> String {
        let mut text = Vec::new();
        let deadline = Instant::now() + SILENCE;
        while Instant::now() < deadline {
            self.turn();
            match client.read_to_end(&mut text) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return String::from_utf8(text).unwrap(),
            }
        }
        panic!("the connection stays open after {} bytes", text.len());
    }

    fn ask(&mut self, request: &str) -> String {
        let mut client = self.connect(request.as_bytes());
        self.heard(&mut client)
    }

    /// Turns until so many connections are known.
    fn turn_until(&mut self, holds: impl Fn(&Http) -> bool) {
        let deadline = Instant::now() + SILENCE;
        while !holds(&self.http) {
            assert!(Instant::now() < deadline, "{} connections", self.http.connections.len());
            self.turn();
        }
    }
}

#[test]
fn every_kind_of_request_gets_its_status_and_one_answer() {
    let mut served = Served::new();
    let open = "Accept: application/openmetrics-text\r\n";
    for (request, status) in [
        (format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{open}\r\n"), "200 OK"),
        ("GET /metrics?name=a HTTP/1.1\r\n\r\n".to_string(), "200 OK"),
        ("GET http://localhost:9842/metrics HTTP/1.1\r\n\r\n".to_string(), "200 OK"),
        ("GET /metrics HTTP/1.0\r\n\r\n".to_string(), "200 OK"),
        ("GET /metrics HTTP/1.0\n\n".to_string(), "200 OK"),
        ("HEAD /metrics HTTP/1.1\r\n\r\n".to_string(), "200 OK"),
        ("GET / HTTP/1.1\r\n\r\n".to_string(), "404 Not Found"),
        ("GET /metrics/../etc HTTP/1.1\r\n\r\n".to_string(), "404 Not Found"),
        ("HEAD /metricsx HTTP/1.1\r\n\r\n".to_string(), "404 Not Found"),
        (
            "POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc".to_string(),
            "405 Method Not Allowed",
        ),
        ("GET /metrics\r\n\r\n".to_string(), "400 Bad Request"),
        ("\r\n\r\n".to_string(), "400 Bad Request"),
        ("PRI * HTTP/2.0\r\n\r\n".to_string(), "505 HTTP Version Not Supported"),
    ] {
        let answer = served.ask(&request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{request}: {answer}");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an end of the head");
        assert!(head.contains("\r\nConnection: close"), "{head}");
        let length = head.split_once("Content-Length: ").expect("a length").1;
        let length: usize = length.lines().next().unwrap().parse().unwrap();
        let expected = if request.starts_with("HEAD") { 0 } else { length };
        assert!(length > 0 && body.len() == expected, "{request}: {answer}");
        let kind = match status {
            "200 OK" if request.contains(open) => Format::OpenMetrics.content_type(),
            "200 OK" => Format::Prometheus.content_type(),
            _ => "text/plain; charset=utf-8",
        };
        assert!(head.contains(&format!("\r\nContent-Type: {kind}\r\n")), "{request}: {head}");
        assert_eq!(status.starts_with("405"), head.contains("\r\nAllow: GET, HEAD\r\n"), "{head}");
    }
}

#[test]
fn clients_of_the_same_second_share_one_text_of_each_format() {
    let mut served = Served::new();
    let open = "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n";
    for _ in 0..3 * MOST {
        assert!(served.ask(open).ends_with("# EOF\n"));
    }
    assert_eq!(served.made, 1);
    for _ in 0..MOST {
        served.ask("GET /metrics HTTP/1.1\r\n\r\n");
    }
    assert_eq!(served.made, 2, "the other format");
    served.text = "b 2\n# EOF\n".to_string();
    served.now += FRESH;
    assert!(served.ask(open).ends_with("b 2\n# EOF\n"));
    assert_eq!(served.made, 3);
}

#[test]
fn an_answered_connection_is_closed_and_silent_ones_keep_no_scraper_out() {
    let mut served = Served::new();
    let silent: Vec<TcpStream> = (0..3 * MOST)
        .map(|_| {
            let client = served.connect(b"GET /met");
            served.turn();
            client
        })
        .collect();
    assert!(served.http.connections.len() <= MOST);
    // Larger than what the kernel takes at once: the rest waits for room.
    served.text = "x".repeat(64 << 20);
    let mut scraper = served.connect(b"GET /metrics HTTP/1.1\r\n\r\n");
    served.turn_until(|http| http.descriptors().1.len() == 1);
    assert!(served.heard(&mut scraper).len() > served.text.len(), "the connection was closed");
    drop(silent);
}

#[test]
fn a_client_that_sends_or_reads_too_slowly_is_ended() {
    let mut served = Served::new();
    served.text = "x".repeat(64 << 20);
    let mut slow = served.connect(b"GET /met");
    let deaf = served.connect(b"GET /metrics HTTP/1.1\r\n\r\n");
    served.turn_until(|http| http.connections.len() == 2 && http.descriptors().1.len() == 1);
    served.now += PATIENCE / 2;
    slow.write_all(b"rics").unwrap();
    served.turn();
    assert_eq!(served.http.connections.len(), 2);
    served.now += PATIENCE / 2;
    slow.write_all(b" HTTP").unwrap();
    served.turn();
    assert_eq!(served.http.connections.len(), 0, "a byte now and then buys no time");
    drop(deaf);
}

#[test]
fn a_long_request_is_refused_and_read_in_part() {
    let mut served = Served::new();
    let answer = served.ask(&"x".repeat(LONGEST));
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let padded = format!("GET /metrics HTTP/1.1\r\nA: {}\r\n\r\n", "x".repeat(LONGEST));
    assert!(served.ask(&padded).starts_with("HTTP/1.1 431 "));
    let address = served.http.listener.local_addr().unwrap();
    let writer = std::thread::spawn(move || {
        let mut client = TcpStream::connect(address).unwrap();
        // It is reset before the end, or the kernel keeps the rest.
        let _ = client.write_all(&vec![b'x'; 1 << 20]);
    });
    let mut most = 0;
    while !writer.is_finished() || !served.http.connections.is_empty() {
        served.turn();
        let read = served.http.connections.iter().map(|one| one.read.max(one.input.capacity()));
        most = most.max(read.max().unwrap_or(0));
    }
    writer.join().unwrap();
    assert!(most <= MOST_READ + 1024, "{most}");
}

#[test]
fn a_client_that_sends_on_after_its_request_gets_the_whole_answer() {
    let mut served = Served::new();
    served.text = "x".repeat(8 << 20);
    let request = b"GET /metrics HTTP/1.1\r\n\r\n";
    let mut client = served.connect(&request.repeat(500));
    let answer = served.heard(&mut client);
    assert!(answer.len() > served.text.len(), "{} bytes", answer.len());
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 1);
}
