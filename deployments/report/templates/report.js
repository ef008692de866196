"use strict";
(() => {
  const root = document.documentElement;
  const figures = [...document.querySelectorAll(".figure")];
  const status = document.getElementById("status");
  const paperWidth = 640;
  let isReady = false;

  // Light or dark: the system setting, unless the reader has chosen.
  const button = document.getElementById("theme");
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  const isDark = () => (chosen ?? (prefersDark.matches ? "dark" : "light")) === "dark";
  const showTheme = (theme) => {
    root.dataset.theme = theme;
    button.setAttribute("aria-pressed", String(theme === "dark"));
    figures.filter((figure) => figure.isDrawn).forEach((figure) => draw(figure));
  };
  button.addEventListener("click", () => {
    chosen = isDark() ? "light" : "dark";
    showTheme(chosen);
  });
  prefersDark.addEventListener("change", () => showTheme(isDark() ? "dark" : "light"));

  // Copy buttons of commands.
  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  };
  document.querySelectorAll(".copy").forEach((one) =>
    one.addEventListener("click", async () => {
      await copy(one.previousElementSibling.textContent);
      one.textContent = "Copied";
      status.textContent = "Copied to the clipboard";
      setTimeout(() => { one.textContent = "Copy"; status.textContent = ""; }, 1500);
    }),
  );

  // Confusion matrices: the slider moves the threshold.
  document.querySelectorAll(".threshold").forEach((one) => {
    const [[others, total], rows] = JSON.parse(one.querySelector("script").textContent);
    const cells = [...one.querySelectorAll("td.number")], output = one.querySelector("output");
    const share = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(1)}%` : "-");
    const slider = one.querySelector("input");
    const show = () => {
      const [threshold, found, wrong] = rows[slider.value];
      const missed = total - found, rest = others - wrong;
      output.textContent = threshold.toFixed(3);
      const texts = [
        rest.toLocaleString("en"), wrong.toLocaleString("en"), share(rest, others),
        missed.toLocaleString("en"), found.toLocaleString("en"), share(found, total),
        share(rest, rest + missed), share(found, found + wrong),
      ];
      cells.forEach((cell, k) => { cell.textContent = texts[k]; });
    };
    slider.addEventListener("input", show);
    show();
  });

  // Figures: colors are names defined in the style sheet.
  const painted = (value, style) => {
    if (typeof value === "string") {
      const name = /^var\((--[\w-]+)\)$/.exec(value);
      return name ? style.getPropertyValue(name[1]).trim() : value;
    }
    if (Array.isArray(value)) return value.map((one) => painted(one, style));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, painted(v, style)]));
  };
  // A title longer than its axis goes on two lines. Longer titles and words are cut in the middle.
  const characterWidth = 7.5, narrow = 640;
  const shortened = (text, n) => (text.length > n ? `${text.slice(0, Math.ceil(n / 2))}…${text.slice(1 - Math.floor(n / 2))}` : text);
  const wrapped = (text, n) => {
    const lines = [""];
    for (const word of shortened(unescaped(text), Math.floor(1.6 * n)).split(/(?<=[ _])/)) {
      if (lines.at(-1) && (lines.at(-1) + word).length > n) lines.push("");
      lines[lines.length - 1] += shortened(word, n);
    }
    return lines.map(escaped).join("<br>");
  };
  const fitted = (axis, name, room, labels) => {
    const title = axis.title?.text ? { ...axis.title, text: wrapped(axis.title.text, Math.floor(room / characterWidth)) } : axis.title;
    const ticktext = axis.ticktext?.map((text) => escaped(shortened(unescaped(text), Math.floor(labels / characterWidth))));
    return { ...axis, ...(title && { title }), ...(ticktext && { ticktext }), ...(name.startsWith("x") && { nticks: Math.max(3, Math.floor(room / 45)) }) };
  };
  const layoutOf = (plot, style, width, box) => {
    const named = (name) => style.getPropertyValue(name).trim();
    const font = { family: "system-ui, sans-serif", size: 13, color: named("--ink") };
    const layout = {
      ...painted(plot.layout, style),
      template: undefined,
      margin: { l: 8, r: 14, t: 8, b: 40 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font,
      showlegend: false,
      hovermode: "closest",
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      hoverlabel: { bgcolor: named("--card"), bordercolor: named("--line"), font, align: "left" },
    };
    if (width) layout.width = width;
    const across = width ?? box.clientWidth, labels = across * (across < narrow ? 0.4 : 0.6);
    const room = { x: across - (layout.yaxis?.ticktext ? labels : 100), y: box.clientHeight - 100 };
    for (const axis of Object.keys(layout).filter((key) => /^[xy]axis/.test(key))) {
      layout[axis] = fitted(layout[axis], axis, room[axis[0]], labels);
      const automargin = axis.startsWith("x") ? "bottom" : "left";
      layout[axis] = { automargin, gridcolor: named("--grid"), linecolor: named("--line"), zeroline: false, ...layout[axis] };
    }
    return layout;
  };
  const dataOf = (figure) => (figure.plot ??= JSON.parse(figure.querySelector("script").textContent));
  function draw(figure, width = null) {
    if (!isReady) return;
    const style = getComputedStyle(root), plot = dataOf(figure);
    const traces = painted(plot.data, style).map((trace) => ({
      ...trace,
      visible: figure.hidden_?.has(trace.legendgroup ?? trace.name) ? "legendonly" : true,
    }));
    const config = { displayModeBar: false, responsive: true, showTips: false };
    const box = figure.querySelector(".plot");
    Plotly.react(box, traces, layoutOf(plot, style, width, box), config);
    if (!figure.isDrawn) showLegend(figure);
    figure.isDrawn = true;
  }

  // A legend of buttons, reachable by keyboard; a click toggles a trace.
  function showLegend(figure) {
    const legend = figure.querySelector(".legend");
    const traces = dataOf(figure).data.filter((trace) => trace.showlegend !== false);
    figure.hidden_ = new Set();
    if (traces.length < 2) return;
    for (const trace of traces) {
      const name = trace.legendgroup ?? trace.name;
      const one = document.createElement("button");
      one.type = "button";
      one.setAttribute("aria-pressed", "true");
      const mark = document.createElement("i");
      const paint = trace.line?.color ?? trace.marker?.color;
      mark.style.background = /^var\(/.test(paint) ? paint : "currentColor";
      const label = document.createElement("span");
      label.innerText = unescaped(trace.name);
      one.append(mark, label);
      one.addEventListener("click", () => {
        const isHidden = figure.hidden_.delete(name) ? false : Boolean(figure.hidden_.add(name));
        one.setAttribute("aria-pressed", String(!isHidden));
        draw(figure);
      });
      legend.append(one);
    }
  }
  const unescaped = (text) => text.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
  const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

  // Draw figures one by one, near ones first, and all before printing.
  const waiting = new Set();
  const near = new IntersectionObserver(
    (entries) => entries.forEach(({ target, isIntersecting }) => {
      if (isIntersecting) waiting.add(target); else waiting.delete(target);
    }),
    { rootMargin: "300px" },
  );
  const drawNext = () => {
    const open = (figure) => !figure.isDrawn;
    const next = [...waiting].find(open) ?? figures.find(open);
    if (!next) { near.disconnect(); root.dataset.figures = "drawn"; return; }
    draw(next);
    setTimeout(drawNext);
  };
  addEventListener("beforeprint", () => {
    root.dataset.theme = "light";
    figures.forEach((figure) => draw(figure, paperWidth));
  });
  addEventListener("afterprint", () => {
    root.dataset.theme = isDark() ? "dark" : "light";
    figures.forEach((figure) => draw(figure));
  });

  // Plotly is compressed, which makes the file two thirds smaller.
  const unpack = async (text) => {
    const packed = atob(text), bytes = new Uint8Array(packed.length);
    for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  };
  const start = async () => {
    showTheme(isDark() ? "dark" : "light");
    const packed = document.getElementById("plotly");
    if (!packed) { root.dataset.figures = "drawn"; return; }
    figures.forEach((figure) => near.observe(figure));
    const script = document.createElement("script");
    try {
      script.textContent = await unpack(packed.textContent);
    } catch {
      figures.forEach((figure) => {
        figure.querySelector(".plot").textContent = "A newer browser is needed to draw this; its numbers are in the table.";
      });
      return;
    }
    document.head.append(script);
    packed.remove();
    isReady = true;
    drawNext();
  };
  start();
})();
