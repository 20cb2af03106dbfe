// Events (docs/protocol.md, section 14). An event can be lost.
import { turn } from "./store.js";
import { formatInstant } from "./values.js";

// emitter returns a function that publishes events of a kind.
export const emitter = (store, node) => (kind, members) => {
  const body = { v: 1, kind, time: formatInstant(node.now()), node: node.name };
  for (const [name, value] of Object.entries(members)) if (value) body[name] = value;
  void turn().then(() => store.nc.publish(`${store.namespace}.event.${kind}.${members.job ?? "_"}`, JSON.stringify(body))).catch(() => {}); // the connection is closed
};

// about returns the members of an event about an attempt.
export const about = (record, fence) => ({ id: record.id, job: record.id.split(":")[0], attempt: record.attempt, fence });
