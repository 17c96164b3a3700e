// @ts-check
// Makes elements. Text from users and programs only ever becomes text nodes and attributes: nothing here parses HTML.

/** @import { Attributes, AttributeValue, Child } from "./types.js" */

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

/**
 * An HTML element. Attributes that are false or null are left out, functions become event listeners.
 *
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} [attributes]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  fill(element, attributes, children);
  return element;
}

/**
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} [attributes]
 * @param {...Child} children
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG_NAMESPACE, tag);
  fill(element, attributes, children);
  return element;
}

/**
 * @param {Element} element
 * @param {Attributes} attributes
 * @param {Child[]} children
 */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...flatten(children));
}

/**
 * @param {Child[]} children
 * @returns {(Node | string)[]}
 */
function flatten(children) {
  return children.flatMap((child) => {
    if (child === null || child === undefined || child === false) return [];
    if (Array.isArray(child)) return flatten(child);
    return child instanceof Node ? child : String(child);
  });
}

/**
 * Replaces everything in the element.
 *
 * @param {Element} element
 * @param {...Child} children
 */
export function setContent(element, ...children) {
  element.replaceChildren(...flatten(children));
}

/**
 * Changes the text only if it differs, so that an unchanged row causes no layout and no announcement.
 *
 * @param {Node} node
 * @param {string | number} text
 */
export function setText(node, text) {
  const next = String(text);
  if (node.textContent !== next) node.textContent = next;
}

/**
 * @param {Element} element
 * @param {string} name
 * @param {AttributeValue} value
 */
export function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

/**
 * Gives the element these children in this order. Those that stay are not touched, and keep their focus.
 *
 * @param {Element} parent
 * @param {Element[]} children
 */
export function setChildren(parent, children) {
  const wanted = new Set(/** @type {Node[]} */ (children));
  for (const child of [...parent.childNodes]) if (!wanted.has(child)) child.remove();
  let next = parent.firstChild;
  for (const child of children) {
    if (child === next) next = next.nextSibling;
    else parent.insertBefore(child, next);
  }
}

/**
 * The element with this id, which index.html contains.
 *
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`index.html has no element #${id}.`);
  return element;
}
