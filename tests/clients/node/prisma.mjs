// Prisma, whose queries are compiled by WebAssembly and sent by node-postgres.
import { PrismaPg } from "@prisma/adapter-pg";
import { Prisma, PrismaClient } from "@prisma/client";
import { randomUUID } from "node:crypto";
import { othersJob, run } from "./protocol.mjs";

const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: process.env.DATABASE_URL }) });

/** The scenario's columns as fields of the model. */
const data = ({ job_type, pipeline_id, idempotency_key, max_attempts, timeout_seconds, run_after, ...same }) => ({
  ...same,
  jobType: job_type,
  pipelineId: pipeline_id,
  idempotencyKey: idempotency_key,
  maxAttempts: max_attempts,
  timeoutSeconds: timeout_seconds,
  runAfter: run_after && new Date(run_after),
});

const shown = ({ pipelineId, createdAt, ...job }) => ({ ...job, pipeline_id: pipelineId, created_at: createdAt });

const scenarios = {
  async insert(job) {
    return shown(await prisma.job.create({ data: data(job) }));
  },

  async defaults(job) {
    return shown(await prisma.job.create({ data: data(job) }));
  },

  async batch({ jobs }) {
    const created = await prisma.job.createManyAndReturn({ data: jobs.map(data), select: { id: true } });
    return { count: created.length, ids: created.map((job) => job.id) };
  },

  async bind(job) {
    const { id } = await prisma.job.create({ data: data(job) });
    return { id };
  },

  // A required field takes no null: a generated model has the database's defaults, and Prisma writes those.
  async every_column({ job_type, payload }) {
    const created = await prisma.job.create({
      data: {
        jobType: job_type,
        payload,
        pipelineId: randomUUID(),
        queue: "default",
        priority: 0,
        runAfter: null,
        maxAttempts: null,
        timeoutSeconds: null,
        tags: [],
        scope: null,
        exclusive: false,
        idempotencyKey: null,
        state: "pending",
        attempts: 0,
        progress: null,
        statusMessage: null,
        result: Prisma.DbNull,
        error: null,
        createdAt: new Date(),
        createdBy: "",
        startedAt: null,
        finishedAt: null,
        changedXid: 0,
        insertedXid: 0,
        attemptId: null,
        workerId: null,
        parentId: null,
        brokenBy: null,
        lockedAt: null,
        lockedBy: null,
        quota: null,
        children: 0,
        waitingOn: 0,
        isCurrent: false,
        parked: false,
      },
    });
    return shown(created);
  },

  async dag({ pipeline_id, jobs, dependencies }) {
    const ids = {};
    await prisma.$transaction(async (tx) => {
      for (const [name, job] of Object.entries(jobs)) {
        ids[name] = (await tx.job.create({ data: data({ ...job, pipeline_id }) })).id;
      }
      await tx.dependency.createManyAndReturn({
        data: dependencies.map(({ job, depends_on, needs }) => ({
          jobId: ids[job],
          dependsOn: ids[depends_on],
          needs,
        })),
      });
    });
    return { ids };
  },

  async submit(job) {
    const submit = () => prisma.$queryRaw`
      select * from reactor.submit(job_type => ${job.job_type}, payload => ${job.payload},
        idempotency_key => ${job.idempotency_key}, tags => ${job.tags}, timeout_seconds => ${job.timeout_seconds},
        max_attempts => ${job.max_attempts}, priority => ${job.priority})`;
    const rows = [...(await submit()), ...(await submit())];
    return { outcomes: rows.map((row) => row.outcome), ids: rows.map((row) => row.id) };
  },

  async conflict(job) {
    await prisma.job.create({ data: data(job) });
    await prisma.job.create({ data: data(job) });
  },

  async ignore_conflict(job) {
    const insert = () => prisma.job.createMany({ data: [data(job)], skipDuplicates: true });
    await insert();
    return { created: (await insert()).count };
  },

  async rollback(job) {
    const changedMind = new Error("roll back");
    await prisma
      .$transaction(async (tx) => {
        await tx.job.create({ data: data(job) });
        throw changedMind;
      })
      .catch((error) => {
        if (error !== changedMind) throw error;
      });
    return {};
  },

  async read_own(job) {
    const { id } = await prisma.job.create({ data: data(job) });
    const found = await prisma.job.findUnique({ where: { id } });
    const count = await prisma.job.count({ where: { jobType: job.job_type, state: "pending" } });
    return { payload: found.payload, count };
  },

  async foreign() {
    return { found: (await prisma.job.findUnique({ where: { id: BigInt(othersJob) } })) !== null };
  },
};

await run("@prisma/client", scenarios, ({ meta }) => {
  const cause = meta?.driverAdapterError?.cause;
  return { sqlstate: cause?.originalCode, constraint: cause?.constraint?.index };
});
await prisma.$disconnect();
