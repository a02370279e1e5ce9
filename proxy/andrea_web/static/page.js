// What is on the page changes as the run does: one event stream, parts of the page replaced by what the server rendered.
// Text of the run only ever arrives as HTML that the server has escaped.

const root = document.documentElement;
root.classList.add("scripted");

/** Local time, with UTC beside it. */
export function localTimes(inside) {
  for (const time of inside.querySelectorAll("time:not([data-local])")) {
    const when = new Date(time.dateTime);
    const local = when.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
    time.dataset.local = "1";
    time.textContent = `${local} (${time.dateTime.slice(11, 19)} UTC)`;
  }
}

const listeners = [];
/** Call `heard(change)` whenever something about the run has changed. */
export function onChange(heard) {
  listeners.push(heard);
}

const link = document.getElementById("link");
function say(text) {
  link.hidden = !text;
  link.textContent = text;
}

function replace(name, html) {
  const part = document.getElementById(`part-${name}`);
  if (!part || part.contains(document.activeElement)) return;
  const scrolled = part.querySelector(".scroll")?.scrollLeft ?? 0;
  const template = document.createElement("template");
  template.innerHTML = html;
  localTimes(template.content);
  part.replaceChildren(template.content);
  const scroll = part.querySelector(".scroll");
  if (scroll) scroll.scrollLeft = scrolled;
}

const main = document.getElementById("main");
function change(found) {
  if (found.fault) {
    say(`The run cannot be read: ${found.fault}`);
    return;
  }
  if (!main || found.run !== main.dataset.run) {
    location.reload(); // another run lies here now, or the one that could not be read can be
    return;
  }
  say("");
  for (const [name, html] of Object.entries(found.parts)) replace(name, html);
  main.dataset.process = found.process ?? "";
  document.title = `${found.name}: step ${found.step}`;
  for (const heard of listeners) heard(found);
}

let source = null;
let lost = null;
function listen() {
  source = new EventSource("/api/stream");
  source.addEventListener("life", (message) => {
    lost = null;
    if (message.data !== root.dataset.life) location.reload(); // the proxy was started again
    else say("");
  });
  source.addEventListener("change", (message) => change(JSON.parse(message.data)));
  source.onerror = () => {
    lost ??= new Date();
    say(`No answer from andrea-proxy since ${lost.toLocaleTimeString()}: what is shown is of then. Training goes on without it; trying again.`);
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, 2000);
  };
}

// Browsers allow six connections to a server: pages that nobody sees give theirs up.
document.addEventListener("visibilitychange", () => {
  source?.close();
  if (!document.hidden) listen();
});

localTimes(document);
if (!document.hidden) listen();
