import test from "node:test";
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import * as client from "../index.js";

const path = (name) => fileURLToPath(new URL(name, import.meta.url));

test("index.d.ts declares what index.js exports", () => {
  const declared = [...readFileSync(path("../index.d.ts"), "utf8").matchAll(/^export (?:function|class) (\w+)/gm)].map((m) => m[1]);
  assert.deepEqual(declared.sort(), Object.keys(client).sort());
});

test("a program that uses every option compiles, and one with a wrong option does not", () => {
  const options = ["--noEmit", "--strict", "--skipLibCheck", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom"];
  try {
    execFileSync(process.execPath, [path("../node_modules/typescript/bin/tsc"), ...options, path("../typed.ts")], { encoding: "utf8" });
  } catch (err) {
    assert.fail(err.stdout || err.message);
  }
});
