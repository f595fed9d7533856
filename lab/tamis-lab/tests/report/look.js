// Inspects the page in the frame and writes its observations as JSON into the element `out`.
function look(frame) {
  const page = frame.contentDocument, view = frame.contentWindow, root = page.documentElement;
  const wide = root.clientWidth;
  const name = (node) => node.tagName + " " + (node.getAttribute("class") || "") + " " + node.textContent.trim().slice(0, 40);
  const saw = {
    width: wide,
    scrollWidth: root.scrollWidth,
    resources: view.performance.getEntriesByType("resource").map((entry) => entry.name),
    headings: [], pictures: [], beyond: [], faint: [], colours: "",
  };
  for (const heading of page.querySelectorAll("article h3")) {
    const box = heading.getBoundingClientRect(), style = view.getComputedStyle(heading);
    saw.headings.push({ text: heading.textContent, shown: box.width > 0 && box.height > 0 && style.visibility === "visible" });
  }
  for (const svg of page.querySelectorAll("svg")) {
    const box = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].map((node) => ({ node, box: node.getBoundingClientRect() }));
    const cross = [], out = [];
    let least = Infinity;
    const scale = box.width / svg.viewBox.baseVal.width;
    texts.forEach(({ node, box: a }, n) => {
      least = Math.min(least, parseFloat(view.getComputedStyle(node).fontSize) * scale);
      if (a.left < box.left - 1 || a.right > box.right + 1 || a.top < box.top - 1 || a.bottom > box.bottom + 1) out.push(name(node));
      // Boxes have the height of the font's tallest letters with space above and below: rows of legends may touch slightly.
      texts.slice(n + 1).forEach(({ node: other, box: b }) => {
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const up = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (across > 1 && up > Math.min(a.height, b.height) * 0.2) cross.push(name(node) + " / " + name(other));
      });
    });
    saw.pictures.push({ title: svg.querySelector("title").textContent, width: box.width, height: box.height, least, cross, out });
  }
  const number = (colour) => colour.match(/[\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = number(colour).slice(0, 3).map((c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const colour = view.getComputedStyle(node).backgroundColor;
      if ((number(colour)[3] ?? 1) > 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  saw.colours = ground(page.body);
  for (const node of page.body.querySelectorAll("*")) {
    if (node.closest("svg")) continue;
    const box = node.getBoundingClientRect();
    if (!node.closest(".scroll") && box.right > wide + 1) saw.beyond.push(name(node));
    if ([...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim())) {
      const [a, b] = [light(view.getComputedStyle(node).color), light(ground(node))];
      const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      if (contrast < 4.5) saw.faint.push(name(node) + " " + contrast);
    }
  }
  const json = JSON.stringify(saw).replace(/[<>&\u007f-\uffff]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
  document.getElementById("out").textContent = json;
}
