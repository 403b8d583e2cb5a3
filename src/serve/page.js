"use strict";
// Lengths that were not at hand are asked for when they come into view, a few at a time.
const waiting = [];
let asking = 0;
function ask() {
  while (asking < 4 && waiting.length) {
    const row = waiting.shift();
    asking += 1;
    fetch(row.querySelector("a").href, { method: "HEAD" }).then((answer) => {
      const length = answer.headers.get("Content-Length"), date = new Date(answer.headers.get("Last-Modified"));
      const size = row.querySelector(".unknown"), time = row.querySelector("td:last-child");
      size.classList.remove("unknown");
      size.textContent = answer.ok && length !== null ? length : "cannot be read";
      if (answer.ok && !time.querySelector("time") && date > 0) {
        const element = document.createElement("time");
        element.dateTime = date.toISOString();
        element.textContent = element.dateTime.slice(0, 19).replace("T", " ");
        time.replaceChildren(element);
      }
    }).catch(() => {}).finally(() => { asking -= 1; ask(); });
  }
}
const seen = new IntersectionObserver((all) => {
  for (const { isIntersecting, target } of all) {
    if (isIntersecting) { seen.unobserve(target); waiting.push(target); }
  }
  ask();
});
for (const size of document.querySelectorAll("#entries .unknown")) seen.observe(size.parentElement);
const picture = document.getElementById("picture");
const broken = () => picture.replaceWith("The picture cannot be made; the server's log says why.");
if (picture?.complete && !picture.naturalWidth) broken();
picture?.addEventListener("error", broken);
// Behind a proxy the server may not know by which name it was asked.
for (const code of document.querySelectorAll("#commands code")) {
  const origin = code.dataset.origin;
  if (origin !== location.origin) code.textContent = code.textContent.replaceAll(origin, location.origin);
}
if (navigator.clipboard) {
  for (const button of document.querySelectorAll("#commands button")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }
}
