//! Messages of the control socket: JSON, each ended by a zero byte, within a budget.

use std::io::{self, BufRead, Read as _};

/// Longest call: numbers of processes, with room for thousands.
pub(crate) const MAX_CALL: usize = 64 << 10;
/// Longest reply: 1,024 processes of 64 nodes with a traffic matrix each are below 64 MiB.
pub(crate) const MAX_REPLY: usize = 64 << 20;

/// The next message without its end; `None` where the other side has closed.
///
/// # Errors
/// Reading fails, the message is longer than `limit`, or it ends in the middle.
pub(crate) fn read(reader: &mut impl BufRead, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let mut message = Vec::new();
    reader.take(limit as u64 + 1).read_until(0, &mut message)?;
    match message.pop() {
        None => Ok(None),
        Some(0) => Ok(Some(message)),
        Some(_) => {
            let what = match message.len() >= limit {
                true => format!("a message of more than {limit} bytes"),
                false => "a message without its end".to_string(),
            };
            Err(io::Error::new(io::ErrorKind::InvalidData, what))
        }
    }
}

/// A value as a message.
///
/// # Errors
/// It has a key that is no text.
pub(crate) fn message(value: &impl serde::Serialize) -> serde_json::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(value)?;
    bytes.push(0);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::protocol::{
        Call, ExplainReply, PidsRequest, Process, Reply, Status, StatusReply, VERSION, WatchRequest,
    };
    use super::super::text;
    use super::*;

    #[test]
    fn messages_come_one_after_the_other_and_no_longer_than_allowed() {
        let mut bytes: &[u8] = b"{}\0{\"a\":1}\0";
        assert_eq!(read(&mut bytes, 7).unwrap().as_deref(), Some(&b"{}"[..]));
        assert_eq!(read(&mut bytes, 7).unwrap().as_deref(), Some(&b"{\"a\":1}"[..]));
        assert_eq!(read(&mut bytes, 7).unwrap(), None);
        let long = read(&mut &b"{\"a\":1}\0"[..], 6).unwrap_err();
        assert_eq!(long.to_string(), "a message of more than 6 bytes");
        let torn = read(&mut &b"{\"a\""[..], 100).unwrap_err();
        assert_eq!(torn.to_string(), "a message without its end");
    }

    /// What a stranger sends to the daemon, and to a client of a socket that the stranger made.
    #[test]
    fn mutated_messages_are_read_or_refused_by_both_sides() {
        let calls = [
            "{\"method\":\"org.rondpoint.Daemon.Leave\",\"parameters\":{\"pids\":[7,8]}}\0",
            "{\"method\":\"org.rondpoint.Daemon.Watch\",\"parameters\":{\"after\":3},\
             \"more\":true}\0{\"method\":\"org.rondpoint.Daemon.GetStatus\",\"oneway\":true}\0",
        ];
        crate::seeded::check(&calls, |mut bytes| {
            let Ok(Some(first)) = read(&mut bytes, MAX_CALL) else { return false };
            let Ok(call) = serde_json::from_slice::<Call>(&first) else { return false };
            let parameters = Value::Object(call.parameters);
            serde_json::from_value::<PidsRequest>(parameters.clone()).is_ok()
                || serde_json::from_value::<WatchRequest>(parameters).is_ok()
        });
        let process = Process { name: "a".to_string(), ..Process::default() };
        let processes = vec![process.clone(); 2];
        let status = Status { protocol: VERSION, processes, ..Status::default() };
        let reply = |value: Value| {
            let Value::Object(parameters) = value else { panic!("an object") };
            let bytes = message(&Reply { parameters, ..Reply::default() }).unwrap();
            String::from_utf8(bytes).unwrap()
        };
        let status = reply(serde_json::to_value(StatusReply { status }).unwrap());
        let explained = ExplainReply { nodes: vec![0], process, ..ExplainReply::default() };
        let explained = reply(serde_json::to_value(explained).unwrap());
        crate::seeded::check(&[&status, &explained], |mut bytes| {
            let Ok(Some(first)) = read(&mut bytes, MAX_CALL) else { return false };
            let Ok(reply) = serde_json::from_slice::<Reply>(&first) else { return false };
            let value = Value::Object(reply.parameters);
            let status = serde_json::from_value::<StatusReply>(value.clone());
            let explained = serde_json::from_value::<ExplainReply>(value);
            // Clients print it.
            let _ = status.as_ref().map(|reply| text::status(&reply.status));
            let _ = explained.as_ref().map(text::explanation);
            status.is_ok() || explained.is_ok()
        });
    }
}
