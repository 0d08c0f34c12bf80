//! Threads that read from the other devices while the caller reads from one.
//!
//! They stay, because each keeps a ring of its own for its reads: to make thread and ring anew
//! takes about as long as the reads.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use parking_lot::Mutex;
use perdura_store::{FarError, FarValue};

use super::device::FarDevice;

type Values = Vec<Result<Box<[u8]>, FarError>>;

/// Values to be read from one device.
struct Job {
    member: Arc<FarDevice>,
    values: Vec<FarValue>,
    /// Gets the values with the number of the part.
    reply: Sender<(usize, Values)>,
    part: usize,
}

/// The threads, as many as were ever needed at the same time by one caller.
#[derive(Default)]
pub(crate) struct Readers {
    jobs: Mutex<Vec<Sender<Job>>>,
}

impl Readers {
    /// Reads the values of each part from its device, all parts at the same time.
    pub fn read(&self, parts: Vec<(Arc<FarDevice>, Vec<FarValue>)>) -> Vec<Values> {
        let mut read: Vec<Option<Values>> = parts.iter().map(|_| None).collect();
        let (reply, replies) = channel();
        let mut own = Vec::new();
        for (part, (member, values)) in parts.into_iter().enumerate() {
            let job = Job { member, values, reply: reply.clone(), part };
            // The first part is the caller's, and so is one for which there is no thread.
            let refused = if part == 0 { Some(job) } else { self.hand_out(part - 1, job) };
            own.extend(refused);
        }
        drop(reply);
        for job in own {
            read[job.part] = Some(job.member.read(&job.values));
        }
        for (part, values) in replies {
            read[part] = Some(values);
        }
        let whole = |values: Option<Values>| match values {
            Some(values) => values,
            None => panic!("a thread that reads from a device has panicked"),
        };
        read.into_iter().map(whole).collect()
    }

    /// Gives a job to a thread, which is started if need be; returns it if that cannot be done.
    fn hand_out(&self, thread: usize, job: Job) -> Option<Job> {
        let mut jobs = self.jobs.lock();
        while jobs.len() <= thread {
            let (sender, receiver) = channel::<Job>();
            let work = move || {
                for job in receiver {
                    let values = job.member.read(&job.values);
                    // The caller waits for all replies, unless it has panicked.
                    let _ = job.reply.send((job.part, values));
                }
            };
            match std::thread::Builder::new().name("reader".into()).spawn(work) {
                Ok(_) => jobs.push(sender),
                Err(error) => {
                    tracing::warn!(%error, "no thread to read from a device with");
                    return Some(job);
                }
            }
        }
        jobs[thread].send(job).err().map(|refused| refused.0)
    }
}
