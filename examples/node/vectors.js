// The protocol's test vectors, which the Go code is held against as well.
import { readFileSync } from "node:fs";
import { parseEntry } from "./lib/definition.js";
import { parseInstant } from "./lib/values.js";

export const vectors = (file) => JSON.parse(text(`../../docs/protocol/${file}.json`));
export const text = (path) => readFileSync(new URL(path, import.meta.url), "utf8");

// entryOf is a definition as a reader of the registry has it.
export const entryOf = ({ value, revision, time }) => parseEntry(JSON.stringify(value), revision, parseInstant(time));
