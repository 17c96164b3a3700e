// Shows whether the server and its database are well, and notices when that changes.

const health = document.getElementById("health");

async function look() {
  try {
    const answer = await (await fetch("health/ready")).json();
    health.textContent = answer.status === "ok"
      ? `ready, schema at revision ${answer.schema}`
      : `not ready: ${answer.database}`;
  } catch {
    health.textContent = "the server does not answer";
  }
  setTimeout(look, 5000);
}

look();
