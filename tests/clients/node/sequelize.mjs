// Sequelize, over node-postgres.
import { DataTypes, Sequelize } from "sequelize";
import { Dependency, Job, defineModels } from "./models/sequelize.mjs";
import { othersJob, run } from "./protocol.mjs";

const sequelize = new Sequelize(process.env.DATABASE_URL, { dialect: "postgres", logging: false });
defineModels(sequelize);

// As a generator of models writes it.
const EveryColumn = sequelize.define(
  "EveryColumn",
  {
    ...Job.getAttributes(),
    changed_xid: DataTypes.BIGINT,
    inserted_xid: DataTypes.BIGINT,
    attempt_id: DataTypes.UUID,
    worker_id: DataTypes.UUID,
    parent_id: DataTypes.BIGINT,
    broken_by: DataTypes.BIGINT,
    locked_at: DataTypes.DATE,
    locked_by: DataTypes.TEXT,
    quota: DataTypes.INTEGER,
    children: DataTypes.INTEGER,
    waiting_on: DataTypes.INTEGER,
    is_current: DataTypes.BOOLEAN,
    parked: DataTypes.BOOLEAN,
  },
  { schema: "reactor", tableName: "jobs", timestamps: false },
);

const shown = (job) => ({ ...job.get(), id: Number(job.id) });

const scenarios = {
  async insert(job) {
    return shown(await Job.create(job));
  },

  async defaults(job) {
    return shown(await Job.create(job));
  },

  async batch({ jobs }) {
    const created = await Job.bulkCreate(jobs);
    return { count: created.length, ids: created.map((job) => Number(job.id)) };
  },

  async bind(job) {
    const created = await Job.create({ ...job, run_after: new Date(job.run_after) });
    return { id: Number(created.id) };
  },

  async every_column(job) {
    const nulls = Object.fromEntries(Object.keys(EveryColumn.getAttributes()).map((name) => [name, null]));
    return shown(await EveryColumn.create({ ...nulls, ...job, created_at: new Date() }));
  },

  async dag({ pipeline_id, jobs, dependencies }) {
    const created = await sequelize.transaction(async (transaction) => {
      const created = {};
      for (const [name, job] of Object.entries(jobs)) {
        created[name] = await Job.create({ ...job, pipeline_id }, { transaction });
      }
      for (const { job, depends_on, needs } of dependencies) {
        await Dependency.create(
          { job_id: created[job].id, depends_on: created[depends_on].id, needs },
          { transaction },
        );
      }
      return created;
    });
    return { ids: Object.fromEntries(Object.entries(created).map(([name, job]) => [name, Number(job.id)])) };
  },

  async submit(job) {
    const submit = () =>
      sequelize.query(
        `select * from reactor.submit(job_type => $job_type, payload => $payload, idempotency_key => $idempotency_key,
           tags => $tags, timeout_seconds => $timeout_seconds, max_attempts => $max_attempts, priority => $priority)`,
        { bind: job, type: Sequelize.QueryTypes.SELECT },
      );
    const rows = [...(await submit()), ...(await submit())];
    return { outcomes: rows.map((row) => row.outcome), ids: rows.map((row) => Number(row.id)) };
  },

  async conflict(job) {
    await Job.create(job);
    await Job.create(job);
  },

  // A row that was not inserted comes back without an id.
  async ignore_conflict(job) {
    await Job.bulkCreate([job], { ignoreDuplicates: true });
    const created = await Job.bulkCreate([job], { ignoreDuplicates: true });
    return { created: created.filter((job) => job.id !== null).length };
  },

  async rollback(job) {
    const transaction = await sequelize.transaction();
    await Job.create(job, { transaction });
    await transaction.rollback();
    return {};
  },

  async read_own(job) {
    const created = await Job.create(job);
    const found = await Job.findByPk(created.id);
    return { payload: found.payload, count: await Job.count({ where: { job_type: job.job_type, state: "pending" } }) };
  },

  async foreign() {
    return { found: (await Job.findByPk(othersJob)) !== null };
  },
};

await run("sequelize", scenarios, ({ parent }) => ({ sqlstate: parent?.code, constraint: parent?.constraint }));
await sequelize.close();
