// Knex, over node-postgres.
import knex from "knex";
import { othersJob, run } from "./protocol.mjs";

const db = knex({ client: "pg", connection: process.env.DATABASE_URL });

const shown = (job) => ({ ...job, id: Number(job.id) });

const scenarios = {
  async insert(job) {
    const [created] = await db("reactor.jobs").insert(job).returning("*");
    return shown(created);
  },

  async defaults(job) {
    const [created] = await db("reactor.jobs").insert(job).returning("*");
    return shown(created);
  },

  async batch({ jobs }) {
    const created = await db.batchInsert("reactor.jobs", jobs, 1000).returning("id");
    return { count: created.length, ids: created.map((job) => Number(job.id)) };
  },

  async bind(job) {
    const [created] = await db("reactor.jobs")
      .insert({ ...job, run_after: new Date(job.run_after) })
      .returning("id");
    return { id: Number(created.id) };
  },

  async every_column(job) {
    const { id, ...columns } = await db("jobs").withSchema("reactor").columnInfo();
    const nulls = Object.fromEntries(Object.keys(columns).map((name) => [name, null]));
    const [created] = await db("reactor.jobs")
      .insert({ ...nulls, ...job, created_at: new Date() })
      .returning("*");
    return shown(created);
  },

  async dag({ pipeline_id, jobs, dependencies }) {
    const ids = {};
    await db.transaction(async (trx) => {
      for (const [name, job] of Object.entries(jobs)) {
        const [created] = await trx("reactor.jobs")
          .insert({ ...job, pipeline_id })
          .returning("id");
        ids[name] = created.id;
      }
      await trx("reactor.dependencies")
        .insert(
          dependencies.map(({ job, depends_on, needs }) => ({ job_id: ids[job], depends_on: ids[depends_on], needs })),
        )
        .returning("*");
    });
    return { ids: Object.fromEntries(Object.entries(ids).map(([name, id]) => [name, Number(id)])) };
  },

  async submit(job) {
    const submit = () =>
      db.raw(
        `select * from reactor.submit(job_type => :job_type, payload => :payload, idempotency_key => :idempotency_key,
           tags => :tags, timeout_seconds => :timeout_seconds, max_attempts => :max_attempts, priority => :priority)`,
        job,
      );
    const rows = [(await submit()).rows[0], (await submit()).rows[0]];
    return { outcomes: rows.map((row) => row.outcome), ids: rows.map((row) => Number(row.id)) };
  },

  async conflict(job) {
    await db("reactor.jobs").insert(job);
    await db("reactor.jobs").insert(job);
  },

  async ignore_conflict(job) {
    const insert = () => db("reactor.jobs").insert(job).onConflict().ignore().returning("id");
    await insert();
    return { created: (await insert()).length };
  },

  async rollback(job) {
    const trx = await db.transaction();
    await trx("reactor.jobs").insert(job);
    await trx.rollback();
    return {};
  },

  async read_own(job) {
    const [{ id }] = await db("reactor.jobs").insert(job).returning("id");
    const found = await db("reactor.jobs").where({ id }).first();
    const [{ count }] = await db("reactor.jobs").where({ job_type: job.job_type, state: "pending" }).count();
    return { payload: found.payload, count: Number(count) };
  },

  async foreign() {
    const found = await db("reactor.jobs").where({ id: othersJob }).first();
    return { found: found !== undefined };
  },
};

await run("knex", scenarios, ({ code, constraint }) => ({ sqlstate: code, constraint }));
await db.destroy();
