// The only script of the dashboard besides htmx. Each page works without it; with it, pages refresh
// the parts that have changed.
//
//   data-live="job:report kind:failed every:10"   on a part with an ID: refresh it at an event of one
//       of these jobs or kinds, at any event (*), or every N seconds (every:N).
//   data-ago       on a time element: keep "3 min ago" up to date.
//   data-submit    on a form: send it as soon as a field changes.
//   data-keys      on a list: / focuses the search, j and k move between rows, Enter opens one.
//   data-tail      on a pre: the address of the output to show. Its part is refreshed when the output has ended.
//   data-all       on a checkbox: check all checkboxes of the form that have this name.
"use strict";
(() => {
  const body = document.body;
  const root = body.dataset.root;
  const skew = Date.parse(body.dataset.now) - Date.now(); // the browser's clock may be wrong

  // Times.
  const units = (d, a, an, b, bn) => {
    let text = `${Math.floor(d / a)} ${an}`;
    const rest = Math.floor((d % a) / b);
    if (rest > 0 && d < 10 * a) text += ` ${rest} ${bn}`;
    return text;
  };
  const span = (s) => s < 60 ? `${Math.floor(s)} s` : s < 3600 ? units(s, 60, "min", 1, "s") : s < 86400 ? units(s, 3600, "h", 60, "min") : units(s, 86400, "d", 3600, "h");
  const tick = () => {
    const now = Date.now() + skew;
    for (const e of document.querySelectorAll("time[data-ago]")) {
      const s = (Date.parse(e.dateTime) - now) / 1000;
      const text = Math.abs(s) < 1 ? "now" : s < 0 ? span(-s) + " ago" : "in " + span(s);
      if (e.textContent !== text) e.textContent = text;
    }
  };
  setInterval(tick, 1000);

  // Refresh parts: one request for all that are concerned, at most every second. Messages arrive at
  // most every two seconds.
  const apart = 1000;
  let due = new Set(), timer = 0, last = 0, busy = false, process = "";
  const concerned = (test) => {
    for (const e of document.querySelectorAll("[data-live][id]")) {
      if (test(e.dataset.live.split(" "), e)) due.add(e.id);
    }
    if (due.size && !timer && !busy) timer = setTimeout(refresh, Math.max(0, last + apart - Date.now()));
  };
  // status is that of an answer that is no page of the dashboard, but that of a proxy or of a login; 1: there was no
  // answer. Such an answer must not replace a part.
  let status = 0;
  document.addEventListener("htmx:beforeSwap", (e) => {
    if (e.detail.serverResponse.includes('<div id="notice"')) return;
    e.detail.shouldSwap = false;
    status = e.detail.xhr.status;
  });
  document.addEventListener("htmx:sendError", () => { status = 1; });
  const unanswered = () => {
    const p = document.getElementById("unanswered") || document.createElement("p");
    p.id = "unanswered";
    p.className = "banner bad";
    p.textContent = status === 401 ? "Your login has ended, so this page is out of date. " : "The dashboard does not answer, so this page is out of date. It refreshes itself as soon as the dashboard answers. ";
    const again = document.createElement("a");
    again.href = location.href;
    again.textContent = status === 401 ? "Log in again" : "Load it again";
    p.append(again);
    document.getElementById("notice").append(p);
  };
  const refresh = async () => {
    timer = 0;
    const ids = [...due].filter((id) => {
      const e = document.getElementById(id);
      return e && !e.contains(document.querySelector(":is(input, textarea, select):focus")) && !e.querySelector("[data-tail]");
    });
    due.clear();
    if (!ids.length || document.hidden) return;
    busy = true;
    last = Date.now();
    const open = [...document.querySelectorAll("details[open][id]")].map((e) => e.id);
    const ticked = new Set([...document.querySelectorAll("input[type=checkbox][id]:checked")].map((e) => e.id));
    const focused = document.activeElement && document.activeElement.id;
    const scrolled = ids.flatMap((id) => [...document.getElementById(id).querySelectorAll("[id]")].filter((e) => e.scrollLeft || e.scrollTop).map((e) => [e.id, e.scrollLeft, e.scrollTop]));
    status = 0;
    try {
      await htmx.ajax("GET", location.pathname + location.search, {
        source: body, headers: { "Cronce-Live": process }, target: "#notice", select: "#notice", swap: "outerHTML show:none", selectOOB: ids.map((id) => "#" + CSS.escape(id)).join(","),
      });
    } catch { /* the next refresh may succeed */ }
    if (status) unanswered();
    for (const id of open) { const e = document.getElementById(id); if (e) e.open = true; }
    for (const id of ticked) { const e = document.getElementById(id); if (e) e.checked = true; }
    for (const [id, x, y] of scrolled) { const e = document.getElementById(id); if (e) e.scrollTo(x, y); }
    if (focused && document.activeElement === body) { const e = document.getElementById(focused); if (e) e.focus({ preventScroll: true }); }
    tick();
    follow();
    busy = false;
    if (due.size) concerned(() => false);
  };
  const everything = () => concerned(() => true);

  // The stream of changes: closed while the tab is hidden.
  let stream = null, failed = 0;
  const connect = () => {
    if (stream || document.hidden || !document.querySelector("[data-live]")) return;
    stream = new EventSource(`${root}live?process=${body.dataset.process}&read=${encodeURIComponent(body.dataset.read)}`);
    let first = true;
    stream.addEventListener("broker", (m) => {
      failed = 0;
      process = m.lastEventId; // the process that sent the message: it may share answers among browsers
      const away = JSON.parse(m.data).away;
      const notice = document.getElementById("notice");
      const was = notice.querySelector(".banner.warn") !== null || body.hasAttribute("data-away");
      if (away && !was) {
        const p = document.createElement("p");
        p.className = "banner warn";
        p.textContent = "The NATS server does not answer. The page refreshes itself as soon as the server answers.";
        notice.append(p);
      }
      if (away || was || !first || Date.now() - opened > 3000) { body.removeAttribute("data-away"); everything(); }
      first = false;
    });
    stream.addEventListener("touched", (m) => {
      const { jobs = [], kinds = [], all = false } = JSON.parse(m.data);
      const what = new Set([...jobs.map((j) => "job:" + j), ...kinds.map((k) => "kind:" + k), "*"]);
      concerned((live) => all || live.some((l) => what.has(l)));
    });
    stream.onerror = () => {
      // A stream that is refused is not tried again by the browser.
      if (stream && stream.readyState === EventSource.CLOSED) {
        stream = null;
        setTimeout(connect, Math.min(30000, 1000 * 2 ** failed++));
      }
    };
  };
  const opened = Date.now();
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) { connect(); return; }
    if (stream) { stream.close(); stream = null; }
  });
  addEventListener("pagehide", () => { if (stream) { stream.close(); stream = null; } });
  addEventListener("pageshow", (e) => { if (e.persisted) { connect(); everything(); } });
  connect();
  let seconds = 0;
  setInterval(() => {
    if (document.hidden) return;
    seconds++;
    concerned((live) => live.some((l) => l.startsWith("every:") && seconds % Number(l.slice(6)) === 0) || (!stream || stream.readyState !== EventSource.OPEN) && seconds % 15 === 0);
  }, 1000);

  // The zone of this browser, and preferences that apply as soon as they are chosen.
  const prefs = document.querySelector("[data-prefs]");
  if (prefs) {
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    const select = prefs.querySelector("[name=choose-zone]");
    const there = [...select.options].find((o) => o.value === zone);
    if (zone && there) there.textContent = `in my zone, ${zone}`;
    if (zone && zone !== "UTC" && !there) select.add(new Option(`in my zone, ${zone}`, zone));
    const set = prefs.querySelector("button");
    set.remove(); // else, on a page with a form, Enter in a field would press it
    prefs.addEventListener("change", () => { set.hidden = true; prefs.append(set); select.form.requestSubmit(set); set.remove(); });
  }

  // Forms that are sent when a field changes, and checkboxes that check others.
  document.addEventListener("change", (e) => {
    const t = e.target;
    if (t.dataset.all !== undefined) {
      for (const box of t.form.querySelectorAll("input[type=checkbox]")) if (box.name === t.dataset.all) box.checked = t.checked;
    }
    if (t.form && t.form.dataset.submit !== undefined) t.form.requestSubmit();
  });

  // The output of a running slot, as it is written. A hidden tab reads none: a browser has only six connections to a
  // host, and each output takes one.
  let reading = null;
  const pause = (ms) => new Promise((again) => setTimeout(again, ms));
  const follow = async () => {
    const tail = document.querySelector("[data-tail]");
    if (!tail || reading || document.hidden) return;
    const most = 1 << 20, own = reading = new AbortController();
    for (let tries = 0; tries < 5 && !own.signal.aborted;) {
      try {
        const answer = await fetch(tail.dataset.tail, { signal: own.signal });
        if (!answer.ok) throw new Error(answer.status);
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        for (let first = true, text = ""; ; first = false) {
          const { value, done } = await reader.read();
          if (done) break;
          tries = 0;
          text = ((first ? "" : text) + value.replaceAll("\u200b", "")).slice(-most);
          const below = tail.scrollHeight - tail.scrollTop - tail.clientHeight < 40;
          tail.textContent = text;
          if (below) tail.scrollTop = tail.scrollHeight;
        }
        break;
      } catch { if (!own.signal.aborted) await pause(1000 * 2 ** tries++); }
    }
    if (own.signal.aborted) return;
    reading = null;
    tail.removeAttribute("data-tail");
    concerned((live, e) => e.contains(tail));
  };
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) { follow(); return; }
    if (reading) { reading.abort(); reading = null; }
  });
  follow();

  // Keys.
  document.addEventListener("keydown", (e) => {
    const list = document.querySelector("[data-keys]");
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const typing = e.target.closest("input, textarea, select");
    if (e.key === "Escape" && typing) { typing.blur(); return; }
    if (typing && typing.type !== "checkbox") return;
    const search = document.querySelector("input[type=search]");
    if (e.key === "/" && search) { e.preventDefault(); search.focus(); search.select(); return; }
    if (!list || (e.key !== "j" && e.key !== "k")) return;
    const links = [...list.querySelectorAll("a[data-row]")];
    const at = links.indexOf(document.activeElement.closest("a[data-row]"));
    const next = links[at < 0 ? (e.key === "j" ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, at + (e.key === "j" ? 1 : -1)))];
    if (next) { e.preventDefault(); next.focus(); next.scrollIntoView({ block: "nearest" }); }
  });
})();
