"use strict";
// Draw the charts of the page in its colours, and let legends switch lines.
(async () => {
  const unpack = async (text) => {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  };
  const script = document.createElement("script");
  script.textContent = await unpack(document.getElementById("plotly").textContent);
  document.head.append(script);

  const root = document.documentElement;
  const charts = Array.from(document.querySelectorAll(".chart"), (place) => ({
    place, text: place.querySelector("script").textContent, hidden: new Set(),
  }));
  const touch = matchMedia("(pointer: coarse)").matches; // dragging must scroll the page
  // Named one by one: Plotly's own choice has a button that uploads the chart.
  const buttons = [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]];
  const settings = { responsive: true, displaylogo: false, modeBarButtons: buttons };

  // A colour such as var(--ink) becomes the one that the style sheet gives it now.
  const coloured = (text) => {
    const style = getComputedStyle(root);
    const value = (name) => style.getPropertyValue(name.slice(4, -1)).trim();
    return JSON.parse(text, (_, found) => typeof found === "string" && /^var\(--[a-z]+\)$/.test(found) ? value(found) : found);
  };

  // A heat map is coloured by logarithms; the colour of most samples is the farthest from the page's.
  const mapped = (trace) => {
    const each = (change) => trace.customdata.map((row) => row.map(change));
    const dark = getComputedStyle(root).colorScheme === "dark";
    return { ...trace, z: each((count) => count ? Math.log10(count) : null), text: each((count) => count || ""),
      reversescale: !dark };
  };

  const draw = ({ place, text, hidden }, width) => {
    const { data, layout } = coloured(text);
    const traces = data.map((trace) => trace.type === "heatmap" ? mapped(trace) : { ...trace, visible: !hidden.has(trace.legendgroup) });
    return Plotly.react(place, traces, { ...layout, dragmode: touch ? false : "zoom", uirevision: "kept", ...(width && { width }) }, settings);
  };
  const drawAll = (width) => charts.forEach((chart) => draw(chart, width?.(chart.place)));

  for (const chart of charts) {
    for (const button of chart.place.parentElement.querySelectorAll(".key button")) {
      button.addEventListener("click", () => {
        const shown = button.getAttribute("aria-pressed") === "true";
        button.setAttribute("aria-pressed", String(!shown));
        chart.hidden[shown ? "add" : "delete"](button.dataset.group);
        draw(chart);
      });
    }
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll());
  addEventListener("beforeprint", () => {
    root.classList.add("printing");
    drawAll((place) => place.closest(".maps") ? 320 : 660); // pixels that fit on a page of A4 or Letter
  });
  addEventListener("afterprint", () => {
    root.classList.remove("printing");
    drawAll();
  });
  drawAll();
})();
