// Makes elements. What people and programs wrote only ever becomes text here: nothing parses HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element: attributes that are false or null are left out, functions become listeners, children are nodes or text. */
export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== false && value !== null && value !== undefined)
      element.setAttribute(name, value === true ? "" : value);
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

/** Changes the text only where it differs, so that an unchanged row costs no layout and no announcement. */
export function setText(element, text) {
  const words = String(text);
  if (element.textContent !== words) element.textContent = words;
}

export function setAttribute(element, name, value) {
  if (value === null || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** The element now has these children, in this order; those that stay are not touched, and keep their focus. */
export function setChildren(parent, children) {
  const wanted = new Set(children);
  for (const child of [...parent.childNodes]) if (!wanted.has(child)) child.remove();
  let next = parent.firstChild;
  for (const child of children) {
    if (child === next) next = next.nextSibling;
    else parent.insertBefore(child, next);
  }
}
