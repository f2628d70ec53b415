// Parts of the document that modules build: views, panels, forms.

import {byId, element} from './elements.js';

/** The section of a view, empty but for its heading, which only a screen reader reads. */
export function viewSection(view, heading, ...parts) {
  const id = `${view}-heading`;
  const made = element('section', {'data-view': view, 'aria-labelledby': id, hidden: true},
    element('h1', {id, class: 'unseen', tabindex: '-1', text: heading}), ...parts);
  byId('content').append(made);
  return made;
}

/** A panel with a title. `more` are attributes. */
export function panel(id, title, parts, more = {}) {
  return element('section', {class: 'panel', 'aria-labelledby': `${id}-title`, ...more},
    element('h2', {}, element('span', {id: `${id}-title`, text: title}), ' ', element('small', {id: `${id}-note`})),
    problem(`${id}-problem`), ...parts);
}

export const problem = id => element('p', {id, class: 'problem', role: 'alert', hidden: true});

export function button(id, text, look = '') {
  return element('button', {id, type: 'button', class: look, text});
}

/** An input or select with its label. */
export function field(label, input) {
  return element('div', {class: 'field'}, element('label', {for: input.id, text: label}), input);
}

/** A text input that corrects nothing. */
export function textInput(id, more = {}) {
  return element('input', {id, autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false', ...more});
}

/** A form that calls `act`; `done` is the text of its button. */
export function form(id, fields, done, act) {
  const made = element('form', {id, class: 'stacked'}, ...fields, problem(`${id}-problem`),
    element('p', {class: 'actions'}, element('button', {type: 'submit', text: done})));
  made.addEventListener('submit', event => {
    event.preventDefault();
    act();
  });
  return made;
}
