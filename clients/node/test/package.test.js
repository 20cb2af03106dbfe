import test from "node:test";
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import * as client from "../index.js";

const here = fileURLToPath(new URL("..", import.meta.url));
const commands = (...names) => names.every((name) => { try { return execFileSync(name, ["--version"], { stdio: "pipe" }); } catch { return false; } });

// As the README says: npm pack, and npm install of what that made.
test("the package has all that a program needs", { skip: !commands("npm", "tar") && "npm and tar are not there" }, (t) => {
  const dir = mkdtempSync(join(tmpdir(), "package-"));
  t.after(() => rmSync(dir, { recursive: true }));
  const [name] = execFileSync("npm", ["pack", "--silent", "--pack-destination", dir, here], { cwd: dir, encoding: "utf8" }).trim().split("\n").slice(-1);
  assert.equal(name, "cronce-io-client-0.1.0.tgz");
  execFileSync("tar", ["xzf", name], { cwd: dir });
  symlinkSync(join(here, "node_modules"), join(dir, "node_modules"));
  const program = 'import * as client from "./package/index.js"; console.log(Object.keys(client).join());';
  const exported = execFileSync(process.execPath, ["--input-type=module", "-e", program], { cwd: dir, encoding: "utf8" }).trim();
  assert.equal(exported, Object.keys(client).join());
  assert.deepEqual(execFileSync("ls", ["package"], { cwd: dir, encoding: "utf8" }).trim().split("\n").sort(), ["LICENSE", "README.md", "index.d.ts", "index.js", "lib", "package.json"]);
});
