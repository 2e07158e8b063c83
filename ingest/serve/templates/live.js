"use strict";
// Looks again at the page every few seconds and puts what changed in place; without it every page works, too.
(() => {
  const main = document.querySelector("main[data-every]");
  if (!main) return;
  const note = document.getElementById("live");
  const every = () => 1000 * Number(main.dataset.every);
  let mark = "", wait = every();
  const say = text => { if (note.textContent !== text) note.textContent = text; };
  const busy = () => document.hidden || !document.getSelection().isCollapsed
    || [...main.querySelectorAll("input:not([type=hidden]), textarea")].some(one =>
      one === document.activeElement || one.value !== one.defaultValue || one.checked !== one.defaultChecked);
  // what has the focus keeps it; a button is the same one only with the same fields, or Enter would decide about another row
  const named = one => JSON.stringify([one.tagName, one.getAttribute("href"), one.getAttribute("aria-label"), one.textContent,
    ...(one.form ? [...new FormData(one.form)].filter(([name]) => name !== "form") : [])]);
  const alike = name => [...main.querySelectorAll("a, button, summary, [tabindex]")].filter(one => named(one) === name);
  const put = text => {
    const fresh = new DOMParser().parseFromString(text, "text/html").querySelector("main");
    if (!fresh) { location.reload(); return; }
    const open = [...main.querySelectorAll("details")].map(one => one.open);
    const left = [...main.querySelectorAll(".scroll")].map(one => one.scrollLeft);
    const at = main.contains(document.activeElement) && document.activeElement;
    const name = at && named(at), nth = at ? alike(name).indexOf(at) : 0;
    main.dataset.every = fresh.dataset.every || 0; // nothing more comes of it
    main.replaceChildren(...fresh.childNodes);
    main.querySelectorAll("details").forEach((one, i) => { one.open = Boolean(open[i]); });
    main.querySelectorAll(".scroll").forEach((one, i) => { one.scrollLeft = left[i] || 0; });
    if (at) alike(name)[nth]?.focus({preventScroll: true});
  };
  const look = async () => {
    if (!busy()) {
      try {
        const answer = await fetch(location.href, {headers: mark ? {"If-None-Match": mark} : {}, cache: "no-store"});
        if (answer.redirected) { location.reload(); return; }
        if (answer.status === 200 || answer.status === 304) {
          if (answer.status === 200) {
            put(await answer.text()); // the first time, too: it may have changed since the page was loaded
            mark = answer.headers.get("ETag") || "";
          }
          wait = every();
          say("live");
        } else {
          say(`the service answers ${answer.status}`);
        }
      } catch {
        wait = Math.min(60000, wait * 2);
        say("the service does not answer; this page is old");
      }
    }
    if (wait) setTimeout(look, wait); else say("");
  };
  setTimeout(look, wait);
})();
