// TypeORM, over node-postgres.
import { DataSource, EntitySchema } from "typeorm";
import { Dependency, Job } from "./models/typeorm.mjs";
import { othersJob, run } from "./protocol.mjs";

// As a generator of models writes it.
const EveryColumn = new EntitySchema({
  name: "EveryColumn",
  schema: "reactor",
  tableName: "jobs",
  columns: {
    ...Job.options.columns,
    changed_xid: { type: "bigint" },
    inserted_xid: { type: "bigint" },
    attempt_id: { type: "uuid" },
    worker_id: { type: "uuid" },
    parent_id: { type: "bigint" },
    broken_by: { type: "bigint" },
    locked_at: { type: "timestamptz" },
    locked_by: { type: "text" },
    quota: { type: "int" },
    children: { type: "int" },
    waiting_on: { type: "int" },
    is_current: { type: "boolean" },
    parked: { type: "boolean" },
  },
});

const database = new DataSource({
  type: "postgres",
  url: process.env.DATABASE_URL,
  entities: [Job, Dependency, EveryColumn],
});
await database.initialize();
const jobs = database.getRepository(Job);

/** The scenario's columns as properties of the entity. */
const entity = ({ job_type, pipeline_id, idempotency_key, max_attempts, timeout_seconds, run_after, ...same }) => ({
  ...same,
  jobType: job_type,
  pipelineId: pipeline_id,
  idempotencyKey: idempotency_key,
  maxAttempts: max_attempts,
  timeoutSeconds: timeout_seconds,
  runAfter: run_after && new Date(run_after),
});

const shown = ({ pipelineId, createdAt, ...job }) => ({
  ...job,
  id: Number(job.id),
  pipeline_id: pipelineId,
  created_at: createdAt,
});

const scenarios = {
  async insert(job) {
    return shown(await jobs.save(entity(job)));
  },

  async defaults(job) {
    return shown(await jobs.save(entity(job)));
  },

  async batch({ jobs: given }) {
    const { identifiers } = await jobs.insert(given.map(entity));
    return { count: identifiers.length, ids: identifiers.map(({ id }) => Number(id)) };
  },

  async bind(job) {
    const created = await jobs.save(entity(job));
    return { id: Number(created.id) };
  },

  async every_column(job) {
    const { id, ...columns } = EveryColumn.options.columns;
    const nulls = Object.fromEntries(Object.keys(columns).map((name) => [name, null]));
    const created = { ...nulls, ...job, jobType: job.job_type, createdAt: new Date() };
    return shown(await database.getRepository(EveryColumn).save(created));
  },

  async dag({ pipeline_id, jobs: given, dependencies }) {
    const created = await database.transaction(async (manager) => {
      const created = {};
      for (const [name, job] of Object.entries(given)) {
        created[name] = await manager.save(Job, entity({ ...job, pipeline_id }));
      }
      const edges = dependencies.map(({ job, depends_on, needs }) => ({
        jobId: created[job].id,
        dependsOn: created[depends_on].id,
        needs,
      }));
      await manager.save(Dependency, edges);
      return created;
    });
    return { ids: Object.fromEntries(Object.entries(created).map(([name, job]) => [name, Number(job.id)])) };
  },

  async submit(job) {
    const submit = () =>
      database.query(
        `select * from reactor.submit(job_type => $1, payload => $2, idempotency_key => $3, tags => $4,
           timeout_seconds => $5, max_attempts => $6, priority => $7)`,
        [job.job_type, job.payload, job.idempotency_key, job.tags, job.timeout_seconds, job.max_attempts, job.priority],
      );
    const rows = [...(await submit()), ...(await submit())];
    return { outcomes: rows.map((row) => row.outcome), ids: rows.map((row) => Number(row.id)) };
  },

  async conflict(job) {
    await jobs.save(entity(job));
    await jobs.save(entity(job));
  },

  async ignore_conflict(job) {
    const insert = () => jobs.createQueryBuilder().insert().values(entity(job)).orIgnore().execute();
    await insert();
    return { created: (await insert()).raw.length };
  },

  async rollback(job) {
    const runner = database.createQueryRunner();
    await runner.startTransaction();
    await runner.manager.save(Job, entity(job));
    await runner.rollbackTransaction();
    await runner.release();
    return {};
  },

  async read_own(job) {
    const { id } = await jobs.save(entity(job));
    const found = await jobs.findOneBy({ id });
    return { payload: found.payload, count: await jobs.countBy({ jobType: job.job_type, state: "pending" }) };
  },

  async foreign() {
    return { found: (await jobs.findOneBy({ id: othersJob })) !== null };
  },
};

await run("typeorm", scenarios, ({ driverError }) => ({
  sqlstate: driverError?.code,
  constraint: driverError?.constraint,
}));
await database.destroy();
