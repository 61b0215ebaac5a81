//! What must hold for every machine: written and read back it is the same, and the lab keeps the
//! ratios of the real one.

use proptest::prelude::*;
use rondpoint_machine::Machine;

/// A line of text that makes a valid machine.
fn line() -> impl Strategy<Value = String> {
    let counts = (1..9u32, 0..3u32, 1..4u32, 1..5u32, 0..13u32);
    let rates = (1.0..9e4f64, 1.0..9e4f64, 1.0..400f64, 0.0..400f64, 0.1..200f64);
    let shape = prop::sample::select(vec!["full", "ring", "line", "star"]);
    (counts, rates, shape, 1.0..50f64).prop_map(|(counts, rates, shape, slow)| {
        let (nodes, memory_only, domains, per_domain, prefetch) = counts;
        let (bandwidth, link, latency, burst, hop) = rates;
        format!(
            "nodes={nodes} memory_only={memory_only} domains={domains} cpus={} prefetch={prefetch} \
             bandwidth={bandwidth} link={link} latency={latency} burst={burst} hop={hop} \
             shape={shape} slow={slow}",
            domains * per_domain
        )
    })
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

proptest! {
    #[test]
    fn written_and_read_back_it_is_the_same(line in line()) {
        let machine = Machine::synthetic(&line)?;
        let text = machine.to_toml();
        let again = Machine::parse(&text, "written")?;
        prop_assert_eq!(&again, &machine);
        prop_assert_eq!(again.to_toml(), text);
    }

    #[test]
    fn every_route_is_a_chain_and_never_longer_than_the_nodes(line in line()) {
        let machine = Machine::synthetic(&line)?;
        for (accessing, row) in machine.routes.iter().enumerate() {
            for (holding, route) in row.iter().enumerate() {
                let mut at = holding;
                for &link in &route.links {
                    prop_assert_eq!(machine.links[link].from, at);
                    at = machine.links[link].to;
                }
                prop_assert_eq!(at, accessing);
                prop_assert!(route.links.len() < machine.nodes.len());
            }
        }
    }

    #[test]
    fn the_lab_keeps_demand_to_capacity_latency_in_cycles_and_shape(line in line()) {
        let full = Machine::synthetic(&line)?;
        // Refusal is tested elsewhere; the ratios must be alike whether it refuses or not.
        let Ok(lab) = full.for_lab() else { return Ok(()) };
        prop_assert_eq!(&lab.for_lab()?, &lab);
        prop_assert!(lab.cpu_count() <= 24);
        let (a, b) = (full.check_saturation().demands, lab.check_saturation().demands);
        prop_assert_eq!(a.len(), b.len());
        for (a, b) in a.iter().zip(&b) {
            prop_assert!(close(a.ratio(), b.ratio()), "{:?} {:?}", a, b);
        }
        for (a, b) in full.latency_ns.iter().flatten().zip(lab.latency_ns.iter().flatten()) {
            prop_assert!(close(a / full.cycle_ns(), b / lab.cycle_ns()));
        }
        prop_assert_eq!(full.routes.len(), lab.routes.len());
    }

    #[test]
    fn any_text_is_a_machine_or_an_error(text in "[a-z0-9\\[\\]{}=,.\"\n -]{0,200}") {
        let _ = Machine::parse(&text, "noise");
        let _ = Machine::synthetic(&text);
    }

    #[test]
    fn a_damaged_file_is_a_machine_or_an_error(at in 0usize..1200, byte in b' '..b'~') {
        let mut text = include_bytes!("base.toml").to_vec();
        let at = at % text.len();
        text[at] = byte;
        let parsed = String::from_utf8(text).map(|text| Machine::parse(&text, "damaged"));
        if let Ok(Ok(machine)) = parsed {
            let _ = (machine.for_lab(), machine.topology());
        }
    }
}
