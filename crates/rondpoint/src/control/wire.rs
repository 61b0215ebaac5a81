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
}
