// Dialogs: a question, what is done when the answer is yes, and what the API says when it won't.

import {Refused, Unreachable} from './api.js';
import {byId, complain} from './elements.js';

/** Shows a dialog. `act` is called when it is submitted; it closes when that succeeds, and says why not otherwise.
    What `act` returns is called after that, if anything: nothing outside can be focused, or is read out, before. */
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
  if (!dialog.open) dialog.showModal();
}

/** Does what a form asks for, once at a time, and has `problem` say why not. */
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
