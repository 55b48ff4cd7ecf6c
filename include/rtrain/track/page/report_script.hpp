// SPDX-License-Identifier: Apache-2.0
// Made by assets/pages/embed.py from the other files there; change those.
/// @file
/// The script of report.html, which draws its charts. Cost tier 0: std only.
#pragma once

namespace rtrain::track {

inline constexpr const char* report_script =
    R"js("use strict";
let data = JSON.parse(document.getElementById("data").textContent);
// On phones, charts are drawn unscaled, so that their text is readable.
const is_narrow = matchMedia("(max-width: 600px)").matches;
const width = is_narrow ? 340 : 460, wide = is_narrow ? width : 2 * width, height = 210, left = 54, right = 10, top_ = 10, bottom = 34;
const plot_width = width - left - right, plot_height = height - top_ - bottom, inset = 5;

function make(parent, tag, attributes = {}, text = "") {
  const svg = parent.namespaceURI.endsWith("svg") || tag === "svg";
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag)
                   : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== "") made.textContent = text;
  return parent.appendChild(made);
}
const is_number = value => typeof value === "number";
function shown(value) {
  if (!is_number(value)) return value === null ? "NaN" : value.replace("inf", "\u221e");
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e7) ? Number(value.toPrecision(4)).toExponential()
                                                    : String(Number(value.toPrecision(6)));
}
/// Round numbers between two values.
function ticks(low, high, most) {
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(factor => factor * power >= rough);
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high * (1 + 1e-12) && found.length < 20; ++i)
    found.push(Number((i * step).toPrecision(12)));
  return found;
}
function label_below(svg, x, end, mark, text = shown(mark)) {
  const half = text.length * 3.4;
  make(svg, "text", {x: Math.min(x, end - half), y: height - bottom + 15, "text-anchor": "middle"}, text);
}
/// The point nearest to a place, by binary search.
function nearest(x, place) {
  let low = 0, high = x.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (x[middle] < place) low = middle; else high = middle;
  }
  return Math.abs(x[low] - place) <= Math.abs(x[high] - place) ? low : high;
}

/// Linear interpolation of `to`, which increases with `from`.
function between(from, to) {
  return value => {
    if (from.length === 1) return to[0];
    let low = 0, high = from.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (from[middle] <= value) low = middle; else high = middle;
    }
    const part = from[high] === from[low] ? 0 : (value - from[low]) / (from[high] - from[low]);
    return to[low] + part * (to[high] - to[low]);
  };
}
function duration(seconds) {
  const unit = [[86400, "d"], [3600, "h"], [60, "min"]].find(([size]) => seconds >= size);
  return unit ? `${shown(Number((seconds / unit[0]).toPrecision(3)))} ${unit[1]}` : `${shown(seconds)} s`;
}
/// The x axes of curves: map an iteration to a value, and back.
function all_axes() {
  const same = value => value;
  return [{name: "iteration", of: same, place: same, text: shown, is_whole: true},
    ...data.axes.filter(({points: {y}}) => y[0] < y.at(-1)).map(({name, points: {x, y}}) => ({name, of: between(x, y), place: between(y, x),
      text: name === "time" ? duration : shown, is_whole: false}))];
}

/// Charts that show the same iterations.
class Group {
  constructor(first, last) {
    this.charts = [];
    this.axes = all_axes();
    this.axis = this.axes[0];
    this.range = this.all = [first, last];
  }
  /// The range in units of the axis.
  span() { return this.range.map(this.axis.of); }
  choose(name) {
    this.axis = this.axes.find(axis => axis.name === name) ?? this.axes[0];
    for (const chart of this.charts) chart.draw();
  }
  at(pixel) {
    const share = Math.min(1, Math.max(0, (pixel - left - inset) / (plot_width - 2 * inset)));
    const [from, to] = this.span();
    return this.axis.place(from + share * (to - from));
  }
  x(place) { return this.x_of(this.axis.of(place)); }
  x_of(value) { // a single report is in the middle
    const [from, to] = this.span();
    return from === to ? plot_width / 2 : inset + (value - from) / (to - from) * (plot_width - 2 * inset);
  }
  show(range) {
    this.range = range;
    this.zoomed?.(range !== this.all);
    for (const chart of this.charts) chart.draw();
  }
  look_at(place) { for (const chart of this.charts) chart.look_at(place); }

  /// Hovering shows values, dragging selects a range, a double click shows all.
  listen(svg) {
    const pixel = event => {
      const box = svg.getBoundingClientRect();
      return (event.clientX - box.left) / box.width * width;
    };
    let from = null, chosen = null;
    svg.addEventListener("pointermove", event => {
      this.look_at(this.at(pixel(event)));
      if (from !== null) {
        const ends = [from, pixel(event)].sort((a, b) => a - b);
        chosen ??= make(svg, "rect", {class: "chosen", y: top_, height: plot_height});
        chosen.setAttribute("x", ends[0]);
        chosen.setAttribute("width", ends[1] - ends[0]);
      }
    });
    svg.addEventListener("pointerleave", () => this.look_at(null));
    svg.addEventListener("pointerdown", event => {
      from = pixel(event);
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointerup", event => {
      const range = [this.at(from), this.at(pixel(event))].sort((a, b) => a - b);
      const dragged = Math.abs(pixel(event) - from) > 10;
      chosen?.remove();
      from = chosen = null;
      if (dragged && range[1] - range[0] > 1e-9) this.show(range);
    });
    svg.addEventListener("pointercancel", () => { chosen?.remove(); from = chosen = null; });
    svg.addEventListener("dblclick", () => this.show(this.all));
  }
}

class Chart {
  constructor(parent, group, name, {x, y, per}, again) {
    Object.assign(this, {group, name, x, y, again, log: false, cursor: null});
    this.card = make(parent, "figure", {class: "card", style: "margin: 0"});
    const head = make(this.card, "div", {class: "head"});
    make(head, "h3", {title: name}, name);
    this.value = make(head, "span", {class: "value"});
    const label = make(head, "label");
    this.box = make(label, "input", {type: "checkbox", "aria-label": "log scale of " + name});
    label.append("log");
    this.box.disabled = !y.some(value => value > 0);
    this.box.addEventListener("change", () => this.set_log(this.box.checked));
    this.svg = make(this.card, "svg", {class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img",
      tabindex: 0, "aria-label": this.description()});
    group.listen(this.svg);
    this.svg.addEventListener("keydown", event => {
      const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
      if (!step) return;
      event.preventDefault();
      const at = Math.min(x.length - 1, Math.max(0, (this.cursor ?? x.length - 1) + step));
      group.look_at(x[at]);
      this.point_at(at);
    });
    if (per > 1) make(this.card, "figcaption", {}, `lowest and highest of each ${per} reports`);
    group.charts.push(this);
    this.draw();
  }
  description() {
    const finite = this.y.filter(is_number);
    const extremes = finite.length === 0 ? "no finite value" : "lowest " +
      shown(finite.reduce((a, b) => Math.min(a, b))) + ", highest " +
      shown(finite.reduce((a, b) => Math.max(a, b)));
    return `${this.name} by iteration: ${extremes}, last ${shown(this.y.at(-1))}`;
  }
  set_log(log) {
    this.log = this.box.checked = log && !this.box.disabled;
    this.draw();
  }
  is_drawn(value) { return is_number(value) && (!this.log || value > 0); }

  /// Vertical axis: the range of the visible points.
  measure() {
    const [from, to] = this.group.range;
    let low = Infinity, high = -Infinity;
    this.y.forEach((value, i) => {
      if (this.is_drawn(value) && this.x[i] >= from && this.x[i] <= to) {
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    });
    if (low > high) [low, high] = [this.log ? 0.1 : 0, 1];
    if (this.log) [low, high] = [Math.log10(low), Math.log10(high)];
    const margin = high > low ? (high - low) * 0.05 : this.log ? 0.5 : Math.abs(high) * 0.1 || 1;
    [low, high] = [low - margin, high + margin];
    this.y_of = value => plot_height * (high - (this.log ? Math.log10(value) : value)) / (high - low);
    if (!this.log) return ticks(low, high, 6);
    const powers = ticks(low, high, 6).filter(Number.isInteger).map(power => 10 ** power);
    return powers.length > 1 ? powers : ticks(10 ** low, 10 ** high, 6).filter(value => value > 0);
  }
  axes(marks) {
    for (const mark of marks) {
      const y = top_ + this.y_of(mark);
      make(this.svg, "path", {class: "grid", d: `M${left} ${y}H${width - right}`});
      make(this.svg, "text", {x: left - 6, y: y + 4, "text-anchor": "end"}, shown(mark));
    }
    const [from, to] = this.group.span(), {name, text, is_whole} = this.group.axis;
    const marks_below = from === to ? [from]
      : ticks(from, to, is_narrow ? 4 : 6).filter(mark => !is_whole || Number.isInteger(mark));
    for (const mark of marks_below)
      label_below(this.svg, left + this.group.x_of(mark), width, mark, text(mark));
    make(this.svg, "text", {x: width - right, y: height - 4, "text-anchor": "end"}, name);
  }
  draw() {
    this.svg.replaceChildren();
    this.axes(this.measure());
    const plot = make(this.svg, "svg", {x: left, y: top_, width: plot_width, height: plot_height});
    const x = place => this.group.x(place).toFixed(2);
    const dots = (this.again?.x ?? []).map((place, i) => this.is_drawn(this.again.y[i]) ?
      `M${x(place)} ${this.y_of(this.again.y[i]).toFixed(2)}h.01` : "");
    make(plot, "path", {class: "again", d: dots.join("")});
    const few = this.y.length <= 60;
    let line = "", alone = "", odd = "", pen = "M";
    this.y.forEach((value, i) => {
      if (this.is_drawn(value)) {
        const point = `${x(this.x[i])} ${this.y_of(value).toFixed(2)}`;
        line += pen + point;
        if (few || (pen === "M" && !this.is_drawn(this.y[i + 1]))) alone += `M${point}h.01`;
        pen = "L";
        return;
      }
      pen = "M";
      if (is_number(value)) return;
      const y = value === "inf" ? 6 : plot_height - 6;
      odd += `M${x(this.x[i])} ${y}m-3-3l6 6m0-6l-6 6`;
    });
    this.marks(plot, x);
    make(plot, "path", {class: "curve", d: line});
    make(plot, "path", {class: "alone", d: alone});
    make(plot, "path", {class: "odd", d: odd});
    this.line = make(plot, "path", {class: "cursor"});
    this.dot = make(plot, "circle", {r: 3.5, visibility: "hidden"});
    this.look_at(null);
  }
  /// Restarts and checkpoints.
  marks(plot, x) {
    make(plot, "path", {class: "restart",
      d: data.restarts.map(place => `M${x(place - 0.5)} 0V${plot_height}`).join("")});
    for (const [name, is_best] of [["kept", false], ["best", true]])
      make(plot, "path", {class: name, d: data.checkpoints.filter(item => item.best === is_best)
        .map(item => `M${x(item.iteration)} ${plot_height - 7}l4 7h-8z`).join("")});
  }
  look_at(place) {
    if (place !== null && this.x.length > 0) return this.point_at(nearest(this.x, place));
    this.cursor = null;
    this.line.setAttribute("d", "");
    this.dot.setAttribute("visibility", "hidden");
    this.value.textContent = "last " + shown(this.y.at(-1) ?? null);
  }
  point_at(i) {
    this.cursor = i;
    const x = this.group.x(this.x[i]), value = this.y[i];
    this.line.setAttribute("d", `M${x} 0V${plot_height}`);
    this.dot.setAttribute("visibility", this.is_drawn(value) ? "visible" : "hidden");
    if (this.is_drawn(value)) {
      this.dot.setAttribute("cx", x);
      this.dot.setAttribute("cy", this.y_of(value));
    }
    this.value.textContent = `${this.x[i]}: ${shown(value)}`;
  }
}

function tools(parent, group) {
  const filter = make(parent, "input", {type: "search", placeholder: "Find a metric",
    "aria-label": "Find a metric"});
  filter.addEventListener("input", () => {
    for (const chart of group.charts)
      chart.card.hidden = !chart.name.toLowerCase().includes(filter.value.toLowerCase());
  });
  const label = make(parent, "label"), box = make(label, "input", {type: "checkbox"});
  label.append("log scale");
  box.addEventListener("change", () => group.charts.forEach(chart => chart.set_log(box.checked)));
  if (group.axes.length > 1) {
    const over = make(parent, "label", {}, "over "), select = make(over, "select");
    for (const {name} of group.axes) make(select, "option", {value: name}, name);
    select.addEventListener("change", () => group.choose(select.value));
  }
  const all = make(parent, "button", {type: "button", hidden: ""}, "show all iterations");
  all.addEventListener("click", () => group.show(group.all));
  group.zoomed = zoomed => { all.hidden = !zoomed; };
  const hints = [[true, "Drag to zoom in, double-click to zoom out"],
    [data.restarts.length > 0, "dashed line: a new start of the run"],
    [data.checkpoints.length > 0, "triangle: a checkpoint"],
    [data.superseded.length > 0, "grey dots: reports that were made again"],
    [group.charts.some(chart => !chart.y.every(is_number)), "\u00d7: NaN (below) or infinity"]];
  make(parent, "span", {class: "soft"},
    hints.filter(([is_due]) => is_due).map(([, hint]) => hint).join(" \u00b7 "));
}

function draw_curves() {
  const place = document.getElementById("charts");
  const curves = [...data.curves, ...data.rates];
  if (curves.length === 0) return null;
  const ends = curves.flatMap(({points: {x}}) => [x[0], x.at(-1)]);
  const group = new Group(Math.min(...ends), Math.max(...ends));
  const again = new Map(data.superseded.map(curve => [curve.name, curve.points]));
  for (const {name, points} of curves)
    new Chart(place, group, name, points, again.get(name));
  tools(document.getElementById("tools"), group);
  return group;
}

/// Stacked shares of the time between reports.
function draw_time() {
  const {parts, x, y} = data.time, place = document.getElementById("time");
  if (!place || x.length < 2) return;
  const svg = make(place, "svg", {class: "chart", viewBox: `0 0 ${wide} ${height}`, role: "img",
    "aria-label": "shares of time by iteration; the table has the totals"});
  const first = data.curves[0]?.points.x[0] ?? x[0];
  const at = place => left + (wide - left - right) * (place - first + 1) / (x.at(-1) - first + 1);
  const sums = y.map(seconds => seconds.reduce((a, b) => a + b, 0) || 1), base = y.map(() => 0);
  parts.forEach((part, p) => {
    let d = "";
    y.forEach((seconds, i) => {
      const share = seconds[p] / sums[i], from = at(i === 0 ? first - 1 : x[i - 1]);
      d += `M${from.toFixed(2)} ${(top_ + plot_height * (1 - base[i])).toFixed(2)}` +
           `H${at(x[i]).toFixed(2)}v${(-plot_height * share).toFixed(2)}H${from.toFixed(2)}z`;
      base[i] += share;
    });
    make(svg, "path", {class: "part " + part, d});
  });
  for (const share of [0, 0.25, 0.5, 0.75, 1])
    make(svg, "text", {x: left - 6, y: top_ + plot_height * (1 - share) + 4, "text-anchor": "end"},
      `${100 * share} %`);
  for (const mark of ticks(first, x.at(-1), is_narrow ? 4 : 10).filter(Number.isInteger))
    label_below(svg, at(mark - 0.5), wide, mark);
  make(svg, "text", {x: wide - right, y: height - 4, "text-anchor": "end"}, "iteration");
}
let group = null;
function draw_all() {
  group = draw_curves();
  draw_time();
}
draw_all();
)js";

} // namespace rtrain::track
