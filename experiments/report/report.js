"use strict";
// A click on a head sorts by its column: numbers by data-number, what has none last, in either direction.
function compare(left, right, direction) {
  const [a, b] = [left.dataset.number, right.dataset.number];
  if (a !== undefined && b !== undefined) return direction * (Number(a) - Number(b));
  if (a !== undefined || b !== undefined) return a === undefined ? 1 : -1;
  return direction * compareTexts(left.textContent.trim(), right.textContent.trim());
}
// Texts by their words and decimal numbers: "α=0.01" before "α=0.1", "B = 128" before "B = 1024".
function compareTexts(text, other) {
  const [parts, others] = [text, other].map((whole) => whole.split(/(\d+(?:\.\d+)?)/)); // odd places: numbers
  for (let place = 0; place < Math.min(parts.length, others.length); place++) {
    const [a, b] = [parts[place], others[place]];
    const order = place % 2 ? Number(a) - Number(b) : a.localeCompare(b, "en");
    if (order) return order;
  }
  return parts.length - others.length;
}
for (const head of document.querySelectorAll("th[aria-sort]")) {
  head.firstElementChild.addEventListener("click", () => {
    const ascending = head.getAttribute("aria-sort") !== "ascending";
    for (const other of head.parentElement.children) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const body = head.closest("table").tBodies[0];
    const cell = (row) => row.cells[head.cellIndex];
    const direction = ascending ? 1 : -1;
    const rows = [...body.rows].sort((left, right) => compare(cell(left), cell(right), direction));
    body.append(...rows);
  });
}
// On a phone the contents would push the claims off the first screen.
if (window.matchMedia("(max-width: 40rem)").matches) document.querySelector(".contents details").open = false;
