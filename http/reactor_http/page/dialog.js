// @ts-check
// Dialogs: confirm an action, enter a token.

import { h } from "./dom.js";

let dialogCount = 0;

/**
 * A modal dialog. Its promise resolves to the result that `finish` is called with, or to null after Escape.
 *
 * @template Result
 * @param {object} options
 * @param {string} options.title
 * @param {HTMLElement[]} options.content
 * @param {(finish: (result: Result | null) => void) => HTMLElement[]} options.buttons
 * @param {(dialog: HTMLDialogElement, finish: (result: Result | null) => void) => void} options.onOpen
 * @returns {Promise<Result | null>}
 */
function openDialog({ title, content, buttons, onOpen }) {
  const id = `dialog-${(dialogCount += 1)}`;
  const previousFocus = document.activeElement;
  return new Promise((resolve) => {
    const element = h("dialog", { "aria-labelledby": id }, h("h2", { id }, title), content);
    /** @param {Result | null} result */
    function finish(result) {
      element.close();
      element.remove();
      if (previousFocus instanceof HTMLElement && previousFocus.isConnected) previousFocus.focus();
      resolve(result);
    }
    element.append(h("div", { class: "buttons" }, buttons(finish)));
    element.addEventListener("cancel", (event) => {
      event.preventDefault();
      finish(null);
    });
    document.body.append(element);
    element.showModal();
    onOpen(element, finish);
  });
}

/**
 * Resolves to {reason} if the user confirmed, else to null.
 *
 * @param {object} options
 * @param {string} options.title
 * @param {string} options.text
 * @param {string} options.action the label of the button that confirms
 * @param {boolean} [options.isDestructive]
 * @param {boolean} [options.asksReason]
 * @returns {Promise<{ reason: string | null } | null>}
 */
export function confirm({ title, text, action, isDestructive = false, asksReason = false }) {
  const input = h("input", { type: "text", maxlength: 500, autocomplete: "off" });
  const label = "Reason (optional)";
  const result = () => ({ reason: input.value.trim() || null });
  /** @type {HTMLElement[]} */
  const content = [h("p", {}, text)];
  if (asksReason) content.push(h("label", { class: "field" }, label, input));
  const kind = isDestructive ? "button danger" : "button primary";
  const confirmButton = h("button", { class: kind, type: "button" }, action);
  return openDialog({
    title,
    content,
    buttons: (finish) => [
      h("button", { class: "button", type: "button", click: () => finish(null) }, "Back"),
      confirmButton,
    ],
    onOpen: (_dialog, finish) => {
      confirmButton.addEventListener("click", () => finish(result()));
      input.addEventListener("keydown", (event) => event.key === "Enter" && finish(result()));
      (asksReason ? input : confirmButton).focus();
    },
  });
}

/**
 * Resolves to the token that the user entered. The dialog can't be closed: the server shows nothing without a token.
 *
 * @param {boolean} wasRefused
 * @returns {Promise<string>}
 */
export async function askForToken(wasRefused) {
  const input = h("input", { type: "password", autocomplete: "off", spellcheck: "false" });
  /** @type {HTMLElement[]} */
  const content = [
    h("p", {}, "This server requires a token. It is kept in this tab until you close it."),
    h("label", { class: "field" }, "Token", input),
  ];
  if (wasRefused) content.unshift(h("p", { class: "danger", role: "alert" }, "The server did not accept this token."));
  /** @param {(token: string) => void} finish */
  const submit = (finish) => input.value.trim() && finish(input.value.trim());
  const token = await openDialog({
    title: "Sign in",
    content,
    buttons: (finish) => [
      h("button", { class: "button primary", type: "button", click: () => submit(finish) }, "Sign in"),
    ],
    onOpen: (dialog, finish) => {
      keepOpen(dialog);
      input.addEventListener("keydown", (event) => event.key === "Enter" && submit(finish));
      input.focus();
    },
  });
  return /** @type {string} */ (token); // never null: it can't be cancelled
}

/** @param {HTMLDialogElement} dialog */
function keepOpen(dialog) {
  /** @param {Event} event */
  const ignore = (event) => {
    event.preventDefault();
    event.stopImmediatePropagation();
  };
  dialog.addEventListener("cancel", ignore, { capture: true });
  // Browsers close a dialog at the second Escape, even if the page prevents it.
  dialog.addEventListener("close", () => dialog.isConnected && dialog.showModal());
}
