// Follows a stream with @microsoft/fetch-event-source: node fetch_event_source.js ADDRESS TOKEN. Prints each event as a
// line of JSON.

// The library is for browsers.
globalThis.window = globalThis;
globalThis.document = { hidden: false, addEventListener() {}, removeEventListener() {} };
const { fetchEventSource } = await import("@microsoft/fetch-event-source");

const [address, token] = process.argv.slice(2);
let hasEnded = false;

await fetchEventSource(address, {
  headers: { Authorization: `Bearer ${token}` },
  async onopen(response) {
    hasEnded = response.status === 204;
    if (response.status !== 200) throw new Error(`status ${response.status}`);
  },
  onmessage({ event, data }) {
    console.log(JSON.stringify([event, data]));
    hasEnded = event === "end";
  },
  onclose() {
    if (!hasEnded) throw new Error("the connection was closed");
  },
  onerror(error) {
    if (hasEnded) throw error;
    return 500;
  },
}).catch((error) => {
  if (!hasEnded) throw error;
});
