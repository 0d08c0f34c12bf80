"""Jobs of RQ, for `cargo xtask queues`: rq_jobs.py ROLE PORT FOLDER.

The files in FOLDER say what happened, so that nothing has to be asked from the server: a line of
`tried` is a job that was about to be sent, of `acked` one that RQ said it has, of `done` one whose
function ran.
"""

import os
import sys
import time

from redis import Redis
from redis.exceptions import RedisError
from rq import Queue, Retry
from rq.job import Job
from rq.worker import SimpleWorker

NAME = "jobs"
JOBS_PER_SECOND = 60


def note(path, job):
    # One write to a file that is only appended to, so that lines of several processes stay whole.
    with open(path, "ab", buffering=0) as file:
        file.write(f"{job}\n".encode())


def perform(done, job):
    time.sleep(0.002)
    note(done, job)


def produce(redis, folder):
    queue = Queue(NAME, connection=redis)
    number = 0
    while True:
        number += 1
        job = f"{os.getpid()}-{number}"
        note(f"{folder}/tried", job)
        try:
            done = f"{folder}/done"
            retry = Retry(max=1000)
            queue.enqueue("rq_jobs.perform", done, job, job_id=job, retry=retry, job_timeout=10)
            note(f"{folder}/acked", job)
        except RedisError:
            time.sleep(0.05)
        time.sleep(1 / JOBS_PER_SECOND)


def work(redis):
    queue = Queue(NAME, connection=redis)
    worker = SimpleWorker([queue], connection=redis, maintenance_interval=5)
    worker.work(logging_level="WARNING")


def mend(redis):
    """Does what an operator does: `rq requeue --all`."""
    queue = Queue(NAME, connection=redis)
    while True:
        try:
            queue.started_job_registry.cleanup()
            failed = queue.failed_job_registry
            for job in failed.get_job_ids():
                if Job.exists(job, connection=redis):
                    failed.requeue(job)
        except Exception as error:  # A server that is being killed; or a job that was removed.
            print(f"mend: {error!r}", flush=True)
        time.sleep(3)


def main():
    role, port, folder = sys.argv[1:]
    redis = Redis(port=int(port), socket_timeout=20, socket_keepalive=True)
    match role:
        case "produce":
            produce(redis, folder)
        case "work":
            work(redis)
        case "mend":
            mend(redis)


if __name__ == "__main__":
    main()
