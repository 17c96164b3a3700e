// Asks the person before something happens, and for the token where the server wants one.

import { h } from "./dom.js";

let number = 0;

function dialog(title, content, buttons, begin) {
  const id = `ask-${(number += 1)}`;
  const before = document.activeElement;
  return new Promise((resolve) => {
    const element = h(
      "dialog",
      { "aria-labelledby": id },
      h("h2", { id }, title),
      content,
      h("div", { class: "buttons" }, buttons(finish)),
    );
    function finish(answer) {
      element.close();
      element.remove();
      before?.isConnected && before.focus();
      resolve(answer);
    }
    element.addEventListener("cancel", (event) => {
      event.preventDefault();
      finish(null);
    });
    document.body.append(element);
    element.showModal();
    begin(element, finish);
  });
}

/** Promises {reason} if the person agreed, else null. */
export function confirm({ title, words, verb, grave = false, reason = false }) {
  const why = h("input", { type: "text", maxlength: 500, autocomplete: "off" });
  const content = [h("p", {}, words)];
  if (reason) content.push(h("label", { class: "field" }, "Reason, for those who look later (optional)", why));
  const yes = (finish) =>
    h(
      "button",
      {
        class: grave ? "button grave" : "button primary",
        type: "button",
        click: () => finish({ reason: why.value.trim() || null }),
      },
      verb,
    );
  return dialog(
    title,
    content,
    (finish) => [h("button", { class: "button", type: "button", click: () => finish(null) }, "Back"), yes(finish)],
    (element, finish) => {
      why.addEventListener("keydown", (event) => event.key === "Enter" && finish({ reason: why.value.trim() || null }));
      element.querySelector(reason ? "input" : ".buttons button:last-child").focus();
    },
  );
}

/** Promises the token that the person typed. There is no way around it: the server shows nothing without one. */
export function askForToken(refused) {
  const input = h("input", { type: "password", autocomplete: "off", spellcheck: "false" });
  const content = [
    refused && h("p", { class: "wrong", role: "alert" }, "The server did not accept that token."),
    h("p", {}, "This server shows pipelines to those who have a token. It is kept in this tab until you close it."),
    h("label", { class: "field" }, "Token", input),
  ].filter(Boolean);
  const give = (finish) => input.value.trim() && finish(input.value.trim());
  return dialog(
    "Who are you?",
    content,
    (finish) => [h("button", { class: "button primary", type: "button", click: () => give(finish) }, "Continue")],
    (element, finish) => {
      element.addEventListener(
        "cancel",
        (event) => {
          event.preventDefault();
          event.stopImmediatePropagation();
        },
        { capture: true },
      );
      // Browsers close a dialog that is cancelled twice, whatever the page says.
      element.addEventListener("close", () => element.isConnected && element.showModal());
      input.addEventListener("keydown", (event) => event.key === "Enter" && give(finish));
      input.focus();
    },
  );
}
