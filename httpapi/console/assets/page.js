// Keeps what the reader does while the page refreshes itself, and says if it cannot. All else works without this file.
(() => {
  const on = (event, handle) => document.addEventListener("htmx:" + event, handle);
  const tell = (text) => { document.getElementById("told").textContent = text; };
  const live = () => document.getElementById("live");
  let scrolled = {};

  on("beforeRequest", (event) => {
    const selected = getSelection();
    const reading = !selected.isCollapsed && live().contains(selected.anchorNode);
    if (document.hidden || reading) event.preventDefault();
  });
  on("beforeSwap", (event) => {
    const { xhr } = event.detail;
    const page = (xhr.getResponseHeader("Content-Type") || "").startsWith("text/html") && xhr.response.includes('id="live"');
    event.detail.shouldSwap = page && !document.querySelector("#live :active"); // a click under way is not lost
    const why = xhr.status === 401 ? "your token is not valid any more: load the page again." :
      `the answer was ${xhr.status}. It is tried again.`;
    tell(page ? "" : `Not refreshed: ${why}`);
    scrolled = {};
    for (const region of document.querySelectorAll(".scroll[id]")) scrolled[region.id] = region.scrollLeft;
  });
  on("afterSwap", () => {
    for (const id in scrolled) {
      const region = document.getElementById(id);
      if (region) region.scrollLeft = scrolled[id];
    }
  });
  for (const failure of ["sendError", "timeout"]) on(failure, () => tell("Not refreshed: no answer. It is tried again."));
})();
