//! `rondpoint decide`: feeds a model from a file to any policy and prints the plan with its
//! reasons; for tests, teaching and bug reports. It reads two files and changes nothing. The
//! model's format is in `docs/decide.md`.

mod build;
mod wire;
mod write;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use rondpoint_core::accounts::Accounts;
use rondpoint_core::guard::{Guard, GuardSettings, Scene, Standing};
use rondpoint_core::ledger::Ledger;
use rondpoint_core::limits::{MAX_POLICIES, MAX_TRACKED_PAGES};
use rondpoint_core::plan::{PageCounts, StepResult};
use rondpoint_core::{Action, Model, Nanos, Outcome, Plan, Proposal, Random, Topology};
use rondpoint_input::Budget;
use rondpoint_linux::privileges::{self, Needs};
use rondpoint_machine::Machine;

use crate::policies::{self, Chosen};
use crate::terminal;

/// Exit status of bad usage or input.
const BAD_INPUT: u8 = 2;
/// Bytes of all models of one command: a model of a million pages, each entered by itself, is
/// about 100 MB.
const MODEL_BYTES: u64 = 128 << 20;
/// Bound of what all models of one command expand to: words of their sets of CPUs, and records,
/// accesses and threads of their pages. It allows eight accesses to each of the most pages that one
/// model tracks.
const MODEL_ITEMS: u64 = 16 * MAX_TRACKED_PAGES as u64;
/// Version of the printed JSON.
const JSON_VERSION: u32 = 1;

/// Say what a policy would do with a model from a file; changes nothing
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rondpoint decide --machine machines/carrefour-a.toml --model model.json --policy carrefour
  rondpoint decide --machine here.toml --model model.json --print-model

Exit status: 0 good, 2 bad usage or input. The model's format is in docs/decide.md.")]
pub(crate) struct Arguments {
    /// Machine file, as in `machines/`
    #[arg(long, value_name = "FILE")]
    machine: PathBuf,
    /// Model file (docs/decide.md), `-` for standard input; several are intervals one after the
    /// other
    #[arg(long, value_name = "FILE", required = true)]
    model: Vec<PathBuf>,
    /// Policies in order of priority, required unless --print-model is given; NAME:PRESET chooses a
    /// preset
    #[arg(
        long,
        value_name = "POLICY[,POLICY]",
        required_unless_present = "print_model",
        value_delimiter = ','
    )]
    policy: Vec<String>,
    /// Preset, where there is one policy
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// Seed of every random choice
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Print the models as they were understood, one JSON file after the other, and decide nothing
    #[arg(long)]
    print_model: bool,
    /// Use the machine as the lab scales it
    #[arg(long)]
    lab: bool,
    /// Show what the policies propose, before the guard's budgets and rules
    #[arg(long)]
    unguarded: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command; bad input is said on standard error and ends with status 2.
pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    let _ = privileges::keep_only(&Needs::to_read(None));
    let shown = |text: String| match arguments.json || arguments.print_model {
        true => terminal::print_json_text(&text),
        false => terminal::print(&text),
    };
    match run(arguments).and_then(shown) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::fail("decide", &error);
            ExitCode::from(BAD_INPUT)
        }
    }
}

/// Everything that is kept from one interval to the next.
struct Session {
    topology: Topology,
    policies: Vec<Chosen>,
    random: Random,
    guard: Option<Guard>,
    ledger: Ledger,
    accounts: Accounts,
    plans: u64,
}

fn run(arguments: &Arguments) -> anyhow::Result<String> {
    let machine = load_machine(arguments)?;
    let topology = machine.topology();
    let guard = (!arguments.unguarded)
        .then(|| Guard::new(GuardSettings::acting().for_machine(&topology), topology.node_count()));
    let mut session = Session {
        policies: choose(&arguments.policy, arguments.preset.as_deref())?,
        random: Random::new(arguments.seed),
        guard,
        ledger: Ledger::default(),
        accounts: Accounts::default(),
        plans: 0,
        topology,
    };
    // All models are read before the first plan: bad input leaves nothing half done.
    let mut budget = Budget::new(MODEL_BYTES, MODEL_ITEMS);
    let read = |path: &PathBuf| read_model(path, &session.topology, &mut budget);
    let models = arguments.model.iter().map(read).collect::<anyhow::Result<Vec<Model>>>()?;
    if arguments.print_model {
        let printed = models
            .iter()
            .map(|model| serde_json::to_string_pretty(&write::to_json(model, &session.topology)));
        return Ok(printed.collect::<Result<Vec<String>, _>>()?.join("\n") + "\n");
    }
    let plans: Vec<Plan> = models.iter().map(|model| session.decide(model)).collect();
    match arguments.json {
        true => json(arguments, &machine, &plans),
        false => Ok(render(arguments, &machine, &session, &plans)),
    }
}

fn load_machine(arguments: &Arguments) -> anyhow::Result<Machine> {
    let machine = Machine::load(&arguments.machine)?;
    match arguments.lab {
        true => Ok(machine.for_lab()?),
        false => Ok(machine),
    }
}

/// Policies by `NAME` or `NAME:PRESET`.
fn choose(names: &[String], preset: Option<&str>) -> anyhow::Result<Vec<Chosen>> {
    if preset.is_some() && names.len() > 1 {
        bail!("--preset is for one policy; with several, write --policy NAME:PRESET,NAME:PRESET");
    }
    if let (Some(preset), [name]) = (preset, names)
        && name.contains(':')
    {
        bail!("--policy {name} and --preset {preset}: both name a preset; expected one of them");
    }
    if names.len() > MAX_POLICIES {
        bail!("--policy: {} policies, expected at most {MAX_POLICIES}", names.len());
    }
    names.iter().map(|word| policies::choose(word, preset)).collect()
}

fn read_model(path: &Path, topology: &Topology, budget: &mut Budget) -> anyhow::Result<Model> {
    let standard_input = path == Path::new("-");
    let name =
        if standard_input { "standard input".to_string() } else { path.display().to_string() };
    let text = rondpoint_input::read_text(path, budget).with_context(|| match standard_input {
        true => "cannot read the model from standard input".to_string(),
        false => format!("cannot read model file {name}"),
    })?;
    build::parse(&text, topology, budget).context(name)
}

impl Session {
    /// One interval: learn from the last plan as if all of it had been done, propose, admit.
    fn decide(&mut self, model: &Model) -> Plan {
        let mut proposals: Vec<Proposal> = Vec::new();
        let mut held = Vec::new();
        for chosen in &mut self.policies {
            proposals.extend(chosen.policy.propose(model, &self.topology, &mut self.random));
            held.extend(chosen.policy.take_choice().refused);
        }
        let (steps, mut refused) = match &mut self.guard {
            None => (proposals, Vec::new()),
            Some(guard) => {
                let (running, unready, tried) = Default::default();
                let scene = Scene {
                    model,
                    topology: &self.topology,
                    accounts: &self.accounts,
                    standing: Standing {
                        now: model.at,
                        running: &running,
                        unready: &unready,
                        tried: &tried,
                    },
                    ledger: &self.ledger,
                };
                guard.admit(proposals, &scene)
            }
        };
        refused.extend(held);
        self.plans += 1;
        let mut plan = Plan { number: self.plans, steps, refused, ..Plan::default() };
        plan.inverses = self.ledger.enter(&plan, model);
        let outcomes: Vec<Outcome> =
            plan.steps.iter().enumerate().map(|(step, one)| done(&plan, step, one)).collect();
        self.accounts.enter(&plan, &outcomes);
        self.policies.iter_mut().for_each(|chosen| chosen.policy.learn(&plan, &outcomes));
        plan
    }
}

/// The outcome of a step that a perfect host would report.
fn done(plan: &Plan, step: usize, proposal: &Proposal) -> Outcome {
    let result = match &proposal.action {
        Action::MovePages { pages, .. }
        | Action::Replicate { pages, .. }
        | Action::Unreplicate { pages, .. } => {
            let moved = pages.iter().map(|page| page.bytes().0 >> 12).sum();
            StepResult::Pages(PageCounts { moved, ..PageCounts::default() })
        }
        _ => StepResult::Done,
    };
    Outcome { plan: plan.number, step, result, spent: Nanos(0), frozen: Nanos(0) }
}

fn render(arguments: &Arguments, machine: &Machine, session: &Session, plans: &[Plan]) -> String {
    let names: Vec<&str> = session.policies.iter().map(|chosen| chosen.name.as_str()).collect();
    let mut text = format!(
        "{}: {} nodes, {} CPUs; policy {}; seed {}\n",
        machine.name,
        session.topology.node_count(),
        session.topology.cpu_count(),
        names.join(", "),
        arguments.seed
    );
    for (plan, path) in plans.iter().zip(&arguments.model) {
        text += &format!("\nplan {} for {}\n", plan.number, path.display());
        if plan.steps.is_empty() {
            text += "  nothing to do\n";
        }
        for (place, step) in plan.steps.iter().enumerate() {
            text += &format!(
                "  {}. {}\n     {}: {}\n",
                place + 1,
                step.action,
                step.policy,
                step.reason
            );
        }
        for refused in &plan.refused {
            text += &format!("  refused: {}\n     {}\n", refused.proposal.action, refused.refusal);
        }
    }
    text
}

fn json(arguments: &Arguments, machine: &Machine, plans: &[Plan]) -> anyhow::Result<String> {
    let step = |proposal: &Proposal| {
        let mut value = serde_json::to_value(proposal)?;
        value["text"] = proposal.action.to_string().into();
        value["because"] = proposal.reason.to_string().into();
        Ok(value)
    };
    let mut printed = Vec::new();
    for (plan, path) in plans.iter().zip(&arguments.model) {
        let steps = plan.steps.iter().map(step).collect::<anyhow::Result<Vec<_>>>()?;
        let refused = plan.refused.iter().map(|one| {
            let mut value = step(&one.proposal)?;
            value["refused"] = one.refusal.to_string().into();
            Ok(value)
        });
        printed.push(serde_json::json!({
            "number": plan.number,
            "model": path.display().to_string(),
            "steps": steps,
            "refused": refused.collect::<anyhow::Result<Vec<_>>>()?,
            "inverses": serde_json::to_value(&plan.inverses)?,
        }));
    }
    let all = serde_json::json!({
        "version": JSON_VERSION,
        "machine": machine.name,
        "policies": arguments.policy,
        "seed": arguments.seed,
        "plans": printed,
    });
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}

#[cfg(test)]
mod tests;
