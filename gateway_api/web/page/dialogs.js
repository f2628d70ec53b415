// Dialogs, and the errors of their requests.

import {Refused, Unreachable} from './api.js';
import {byId, complain, write} from './elements.js';
import {finder} from './focus.js';

/** Shows a dialog. A submit calls `act`; then the dialog closes, or shows the error. If `act` returns a function, it is
    called after the close: before, nothing outside the dialog can get the focus or is read by a screen reader. */
export function ask(id, act) {
  const dialog = byId(id), form = dialog.querySelector('form'), problem = dialog.querySelector('.problem');
  complain(problem);
  form.onsubmit = async event => {
    event.preventDefault();
    await attempt(form, problem, async () => {
      const after = await act();
      dialog.close();
      after?.();
    });
  };
  const cancel = dialog.querySelector('[data-cancel]');
  if (cancel) cancel.onclick = () => dialog.close();
  if (dialog.open) return;
  const opener = finder(document.activeElement);
  dialog.onclose = () => {
    const {activeElement: at} = document;
    // The browser finds no opener whose list was drawn again behind the dialog.
    if (at === document.body || dialog.contains(at)) opener()?.focus();
  };
  dialog.showModal();
}

/** Asks a question whose answer cannot be undone. `act` is that of `ask`. */
export function confirm({title, text, button}, act) {
  write('confirm-title', title);
  write('confirm-text', text);
  write('confirm-button', button);
  ask('confirm-dialog', act);
}

/** Runs `act` for a form, once at a time, and shows its error in `problem`. */
export async function attempt(form, problem, act) {
  if (form.ariaBusy === 'true') return;
  form.ariaBusy = 'true';
  try {
    await act();
    complain(problem);
  } catch (error) {
    if (!(error instanceof Refused || error instanceof Unreachable)) throw error;
    complain(problem, error.message);
  } finally {
    form.ariaBusy = 'false';
  }
}
