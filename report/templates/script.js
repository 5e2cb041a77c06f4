"use strict";
// The errors' filter, and the attention table. Without scripts the page still shows everything but these two.
for (const box of document.querySelectorAll("[data-filter]")) {
  const table = document.getElementById(box.dataset.filter);
  const status = document.getElementById(box.dataset.filter + "-status");
  const [text, kind] = [box.querySelector("input"), box.querySelector("select")];
  const update = () => {
    const wanted = text.value.toLowerCase();
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      const fits = row.textContent.toLowerCase().includes(wanted) && (!kind.value || row.dataset.kind === kind.value);
      row.hidden = !fits;
      shown += fits;
    }
    status.textContent = shown + " of " + table.tBodies[0].rows.length + " shown";
  };
  text.addEventListener("input", update);
  kind.addEventListener("change", update);
  box.hidden = false;
}
const holder = document.getElementById("attention-data");
if (holder) {
  const sentences = JSON.parse(holder.textContent);
  const [sentence, layer, head] = ["sentence", "layer", "head"].map((name) => document.getElementById("attention-" + name));
  const fill = (select, count, label) => {
    const before = select.value || "0";
    select.replaceChildren(...Array.from({length: count}, (_, index) => new Option(label(index), index)));
    select.value = before < count ? before : "0";
  };
  const cell = (kind, text, scope) => {
    const element = document.createElement(kind);
    element.textContent = text;
    if (scope) element.scope = scope;
    return element;
  };
  const draw = () => {
    const chosen = sentences[sentence.value];
    fill(layer, chosen.weights.length, (index) => "layer " + (index + 1));
    fill(head, chosen.weights[0].length, (index) => "head " + (index + 1));
    const weights = chosen.weights[layer.value][head.value];
    const table = document.getElementById("attention-table");
    const top = document.createElement("tr");
    top.append(cell("td", ""), ...chosen.tokens.map((token) => cell("th", token, "col")));
    const rows = weights.map((numbers, query) => {
      const row = document.createElement("tr");
      row.append(cell("th", chosen.tokens[query], "row"), ...numbers.map((value) => {
        const one = cell("td", value >= 1 ? value : "");
        one.style.background = "color-mix(in srgb, var(--series-1) " + Math.round(value * 0.55) + "%, transparent)";
        return one;
      }));
      return row;
    });
    table.tHead.replaceChildren(top);
    table.tBodies[0].replaceChildren(...rows);
  };
  fill(sentence, sentences.length, (index) => sentences[index].task + ": " + sentences[index].tokens.slice(1, 7).join(" "));
  for (const select of [sentence, layer, head]) select.addEventListener("change", draw);
  draw();
  document.getElementById("attention-controls").hidden = false;
}
