//! Performance events: describing, finding, opening and reading them, and parsing their records.
//!
//! | module | is |
//! |---|---|
//! | [`attr`] | `struct perf_event_attr` |
//! | [`pmu`] | what `/sys/bus/event_source/devices` offers |
//! | [`spec`] | event strings such as `cpu/event=0xd3,umask=0x01/u` |
//! | [`metric`] | what can be counted, whatever a processor calls it |
//! | [`processors`] | which event strings measure what, per processor generation |
//! | [`generation`] | the same, as far as this machine's units know the events |
//! | [`whole`] | which counts of units make the traffic between nodes and over links |
//! | [`units`] | these counts, open |
//! | [`event`] | opening events and reading counts |
//! | [`group`] | events that are counted together and read at once |
//! | [`count`] | the bytes that reading a count returns |
//! | [`ring`] | the memory that the kernel writes records into |
//! | [`record`], [`sample`] | the bytes of a record |
//! | [`spe`] | the packets of Arm's Statistical Profiling Extension |
//! | [`switches`] | the task that ran on a CPU at a time |
//! | [`data_source`] | where a sampled access was served from |

pub mod attr;
pub mod count;
pub mod data_source;
pub mod event;
pub mod generation;
pub mod group;
pub mod metric;
pub mod pmu;
pub mod processors;
pub mod record;
pub mod ring;
pub mod sample;
pub mod spe;
pub mod spec;
pub mod switches;
pub mod units;
pub mod whole;
