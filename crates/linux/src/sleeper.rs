//! Tasks that tests look at: a process that sleeps until it is killed, at the latest when the test
//! ends, and the thread that asks.

use std::process::{Child, Command};

use rondpoint_core::{Pid, Tid};

use crate::act::Identity;
use crate::parse::stat;
use crate::root::Root;

pub(crate) struct Sleeper(Child);

impl Sleeper {
    pub(crate) fn start() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid(self.0.id())
    }

    pub(crate) fn identity(&self) -> Identity {
        Identity::of(&Root::live(), self.pid()).unwrap()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        let text = std::fs::read(format!("/proc/{}/stat", self.0.id())).unwrap();
        stat::parse(&text).unwrap().state == 'T'
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The number of the calling thread.
pub(crate) fn own_thread() -> Tid {
    let own = std::fs::read_link("/proc/thread-self").unwrap();
    Tid(own.file_name().unwrap().to_str().unwrap().parse().unwrap())
}
