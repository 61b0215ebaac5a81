//! The policy `auto`: the order of the four, and which of them gives way. Each scene runs on the
//! whole policy; the rules alone are tested beside their code.

mod scene;

mod crowd;
mod data;
mod nodes;
mod order;
mod pairs;
mod properties;
mod relief;
mod threads;
