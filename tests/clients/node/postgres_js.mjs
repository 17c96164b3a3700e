// postgres.js: sql(object) writes the columns and values of an insert.
import postgres from "postgres";
import { othersJob, pooled, run } from "./protocol.mjs";

// It prepares named statements, which not every pooler keeps for a client's next transaction.
const sql = postgres({ prepare: !pooled, onnotice: console.error });

const shown = (job) => ({ ...job, id: Number(job.id) });

const scenarios = {
  async insert(job) {
    const [created] = await sql`insert into reactor.jobs ${sql(job)} returning *`;
    return shown(created);
  },

  async defaults(job) {
    const [created] = await sql`insert into reactor.jobs ${sql(job)} returning *`;
    return shown(created);
  },

  async batch({ jobs }) {
    const created = await sql`insert into reactor.jobs ${sql(jobs)} returning id`;
    return { count: created.count, ids: created.map((job) => Number(job.id)) };
  },

  async bind(job) {
    const [created] = await sql`
      insert into reactor.jobs ${sql({ ...job, run_after: new Date(job.run_after) })} returning id`;
    return { id: Number(created.id) };
  },

  async every_column(job) {
    const { columns } = await sql`select * from reactor.jobs limit 0`;
    const names = columns.map((column) => column.name).filter((name) => name !== "id");
    const nulls = Object.fromEntries(names.map((name) => [name, null]));
    const [created] = await sql`
      insert into reactor.jobs ${sql({ ...nulls, ...job, created_at: new Date() })} returning *`;
    return shown(created);
  },

  async dag({ pipeline_id, jobs, dependencies }) {
    const ids = {};
    await sql.begin(async (sql) => {
      for (const [name, job] of Object.entries(jobs)) {
        const [created] = await sql`insert into reactor.jobs ${sql({ ...job, pipeline_id })} returning id`;
        ids[name] = created.id;
      }
      const edges = dependencies.map(({ job, depends_on, needs = "completed" }) => ({
        job_id: ids[job],
        depends_on: ids[depends_on],
        needs,
      }));
      await sql`insert into reactor.dependencies ${sql(edges)} returning *`;
    });
    return { ids: Object.fromEntries(Object.entries(ids).map(([name, id]) => [name, Number(id)])) };
  },

  async submit(job) {
    const submit = () => sql`
      select * from reactor.submit(job_type => ${job.job_type}, payload => ${sql.json(job.payload)},
        idempotency_key => ${job.idempotency_key}, tags => ${job.tags}, timeout_seconds => ${job.timeout_seconds},
        max_attempts => ${job.max_attempts}, priority => ${job.priority})`;
    const rows = [...(await submit()), ...(await submit())];
    return { outcomes: rows.map((row) => row.outcome), ids: rows.map((row) => Number(row.id)) };
  },

  async conflict(job) {
    await sql`insert into reactor.jobs ${sql(job)}`;
    await sql`insert into reactor.jobs ${sql(job)}`;
  },

  async ignore_conflict(job) {
    const insert = () => sql`insert into reactor.jobs ${sql(job)} on conflict do nothing returning id`;
    await insert();
    return { created: (await insert()).count };
  },

  async rollback(job) {
    const changedMind = new Error("roll back");
    await sql
      .begin(async (sql) => {
        await sql`insert into reactor.jobs ${sql(job)}`;
        throw changedMind;
      })
      .catch((error) => {
        if (error !== changedMind) throw error;
      });
    return {};
  },

  async read_own(job) {
    const [created] = await sql`insert into reactor.jobs ${sql(job)} returning id`;
    const [found] = await sql`select * from reactor.jobs where id = ${created.id}`;
    const [{ count }] = await sql`
      select count(*)::int as count from reactor.jobs where job_type = ${job.job_type} and state = 'pending'`;
    return { payload: found.payload, count };
  },

  async foreign() {
    const found = await sql`select * from reactor.jobs where id = ${othersJob}`;
    return { found: found.length > 0 };
  },
};

await run("postgres", scenarios, ({ code, constraint_name }) => ({ sqlstate: code, constraint: constraint_name }));
await sql.end();
