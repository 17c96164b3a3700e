// node-postgres: parameters are sent as text, and PostgreSQL infers their types.
import pg from "pg";
import { othersJob, run } from "./protocol.mjs";

const pool = new pg.Pool();

const INSERT = "insert into reactor.jobs (job_type, payload, tags) values ($1, $2, $3) returning *";

/** Returns the result of `work`, or rolls back and throws its error. */
async function transaction(work) {
  const client = await pool.connect();
  try {
    await client.query("begin");
    const result = await work(client);
    await client.query("commit");
    return result;
  } catch (error) {
    await client.query("rollback");
    throw error;
  } finally {
    client.release();
  }
}

const shown = (job) => ({ ...job, id: Number(job.id) });

const scenarios = {
  async insert({ job_type, payload, tags }) {
    const { rows } = await pool.query(INSERT, [job_type, payload, tags]);
    return shown(rows[0]);
  },

  async defaults({ job_type }) {
    const { rows } = await pool.query("insert into reactor.jobs (job_type) values ($1) returning *", [job_type]);
    return shown(rows[0]);
  },

  // One statement for any number of rows.
  async batch({ jobs }) {
    const { rows } = await pool.query(
      `insert into reactor.jobs (job_type, payload, tags, priority)
       select job_type, payload, tags, priority from jsonb_to_recordset($1)
         as j (job_type text, payload jsonb, tags text[], priority smallint)
       returning id`,
      [JSON.stringify(jobs)],
    );
    return { count: rows.length, ids: rows.map((row) => Number(row.id)) };
  },

  async bind(job) {
    const { rows } = await pool.query(
      `insert into reactor.jobs (job_type, payload, tags, run_after, timeout_seconds, priority, max_attempts, queue,
         scope, exclusive, idempotency_key, pipeline_id)
       values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) returning id`,
      [
        job.job_type,
        job.payload,
        job.tags,
        new Date(job.run_after),
        job.timeout_seconds,
        job.priority,
        job.max_attempts,
        job.queue,
        job.scope,
        job.exclusive,
        job.idempotency_key,
        job.pipeline_id,
      ],
    );
    return { id: Number(rows[0].id) };
  },

  async every_column({ job_type, payload }) {
    const { fields } = await pool.query("select * from reactor.jobs limit 0");
    const set = { job_type, payload, created_at: new Date() };
    const columns = fields.map((field) => field.name).filter((name) => name !== "id");
    const places = columns.map((_, index) => `$${index + 1}`);
    const { rows } = await pool.query(
      `insert into reactor.jobs (id, ${columns.join(", ")}) values (default, ${places.join(", ")}) returning *`,
      columns.map((column) => set[column] ?? null),
    );
    return shown(rows[0]);
  },

  async dag({ pipeline_id, jobs, dependencies }) {
    const ids = {};
    await transaction(async (client) => {
      for (const [name, { job_type }] of Object.entries(jobs)) {
        const { rows } = await client.query(
          "insert into reactor.jobs (job_type, pipeline_id) values ($1, $2) returning id",
          [job_type, pipeline_id],
        );
        ids[name] = rows[0].id;
      }
      for (const { job, depends_on, needs } of dependencies) {
        await client.query(
          "insert into reactor.dependencies (job_id, depends_on, needs) values ($1, $2, $3) returning *",
          [ids[job], ids[depends_on], needs ?? "completed"],
        );
      }
    });
    return { ids: Object.fromEntries(Object.entries(ids).map(([name, id]) => [name, Number(id)])) };
  },

  async submit(job) {
    const submit = () =>
      pool.query(
        `select * from reactor.submit(job_type => $1, payload => $2, idempotency_key => $3, tags => $4,
           timeout_seconds => $5, max_attempts => $6, priority => $7)`,
        [job.job_type, job.payload, job.idempotency_key, job.tags, job.timeout_seconds, job.max_attempts, job.priority],
      );
    const rows = [(await submit()).rows[0], (await submit()).rows[0]];
    return { outcomes: rows.map((row) => row.outcome), ids: rows.map((row) => Number(row.id)) };
  },

  async conflict({ job_type, idempotency_key }) {
    for (let time = 0; time < 2; time++) {
      await pool.query("insert into reactor.jobs (job_type, idempotency_key) values ($1, $2)", [
        job_type,
        idempotency_key,
      ]);
    }
  },

  async ignore_conflict({ job_type, idempotency_key }) {
    const insert = () =>
      pool.query(
        "insert into reactor.jobs (job_type, idempotency_key) values ($1, $2) on conflict do nothing returning id",
        [job_type, idempotency_key],
      );
    await insert();
    return { created: (await insert()).rowCount };
  },

  async rollback({ job_type }) {
    const changedMind = new Error("roll back");
    await transaction(async (client) => {
      await client.query("insert into reactor.jobs (job_type) values ($1)", [job_type]);
      throw changedMind;
    }).catch((error) => {
      if (error !== changedMind) throw error;
    });
    return {};
  },

  async read_own({ job_type, payload }) {
    const created = await pool.query(INSERT, [job_type, payload, []]);
    const found = await pool.query("select * from reactor.jobs where id = $1", [created.rows[0].id]);
    const counted = await pool.query(
      "select count(*)::int as count from reactor.jobs where job_type = $1 and state = 'pending'",
      [job_type],
    );
    return { payload: found.rows[0].payload, count: counted.rows[0].count };
  },

  async foreign() {
    const { rows } = await pool.query("select * from reactor.jobs where id = $1", [othersJob]);
    return { found: rows.length > 0 };
  },
};

await run("pg", scenarios, ({ code, constraint }) => ({ sqlstate: code, constraint }));
await pool.end();
