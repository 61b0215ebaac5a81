//! The policy `auto`: when each policy is asked, what waits for what, and what prices leave. Each
//! scene runs on the whole policy.

mod scene;

mod gather;
mod nodes;
mod order;
mod pairs;
mod properties;
