//! The effect of a step's outcome on the oracle and on the states that a power cut may lead back
//! to.

use perdura_region::{OpenError, RegionError};
use perdura_store::StoreError;

use super::battery::Battery;
use super::broken::Broken;
use super::oracle::Oracle;
use super::step::{self, Change, Step};
use super::world::{Went, World};

impl World<'_> {
    pub fn change(
        &mut self,
        step: &Step,
        changes: &[Change],
        aborts: bool,
    ) -> Result<Went, Broken> {
        let after = self.oracle.after(changes, self.now_ms());
        let result = step::run(self.store(), changes, aborts);
        match (&result, after) {
            // A transaction that aborts has no effect.
            (Ok(()), _) if aborts => Err(Broken::Kinds { step: step.to_string() }),
            (Ok(()), Err(_)) | (Err(StoreError::WrongType(_)), Ok(_)) => {
                Err(Broken::Kinds { step: step.to_string() })
            }
            (_, after) => {
                let after = if aborts { None } else { after.ok() };
                self.settle(step, result, after)
            }
        }
    }

    /// Accounts for a step that changes the contents to `after` if it succeeds.
    pub fn settle(
        &mut self,
        step: &Step,
        result: Result<(), StoreError>,
        after: Option<Oracle>,
    ) -> Result<Went, Broken> {
        let before = self.oracle.clone();
        let committed = self.has_committed();
        match result {
            Ok(()) => {
                self.oracle = after.unwrap_or_else(|| before.clone());
                if committed {
                    self.allowed = vec![before, self.oracle.clone()];
                }
                Ok(Went::On)
            }
            Err(StoreError::Killed) => {
                self.in_doubt = after;
                Ok(Went::Killed)
            }
            Err(StoreError::NotDurable(RegionError::Latched { .. })) if self.has_failed() => {
                Ok(self.lost(before, committed))
            }
            Err(
                StoreError::WrongType(_)
                | StoreError::Aborted(_)
                | StoreError::OutOfMemory { .. }
                | StoreError::TransactionTooLarge { .. },
            ) => {
                self.refused += u64::from(matches!(
                    result,
                    Err(StoreError::OutOfMemory { .. } | StoreError::TransactionTooLarge { .. })
                ));
                if committed {
                    self.allowed = vec![before];
                }
                Ok(Went::On)
            }
            Err(error) => Err(Broken::Refused { step: step.to_string(), error }),
        }
    }

    /// Runs a step that changes no contents but may commit them.
    pub fn commit(&mut self, step: &Step) -> Result<Went, Broken> {
        let had_failed = self.has_failed();
        let region = self.region();
        let battery = match step {
            Step::SetBattery(bytes) => Battery::for_dirty(*bytes, self.scenario.segment_bytes),
            _ => self.battery,
        };
        let result = match step {
            Step::Checkpoint => region.checkpoint(),
            Step::Group => region.commit_group(),
            Step::Drill => region.drill(true, 1).map(drop),
            Step::SetBattery(_) => {
                region.set_budget(battery.budget_bytes(region.geometry(), region.len_bytes()))
            }
            Step::Grow(bytes) => match region.grow(*bytes) {
                Err(OpenError::Region(error)) => Err(error),
                Err(error) => return Err(Broken::Open { when: "growing", error }),
                Ok(()) => Ok(()),
            },
            _ => unreachable!("{step} is no commit"),
        };
        let committed = self.has_committed();
        match result {
            Ok(()) => {
                let reports = matches!(step, Step::Checkpoint | Step::Group | Step::Drill);
                if reports && had_failed {
                    return Err(Broken::FalseSuccess { step: step.to_string() });
                }
                self.battery = battery;
                if reports || committed {
                    self.allowed = vec![self.oracle.clone()];
                }
                Ok(Went::On)
            }
            // A device that cannot grow has not failed.
            Err(RegionError::Space { .. }) if self.device.is_powered() => Ok(Went::On),
            Err(_) if !self.device.is_powered() => Ok(self.lost(self.oracle.clone(), committed)),
            Err(RegionError::Latched { .. }) if self.has_failed() => {
                Ok(self.lost(self.oracle.clone(), committed))
            }
            Err(error) => Err(Broken::Region { step: step.to_string(), error }),
        }
    }

    /// Notes that the process is lost while `state` may have been committed.
    pub fn lost(&mut self, state: Oracle, committed: bool) -> Went {
        if committed {
            self.allowed.clear();
        }
        self.allowed.push(state);
        if self.device.is_powered() { Went::Failed } else { Went::PowerLost }
    }

    fn has_committed(&mut self) -> bool {
        let before = self.commits;
        self.commits = self.region().stats().checkpoints;
        self.commits > before
    }
}
