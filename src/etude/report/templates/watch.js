"use strict";
// A live page asks for news every few seconds, and changes only what is new.
const EVERY = 2000;
const status = document.getElementById("live");
let known = "";

function adopt(text) {
  const fresh = new DOMParser().parseFromString(`<main>${text}</main>`, "text/html").querySelector("main");
  const main = document.querySelector("main"), focused = document.activeElement;
  for (const block of fresh.querySelectorAll("[data-key]")) {
    const old = document.getElementById(block.id);
    if (!old) continue;
    if (old.dataset.digest === block.dataset.digest) block.replaceWith(old);
    else if (old.dataset.drawn !== undefined) {
      // The same plot goes on, with its zoom.
      block.querySelector(".plot").replaceWith(old.querySelector(".plot"));
      block.dataset.drawn = "";
    }
  }
  for (const details of fresh.querySelectorAll("details[id]")) {
    const old = document.getElementById(details.id);
    if (old && old !== details) details.open = old.open;
  }
  main.replaceChildren(...fresh.childNodes);
  if (focused?.isConnected) focused.focus({ preventScroll: true });
  document.title = main.querySelector("h1").textContent;
  sortAgain(main);
  redraw();
  watchFigures();
}

async function ask() {
  try {
    const answer = await fetch("main", { headers: known ? { "If-None-Match": known } : {}, cache: "no-store" });
    if (answer.status === 200) {
      known = answer.headers.get("ETag");
      adopt(await answer.text());
    }
    status.textContent = `Live, as of ${new Date().toLocaleTimeString()}`;
    status.classList.remove("lost");
  } catch {
    status.textContent = "No longer live: etude report --watch has ended.";
    status.classList.add("lost");
  }
  setTimeout(ask, EVERY);
}

ask();
