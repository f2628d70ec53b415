// Parts of the document that modules build: views, panels, forms.

import {byId, element} from './elements.js';
import {redraw} from './focus.js';

/** The section of a view, empty but for its heading, which only a screen reader reads. */
export function viewSection(view, heading, ...parts) {
  const id = `${view}-heading`;
  const made = element('section', {'data-view': view, 'aria-labelledby': id, hidden: true},
    element('h1', {id, class: 'unseen', tabindex: '-1', text: heading}), ...parts);
  byId('content').append(made);
  return made;
}

/** A panel with a title. A `note` beside it is a part of its name, as two panels may have one title. `more` are attributes. */
export function panel(id, title, parts, {note = '', ...more} = {}) {
  return element('section', {class: 'panel', 'aria-labelledby': note ? `${id}-title ${id}-note` : `${id}-title`, ...more},
    element('h2', {}, element('span', {id: `${id}-title`, text: title}), ' ', element('small', {id: `${id}-note`, text: note})),
    problem(`${id}-problem`), ...parts);
}

/** A number of a row of them, `dl.tiles`. */
export function tile(id, title, note, look = '') {
  return element('div', {class: `tile ${look}`}, element('dt', {text: title}), element('dd', {id, text: '–'}),
    element('dd', {id: `${id}-note`, class: 'note', text: note}));
}

/** Where Chart draws. */
export function chartPlace(id, label) {
  return element('div', {id: `${id}-chart`, class: 'chart', role: 'img', 'aria-label': label});
}

/** The names of the two quantities of a chart, and the elements of their current values. */
export function legend(...parts) {
  return element('p', {class: 'legend'}, ...parts.flatMap(([look, name, id]) =>
    [element('span', {class: look}, `${name} `, ...(id ? [element('b', {id, text: '–'})] : [])), ' ']));
}

/** Attributes of what only an admin sees. */
export const ADMIN = {'data-admin': true, hidden: true};

export const problem = id => element('p', {id, class: 'problem', role: 'alert', hidden: true});

export function button(id, text, look = '', more = {}) {
  return element('button', {id, type: 'button', class: look, text, ...more});
}

/** Where lines of a difference of configurations are shown. `more` has its name. */
export function difference(id, more) {
  return element('div', {id, class: 'diff', tabindex: '0', role: 'region', hidden: true, ...more});
}

/** An input or select with its label. */
export function field(label, input, look = '') {
  return element('div', {class: `field ${look}`}, element('label', {for: input.id, text: label}), input);
}

/** A text input that corrects nothing. */
export function textInput(id, more = {}) {
  return element('input', {id, autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false', ...more});
}

/** Offers values in a select, as `text` spells each. One is chosen until the user chooses. */
export function offer(select, values, chosen, text = value => value) {
  redraw(select, values.map(value => element('option', {value, text: text(value), selected: value === chosen})));
}

/** Gives a form a button that shows its parts of the class `folds`, which a small screen hides at first. Returns a function
    that tells the button how many filters are set. */
export function folding(made) {
  const unfold = element('button', {type: 'button', class: 'quiet unfold', 'aria-expanded': 'false', text: 'Filters'});
  unfold.addEventListener('click', () => { unfold.ariaExpanded = String(unfold.ariaExpanded !== 'true'); });
  made.append(unfold);
  return number => { unfold.textContent = number ? `Filters (${number})` : 'Filters'; };
}

// Pixels of a menu's width, and of the least space beside it.
const MENU = 216, EDGE = 8;

/** Shows a popover below its button. `fill` makes its content, each time. */
export function drop(opener, menu, fill = () => {}) {
  menu.addEventListener('beforetoggle', ({newState}) => {
    if (newState !== 'open') return;
    const {bottom, right} = opener.getBoundingClientRect(), {clientWidth: width} = document.documentElement;
    fill();
    menu.style.top = `${scrollY + bottom + EDGE / 2}px`;
    menu.style.right = `${Math.max(EDGE, Math.min(width - right, width - MENU - EDGE))}px`;
  });
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
