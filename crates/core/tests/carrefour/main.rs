//! Carrefour's golden tests: a model in a few lines of text in, the proposals as text out.

mod between;
mod copies;
mod gates;
mod interleave;
mod most_used;
mod notation;
mod offload;
mod pages;
mod properties;
mod rounds;
mod rules;
mod tenure;
