"""Jobs of Celery with its Redis broker, for `cargo xtask queues`: celery_jobs.py ROLE PORT FOLDER.

The files in FOLDER are those of rq_jobs.py, and `given`: a job that the server gave to a worker.
kombu takes a job off its list by BRPOP and notes it elsewhere by a second command. A job that has
arrived is forgotten by kombu if the server ends between the two.
"""

import os
import sys
import time

from celery import Celery
from kombu.exceptions import OperationalError
from kombu.transport.virtual import Transport

JOBS_PER_SECOND = 60

app = Celery("celery_jobs")


def note(path, job):
    # One write to a file that is only appended to, so that lines of several processes stay whole.
    with open(path, "ab", buffering=0) as file:
        file.write(f"{job}\n".encode())


@app.task(name="perform")
def perform(done, job):
    time.sleep(0.002)
    note(done, job)


def produce(folder):
    number = 0
    while True:
        number += 1
        job = f"{os.getpid()}-{number}"
        note(f"{folder}/tried", job)
        try:
            perform.apply_async((f"{folder}/done", job), task_id=job, retry=False)
            note(f"{folder}/acked", job)
        except OperationalError:
            time.sleep(0.05)
        time.sleep(1 / JOBS_PER_SECOND)


def work(folder):
    deliver = Transport._deliver

    def noted(transport, message, queue):
        if job := message.get("headers", {}).get("id"):
            note(f"{folder}/given", job)
        deliver(transport, message, queue)

    Transport._deliver = noted
    app.worker_main(["worker", "--loglevel=WARNING", "--pool=solo", f"--hostname=w{os.getpid()}"])


def main():
    role, port, folder = sys.argv[1:]
    app.conf.update(
        broker_url=f"redis://127.0.0.1:{port}/1",
        # A job that was given to a worker which did not acknowledge it comes again after this time.
        broker_transport_options={"visibility_timeout": 15, "socket_timeout": 20},
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        task_acks_late=True,
        task_ignore_result=True,
        worker_prefetch_multiplier=4,
    )
    match role:
        case "produce":
            produce(folder)
        case "work":
            work(folder)


if __name__ == "__main__":
    main()
