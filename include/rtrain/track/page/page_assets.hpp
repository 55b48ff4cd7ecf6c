// SPDX-License-Identifier: Apache-2.0
// Made by assets/pages/embed.py from the other files there; change those.
/// @file
/// Templates and style of report.html, the live page and tune.html. Cost tier 0: std only.
#pragma once

namespace rtrain::track {

inline constexpr const char* report_html =
    R"html(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:{{connections}}">
<title>{{name}}</title>
<style>
{{style}}</style>
</head>
<body>
<main>
<header><h1>{{name}}</h1>
<p class="soft">{{location}}</p></header>
{{facts}}{{curves}}{{time}}<div class="two">{{values}}</div>
{{tables}}<footer>Written by rtrain {{version}}.</footer>
</main>
<script type="application/json" id="data">{{data}}</script>
<script>
{{script}}</script>
</body>
</html>
)html";

inline constexpr const char* search_html =
    R"html(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>{{name}}</title>
<style>
{{style}}</style></head>
<body><main><h1>{{name}}</h1>
<dl class="facts">
{{facts}}</dl>
{{charts}}<section><h2>Trials</h2>
{{trials}}</section>
<footer>rtrain {{version}}</footer></main></body></html>
)html";

inline constexpr const char* page_style =
    R"css(:root { color-scheme: light dark; --back: #f7f7f5; --card: #fff; --line: #e2e2de; --text: #1d1d1b;
  --soft: #63635f; --curve: #2458c5; --bad: #b3261e; --best: #8a5a00; }
@media (prefers-color-scheme: dark) { :root { --back: #15171a; --card: #1d2024; --line: #33373d;
  --text: #e8e8e4; --soft: #a2a4a8; --curve: #7fb0ff; --bad: #ff8a80; --best: #f2c14e; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 1280px; margin: 0 auto; padding: 32px 20px 48px; }
h1 { margin: 0; font-size: 26px; overflow-wrap: anywhere; }
h2 { margin: 40px 0 12px; font-size: 18px; }
h3 { margin: 0; font-size: 14px; font-weight: 600; flex: 1; min-width: 0;
  overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
p { margin: 4px 0; max-width: 75ch; }
.soft, figcaption, footer { color: var(--soft); font-size: 13px; overflow-wrap: anywhere; }
.facts { display: flex; flex-wrap: wrap; gap: 12px 36px; margin: 20px 0 0; }
dt { color: var(--soft); font-size: 13px; }
dd { margin: 0; font-size: 18px; font-variant-numeric: tabular-nums; }
.card, .failure { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 12px 14px; }
.failure { margin-top: 24px; border-left: 4px solid var(--bad); }
.failure h2 { margin: 0 0 4px; color: var(--bad); }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; font: 13px/1.5 ui-monospace,
  "DejaVu Sans Mono", monospace; max-height: 24em; overflow: auto; }
.charts { display: grid; gap: 14px; grid-template-columns:
  repeat(auto-fill, minmax(min(100%, 390px), 1fr)); }
.head { display: flex; align-items: baseline; gap: 12px; }
.head label { color: var(--soft); font-size: 13px; white-space: nowrap; }
.value { font-size: 13px; font-variant-numeric: tabular-nums; white-space: nowrap; }
.tools { display: flex; flex-wrap: wrap; align-items: center; gap: 8px 20px; margin-bottom: 12px;
  font-size: 14px; }
input[type=search], select { font: inherit; color: inherit; background: var(--card);
  border: 1px solid var(--line); border-radius: 6px; padding: 3px 10px; }
input[type=search] { width: 220px; }
input[type=checkbox] { accent-color: var(--curve); vertical-align: -2px; margin: 0 4px 0 0; }
button { font: inherit; color: var(--curve); background: none; border: 0; padding: 0;
  text-decoration: underline; cursor: pointer; }
svg.chart { display: block; width: 100%; margin-top: 4px; touch-action: pan-y; cursor: crosshair;
  user-select: none; }
:focus-visible { outline: 2px solid var(--curve); outline-offset: 2px; border-radius: 4px; }
svg text { fill: var(--soft); font-size: 11px; font-variant-numeric: tabular-nums; }
svg path { fill: none; vector-effect: non-scaling-stroke; }
.grid { stroke: var(--line); }
.curve { stroke: var(--curve); stroke-width: 1.6; stroke-linejoin: round; stroke-linecap: round; }
.again { stroke: var(--soft); stroke-width: 3.5; stroke-linecap: round; opacity: .5; }
.alone { stroke: var(--curve); stroke-width: 5; stroke-linecap: round; }
.odd { stroke: var(--bad); stroke-width: 1.6; }
.restart { stroke: var(--soft); stroke-dasharray: 4 3; }
path.kept { fill: var(--soft); } path.best { fill: var(--best); }
.cursor { stroke: var(--soft); } .chosen { fill: var(--curve); opacity: .15; }
circle { fill: var(--curve); }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: left; padding: 4px 14px 4px 0; border-bottom: 1px solid var(--line);
  vertical-align: top; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
thead th { color: var(--soft); font-weight: 400; font-size: 13px; white-space: nowrap; }
tbody th { font-weight: 400; } tr:last-child > * { border-bottom: 0; }
.number { text-align: right; white-space: nowrap; }
.best { color: var(--best); font-weight: 600; }
.wide { overflow-x: auto; } td img { display: block; max-width: 256px; height: auto; }
.bar { display: flex; height: 22px; border-radius: 5px; overflow: hidden; margin: 4px 0 10px; }
.swatch { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 8px; }
.data { --part: #e69f00; } .forward { --part: #56b4e9; } .backward { --part: #0072b2; }
.communication { --part: #d55e00; } .optimizer { --part: #009e73; } .checkpoint { --part: #cc79a7; }
.bar > *, .swatch { background: var(--part); }
path.part { fill: var(--part); }
#time table { max-width: 480px; }
.two { display: grid; gap: 0 28px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); }
footer { margin-top: 40px; }
@media (max-width: 600px) { main { padding: 16px 12px 32px; } h1 { font-size: 21px; }
  h2 { margin-top: 28px; } .facts { gap: 8px 24px; } dd { font-size: 16px; }
  .card, .failure { padding: 8px 10px; } input[type=search] { width: 100%; }
  input[type=search], select, button { font-size: 16px; min-height: 32px; }
  .wide table { width: max-content; min-width: 100%; }
  th, td { max-width: 70vw; padding-right: 12px; } .number { max-width: none; } }
@media print { .tools { display: none; } .card { break-inside: avoid; } }
)css";

inline constexpr const char* live_script =
    R"js(/// The current view.
function chosen() {
  const search = document.querySelector("#tools input[type=search]");
  return {filter: search?.value ?? "", has_focus: document.activeElement === search,
    range: group && group.range !== group.all ? group.range : null,
    axis: document.querySelector("#tools select")?.value,
    logs: new Set((group?.charts ?? []).filter(chart => chart.log).map(chart => chart.name))};
}
function choose({filter, has_focus, range, axis, logs}) {
  const search = document.querySelector("#tools input[type=search]");
  if (search) {
    search.value = filter;
    search.dispatchEvent(new Event("input"));
    if (has_focus) search.focus();
  }
  for (const chart of group?.charts ?? []) if (logs.has(chart.name)) chart.set_log(true);
  const over = document.querySelector("#tools select");
  if (over && axis) {
    over.value = axis;
    over.dispatchEvent(new Event("change"));
  }
  if (range && group) group.show(range);
}
async function refresh() {
  const answer = await fetch(location.href, {cache: "no-store"});
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const before = chosen(), place = [scrollX, scrollY];
  document.querySelector("main").replaceWith(page.querySelector("main"));
  data = JSON.parse(page.getElementById("data").textContent);
  draw_all();
  choose(before);
  scrollTo(...place);
}

/// Refreshes at most once a second.
let timer = 0, last = 0;
function refresh_soon() {
  timer ||= setTimeout(() => {
    timer = 0;
    last = Date.now();
    refresh().catch(() => {}); // the events reconnect and refresh the page
  }, Math.max(0, last + 1000 - Date.now()));
}
const events = new EventSource("events" + location.search);
for (const kind of ["report", "rewind", "checkpoint", "status"])
  events.addEventListener(kind, refresh_soon);
events.addEventListener("end", () => { // the server waits briefly for open pages
  clearTimeout(timer);
  refresh().catch(() => {}).finally(() => events.close());
});
)js";

} // namespace rtrain::track
