// What the visitor sees. Two words in the address are for tests: ?report=PATH sends the report to that path of the
// page's own server, ?plan=hardware or ?plan=software takes the launches of that kind of adapter whatever is there.

import { checkCase, describe, load, Machine, openAdapter, Problem, timed } from "./check.js";

const element = (id) => document.getElementById(id);
const asked = new URLSearchParams(location.search);

async function main() {
  const begun = performance.now();
  const report = { device: null, ok: false, results: [], problem: null, browser: navigator.userAgent };
  try {
    await run(report);
    report.ok = report.results.every(({ ok }) => ok);
  } catch (error) {
    report.problem = error instanceof Problem ? error.message : `${error.name}: ${error.message}`;
  }
  report.seconds = (performance.now() - begun) / 1000;
  show(report);
  await send(report);
}

async function run(report) {
  say("waiting", "Loading", "the inputs, what has to come out, and the shaders");
  const exported = await load();
  report.version = exported.plan.version;
  const adapter = await openAdapter();
  report.device = deviceOf(describe(adapter));
  const machine = await Machine.open(adapter, exported);
  report.plan = asked.get("plan") ?? report.device.kind;
  await machine.explained(check(machine, exported.plan.cases, report));
  say("waiting", "Timing", "softmax backward");
  const speed = exported.plan.speed[report.device.kind];
  report.speed = await machine.explained(timed(machine, speed)).catch(({ message }) => ({ problem: message }));
}

function deviceOf({ kind, ...told }) {
  const name = told.description || [told.vendor, told.architecture].filter(Boolean).join(" ") || "unnamed";
  return { spec: "navigator.gpu", backend: "webgpu", api: "navigator.gpu", name, kind, ...told };
}

async function check(machine, cases, report) {
  const progress = element("progress");
  [progress.max, progress.value] = [cases.length, 0];
  progress.hidden = false;
  for (const [index, one] of cases.entries()) {
    say("waiting", "Checking", `${one.dtype} ${one.shape.join("×")}, ${one.values}`);
    report.results.push(...(await checkCase(machine, one, report.plan)));
    progress.value = index + 1;
  }
}

function say(verdict, word, reason) {
  element("verdict").dataset.verdict = verdict;
  element("verdict").ariaBusy = verdict === "waiting"; // the verdict is read out, not every input
  element("word").textContent = word;
  element("reason").textContent = reason;
}

function show(report) {
  element("progress").hidden = true;
  say(...verdictOf(report));
  showAdapter(report);
  element("gaps").hidden = !report.results.length;
  element("rows").replaceChildren(...nearest(report.results).map(rowOf));
  element("result").hidden = false;
  element("report").value = JSON.stringify(report, null, 1);
  element("copy").addEventListener("click", () => navigator.clipboard.writeText(element("report").value));
}

function verdictOf({ ok, problem, device, results, seconds }) {
  const wrong = results.filter((result) => !result.ok).length;
  const counted = `${results.length} outputs in ${seconds.toFixed(1)} s`;
  if (ok) return ["certified", "Certified", `${counted}: every one is within its bound.`];
  if (!device) return ["not run", "Not run", problem];
  const told = `${counted}, ${wrong} not within bounds.`;
  return ["failed", "Failed", [problem, results.length && told].filter(Boolean).join(" Before that: ")];
}

function showAdapter({ device, speed, browser }) {
  const told = device && {
    adapter: device.name,
    vendor: device.vendor,
    architecture: device.architecture,
    device: device.device,
    kind: device.kind === "software" ? "software: the browser computes on the processor" : "hardware",
    speed: speed && speedOf(speed),
    browser,
  };
  const pairs = Object.entries(told ?? { browser }).filter(([, text]) => text);
  element("adapter").replaceChildren(...pairs.flatMap(([term, text]) => [made("dt", term), made("dd", text)]));
  element("adapter").hidden = false;
}

function speedOf({ dtype, shape, ms, gbs, problem }) {
  if (problem) return `not measured: ${problem}`;
  return `${gbs.toPrecision(3)} GB/s: softmax backward of ${dtype} ${shape.join("×")} in ${ms.toPrecision(3)} ms`;
}

// Of each kernel's output and type, the result that came nearest to its bound; the nearest of all first.
function nearest(results) {
  const found = new Map();
  for (const result of results) {
    const key = [result.kernel, result.output, result.dtype].join();
    if (!found.has(key) || found.get(key).share < result.share) found.set(key, result);
  }
  return [...found.values()].sort((a, b) => b.share - a.share || a.kernel.localeCompare(b.kernel));
}

function rowOf({ kernel, output, dtype, shape, values, gap, bound, share, ok }) {
  const row = made("tr");
  const name = made("th", kernel);
  name.scope = "row";
  row.append(name, ...[output, dtype, `${shape.join("×")}, ${values}`].map((text) => made("td", text)));
  row.append(...[gap, bound].map((number) => made("td", number.toExponential(1), "number")));
  row.append(ok ? shareCell(share) : made("td", `NO: ${beyond(share)}`, "number wrong"));
  return row;
}

function shareCell(share) {
  const cell = made("td", "", "number");
  cell.append(meter(share), made("span", `${Math.round(100 * share)} %`));
  return cell;
}

function beyond(share) {
  return Number.isFinite(share) ? `${share.toPrecision(3)} times` : "NaN, or other bits the second time";
}

function meter(share) {
  const bar = made("meter");
  bar.value = share;
  bar.ariaHidden = "true";
  return bar;
}

function made(tag, text = "", classes = "") {
  const node = document.createElement(tag);
  node.textContent = text;
  node.className = classes;
  return node;
}

async function send(report) {
  const url = asked.has("report") && new URL(asked.get("report"), location.href);
  if (url && url.origin === location.origin) await fetch(url, { method: "POST", body: JSON.stringify(report) });
}

await main();
