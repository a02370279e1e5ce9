// The actions: each names the run and the process (or the policy) that this page shows; the server refuses all others.
import { onChange } from "/static/page.js";

const main = document.getElementById("main");
const answer = document.getElementById("answer");
const button = document.getElementById("checkpoint");
const stop = document.getElementById("stop");
const pivot = document.getElementById("pivot");

async function ask(name, wish) {
  const response = await fetch(`/api/${name}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ run: main.dataset.run, ...wish }),
  });
  const text = await response.text();
  let found;
  try {
    found = JSON.parse(text);
  } catch {
    found = { error: { what: text.trim() } };
  }
  if (!response.ok) {
    const { what, found: there, expected, todo } = found.error;
    throw new Error([what, there && `found: ${there}`, expected && `expected: ${expected}`, todo].filter(Boolean).join("; "));
  }
  return found;
}

async function attempt(act) {
  answer.className = "";
  try {
    answer.textContent = await act();
  } catch (error) {
    answer.className = "alarm";
    answer.textContent = error.message;
  }
}

// The process is the one that was shown when the form was opened, not the one that may have taken its place since.
let process = main?.dataset.process;
document.getElementById("stopping")?.addEventListener("toggle", () => {
  process = main.dataset.process;
});

button?.addEventListener("click", () =>
  attempt(async () => {
    await ask("checkpoint", { process: main.dataset.process });
    return "A checkpoint is asked for: it appears above when it is durable.";
  }),
);

stop?.addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(async () => {
    await ask("stop", { process, name: stop.elements.name.value });
    stop.reset();
    return "Told to stop: it finishes its step and saves first.";
  });
});

function wish() {
  const found = { caps: {}, floors: {} };
  for (const row of pivot.querySelectorAll("tr[data-arm]")) {
    for (const input of row.querySelectorAll("input")) {
      if (input.value !== "" && Number(input.value) !== Number(input.dataset.was)) {
        found[`${input.name}s`][row.dataset.arm] = Number(input.value);
      }
    }
  }
  return found;
}

const percent = (share) => (share === null ? "–" : `${(100 * share).toFixed(1)} %`);
let asked = 0;
async function judge() {
  const judgement = document.getElementById("judgement");
  const go = pivot.querySelector("button");
  const mine = ++asked;
  go.disabled = true;
  try {
    const found = await ask("pivot", { policy: main.dataset.policy, ...wish(), dry_run: true });
    if (mine !== asked) return;
    for (const row of found.arms) {
      const line = [...pivot.querySelectorAll("tr[data-arm]")].find((one) => one.dataset.arm === row.arm);
      if (!line) continue;
      line.querySelector(".now").textContent = percent(row.share);
      line.querySelector(".then").textContent = percent(row.new_share);
    }
    judgement.className = "";
    judgement.textContent = `It can be done: it would take effect after step ${found.step.toLocaleString()}.`;
    go.disabled = false;
  } catch (error) {
    if (mine !== asked) return;
    judgement.className = "alarm";
    judgement.textContent = error.message;
  }
}

let timer;
pivot?.addEventListener("input", () => {
  clearTimeout(timer);
  pivot.querySelector("button").disabled = true;
  timer = setTimeout(judge, 250);
});
pivot?.addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(async () => {
    const found = await ask("pivot", { policy: main.dataset.policy, ...wish(), dry_run: false });
    pivot.querySelector("button").disabled = true;
    return `The pivot is asked for: it takes effect after step ${found.step.toLocaleString()} or later.`;
  });
});

onChange((found) => {
  const typing = document.activeElement instanceof HTMLInputElement;
  if (main && !pivot && found.policy && !typing) location.reload(); // loaded before there was a curriculum: its form is missing
  if (button) button.disabled = !found.process;
  if (pivot && found.policy && found.policy !== main.dataset.policy) {
    document.getElementById("judgement").textContent = "Another policy is in force since this page was loaded: load it again to change it.";
    pivot.querySelector("button").disabled = true;
  }
});
