// The figure on the question's page: choose x, u and v, see J, u^T J and J v.
// A function of second degree is determined by f(0) and by J at 0 and at the unit vectors; cgrad computed these.
const jacobian = ({ jacobian: at0, units }, x) =>
  at0.map((row, i) => row.map((entry, j) => entry + x.reduce((sum, xk, k) => sum + xk * (units[k][i][j] - entry), 0)));
const dot = (a, b) => a.reduce((sum, entry, i) => sum + entry * b[i], 0);
const times = (matrix, v) => matrix.map((row) => dot(row, v));
const before = (u, matrix) => matrix[0].map((_, j) => u.reduce((sum, ui, i) => sum + ui * matrix[i][j], 0));
const value = (f, x) => {
  const mean = jacobian(f, x).map((row, i) => row.map((entry, j) => (entry + f.jacobian[i][j]) / 2));
  return times(mean, x).map((entry, i) => entry + f.value[i]);
};

const number = (a) => String(Number(a.toPrecision(6)));
const vector = (a) => `(${a.map(number).join(", ")})`;
const node = (name, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};

const START = { x: [1, 2, 0.5], u: [10, 3, 1], v: [1, 0, 0] };
const MEANS = { x: "the point", u: "the upstream gradient, one number for each output", v: "a direction, one for each input" };
const ROWS = [
  ["y", "y = f(x)"],
  ["J", "J, the Jacobian"],
  ["uJ", "uᵀJ, what the rule returns"],
  ["Jv", "J v, the derivative along v"],
];

function entry(name, i, initial, changed) {
  const label = `${name}${i}`;
  const range = { type: "range", min: -10, max: 10, step: 0.25, value: initial, ariaLabel: `${label}, slider` };
  const slider = node("input", range);
  const field = node("input", { type: "number", step: "any", value: initial, ariaLabel: label });
  slider.oninput = () => ((field.value = slider.value), changed());
  field.oninput = () => ((slider.value = field.value), changed());
  return [node("div", { className: "try-it-entry" }, node("span", {}, label), slider, field), () => Number(field.value)];
}

function table(cells) {
  const rows = ROWS.map(([key, meaning]) => {
    cells[key] = node("td");
    cells[`${key}-shape`] = node("td");
    return node("tr", {}, node("th", { scope: "row" }, meaning), cells[key], cells[`${key}-shape`]);
  });
  const heads = ["", "value", "shape"].map((text) => node(text ? "th" : "td", text ? { scope: "col", textContent: text } : {}));
  return node("table", {}, node("thead", {}, node("tr", {}, ...heads)), node("tbody", {}, ...rows));
}

function draw(picture, u, product) {
  picture.querySelector(".upstream").textContent = `u = ${vector(u)}`;
  picture.querySelector(".product").textContent = `uᵀJ = ${vector(product)}`;
  picture.setAttribute(
    "aria-label",
    `Forward, x goes through f to y. Backward, u = ${vector(u)} comes from y and u^T J = ${vector(product)} goes to x.`,
  );
}

function start(figure) {
  const functions = JSON.parse(figure.dataset.functions);
  const picture = figure.querySelector("svg");
  const options = functions.map(({ label }, i) => node("option", { value: i, textContent: label }));
  const choice = node("select", { ariaLabel: "function" }, ...options);
  const inputs = node("div", { className: "try-it-inputs" });
  const cells = {};
  const read = {};

  const show = () => {
    const f = functions[choice.value];
    const [x, u, v] = ["x", "u", "v"].map((name) => read[name].map((one) => one()));
    const J = jacobian(f, x);
    const found = { y: value(f, x), uJ: before(u, J), Jv: times(J, v) };
    for (const [name, numbers] of Object.entries(found)) {
      cells[name].textContent = vector(numbers);
      cells[`${name}-shape`].textContent = `(${numbers.length},)`;
    }
    cells.J.replaceChildren(...J.map((row) => node("div", { textContent: vector(row) })));
    cells["J-shape"].textContent = `(${J.length}, ${x.length})`;
    draw(picture, u, found.uJ);
  };

  const choose = () => {
    const { jacobian: rows } = functions[choice.value];
    const sizes = { x: rows[0].length, u: rows.length, v: rows[0].length };
    inputs.replaceChildren();
    for (const [name, size] of Object.entries(sizes)) {
      const entries = START[name].slice(0, size).map((initial, i) => entry(name, i, initial, show));
      read[name] = entries.map(([, one]) => one);
      const legend = node("legend", { textContent: `${name}, ${MEANS[name]}` });
      inputs.append(node("fieldset", {}, legend, ...entries.map(([made]) => made)));
    }
    show();
  };

  choice.onchange = choose;
  const box = node("div", { className: "try-it-table" }, table(cells));
  figure.prepend(node("label", {}, "Function ", choice), inputs);
  figure.append(box);
  choose();
  figure.dataset.ready = "";
}

for (const figure of document.querySelectorAll(".try-it")) start(figure);
