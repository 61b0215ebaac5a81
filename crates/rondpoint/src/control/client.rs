//! A client of the control socket: one call at a time, or one that is answered again and again.

use std::fmt;
use std::io::{self, BufReader, Write as _};
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rondpoint_linux::syscall::peer;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::protocol::{Call, INTERFACE, Reply};
use super::wire;

/// A daemon that acts answers within a step, which a frozen process may lengthen to seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to the daemon.
pub(crate) struct Client {
    stream: BufReader<UnixStream>,
}

/// What the daemon answers to a call that it refuses.
#[derive(Debug)]
pub(crate) struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    fn of(error: &str, parameters: &Map<String, Value>) -> Self {
        let told = parameters.get("message").and_then(Value::as_str);
        Self(told.map_or_else(|| format!("the daemon answers {error}"), str::to_string))
    }
}

impl Client {
    /// Connects to the daemon that listens at `path`.
    ///
    /// # Errors
    /// None listens there, or this user may not connect.
    pub(crate) fn connect(path: &Path) -> Result<Self> {
        let address = SocketAddr::from_pathname(path);
        let connected = address.and_then(|address| peer::connect_within(&address, PATIENCE));
        let connected = connected.with_context(|| {
            format!("no daemon answers at {} (rondpoint daemon starts one)", path.display())
        })?;
        connected.set_read_timeout(Some(PATIENCE))?;
        connected.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(connected) })
    }

    /// The same, with another limit for each answer.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub(crate) fn with_patience(self, patience: Duration) -> Result<Self> {
        self.stream.get_ref().set_read_timeout(Some(patience))?;
        self.stream.get_ref().set_write_timeout(Some(patience))?;
        Ok(self)
    }

    /// Calls a method and waits for its reply.
    ///
    /// # Errors
    /// [`Refusal`] where the daemon refuses; else the connection or the reply is broken.
    pub(crate) fn call<R: DeserializeOwned>(
        &mut self,
        method: &str,
        parameters: &impl Serialize,
    ) -> Result<R> {
        self.send(method, parameters, false)?;
        match self.reply()? {
            Some((reply, _)) => Ok(reply),
            None => bail!("the daemon has closed the connection"),
        }
    }

    /// Calls a method that is answered again and again; [`Client::reply`] gives one answer after
    /// the other.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn send(
        &mut self,
        method: &str,
        parameters: &impl Serialize,
        more: bool,
    ) -> Result<()> {
        let parameters = match serde_json::to_value(parameters)? {
            Value::Object(parameters) => parameters,
            _ => Map::new(),
        };
        let method = format!("{INTERFACE}.{method}");
        let call = Call { method, parameters, more, oneway: false };
        self.stream.get_mut().write_all(&wire::message(&call)?).context("asking the daemon")
    }

    /// The next answer and whether another follows; `None` where the daemon has ended.
    ///
    /// # Errors
    /// As [`Client::call`]; no answer within half a minute.
    pub(crate) fn reply<R: DeserializeOwned>(&mut self) -> Result<Option<(R, bool)>> {
        let read = wire::read(&mut self.stream, wire::MAX_REPLY);
        let bytes = match read {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            other => other.context("the daemon's answer")?,
        };
        let Some(bytes) = bytes else { return Ok(None) };
        let reply: Reply = serde_json::from_slice(&bytes).context("the daemon's answer")?;
        if let Some(error) = reply.error {
            return Err(Refusal::of(&error, &reply.parameters).into());
        }
        let value = Value::Object(reply.parameters);
        let answer = serde_path_to_error::deserialize(value).context("the daemon's answer")?;
        Ok(Some((answer, reply.continues)))
    }
}
