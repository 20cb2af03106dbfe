// The protocol's test vectors, which the Go code is held against as well.
import { readFileSync } from "node:fs";

export const vectors = (file) => JSON.parse(text(`../../docs/protocol/${file}.json`));
export const text = (path) => readFileSync(new URL(path, import.meta.url), "utf8");
