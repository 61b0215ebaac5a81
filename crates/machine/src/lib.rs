//! The machine file: parse, check, write, scale for the lab, and synthetic machines.
