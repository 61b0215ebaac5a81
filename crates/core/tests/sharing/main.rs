//! Thread clustering by sharing: where groups go, what they may not cost, and what must always be
//! true.

mod notation;
mod placement;
mod policy;
mod properties;
