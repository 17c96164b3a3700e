// Drizzle, over node-postgres.
import { and, eq, getTableColumns, sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import { bigint, boolean, integer, text, timestamp, uuid } from "drizzle-orm/pg-core";
import { dependencies, jobColumns, jobs, reactor } from "./models/drizzle.mjs";
import { othersJob, run } from "./protocol.mjs";

const db = drizzle(process.env.DATABASE_URL);

// As a generator of models writes it. The names are explicit because Drizzle caches derived ones by table.
const everyColumn = reactor.table("jobs", {
  ...jobColumns,
  changed_xid: bigint("changed_xid", { mode: "number" }),
  inserted_xid: bigint("inserted_xid", { mode: "number" }),
  attempt_id: uuid("attempt_id"),
  worker_id: uuid("worker_id"),
  parent_id: bigint("parent_id", { mode: "number" }),
  broken_by: bigint("broken_by", { mode: "number" }),
  locked_at: timestamp("locked_at", { withTimezone: true }),
  locked_by: text("locked_by"),
  quota: integer("quota"),
  children: integer("children"),
  waiting_on: integer("waiting_on"),
  is_current: boolean("is_current"),
  parked: boolean("parked"),
});

/** The scenario's columns as properties of the table. */
const values = ({ job_type, pipeline_id, idempotency_key, max_attempts, timeout_seconds, run_after, ...same }) => ({
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
    const [created] = await db.insert(jobs).values(values(job)).returning();
    return shown(created);
  },

  async defaults(job) {
    const [created] = await db.insert(jobs).values(values(job)).returning();
    return shown(created);
  },

  async batch({ jobs: given }) {
    const created = await db.insert(jobs).values(given.map(values)).returning({ id: jobs.id });
    return { count: created.length, ids: created.map((job) => job.id) };
  },

  async bind(job) {
    const [created] = await db.insert(jobs).values(values(job)).returning({ id: jobs.id });
    return { id: created.id };
  },

  async every_column({ job_type, payload }) {
    const { id, ...columns } = getTableColumns(everyColumn);
    const nulls = Object.fromEntries(Object.keys(columns).map((name) => [name, null]));
    const [created] = await db
      .insert(everyColumn)
      .values({ ...nulls, jobType: job_type, payload, createdAt: new Date() })
      .returning();
    return shown(created);
  },

  async dag({ pipeline_id, jobs: given, dependencies: edges }) {
    const ids = {};
    await db.transaction(async (tx) => {
      for (const [name, { job_type }] of Object.entries(given)) {
        const [created] = await tx
          .insert(jobs)
          .values({ jobType: job_type, pipelineId: pipeline_id })
          .returning({ id: jobs.id });
        ids[name] = created.id;
      }
      await tx
        .insert(dependencies)
        .values(edges.map(({ job, depends_on, needs }) => ({ jobId: ids[job], dependsOn: ids[depends_on], needs })))
        .returning();
    });
    return { ids };
  },

  // sql.param keeps an array together: ${tags} alone becomes a list of parameters.
  async submit(job) {
    const submit = () =>
      db.execute(sql`
        select * from reactor.submit(job_type => ${job.job_type}, payload => ${job.payload},
          idempotency_key => ${job.idempotency_key}, tags => ${sql.param(job.tags)},
          timeout_seconds => ${job.timeout_seconds}, max_attempts => ${job.max_attempts}, priority => ${job.priority})`);
    const rows = [(await submit()).rows[0], (await submit()).rows[0]];
    return { outcomes: rows.map((row) => row.outcome), ids: rows.map((row) => Number(row.id)) };
  },

  async conflict(job) {
    await db.insert(jobs).values(values(job));
    await db.insert(jobs).values(values(job));
  },

  async ignore_conflict(job) {
    const insert = () => db.insert(jobs).values(values(job)).onConflictDoNothing().returning({ id: jobs.id });
    await insert();
    return { created: (await insert()).length };
  },

  async rollback(job) {
    const changedMind = new Error("roll back");
    await db
      .transaction(async (tx) => {
        await tx.insert(jobs).values(values(job));
        throw changedMind;
      })
      .catch((error) => {
        if (error !== changedMind) throw error;
      });
    return {};
  },

  async read_own(job) {
    const [{ id }] = await db.insert(jobs).values(values(job)).returning({ id: jobs.id });
    const [found] = await db.select().from(jobs).where(eq(jobs.id, id));
    const count = await db.$count(jobs, and(eq(jobs.jobType, job.job_type), eq(jobs.state, "pending")));
    return { payload: found.payload, count };
  },

  async foreign() {
    const found = await db
      .select()
      .from(jobs)
      .where(eq(jobs.id, Number(othersJob)));
    return { found: found.length > 0 };
  },
};

await run("drizzle-orm", scenarios, ({ cause, message }) => ({
  sqlstate: cause?.code,
  constraint: cause?.constraint,
  message: cause?.message ?? message,
}));
await db.$client.end();
