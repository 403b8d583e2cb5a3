// The pages of `tiledbfs serve` in Chromium: node serve_page.cjs URL CHROMIUM [FOLDER]. See scripts/test-page.sh.
"use strict";
const path = require("node:path");
const puppeteer = require("puppeteer-core");

const [url, executablePath, folder] = process.argv.slice(2);
const pages = { directory: "", array: "weather/", view: "weather/data/", part: "weather/data/subarray/1..31,0..2/", fragments: "lightning/fragments/", sparse: "lightning/" };
let passed = 0, failed = 0;

function check(what, found) {
  const good = found.length === 0;
  if (good) passed += 1; else failed += 1;
  console.log(`${good ? "ok  " : "FAIL"} ${what}${good ? "" : `: ${found.join("; ")}`}`);
}

async function look(browser, name, width, scheme) {
  const page = await browser.newPage(), problems = [];
  page.on("console", (message) => {
    // The browser looks for an icon by itself.
    const icon = message.location().url?.endsWith("/favicon.ico");
    if (message.type() === "error" && !icon) problems.push(message.text());
  });
  page.on("pageerror", (error) => problems.push(String(error)));
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await page.setViewport({ width, height: 900 });
  await page.goto(url + pages[name], { waitUntil: "networkidle0" });
  const what = `${name}, ${width} px, ${scheme}`;
  check(`${what}: no errors`, problems);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  check(`${what}: fits`, wide > 0 ? [`${wide} px too wide`] : []);
  // The policy of the page lets no other script in, so axe comes in through the debugger, in a world of its own.
  const source = require("node:fs").readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
  await page.evaluate(source);
  const { violations } = await page.evaluate(() => axe.run());
  check(`${what}: axe`, violations.map(({ id, nodes }) => `${id} ${nodes.map((node) => node.target).join(" ")}`));
  const picture = await page.evaluate(() => document.getElementById("picture")?.naturalWidth);
  check(`${what}: picture`, picture === 0 ? ["not shown"] : []);
  if (folder) await page.screenshot({ path: path.join(folder, `${name}-${width}-${scheme}.png`), fullPage: true });
  await page.close();
}

// What the page does without a script, and what the script adds.
async function lengths(browser) {
  const count = async (enabled) => {
    const page = await browser.newPage();
    await page.setJavaScriptEnabled(enabled);
    // So high that all entries are in view.
    await page.setViewport({ width: 1280, height: 4000 });
    await page.goto(`${url}lightning/data/`, { waitUntil: "networkidle0" });
    const rows = await page.$$eval("#entries tbody tr", (all) => all.map((row) => row.querySelector("td").textContent));
    await page.close();
    return rows;
  };
  const [without, after] = [await count(false), await count(true)];
  check("lengths that are not in metadata are left to the script", without.includes("?") ? [] : without);
  check("the script asks for them", after.includes("?") || after.length !== without.length ? after : []);
}

(async () => {
  const browser = await puppeteer.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
  for (const name of Object.keys(pages)) {
    for (const [width, scheme] of [[360, "light"], [800, "dark"], [1280, "light"]]) await look(browser, name, width, scheme);
  }
  await lengths(browser);
  await browser.close();
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed ? 1 : 0);
})();
