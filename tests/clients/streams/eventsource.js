// Follows a stream with the package eventsource: node eventsource.js ADDRESS TOKEN. Prints each event as a line of JSON.
import { EventSource } from "eventsource";

const [address, token] = process.argv.slice(2);
let cursor = "";

function authorizedFetch(url, options) {
  return fetch(url, { ...options, headers: { ...options.headers, Authorization: `Bearer ${token}` } });
}

function open() {
  const source = new EventSource(`${address}?last_event_id=${cursor}`, { fetch: authorizedFetch });
  for (const name of ["message", "snapshot", "job", "step", "pipeline", "end"]) {
    source.addEventListener(name, (event) => {
      console.log(JSON.stringify([name, event.data]));
      cursor = event.lastEventId || cursor;
      if (name === "end") source.close();
    });
  }
  source.addEventListener("error", ({ code }) => {
    if (source.readyState === EventSource.CLOSED && code !== 204) setTimeout(open, 500);
  });
}

open();
