/// The current view.
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
