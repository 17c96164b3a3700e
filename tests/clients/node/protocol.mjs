// Runs the scenarios of the file that is the program's argument, and prints one line of JSON for each.
//
// Its modules are installed outside this folder, and found through a link (in the root of the repository):
//   mkdir -p build/clients/node && cp tests/clients/node/package*.json build/clients/node
//   npm ci --ignore-scripts --prefix build/clients/node
//   ln -sfn ../../../build/clients/node/node_modules tests/clients/node/node_modules
//   cd tests/clients/node && PRISMA_SCHEMA_ENGINE_BINARY=/bin/true npx prisma generate --schema models/schema.prisma
// The variable keeps Prisma from downloading its engine for migrations, which `generate` does not start.
import { readFileSync } from "node:fs";

export const pooled = process.env.POOLED === "1";
export const othersJob = process.env.OTHERS_JOB;

/** `describe` returns the SQLSTATE, constraint and message of an error, as far as the library exposes them. */
export async function run(library, scenarios, describe) {
  const manifest = readFileSync(new URL(`node_modules/${library}/package.json`, import.meta.url), "utf8");
  print({ version: JSON.parse(manifest).version });
  const input = JSON.parse(readFileSync(process.argv[2], "utf8"));
  for (const [scenario, given] of Object.entries(input)) {
    if (scenario === "last_id") {
      print({ scenario, skipped: "the insert itself returns the id" });
      continue;
    }
    try {
      print({ scenario, returned: await scenarios[scenario](given) });
    } catch (error) {
      print({ scenario, error: { message: error.message, ...describe(error) } });
    }
  }
}

function print(line) {
  const asNumber = (key, value) => (typeof value === "bigint" ? Number(value) : value);
  process.stdout.write(JSON.stringify(line, asNumber) + "\n");
}
