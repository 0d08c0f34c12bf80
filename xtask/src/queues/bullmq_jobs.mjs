// Jobs of BullMQ, for `cargo xtask queues`: bullmq_jobs.mjs ROLE PORT FOLDER.
//
// The files in FOLDER are those of rq_jobs.py.

import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Queue, Worker } from "bullmq";

const NAME = "jobs";
const JOBS_PER_SECOND = 120;

async function produce(connection, folder) {
  const queue = new Queue(NAME, { connection });
  queue.on("error", () => {});
  for (let number = 1; ; number += 1) {
    const job = `${process.pid}-${number}`;
    appendFileSync(`${folder}/tried`, `${job}\n`);
    try {
      await queue.add("perform", { job }, { jobId: job, attempts: 1000, removeOnComplete: 1000 });
      appendFileSync(`${folder}/acked`, `${job}\n`);
    } catch {
      await sleep(50);
    }
    await sleep(1000 / JOBS_PER_SECOND);
  }
}

function work(connection, folder) {
  const perform = async ({ data }) => {
    await sleep(2);
    appendFileSync(`${folder}/done`, `${data.job}\n`);
  };
  const worker = new Worker(NAME, perform, {
    connection: { ...connection, maxRetriesPerRequest: null },
    concurrency: 4,
    lockDuration: 10_000,
    stalledInterval: 5_000,
    maxStalledCount: 1_000_000,
    runRetryDelay: 500,
  });
  worker.on("error", (error) => console.log(`${error}`));
  worker.on("failed", (job, error) => console.log(`${job?.id} failed: ${error}`));
}

const [role, port, folder] = process.argv.slice(2);
const connection = { host: "127.0.0.1", port: Number(port), db: 2 };
if (role === "produce") {
  await produce(connection, folder);
} else {
  work(connection, folder);
}
