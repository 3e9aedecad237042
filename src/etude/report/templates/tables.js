"use strict";
// Tables that sort by a click, or the keyboard, on a column's head.
const sorted = new Map(); // By the id of a table: column and direction, which outlive a refresh.

function keyOf(row, column) {
  const cell = row.cells[column];
  return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent;
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a === typeof b) return a.localeCompare(b, undefined, { numeric: true });
  return typeof a === "number" ? -1 : 1;
}

function sortTable(table, column, descending) {
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => ({ row, key: keyOf(row, column) }));
  const numeric = rows.some(({ key }) => typeof key === "number");
  const missing = ({ key }) => numeric && typeof key !== "number"; // they come last either way
  rows.sort((a, b) => {
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    return descending ? compare(b.key, a.key) : compare(a.key, b.key);
  });
  body.append(...rows.map(({ row }) => row));
  [...table.tHead.rows[0].cells].forEach((head, i) => {
    if (i === column) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
  sorted.set(table.id, { column, descending });
}

function sortAgain(within) {
  for (const table of within.querySelectorAll("table")) {
    const was = sorted.get(table.id);
    if (was && was.column < table.tHead.rows[0].cells.length)
      sortTable(table, was.column, was.descending);
  }
}

document.addEventListener("click", (event) => {
  const head = event.target.closest("th button")?.parentElement;
  if (!head) return;
  const ascending = head.getAttribute("aria-sort") === "ascending";
  // Numbers are looked through from the highest down.
  const first = !head.hasAttribute("aria-sort") && head.classList.contains("number");
  sortTable(head.closest("table"), head.cellIndex, ascending || first);
});

// A link into a part that is folded opens it.
function openTarget() {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target instanceof HTMLDetailsElement) {
    target.open = true;
    target.scrollIntoView();
  }
}
addEventListener("hashchange", openTarget);
openTarget();
