// array.zarr by its URL in Chromium, read by zarrita in a page of another origin:
// node serve_zarrita.cjs PROGRAM CHROMIUM FOLDER, which has the modules. See scripts/test-page.sh.
"use strict";
const { spawn } = require("node:child_process");
const { once } = require("node:events");
const http = require("node:http");
const esbuild = require("esbuild");
const puppeteer = require("puppeteer-core");

const [program, executablePath, folder] = process.argv.slice(2);
const ROWS = [10, 20], COLUMNS = [1, 4];
let passed = 0, failed = 0;

function check(what, got, expected) {
  const [left, right] = [got, expected].map((value) => JSON.stringify(value)), good = left === right;
  if (good) passed += 1; else failed += 1;
  console.log(good ? `ok   ${what}` : `FAIL ${what}: got ${left}, expected ${right}`);
}

// The server, which lets scripts of `origin` read, and its URL.
async function serve(origin) {
  const options = ["--listen", "127.0.0.1:0", "--cors", origin];
  const stdio = ["ignore", "pipe", "inherit"];
  const server = spawn(program, ["serve", "tests/data/sample", ...options], { stdio });
  const [first] = await once(server.stdout, "data");
  return [server, String(first).split("\n")[0]];
}

// Shape, type and a part of an array, the part as bits, because JSON has no NaN.
async function read(top, rows, columns) {
  const root = zarr.root(new zarr.FetchStore(top));
  const array = await zarr.open(root.resolve("temperature"), { kind: "array" });
  const part = await zarr.get(array, [zarr.slice(...rows), zarr.slice(...columns)]);
  const missing = await root.store.get("/nothing/zarr.json");
  const bits = Array.from(new Uint32Array(part.data.slice().buffer));
  return { shape: array.shape, type: array.dtype, part: bits, missing: missing === undefined };
}

(async () => {
  // A page without anything, for scripts.
  const html = "<!doctype html><title>-</title>";
  const pages = http.createServer((_, answer) => answer.setHeader("Content-Type", "text/html").end(html));
  await once(pages.listen(0, "127.0.0.1"), "listening");
  const { port } = pages.address(), origin = `http://127.0.0.1:${port}`;
  const [server, url] = await serve(origin);
  const browser = await puppeteer.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
  try {
    const entry = { contents: 'export * from "zarrita"', resolveDir: folder };
    const options = { bundle: true, format: "iife", globalName: "zarr", platform: "browser", write: false };
    const bundled = esbuild.buildSync({ stdin: entry, ...options });
    const page = await browser.newPage();
    await page.goto(origin);
    await page.addScriptTag({ content: bundled.outputFiles[0].text });
    const got = await page.evaluate(read, `${url}weather/data/array.zarr`, ROWS, COLUMNS);

    const column = await fetch(`${url}weather/data/columns/temperature/data.bin`);
    const bits = new Uint32Array(await column.arrayBuffer());
    const width = 6, part = [];
    for (let row = ROWS[0]; row < ROWS[1]; row++) {
      part.push(...bits.slice(row * width + COLUMNS[0], row * width + COLUMNS[1]));
    }
    const shape = [bits.length / width, width];
    check("zarrita reads a part", got, { shape, type: "float32", part, missing: true });

    const other = await browser.newPage();
    await other.goto(`http://localhost:${port}`);
    const reads = (file) => fetch(file).then(() => "read", () => "refused");
    const refused = await other.evaluate(reads, `${url}weather/schema.json`);
    check("a page of another origin", refused, "refused");
  } finally {
    await browser.close();
    server.kill();
    pages.close();
  }
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed ? 1 : 0);
})();
