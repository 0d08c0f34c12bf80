//! The processes of one library: who sends jobs, who carries them out, who mends.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use super::account::Account;

const PRODUCE: &str = "produce";

/// The processes of one library; killed when dropped.
pub struct Crew {
    name: &'static str,
    folder: PathBuf,
    members: Vec<Member>,
}

struct Member {
    role: &'static str,
    program: Command,
    child: Child,
}

impl Crew {
    /// Starts the script with each of the roles. Its files and its output go to `folder`.
    pub fn start(
        name: &'static str,
        (interpreter, script): (PathBuf, PathBuf),
        roles: &[&'static str],
        port: &str,
        folder: PathBuf,
    ) -> Result<Self> {
        let mut members = Vec::new();
        for role in roles {
            let log = File::options().create(true).append(true).open(folder.join("log"))?;
            let mut program = Command::new(&interpreter);
            program.arg(&script).args([role, port]).arg(&folder).stdin(Stdio::null());
            // Python would leave its compiled modules beside the sources.
            program.env("PYTHONDONTWRITEBYTECODE", "1");
            program.stdout(log.try_clone()?).stderr(log);
            let child = program.spawn().with_context(|| format!("{program:?}"))?;
            members.push(Member { role, program, child });
        }
        Ok(Self { name, folder, members })
    }

    /// Starts anew who has ended, as a supervisor does.
    pub fn revive(&mut self) -> Result<()> {
        for member in &mut self.members {
            if let Some(status) = member.child.try_wait()? {
                eprintln!("  {}: {} ended with {status}; started again", self.name, member.role);
                member.child = member.program.spawn()?;
            }
        }
        Ok(())
    }

    /// Ends who sends jobs. A job on its way was not acknowledged.
    pub fn stop_producing(&mut self) -> Result<()> {
        let (producers, others): (Vec<_>, Vec<_>) =
            self.members.drain(..).partition(|member| member.role == PRODUCE);
        self.members = others;
        for mut producer in producers {
            producer.child.kill()?;
            producer.child.wait()?;
        }
        Ok(())
    }

    /// Counts of the jobs so far.
    pub fn account(&self) -> Result<Account> {
        Account::of(self.name, &self.folder)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for member in &mut self.members {
            // It fails if the process has ended, which does no harm.
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
    }
}
