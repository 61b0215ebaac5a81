//! The functional core of Rondpoint: model, policies, guard, plan, ledger, controller.
