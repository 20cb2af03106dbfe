// The exports of this package. Their types and their documentation are in index.d.ts.
export { connect } from "@nats-io/transport-node";
export { Permanent, run } from "./lib/fleet.js";
export { trigger, wait } from "./lib/orders.js";
